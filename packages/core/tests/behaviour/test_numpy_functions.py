"""NumPy's functions of tensors: what computes, and what type the result has."""

import numpy as np
import pytest

import pullback as pb

X = np.array([[0.5, -1.0, 2.0], [1.0, 3.0, -0.25]], "float32")
Y = np.array([[1.0, 2.0, 3.0], [3.0, 1.0, 2.0]], "float32")
TENSORS = {
    "ufunc": lambda a, b: np.sin(a),
    "ufunc of two": lambda a, b: np.maximum(a, b),
    "ufunc of an array": lambda a, b: np.add(np.ones(3), a),
    "ufunc of a number": lambda a, b: np.float64(2) * a,
    "ufunc to bools": lambda a, b: np.isnan(a),
    "reduce": lambda a, b: np.add.reduce(a),
    "mean": lambda a, b: np.mean(a),
    "mean over an axis": lambda a, b: np.mean(a, axis=0),
    "sum": lambda a, b: np.sum(a, axis=1, keepdims=True),
    "prod": lambda a, b: np.prod(a),
    "max": lambda a, b: np.max(a),
    "any": lambda a, b: np.any(a),
    "argmax": lambda a, b: np.argmax(a),
    "argsort": lambda a, b: np.argsort(a),
    "cumsum": lambda a, b: np.cumsum(a, 1),
    "clip": lambda a, b: np.clip(a, 0, 1),
    "reshape": lambda a, b: np.reshape(a, (3, 2)),
    "transpose": lambda a, b: np.transpose(a),
    "round": lambda a, b: np.round(a),
    "array times tensor": lambda a, b: np.arange(3.0) * a,
    "array minus tensor": lambda a, b: np.ones((2, 3), "float32") - a,
}
ARRAYS = {
    "concatenate": lambda a, b: np.concatenate([a, b]),
    "where": lambda a, b: np.where(a > 0, a, b),
    "sort": lambda a, b: np.sort(a),
    "unique": lambda a, b: np.unique(a),
    "median": lambda a, b: np.median(a),
    "einsum": lambda a, b: np.einsum("ij,ij", a, b),
    "norm": lambda a, b: np.linalg.norm(a),
    "tile": lambda a, b: np.tile(a, 2),
    "zeros_like": lambda a, b: np.zeros_like(a),
}


@pytest.mark.parametrize("name", [*TENSORS, *ARRAYS])
def test_numpy_function_of_tensors(name):
    call = {**TENSORS, **ARRAYS}[name]
    found, expected = call(pb.tensor(X), pb.tensor(Y)), call(X, Y)
    assert isinstance(found, pb.Tensor) == (name in TENSORS)
    array = np.asarray(found)
    assert array.dtype == np.asarray(expected).dtype or "number" in name
    np.testing.assert_allclose(array, expected, rtol=1e-6)


def test_numpy_functions_that_call_methods_are_differentiable():
    x = pb.tensor(X, requires_grad=True)
    np.mean(np.clip(x, 0, 1)).backward()
    np.testing.assert_allclose(x.grad.numpy(), ((X >= 0) & (X <= 1)) / 6)
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        np.sin(x)


def test_numpy_functions_that_do_not_fit_the_methods():
    x = pb.tensor(X)
    values, indices = np.max(x, axis=0)
    assert (values.tolist(), indices.tolist()) == ([1.0, 3.0, 2.0], [1, 1, 0])
    with pytest.raises(TypeError, match="unexpected keyword argument 'dtype'"):
        np.std(x)
    with pytest.raises(TypeError, match="can't convert meta device type tensor to numpy"):
        np.sin(pb.ones(1, device="meta"))
    array = np.ones(3, "float32")
    array += x[0]
    np.testing.assert_allclose(array, 1 + X[0])
