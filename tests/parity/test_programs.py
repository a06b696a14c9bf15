"""The same program on both modules gives the same values, gradients and dtypes."""

import numpy as np
import programs
import pytest

import pullback

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_program_gives_torch_s_results(name):
    run = programs.PROGRAMS[name]
    ours, theirs = run(pullback), run(torch)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
        a, b = a.detach().cpu().numpy(), b.detach().numpy()
        # Same formulas, other order of the sums: a few units in the last place.
        tolerance = 1e-12 if a.dtype.itemsize == 8 and a.dtype.kind == "f" else 1e-5
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


SCALARS = [True, 2, 2.5, 1 + 2j]
DTYPES = (
    "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
).split()


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("left", DTYPES)
def test_promotion_is_torch_s(left):
    def results(m):
        x = m.ones(2, dtype=getattr(m, left))
        others = [m.ones(shape, dtype=getattr(m, name)) for name in DTYPES for shape in ((2,), ())]
        return [str((x * other).dtype).split(".")[1] for other in [*others, *SCALARS]]

    pairs = list(zip(results(pullback), results(torch), strict=True))
    # torch alone has complex32, which it gives for float16 and a complex scalar.
    assert [ours for ours, theirs in pairs if theirs not in (ours, "complex32")] == []


EXPRESSIONS = {
    "MulBackward0": lambda x: x * x,
    "AddBackward0": lambda x: x + 1,
    "SubBackward0": lambda x: x - x,
    "DivBackward0": lambda x: x / x,
    "PowBackward0": lambda x: x**2,
    "PowBackward1": lambda x: x**x,
    "NegBackward0": lambda x: -x,
    "ExpBackward0": lambda x: x.exp(),
    "SumBackward0": lambda x: x.sum(),
    "SumBackward1": lambda x: x.sum(0),
    "MeanBackward0": lambda x: x.mean(),
    "MmBackward0": lambda x: x @ x,
    "TBackward0": lambda x: x.t(),
    "ViewBackward0": lambda x: x.view(-1),
    "SelectBackward0": lambda x: x[0],
    "SliceBackward0": lambda x: x[1:],
    "LogSoftmaxBackward0": lambda x: x.log_softmax(0),
    "CloneBackward0": lambda x: x.clone(),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_nodes_have_torch_s_names(name):
    names = [
        EXPRESSIONS[name](m.ones(2, 2, requires_grad=True)).grad_fn.name()
        for m in (torch, pullback)
    ]
    assert names == [name, name]
