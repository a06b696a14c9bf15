"""Special functions: values, dtypes, errors and derivatives are torch's where it has them."""

import math

import numpy as np
import pytest

import pullback as pb

torch = pytest.importorskip("torch")
S = pb.special

ONE = [
    *("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "erfcx", "i0e", "i1e"),
    *("log_ndtr", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0"),
    *("modified_bessel_k1", "ndtri", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1"),
    "spherical_bessel_j0",
]
POLYNOMIALS = [name for name in dir(torch.special) if "polynomial" in name]
EDGES = [math.inf, -math.inf, math.nan, 0.0, -0.0, -1.0, 1.0, 800.0]
POINTS = [*EDGES, *np.linspace(-6, 30, 73).tolist()]


def test_every_public_name_of_torch_special_is_here():
    helpers = {"Tensor", "common_args", "multi_dim_common", "torch"}
    assert {name for name in dir(torch.special) if name[0] != "_"} - helpers <= set(dir(S))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ONE)
def test_functions_of_one_operand_have_the_values(name, dtype):
    ours = getattr(S, name)(pb.tensor(POINTS, dtype=getattr(pb, dtype))).tolist()
    theirs = getattr(torch.special, name)(torch.tensor(POINTS, dtype=getattr(torch, dtype)))
    # Beyond 5, and Ai below -2, torch's oscillating functions have 7 digits even in float64.
    rough = dtype == "float32" or name.startswith(("airy", "bessel"))
    rtol, atol = (1e-4, 1e-6) if rough else (1e-11, 1e-13)
    np.testing.assert_allclose(ours, theirs.tolist(), rtol=rtol, atol=atol)
    assert str(getattr(S, name)(pb.ones(2, dtype=pb.int64)).dtype) == "pullback.float32"
    with pytest.raises(NotImplementedError, match="not implemented for 'ComplexFloat'"):
        getattr(S, name)(pb.ones(1, dtype=pb.complex64))


@pytest.mark.parametrize("name", ["erfcx", "i0e", "i1e", "log_ndtr", "ndtri"])
def test_derivatives_of_one_operand_are_those_of_torch(name):
    points = [0.1, 0.3, 0.7, 0.95]
    x = pb.tensor(points, dtype=pb.float64, requires_grad=True)
    y = torch.tensor(points, dtype=torch.float64, requires_grad=True)
    ours, theirs = getattr(S, name)(x), getattr(torch.special, name)(y)
    assert ours.grad_fn.name() == theirs.grad_fn.name()
    for _ in range(2):
        (ours,) = pb.autograd.grad(ours.sum(), x, create_graph=True)
        (theirs,) = torch.autograd.grad(theirs.sum(), y, create_graph=True)
        np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1e-9)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_have_the_values(name):
    points, degrees = [-1.0, -0.7, 0.0, 0.3, 1.0, 2.0], [[-1.0], [0.0], [1.0], [2.7], [9.0], [80.0]]
    ours = getattr(S, name)(pb.tensor(points).double(), pb.tensor(degrees).double()).tolist()
    theirs = getattr(torch.special, name)(
        torch.tensor(points).double(), torch.tensor(degrees).double()
    )
    if "hermite" in name:
        assert np.isfinite(theirs.numpy()).all()
    np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-9, atol=1e-11)
    assert getattr(S, name)(2.0, pb.tensor([1, 2])).tolist() == (
        getattr(torch.special, name)(2.0, torch.tensor([1, 2])).tolist()
    )


PAIRS = [(a, b) for a in (0, 1e-3, 1, 2.5, 200, math.inf, -1) for b in (0, 1, 190, -1)]
# Torch gives P(NaN, 0) = 0; here it is NaN, as SciPy has it.


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_incomplete_gamma_functions(name):
    a, b = (list(column) for column in zip(*PAIRS, strict=True))
    f64, t64 = pb.float64, torch.float64
    ours = getattr(pb, name)(pb.tensor(a, dtype=f64), pb.tensor(b, dtype=f64))
    theirs = getattr(torch, name)(torch.tensor(a, dtype=t64), torch.tensor(b, dtype=t64))
    np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=1e-11)
    x, y = pb.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    (ours,) = pb.autograd.grad(getattr(pb, name)(pb.ones(1), x), x)
    (theirs,) = torch.autograd.grad(getattr(torch, name)(torch.ones(1), y), y)
    assert ours.tolist() == pytest.approx(theirs.tolist())
    for module, one in ((pb, x), (torch, y)):
        text = f"the derivative for '{name}: input' is not implemented"
        with pytest.raises(NotImplementedError, match=text):
            getattr(module, name)(one, one).backward()
        with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
            getattr(module, name)(module.tensor([1]), module.tensor([1]))
    assert getattr(pb.ones(2), f"{name}_")(pb.ones(2)).tolist() == pytest.approx(
        getattr(torch.ones(2), f"{name}_")(torch.ones(2)).tolist()
    )
