"""The array API namespace where its functions are not ops: truths of the standard's text."""

import copy
import math
import pickle

import numpy as np
import pytest

import pullback as pb
import pullback.array_api as xp

NAN, INF = math.nan, math.inf
DTYPES = [getattr(xp, name) for name in xp.__all__ if isinstance(getattr(xp, name), pb.dtype)]


def same(found, expected):
    """Compare with a list: dtype aside, NaN equal, signs of zeros too."""
    expected = np.asarray(expected)
    assert tuple(found.shape) == expected.shape
    np.testing.assert_array_equal(found.detach().numpy(), expected)
    if expected.dtype.kind == "f":
        numbers = expected == expected
        signs = np.signbit(found.detach().numpy()[numbers])
        np.testing.assert_array_equal(signs, np.signbit(expected[numbers]))


# ---- the namespace -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [None, "2021.12", "2022.12", "2023.12", "2024.12"])
def test_namespace_of_each_version(version):
    assert pb.ones(1).__array_namespace__(api_version=version) is xp
    assert pb.ones(1, requires_grad=True).exp().__array_namespace__() is xp
    assert xp.__array_api_version__ == "2024.12"


def test_namespace_of_a_version_that_is_none():
    with pytest.raises(ValueError, match=r"versions 2021\.12 to 2024\.12, not '2020\.12'"):
        pb.ones(1).__array_namespace__(api_version="2020.12")


def test_namespace_names_everything_that_it_has():
    assert len(set(xp.__all__)) == len(xp.__all__)
    assert set(dir(xp)) == set(xp.__all__)
    assert {"e", "inf", "nan", "newaxis", "pi", "linalg"} <= set(xp.__all__)
    assert (xp.e, xp.pi, xp.newaxis) == (math.e, math.pi, None)
    for name in xp.linalg.__all__:
        assert callable(getattr(xp.linalg, name))
    assert ("qr" in xp.linalg.__all__) == hasattr(pb.linalg, "qr")
    assert not hasattr(xp, "argwhere")


@pytest.mark.parametrize("function", [xp.add, xp.sum, xp.sin, xp.where, xp.clip])
def test_functions_can_be_pickled_and_copied(function):
    assert pickle.loads(pickle.dumps(function)) is function
    assert copy.deepcopy(function) is function


def test_info_tells_devices_dtypes_and_capabilities():
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {
        "boolean indexing": True,
        "data-dependent shapes": True,
        "max dimensions": 64,
    }
    assert info.default_device() == pb.ones(1).device
    assert info.default_device() in info.devices()
    assert "meta" not in {device.type for device in info.devices()}
    for device in info.devices():
        assert xp.ones(2, device=device).device == device
    assert info.default_dtypes(device=info.devices()[0]) == {
        "real floating": pb.float32,
        "complex floating": pb.complex64,
        "integral": pb.int64,
        "indexing": pb.int64,
    }
    assert list(info.dtypes().values()) == DTYPES
    assert info.dtypes(kind="real floating") == {"float32": pb.float32, "float64": pb.float64}
    assert info.dtypes(kind=("bool", "complex floating")).keys() == {
        "bool", "complex64", "complex128",
    }  # fmt: skip


# ---- devices and memory --------------------------------------------------------------------------


def test_to_device_copies_only_where_it_must():
    x = pb.ones(2, requires_grad=True)
    assert x.to_device(x.device) is x
    moved = (x * 2).to_device("ref")
    assert moved.device.type == "ref"
    moved.sum().backward()
    same(x.grad, np.full(2, 2.0, "float32"))
    with pytest.raises(AssertionError, match="stream should be None on"):
        x.to_device(x.device, stream=7)
    with pytest.raises(TypeError, match="stream must be"):
        x.to_device(x.device, stream="7")


@pytest.mark.parametrize("copy, shares", [(None, True), (True, False), (False, True)])
def test_asarray_reshape_and_from_dlpack_copy_as_asked(copy, shares):
    array = np.zeros(4)
    for make in (xp.asarray, xp.from_dlpack):
        found = make(array, copy=copy)
        array[0] += 1
        assert (found[0].item() == array[0]) == shares
    x = xp.zeros(4)
    found = xp.reshape(x, (2, 2), copy=copy)
    x[0] = 5
    assert (found[0, 0].item() == 5) == shares


def test_asarray_of_numpy_numbers_and_read_only_arrays():
    """The buffer of a NumPy number holds one element, whatever the default dtype."""
    for make in (xp.asarray, pb.asarray):
        for number in (np.float64(2.5), np.int8(3), np.complex64(1j), np.bool_(True)):
            found = make(number)
            assert found.dtype.name == number.dtype.name
            assert found.shape == ()
            assert found.item() == number.item()
    array = np.zeros(2)
    array.flags.writeable = False
    copied = xp.asarray(array)
    copied += 1
    assert array.tolist() == [0, 0]
    assert not xp.asarray(array, copy=False).numpy().flags.writeable


def test_copy_false_refuses_a_copy():
    with pytest.raises(ValueError, match="needs a copy"):
        xp.reshape(xp.zeros((2, 3)).mT, (6,), copy=False)
    with pytest.raises(ValueError, match="can't alias"):
        xp.asarray([1.0], copy=False)
    with pytest.raises(ValueError, match="can't alias"):
        xp.asarray(xp.ones(1), dtype=xp.float64, copy=False)
    x = xp.ones(1)
    assert xp.astype(x, xp.float32, copy=False) is x
    assert xp.astype(x, xp.float32) is not x
    assert xp.astype(x, xp.int8, device="ref").device.type == "ref"
    with pytest.raises(TypeError, match=r"take xp.real\(x\)"):
        xp.astype(xp.ones(1, dtype=xp.complex64), xp.float32)


# ---- dtypes --------------------------------------------------------------------------------------


def test_numbers_of_dimensions_do_not_matter_in_promotion():
    """Unlike in torch, where a 0-d float64 leaves a float32 tensor as it is."""
    vector, scalar = xp.ones(2), xp.asarray(2.0, dtype=xp.float64)
    assert pb.add(vector, scalar).dtype is pb.float32
    assert xp.result_type(vector, scalar) is pb.float64
    for function in (xp.add, xp.multiply, xp.maximum, xp.atan2, xp.pow, xp.remainder):
        assert function(vector, scalar).dtype is pb.float64
    assert xp.where(vector > 0, vector, scalar).dtype is pb.float64
    assert xp.concat([vector, scalar[None]]).dtype is pb.float64
    assert xp.matmul(vector, xp.ones(2, dtype=xp.float64)).dtype is pb.float64


@pytest.mark.parametrize(
    "values, expected",
    [
        ((xp.int8, 3), xp.int8),
        ((xp.int8, 3.5), xp.float32),
        ((xp.float64, 1j), xp.complex128),
        ((xp.int64, 1j), xp.complex64),
        ((xp.bool, 1), xp.int64),
        ((xp.uint8, xp.int8, True), xp.int16),
    ],
)
def test_result_type_of_numbers(values, expected):
    assert xp.result_type(*values) is expected


def test_dtype_functions_refuse_what_is_no_dtype():
    with pytest.raises(ValueError, match="at least one tensor or dtype"):
        xp.result_type(1, 2.0)
    with pytest.raises(TypeError, match="expected tensors, dtypes or numbers, not str"):
        xp.result_type("float32")
    with pytest.raises(ValueError, match="'float' is no kind of dtypes"):
        xp.isdtype(xp.float32, "float")
    with pytest.raises(TypeError, match="kind must be a dtype, str or tuple, not int"):
        xp.isdtype(xp.float32, 3)
    with pytest.raises(TypeError, match="expected a tensor or a number, not str"):
        xp.hypot(xp.ones(1), "2")


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d is not xp.bool])
def test_limits_of_dtypes(dtype):
    truth = np.finfo(dtype.name) if dtype.kind in "fc" else np.iinfo(dtype.name)
    for given in (dtype, xp.ones(1, dtype=dtype)):
        found = (xp.finfo if dtype.kind in "fc" else xp.iinfo)(given)
        assert (found.bits, found.max, found.min) == (truth.bits, truth.max, truth.min)
        if dtype.kind not in "fc":
            assert found.dtype is dtype
            continue
        assert (found.eps, found.smallest_normal) == (truth.eps, truth.smallest_normal)
        assert type(found.eps) is float
        assert found.dtype.name == truth.dtype.name


@pytest.mark.parametrize("function", [xp.sum, xp.prod, xp.cumulative_sum, xp.cumulative_prod])
def test_sums_of_small_integers_have_64_bits(function):
    for dtype in DTYPES:
        expected = {"i": "int64", "u": "uint64", "b": "int64"}.get(dtype.kind, dtype.name)
        if not hasattr(xp, expected):
            expected = "int64"
        assert function(xp.ones(2, dtype=dtype)).dtype.name == expected
        assert function(xp.ones(2, dtype=dtype), dtype=xp.float64).dtype is xp.float64


# ---- values that differ from torch's -------------------------------------------------------------


@pytest.mark.parametrize(
    "function, x1, x2, expected",
    [
        (xp.floor_divide, [INF, -INF, INF, -INF], [2.0, 2.0, -2.0, -2.0], [INF, -INF, -INF, INF]),
        (xp.floor_divide, [1.0, -1.0, 1.0, -1.0], [INF, INF, -INF, -INF], [0.0, -0.0, -0.0, 0.0]),
        (xp.floor_divide, [INF, NAN, 1.0, 7.0, 1.0], [INF, 1.0, 0.0, 2.0, 0.1],
         [NAN, NAN, INF, 3.0, 9.0]),
        (xp.remainder, [0.0, -0.0, 0.0, -0.0, 4.0, -4.0], [-1.0, -1.0, 1.0, 1.0, -2.0, 2.0],
         [-0.0, -0.0, 0.0, 0.0, -0.0, 0.0]),
        (xp.remainder, [5.0, -5.0, -1.0, 1.0, 1.0], [-3.0, 3.0, INF, -INF, 0.0],
         [-1.0, 1.0, INF, -INF, NAN]),
    ],
)  # fmt: skip
def test_division_rounded_down_of_special_values(function, x1, x2, expected):
    x1, x2 = (xp.asarray(x, dtype=xp.float64) for x in (x1, x2))
    same(function(x1, x2), np.asarray(expected))


def test_sign_and_round_of_values_that_the_ops_lack():
    same(xp.sign(xp.asarray([NAN, -0.5, 0.0])), np.array([NAN, -1, 0], "float32"))
    found = xp.sign(xp.asarray([3 + 4j, complex(NAN, 1)], dtype=xp.complex128))
    assert abs(found[0].item() - (0.6 + 0.8j)) < 1e-15
    assert math.isnan(found[1].item().real)
    same(xp.round(xp.asarray([0.5 + 1.5j, -2.5 - 0.4j])), np.array([0 + 2j, -2 - 0j], "complex64"))


def test_clip_keeps_the_dtype_and_takes_bounds_that_broadcast():
    x = xp.asarray([1, 5, 9], dtype=xp.int8)
    same(xp.clip(x, 2), np.array([2, 5, 9], "int8"))
    same(xp.clip(x, max=xp.asarray([0, 6, 6])), np.array([0, 5, 6], "int8"))
    same(xp.clip(x, xp.asarray([[3], [6]]), 8), np.array([[3, 5, 8], [6, 6, 8]], "int8"))
    copied = xp.clip(x)
    copied[0] = 7
    assert x[0].item() == 1
    assert xp.clip(xp.ones(1), 0.0, xp.asarray(0.5, dtype=xp.float64)).dtype is xp.float32


def test_reductions_over_no_axis_are_of_each_element():
    x = xp.asarray([[2, 0], [3, 4]])
    for function in (xp.sum, xp.prod, xp.max, xp.min):
        same(function(x, axis=()), x.numpy())
        same(function(xp.asarray(3)), np.asarray(3))
    same(xp.any(x, axis=()), x.numpy() != 0)
    same(xp.count_nonzero(x, axis=()), (x.numpy() != 0).astype(int))
    same(xp.mean(xp.asarray([1.0, 2.0]), axis=()), np.array([1, 2], "float32"))
    same(xp.var(xp.asarray([1.0, 2.0]), axis=()), np.zeros(2, "float32"))
    same(xp.linalg.vector_norm(xp.asarray([-1.0, 2.0]), axis=()), np.array([1, 2], "float32"))


def test_creation_functions_take_what_torch_refuses():
    assert tuple(xp.arange(5, 2).shape) == (0,)
    assert tuple(xp.arange(-3).shape) == (0,)
    same(xp.eye(2, 3, k=-1, dtype=xp.int8), np.eye(2, 3, k=-1, dtype="int8"))
    same(xp.eye(2, k=5), np.zeros((2, 2), "float32"))
    same(xp.linspace(0, 1, 0, endpoint=False), np.zeros(0, "float32"))
    assert xp.meshgrid() == [] == xp.broadcast_arrays()
    assert xp.full(2, True).dtype is xp.bool
    assert xp.full((), 1j).dtype is xp.complex64
    same(xp.full(2, xp.asarray(7, dtype=xp.int8)), np.full(2, 7, "int8"))


def test_calls_of_scikit_learn_that_the_standard_has_otherwise():
    x = xp.asarray([1, 4, 9])
    same(xp.diff(x, 2), np.array([2]))
    same(xp.where(x > 3)[0], np.array([1, 2]))
    with pytest.raises(TypeError, match="given together"):
        xp.where(x > 3, x)


def test_indices_may_be_negative_and_small():
    x = xp.asarray([[3, 1, 2], [6, 5, 4]])
    for name in ("int8", "uint8", "int16", "int32", "int64"):
        indices = xp.asarray([2, 0], dtype=getattr(xp, name))
        same(xp.take(x, indices, axis=1), np.array([[2, 3], [4, 6]]))
        same(xp.repeat(xp.asarray([8, 9]), indices), np.array([8, 8]))
    same(xp.take(x, xp.asarray([-1]), axis=0), np.array([[6, 5, 4]]))
    same(xp.take_along_axis(x, xp.asarray([[-1], [-3]])), np.array([[2], [6]]))
    same(xp.take_along_axis(x, xp.asarray([[1]]), axis=0), np.array([[6, 5, 4]]))


@pytest.mark.parametrize(
    "call, error, text",
    [
        (lambda x: xp.arange(1, 2, 0), ValueError, "step must not be 0"),
        (lambda x: xp.meshgrid(x, indexing="ab"), ValueError, "'xy' or 'ij', not 'ab'"),
        (lambda x: xp.squeeze(x, 0), ValueError, "axis 0 has size 2"),
        (lambda x: xp.sum(x, axis=2), IndexError, "out of"),
        (lambda x: xp.prod(x, axis=(0, -2)), ValueError, "names an axis twice"),
        (lambda x: xp.take(x, xp.asarray([0])), ValueError, "axis is required"),
        (lambda x: xp.cumulative_sum(x), ValueError, "axis is required"),
        (lambda x: xp.nonzero(x[0, 0]), ValueError, "0-d tensor has no axis"),
        (lambda x: xp.matrix_transpose(x[0]), ValueError, "1 dimensions has no matrices"),
        (lambda x: xp.vecdot(x, x[:, :1]), ValueError, "has 3 and 1 elements"),
        (lambda x: xp.finfo(xp.int8), TypeError, "floating point"),
        (lambda x: xp.iinfo(xp.float32), TypeError, "iinfo"),
    ],
)
def test_error_of_a_wrong_argument(call, error, text):
    with pytest.raises(error, match=text):
        call(xp.ones((2, 3)))


# ---- derivatives ---------------------------------------------------------------------------------

X = np.array([[1.5, -2.5, 0.5], [3.0, 0.25, -1.0]])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: xp.add(x, xp.asarray(2.0)),
        lambda x: xp.multiply(xp.astype(x, xp.float64), x),
        lambda x: xp.atan2(x, 2.0),
        lambda x: xp.remainder(x, 0.7),
        lambda x: xp.sign(x) * x,
        lambda x: xp.round(xp.astype(x, xp.complex128) * (0.9 + 0.9j)) * xp.sin(x),
        lambda x: xp.clip(x, xp.asarray(-1.25), 2.0),
        lambda x: xp.concat([x, 2 * x], axis=None),
        lambda x: xp.stack([x, xp.ones_like(x)], axis=1),
        lambda x: xp.std(x, axis=1, correction=0.5),
        lambda x: xp.prod(x, axis=(0, 1)),
        lambda x: xp.cumulative_prod(x, axis=1, include_initial=True),
        lambda x: xp.diff(x, prepend=x, n=2),
        lambda x: xp.take(x, xp.asarray([2, -1]), axis=1),
        lambda x: xp.take_along_axis(x, xp.asarray([[-1]]), axis=1),
        lambda x: xp.sort(x, descending=True),
        lambda x: xp.where(x > 0, x, 3.0),
        lambda x: xp.unique_all(x).values,
        lambda x: xp.unique_values(xp.astype(x, xp.complex128)),
        lambda x: xp.vecdot(x, x),
        lambda x: xp.linalg.trace(x @ x.mT),
        lambda x: xp.linalg.matrix_norm(x),
        lambda x: xp.linalg.vector_norm(x, ord=3),
        lambda x: xp.linalg.solve(x @ x.mT, x[:, 0]),
        lambda x: xp.tensordot(x, x, axes=((1,), (1,))),
        lambda x: xp.max(x, axis=0, keepdims=True),
        lambda x: xp.repeat(x, 2, axis=1),
        lambda x: xp.roll(x, 1, axis=(0, 1)),
        lambda x: xp.from_dlpack(np.ones(3)) * x,
    ],
)
def test_gradients_flow(function):
    x = pb.tensor(X, requires_grad=True)
    assert pb.autograd.gradcheck(function, (x,))


def test_gradient_of_remainder_where_it_is_zero():
    """The sign of the zero is set in memory: the derivative stays the op's."""
    x = pb.tensor([4.0, 3.0], requires_grad=True)
    out = xp.remainder(x, -2.0)
    same(out, np.array([-0.0, -1.0], "float32"))
    out.sum().backward()
    same(x.grad, np.ones(2, "float32"))


def test_functions_under_vmap_and_subclasses():
    class Marked(pb.Tensor):
        pass

    x = pb.tensor(X)
    for function in (
        lambda row: xp.sum(row, axis=0),
        lambda row: xp.remainder(row, 0.7),
        lambda row: xp.std(row),
        lambda row: xp.add(row, 1),
    ):
        rows = [function(row).numpy() for row in x]
        np.testing.assert_allclose(pb.vmap(function)(x).numpy(), rows)
        assert type(function(x[0].as_subclass(Marked))) is Marked
