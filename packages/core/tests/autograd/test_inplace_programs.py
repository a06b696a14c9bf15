"""Random programs that write through views, in nestings of transforms.

Beside each runs the same program without a write: a tensor is a set of places in one vector, and a
write makes a new vector that has other values at these places.
"""

import itertools
import random
from functools import partial

import pytest

import pullback as pb
from pullback.autograd.graph import saved_tensors_hooks
from pullback.func import grad, jacfwd, jacrev, jvp, vmap
from pullback.utils.checkpoint import checkpoint

SHAPE = (3, 4)
PROGRAMS = 6  # of each nesting
generator = pb.Generator().manual_seed(5)
X, C, X_TANGENT, C_TANGENT = (
    pb.randn(shape, dtype=pb.float64, generator=generator) / 2 for shape in (SHAPE, 12) * 2
)
TANGENTS = X_TANGENT, C_TANGENT

VIEWS = [
    lambda t: t[-1],
    lambda t: t[1:],
    lambda t: t[::2],
    lambda t: t[..., 0],
    lambda t: t[..., ::2],
    lambda t: t.transpose(0, -1),
    lambda t: t.diagonal(),
    lambda t: t[:, None],
    lambda t: t.unfold(-1, 2, 2),
    lambda t: t[:],
]

# An in-place write to a tensor, with values of its shape; and the tensor's new values.
WRITES = [
    (lambda t, v: t.mul_(v), lambda t, v: t * v),
    (lambda t, v: t.mul_(v.sum()), lambda t, v: t * v.sum()),
    (lambda t, v: t.add_(v, alpha=2), lambda t, v: t + 2 * v),
    (lambda t, v: t.copy_(v), lambda t, v: v),
    (lambda t, v: t.pow_(2), lambda t, v: t * t),
    (lambda t, v: t.sin_(), lambda t, v: t.sin()),
    (lambda t, v: t.fill_(v.sum()), lambda t, v: v.sum().expand(t.shape)),
    (lambda t, v: t.zero_(), lambda t, v: pb.zeros_like(t)),
    (lambda t, v: t.lerp_(v, 0.25), lambda t, v: t + (v - t) / 4),
    (lambda t, v: t.cumsum_(0), lambda t, v: t.cumsum(0)),
    (
        lambda t, v: t.masked_fill_(t.detach() > 0, v.mean()),
        lambda t, v: pb.where(t.detach() > 0, v.mean(), t),
    ),
    (lambda t, v: t.__setitem__(0, v[0]), lambda t, v: pb.cat([v[:1], t[1:]])),
    (
        lambda t, v: t.index_add_(0, pb.tensor([0, 0]), pb.stack([v[0], v[-1]])),
        lambda t, v: pb.cat([t[:1] + v[:1] + v[-1:], t[1:]]),
    ),
]


def places_of(steps):
    """Return the places in the vector that each tensor of a program has."""
    places = [pb.arange(12).reshape(SHAPE)]
    for kind, number, what in steps:
        if kind == "view":
            places.append(VIEWS[what](places[number]))
    return places


def program(seed):
    """Return random steps: (kind, number of the tensor, number of the view or the write)."""
    choose = random.Random(seed)
    steps = []
    while len(steps) < 8:
        places = places_of(steps)
        number = choose.randrange(len(places))
        kind = choose.choice(["view", "view", "write", "write", "write", "look", "use"])
        what = choose.randrange(len(VIEWS if kind == "view" else WRITES))
        if kind == "view":
            try:
                if VIEWS[what](places[number]).numel() == 0:
                    continue
            except (IndexError, RuntimeError):  # no such dim, or other sizes and strides
                continue
        elif places[number].ndim == 0:
            continue
        steps.append((kind, number, what))
    return steps


def total_of(tensors):
    return sum([(t * t).sum() * (k + 1) for k, t in enumerate(tensors)])


def written(steps, x, c):
    """Run a program: in place."""
    tensors, used = [x * x + c.reshape(SHAPE)], 0
    for kind, number, what in steps:
        tensor = tensors[number]
        if kind == "view":
            tensors.append(VIEWS[what](tensor))
        elif kind == "look":
            with pb.no_grad():
                assert (tensor > 0).shape == tensor.shape
        elif kind == "use":
            used = used + (tensor * 1).sin().sum()
        else:
            WRITES[what][0](tensor, c[: tensor.numel()].reshape(tensor.shape))
    return total_of(tensors) + used


def replaced(steps, x, c):
    """Run a program: nothing is written."""
    vector, used = (x * x + c.reshape(SHAPE)).reshape(-1), 0
    places = places_of(steps)
    for kind, number, what in steps:
        where = places[number].reshape(-1)
        values = vector.index_select(0, where).reshape(places[number].shape)
        if kind == "use":
            used = used + values.sin().sum()
        elif kind == "write":
            new = WRITES[what][1](values, c[: values.numel()].reshape(values.shape))
            vector = vector.index_copy(0, where, new.reshape(-1))
    return total_of([vector.index_select(0, p.reshape(-1)) for p in places]) + used


# ---- nestings ------------------------------------------------------------------------------------


def inner(found, weights):
    return sum([(one * weight).sum() for one, weight in zip(found, weights)])


def under_hooks(function):
    def run(x, c):
        with saved_tensors_hooks(lambda t: t.clone(), lambda kept: kept):
            return function(x, c)

    return run


# Each makes a function of a matrix and a vector, which returns a number, of such a function.
MODES = {
    "grad": lambda f: lambda *v: inner(grad(f, (0, 1))(*v), TANGENTS),
    "jvp": lambda f: lambda *v: jvp(f, v, TANGENTS)[1],
    "jvp of x": lambda f: lambda x, c: jvp(lambda x: f(x, c), (x,), (X_TANGENT,))[1],
    "jvp of c": lambda f: lambda x, c: jvp(lambda c: f(x, c), (c,), (C_TANGENT,))[1],
    "jacrev": lambda f: lambda *v: (jacrev(f)(*v) * X_TANGENT).sum(),
    "jacfwd": lambda f: lambda *v: (jacfwd(f, 1)(*v) * C_TANGENT).sum(),
    "vmap": lambda f: (
        lambda x, c: vmap(f, (1, 0))(pb.stack([x, x / 2], 1), pb.stack([c, c * c])).prod()
    ),
    "vmap of c": lambda f: lambda x, c: vmap(f, (None, -1))(x, pb.stack([c, c / 3], -1)).sum(),
    "vmap of jvp": lambda f: (
        lambda x, c: vmap(lambda s: jvp(f, (x, c), (X_TANGENT * s, C_TANGENT))[1])(C[:3]).sum()
    ),
    "hooks": under_hooks,
}
NESTINGS = [(), *itertools.product(MODES), *itertools.product(MODES, MODES)]


def nested(function, nesting):
    for name in nesting:
        function = MODES[name](function)
    return function


@pytest.mark.pullback_share
@pytest.mark.parametrize("nesting", NESTINGS, ids="-".join)
def test_derivatives_are_those_of_the_program_without_writes(nesting):
    first = PROGRAMS * NESTINGS.index(nesting)
    for seed in range(first, first + PROGRAMS):
        found, expected = (
            grad(nested(partial(run, program(seed)), nesting), (0, 1))(X, C)
            for run in (written, replaced)
        )
        for one, other in zip(found, expected):
            pb.testing.assert_close(one, other, rtol=1e-8, atol=1e-10, msg=f"program({seed})")


def test_checkpoints_of_programs():
    for seed in range(40):
        found = grad(partial(checkpoint, partial(written, program(seed))), (0, 1))(X, C)
        for one, other in zip(found, grad(partial(replaced, program(seed)), (0, 1))(X, C)):
            pb.testing.assert_close(one, other, msg=f"program({seed})")
