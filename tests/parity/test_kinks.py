"""Derivatives at kinks: what ``certify`` states is what torch gives, unless it says otherwise."""

import numpy as np
import pytest

from pullback.ops.table.kinks import Fixed
from pullback.testing.certify.stated import KINKS

torch = pytest.importorskip("torch")
F = torch.nn.functional
# Those that torch writes twice, and of which only the function for networks takes these arguments.
OF_NETWORKS = {"threshold", "prelu", "celu", "selu", "rrelu", "dropout", "embedding_bag"}
OURS_ALONE = {"at_least"}


def torchs(name):
    """Return torch's function of the same name."""
    name, _, overload = name.partition(".")
    if overload == "top":
        return getattr(torch, name)
    if name in OF_NETWORKS:
        return getattr(F, name)
    linalg = name.removeprefix("linalg_") if name.startswith("linalg_") else ""
    candidates = (
        (F, name),
        (torch, name),
        (torch.special, name),
        (torch.linalg, linalg),
        (torch.Tensor, name),
    )
    if name in ("norm", "max", "min"):
        candidates = ((torch, name),)
    return next(getattr(module, name) for module, name in candidates if hasattr(module, name))


def prepared(kink):
    """Return the arguments, those by keyword, and those that require grad."""
    inputs = []

    def made(value):
        if isinstance(value, Fixed):
            whole = np.array(value.values).dtype.kind == "i"
            dtype = getattr(torch, value.whole) if whole else torch.float64
            return torch.tensor(value.values, dtype=dtype)
        if isinstance(value, list):
            inputs.append(torch.tensor(value, dtype=torch.float64, requires_grad=True))
            return inputs[-1]
        return tuple(map(made, value)) if isinstance(value, tuple) else value

    kwargs = {name: made(value) for name, value in kink.kwargs.items()}
    return [made(value) for value in kink.args], kwargs, inputs


def gradients(outputs, inputs):
    """Return the gradients of the sum of the outputs."""
    sums = [y.sum() for y in outputs if y.is_floating_point() and y.requires_grad]
    found = torch.autograd.grad(sums, inputs, create_graph=True, allow_unused=True) if sums else ()
    found = found or [None] * len(inputs)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs)]


def flat(parts):
    numbers = [p.numpy(force=True) if isinstance(p, torch.Tensor) else np.array(p) for p in parts]
    return np.concatenate([part.reshape(-1) for part in numbers])


def same(found, stated):
    return np.allclose(flat(found), stated, rtol=1e-12, atol=0, equal_nan=True)


@pytest.mark.filterwarnings("ignore:Using backward", "ignore:index_reduce")
@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")
@pytest.mark.parametrize("kink", KINKS, ids=lambda kink: f"{kink.op}-{KINKS.index(kink)}")
def test_torch_gives_what_is_stated(kink):
    if kink.op in OURS_ALONE:
        pytest.skip("torch has no function of this name")
    args, kwargs, inputs = prepared(kink)
    found = torchs(kink.op)(*args, **kwargs)
    first = gradients(found if isinstance(found, tuple) else (found,), inputs)
    stated = flat(kink.gradients)
    agrees = same(first, stated)
    if kink.second is not None:
        second = np.zeros_like(stated) if kink.second == "zero" else flat(kink.second)
        try:
            agrees = agrees and same(gradients(first, inputs), second)
        except RuntimeError as error:  # torch has no second derivative of it
            assert "not implemented" in str(error)
    assert agrees != bool(kink.differs)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("kink", [k for k in KINKS if k.tangents], ids=lambda kink: kink.op)
def test_torch_gives_the_tangents_that_are_stated(kink):
    if kink.op.startswith("max_unpool"):
        pytest.skip("of several tangents at one position torch keeps any")
    args, kwargs, inputs = prepared(kink)
    positions = [k for k, value in enumerate(args) if any(value is x for x in inputs)]

    def function(*values):
        given = list(args)
        for position, value in zip(positions, values, strict=True):
            given[position] = value
        return torchs(kink.op)(*given, **kwargs)

    units = torch.eye(sum(x.numel() for x in inputs), dtype=torch.float64)
    found = []
    for unit in units:
        parts = unit.split([x.numel() for x in inputs])
        tangents = tuple(part.view_as(x) for part, x in zip(parts, inputs, strict=True))
        primals = tuple(x.detach() for x in inputs)
        found.append(torch.func.jvp(function, primals, tangents)[1].sum().item())
    assert found == flat(kink.tangents).tolist()
