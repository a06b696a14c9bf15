"""Programs from random numbers: statements are drawn while torch runs them; so most are valid."""

from __future__ import annotations

import random
import string

from . import instructions
from .passes import ALL_GROUPS
from .world import World, is_tame

# How often a group is drawn when a program weighs it normally.
WEIGHTS = {
    "create": 2,
    "unary": 6,
    "binary": 7,
    "reduce": 4,
    "view": 9,
    "multiview": 1.5,
    "index": 2,
    "inplace": 8,
    "inplace2": 5,
    "flags": 5,
    "modes": 3,
    "saving": 1,
    "hook": 5,
    "function": 4,
    "backward": 6,
    "grad": 5,
    "edge": 1,
    "complex": 3,
    "mixed": 1.5,
    "scatter": 3,
    "ties": 3,
    "transform": 2,
}
RECENT = 0.75  # how much less likely each older variable is to be used


class Draft:
    """A program that is being written, with the variables that it has so far."""

    def __init__(self, m, seed, extra=()):
        self.random = random.Random(seed)
        self.m = m
        observed = self.random.choice(["all", "touched", "touched", "end"])
        self.world = World(m, observed)
        self.numbers = {}
        self.statements = []
        self.avoided = set()
        self.trace = []
        weights = {**WEIGHTS, **dict.fromkeys(extra, 3)}
        for name in weights:
            weights[name] *= self.random.choice([0.1, 0.5, 1, 1, 2])
        self.groups = list(weights)
        self.weights = list(weights.values())

    def __getitem__(self, name):
        return self.world.names[name]

    # ---- chances ----

    def chance(self, probability):
        return self.random.random() < probability

    def pick(self, items):
        return self.random.choice(items)

    def choose(self, *pairs):
        """Choose among values that are followed by their weights."""
        return self.random.choices(pairs[::2], pairs[1::2])[0]

    def new(self, letter="t"):
        """Return a new variable's name."""
        self.numbers[letter] = self.numbers.get(letter, -1) + 1
        return f"{letter}{self.numbers[letter]}"

    # ---- variables ----

    def variable(self, letter):
        """Return the name of some handle or edge."""
        names = [f"{letter}{k}" for k in range(self.numbers.get(letter, -1) + 1)]
        names = [name for name in names if name in self.world.names]
        return self.random.choice(names) if names else None

    def tensor(
        self, float=False, real=False, complex=False, min_dims=0, grad=None, leaf=None, fits=None
    ):
        """Return the name of a tensor that is as asked, rather a recent one, or None."""
        found, weights = [], []
        weight = 1.0
        for name in reversed(list(self.world.names)):
            value = self.world.names[name]
            if not isinstance(value, self.m.Tensor) or name in self.avoided:
                continue
            if float and not (value.is_floating_point() or value.is_complex()):
                continue
            if real and not value.is_floating_point():
                continue
            if complex and not value.is_complex():
                continue
            if value.dim() < min_dims or value.dim() > 4 or value.numel() > 64:
                continue
            if (grad and not value.requires_grad) or (leaf and not is_leaf(value)):
                continue
            if fits is not None and not fits(value):
                continue
            found.append(name)
            weights.append(weight)
            weight *= RECENT
        for _ in range(4):
            if not found:
                return None
            name = self.random.choices(found, weights)[0]
            if is_tame(self.world.names[name]):
                return name
        return None

    def root(self):
        """Return the name of what to differentiate."""
        if self.chance(0.03):
            return self.tensor()
        return self.tensor(grad=True, fits=lambda t: not is_leaf(t) or self.chance(0.1))

    def partner(self, name, real=False, float=True, same=False, into=False, any_dtype=False):
        """Return a tensor that an operation can take beside another."""
        shape = tuple(self[name].shape)

        def fits(other):
            theirs = tuple(other.shape)
            if other.is_complex() and not self[name].is_complex() and not any_dtype:
                return False
            if same:
                return theirs == shape
            if into:
                return instructions.fits_into(theirs, shape)
            return instructions.broadcast(theirs, shape)

        return self.tensor(float=float, real=real, fits=fits)

    def tensor_like(self, name):
        """Return the name of a tensor of the same shape and dtype."""
        like = self[name]
        return self.tensor(fits=lambda t: t.shape == like.shape and t.dtype == like.dtype)

    def fits_into(self, small, large):
        return instructions.fits_into(tuple(small.shape), tuple(large.shape))

    def share_memory(self, *names):
        """Return True if the tensors have one storage."""
        return len({self[name].untyped_storage().data_ptr() for name in names}) == 1

    def dim(self, name):
        """Return a dim of a tensor, now and then one that it does not have."""
        ndim = max(self[name].dim(), 1)
        return self.random.randrange(ndim) if self.chance(0.98) else ndim

    # ---- texts ----

    def shape(self):
        if self.chance(0.1):
            return self.pick(instructions.RARE_SHAPES)
        return self.pick(instructions.SHAPES)

    def literal(self, shape, dtype):
        """Return the text of a tensor with random numbers."""
        if 0 in shape:
            return f"m.zeros({', '.join(map(str, shape))}, dtype=m.{dtype})"
        values = instructions.literal_values(self.random, shape)
        if dtype in ("int64", "bool"):
            values = _integers(values)
        elif dtype.startswith("complex"):
            values = _complexes(values, self.random)
        return f"m.tensor({values}, dtype=m.{dtype})"

    def fill(self, template):
        """Put variables into a template; None if one has no candidate."""
        parts = []
        last = None
        for text, field, _, _ in string.Formatter().parse(template):
            parts.append(text)
            if field is None:
                continue
            if field == "new":
                value = self.new()
            elif field == "tag":
                value = self.new("s")
            elif field == "dim":
                value = "0" if last is None else str(self.dim(last))
            elif field == "same":
                value = self.tensor_like(last)
            else:
                value = last = self.tensor(**FIELDS[field])
            if value is None:
                return None
            parts.append(value)
        return "".join(parts)

    # ---- writing ----

    def write(self, statement):
        """Add a statement and run it."""
        before = set(self.world.names)
        self.statements.append(statement)
        self.trace.append(self.world.run(statement))
        if not self.m.is_grad_enabled() or "no_grad" in statement:
            self.avoid_views(set(self.world.names) - before)

    def avoid_views(self, names):
        """Use views that were made under no_grad seldom: torch says that they require grad."""
        for name in names:
            value = self.world.names[name]
            if isinstance(value, self.m.Tensor) and value._is_view() and value.requires_grad:
                self.avoided.add(name)

    def step(self):
        """Draw one statement."""
        for _ in range(20):
            members = ALL_GROUPS[self.random.choices(self.groups, self.weights)[0]]
            member = self.random.choice(members)
            statement = self.fill(member) if isinstance(member, str) else member(self)
            if statement:
                self.write(statement)
                return


def is_leaf(tensor):
    """Return True if a tensor is a leaf and no view: to ask a view would renew its history."""
    return not tensor._is_view() and tensor.is_leaf


FIELDS = {
    "any": {},
    "float": {"float": True},
    "real": {"real": True},
    "array": {"min_dims": 1},
    "matrix": {"fits": lambda t: t.dim() == 2},
    "grad": {"grad": True},
    "leaf": {"grad": True, "leaf": True},
    "complex": {"complex": True},
    "complexmatrix": {"complex": True, "fits": lambda t: t.dim() == 2},
}


def _integers(values):
    return [_integers(v) for v in values] if isinstance(values, list) else int(values * 2)


def _complexes(values, source):
    if isinstance(values, list):
        return [_complexes(v, source) for v in values]
    return complex(values, source.randint(-20, 20) / 10)


def write_program(m, seed, extra=()):
    """Return a draft whose program is complete and was run on the module."""
    draft = Draft(m, seed, extra)
    for _ in range(draft.random.randint(2, 4)):
        draft.write(instructions.create(draft))
    for _ in range(draft.random.randint(5, 28)):
        draft.step()
    draft.trace.append(draft.world.finish())
    return draft
