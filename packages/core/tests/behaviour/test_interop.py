"""Exchange with NumPy, DLPack, buffers and Python values."""

import copy
import gc
import struct
import weakref

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import pullback as pb

NUMPY_DTYPES = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]

# NumPy


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_numpy_round_trip_shares_memory(dtype):
    a = np.ones((2, 3), dtype)
    x = pb.from_numpy(a)
    assert x.dtype == getattr(pb, dtype)
    assert x.data_ptr() == a.ctypes.data
    b = x.numpy()
    assert b.dtype == a.dtype
    assert np.shares_memory(a, b)
    x.zero_()
    assert not a.any()
    a[0, 0] = 1
    assert b[0, 0] == x[0, 0].item() == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda a: a.T,
        lambda a: a[:, ::2],
        lambda a: a[1:, 1],
        lambda a: a[1, 1],
        lambda a: a[:0],
        lambda a: np.broadcast_to(a[:1], (5, 4)),
        lambda a: a.reshape(2, 1, 1, 6),
    ],
)
@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_numpy_layouts(make):
    array = np.asarray(make(np.arange(12.0).reshape(3, 4)))
    x = pb.from_numpy(array)
    assert x.shape == array.shape
    assert_array_equal(x, array)
    if array.size:
        assert x.stride() == tuple(s // 8 for s in array.strides)
    assert x.numpy().strides == array.strides or not array.size


def test_numpy_of_views_shares_memory():
    x = pb.arange(12.0).reshape(3, 4)
    for view in (x.t(), x[:, ::2], x[1], x.expand(2, 3, 4), x[1, 1]):
        a = view.numpy()
        assert a.shape == view.shape
        assert_array_equal(a, view.tolist())
        assert np.shares_memory(a, x.numpy())


def test_array_keeps_the_tensor_alive_and_the_reverse():
    x = pb.arange(5)
    a = x.numpy()
    del x
    gc.collect()
    assert a.tolist() == [0, 1, 2, 3, 4]
    y = pb.from_numpy(np.arange(5))
    gc.collect()
    assert y.tolist() == [0, 1, 2, 3, 4]


def test_tensor_releases_the_array():
    class Array(np.ndarray):
        pass

    a = np.arange(5).view(Array)
    dead = weakref.ref(a)
    x = pb.from_numpy(a)
    view = x[1:]
    del a, x
    gc.collect()
    assert view.tolist() == [1, 2, 3, 4]
    del view
    gc.collect()
    assert dead() is None


def test_negative_strides_are_refused_or_right():
    a = np.arange(6)[::-1]
    try:
        x = pb.from_numpy(a)
    except ValueError as error:
        assert "negative" in str(error)
    else:
        assert_array_equal(x, a)
        assert (x + 1).tolist() == [6, 5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: [1, 2], TypeError),
        (lambda: 3, TypeError),
        (lambda: None, TypeError),
        (lambda: np.array(["a"]), TypeError),
        (lambda: np.array([None]), TypeError),
        (lambda: np.zeros(2, "datetime64[s]"), TypeError),
        (lambda: np.zeros(2, "f4,f4"), TypeError),
        (lambda: np.arange(3, dtype=">i4"), ValueError),
        (lambda: np.zeros(2, [("a", "u1"), ("b", "f8")])["b"], ValueError),
    ],
)
def test_from_numpy_refuses(make, error):
    array = make()
    with pytest.raises(error):
        pb.from_numpy(array)


def test_misaligned_arrays_are_refused_or_right():
    raw = np.zeros(17, np.uint8)
    raw[1:].view(np.float64)[:] = [1.5, 2.5]
    try:
        x = pb.from_numpy(raw[1:].view(np.float64))
    except ValueError:
        return
    assert (x * 2).tolist() == [3.0, 5.0]


@pytest.mark.beyond_torch
def test_read_only_arrays_are_never_written():
    a = np.arange(4.0)
    a.flags.writeable = False
    for share in (pb.from_numpy, pb.as_tensor):
        try:
            x = share(a)
            assert x.tolist() == [0.0, 1.0, 2.0, 3.0]
            x.add_(1)
        except (ValueError, RuntimeError):
            pass
        assert a.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_export_of_tensors_that_require_grad_is_refused():
    x = pb.ones(2, requires_grad=True)
    for tensor in (x, x * 2):
        with pytest.raises(
            RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"
        ):
            tensor.numpy()
        with pytest.raises(
            RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"
        ):
            np.asarray(tensor)
        with pytest.raises(BufferError, match="Can't export tensors that require gradient"):
            tensor.__dlpack__()
    assert x.detach().numpy().tolist() == x.numpy(force=True).tolist() == [1.0, 1.0]


def test_array_protocol():
    x = pb.ones(2, 3)
    assert np.asarray(x).dtype == np.float32
    assert np.asarray(x, dtype=np.int8).dtype == np.int8
    assert np.shares_memory(np.asarray(x), x.numpy())
    assert np.concatenate([x.numpy(), np.asarray(x)]).shape == (4, 3)
    assert x.__array__(np.float64).dtype == np.float64


@pytest.mark.beyond_torch
def test_array_protocol_of_numpy_2():
    x = pb.ones(3)
    assert not np.shares_memory(np.array(x), x.numpy())
    assert not np.shares_memory(np.asarray(x, copy=True), x.numpy())
    assert np.shares_memory(np.array(x, copy=False), x.numpy())
    with pytest.raises(ValueError, match=r"(?i)copy"):
        np.array(x, dtype=np.float64, copy=False)


@pytest.mark.beyond_torch
def test_buffer_protocol():
    x = pb.arange(6.0).reshape(2, 3)
    view = memoryview(x)
    assert (view.shape, view.strides, view.format, view.itemsize) == ((2, 3), (12, 4), "f", 4)
    assert view.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    assert memoryview(x.t()).strides == (4, 12)
    with pytest.raises(BufferError):
        memoryview(pb.ones(2, requires_grad=True))


@pytest.mark.beyond_torch
def test_buffers_show_what_their_request_asks_for():
    x = pb.arange(6.0).reshape(2, 3)
    assert bytes(x) == bytes(x.numpy())
    assert bytes(x.t()) == x.t().numpy().tobytes()
    assert np.frombuffer(x, np.float32).tolist() == x.reshape(-1).tolist()
    with pytest.raises((BufferError, ValueError)):
        np.frombuffer(x.t(), np.float32)  # one that is not row-major has no flat view
    struct.pack_into("f", x, 4, 9.0)
    assert x[0, 1].item() == 9.0
    assert memoryview(pb.tensor(3)).tolist() == 3
    assert memoryview(pb.zeros(0, 3)).shape == (0, 3)


@pytest.mark.beyond_torch
@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_buffers_have_the_types_of_numpy(dtype):
    x = pb.ones(2, dtype=getattr(pb, dtype))
    assert np.asarray(memoryview(x)).dtype == np.dtype(dtype)


@pytest.mark.beyond_torch
def test_what_has_no_buffer():
    for x in (pb.ones(2, dtype=pb.bfloat16), pb.empty(2, device="meta")):
        with pytest.raises(BufferError):
            memoryview(x)


@pytest.mark.beyond_torch
def test_a_buffer_keeps_memory_that_its_tensor_gave_up():
    x = pb.full((10_000,), 7.0)
    view = memoryview(x)
    x.data = pb.zeros(2)
    other = pb.full((10_000,), 1.0)
    assert view[0] == view[9_999] == 7.0
    del x, other
    gc.collect()
    assert view[9_999] == 7.0


@pytest.mark.beyond_torch
@pytest.mark.parametrize(
    "write",
    [
        lambda x: memoryview(x).__setitem__(0, 1.0),
        lambda x: x.numpy().__setitem__(0, 1.0),
        lambda x: np.asarray(x).__setitem__(0, 1.0),
        lambda x: np.from_dlpack(x).__setitem__(0, 1.0),
        lambda x: pb.from_dlpack(x).zero_(),
        lambda x: x.__dlpack__(),  # the first form of DLPack cannot say "read-only"
        lambda x: struct.pack_into("d", x, 0, 1.0),
        lambda x: x.detach()[1:].zero_(),
        lambda x: x.data.zero_(),
        lambda x: copy.copy(x).zero_(),
        lambda x: pb.add(x, 1, out=x),
        lambda x: x.__setitem__(0, 1.0),
    ],
)
def test_memory_of_read_only_arrays_stays_read_only(write):
    a = np.arange(4.0)
    a.flags.writeable = False
    x = pb.from_numpy(a)
    with pytest.raises((RuntimeError, ValueError, TypeError, BufferError)):
        write(x)
    assert a.tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.beyond_torch
def test_gradients_are_not_added_into_read_only_memory():
    a = np.ones(2, np.float32)
    a.flags.writeable = False
    x = pb.ones(2, requires_grad=True)
    x.grad = pb.from_numpy(a)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert a.tolist() == [1.0, 1.0]


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")
def test_numpy_functions_return_tensors():
    x = pb.ones(3)
    for y in (np.sin(x), x + np.ones(3), np.multiply(np.ones(3), x)):
        assert isinstance(y, pb.Tensor)
    assert (x + np.ones(3)).tolist() == [2.0, 2.0, 2.0]


# frombuffer, as_tensor, asarray


def test_frombuffer_shares_memory_and_keeps_it():
    data = bytearray(np.arange(4, dtype=np.int32).tobytes())
    x = pb.frombuffer(data, dtype=pb.int32, count=2, offset=4)
    assert x.tolist() == [1, 2]
    x.zero_()
    assert np.frombuffer(data, np.int32).tolist() == [0, 0, 0, 3]
    assert pb.frombuffer(np.ones((2, 2)), dtype=pb.float64).tolist() == [1.0] * 4
    assert pb.frombuffer(data, dtype=pb.bfloat16).shape == (8,)


@pytest.mark.beyond_torch
def test_frombuffer_keeps_its_memory_in_place():
    data = bytearray(8)
    x = pb.frombuffer(data, dtype=pb.int32)
    with pytest.raises(BufferError):
        data.extend(b"more")
    del x
    data.extend(b"more")


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"count": 0}, "must not be 0"),
        ({"count": 3}, "must not be greater than actual buffer length"),
        pytest.param(
            {"count": 2**62},
            "must not be greater than actual buffer length",
            marks=pytest.mark.beyond_torch,
        ),
        ({"offset": 8}, "must be non-negative and no greater than buffer length"),
        ({"offset": -1}, "must be non-negative and no greater than buffer length"),
        ({"offset": 2}, "must be a multiple of element size"),
    ],
)
def test_frombuffer_stays_within_the_buffer(options, fragment):
    with pytest.raises(ValueError, match=fragment):
        pb.frombuffer(bytearray(8), dtype=pb.int32, **options)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((3, pb.int32), ValueError),
        ((bytearray(4), 3), TypeError),
        ((bytearray(0), pb.int32), ValueError),
        ((np.ones((2, 2)).T, pb.int32), (ValueError, RuntimeError)),
    ],
)
def test_frombuffer_refuses(arguments, error):
    with pytest.raises(error):
        pb.frombuffer(arguments[0], dtype=arguments[1])


@pytest.mark.beyond_torch
def test_frombuffer_refuses_misaligned_elements():
    with pytest.raises(ValueError, match="aligned"):
        pb.frombuffer(bytearray(9), dtype=pb.int32, count=1, offset=1)


def test_asarray():
    a, x = np.ones(2), pb.ones(2)
    assert pb.asarray(x) is x
    assert pb.asarray(x, copy=True).data_ptr() != x.data_ptr()
    assert pb.asarray(a).data_ptr() == a.ctypes.data
    assert pb.asarray(a, copy=True).data_ptr() != a.ctypes.data
    assert pb.asarray(a, dtype=pb.float32).dtype == pb.float32
    assert pb.asarray(bytearray(4), dtype=pb.uint8).tolist() == [0, 0, 0, 0]
    for obj, options in (([1], {}), (3, {}), (x, {"dtype": pb.float64})):
        with pytest.raises(ValueError, match="alias"):
            pb.asarray(obj, copy=False, **options)


# DLPack


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_dlpack_round_trip_with_numpy(dtype):
    x = pb.ones(2, 3, dtype=getattr(pb, dtype))
    a = np.from_dlpack(x)
    assert a.dtype == np.dtype(dtype)
    assert a.ctypes.data == x.data_ptr()
    y = pb.from_dlpack(a.copy())
    assert y.dtype == x.dtype
    assert y.tolist() == x.tolist()


def test_dlpack_keeps_layout():
    x = pb.arange(12.0).reshape(3, 4)
    for view in (x.t(), x[:, ::2], x[1:, 1], x[1, 1], x[:0]):
        assert_array_equal(np.from_dlpack(view), view)
        again = pb.from_dlpack(view)
        assert again.shape == view.shape
        assert again.numel() == 0 or again.data_ptr() == view.data_ptr()


def test_dlpack_import_shares_memory_and_keeps_it_alive():
    a = np.arange(5.0)
    x = pb.from_dlpack(a)
    a[0] = 9
    assert x[0].item() == 9.0
    del a
    gc.collect()
    assert x.tolist() == [9.0, 1.0, 2.0, 3.0, 4.0]


def test_dlpack_capsule_is_consumed_once():
    capsule = pb.ones(2).__dlpack__()
    x = pb.from_dlpack(capsule)
    assert x.tolist() == [1.0, 1.0]
    with pytest.raises((RuntimeError, ValueError, BufferError)):
        pb.from_dlpack(capsule)


def test_unused_dlpack_capsule_is_released():
    x = pb.ones(2)
    capsule = x.__dlpack__()
    x.canary = np.zeros(1)
    dead = weakref.ref(x.canary)
    del x, capsule
    gc.collect()
    assert dead() is None


def test_dlpack_versions_and_device():
    x = pb.ones(2)
    assert tuple(int(v) for v in x.__dlpack_device__()) == (1, 0)
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(x.__dlpack__())


def test_dlpack_copies_when_asked_to():
    x = pb.ones(2)
    assert pb.from_dlpack(x.__dlpack__(copy=True)).data_ptr() != x.data_ptr()
    assert pb.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
    assert pb.from_dlpack(x, copy=False).data_ptr() == x.data_ptr()
    assert pb.from_dlpack(x, device=x.device).data_ptr() == x.data_ptr()
    assert pb.from_dlpack(x.__dlpack__(dl_device=(1, 0))).data_ptr() == x.data_ptr()
    assert x.__dlpack__(stream=-1)


def test_dlpack_of_a_producer_of_the_first_protocol():
    class Producer:
        def __dlpack__(self, stream=None):
            return x.__dlpack__()

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    x = pb.ones(2)
    assert pb.from_dlpack(Producer()).data_ptr() == x.data_ptr()
    assert pb.from_dlpack(Producer(), copy=True).data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"stream": "a"}, TypeError),
        ({"stream": 7}, AssertionError),
        ({"max_version": 3}, TypeError),
        ({"dl_device": 3}, TypeError),
        ({"dl_device": (2, 0), "copy": False}, ValueError),
        ({"dl_device": (99, 0)}, BufferError),
        ({"dl_device": ("a", 0)}, (TypeError, ValueError)),
    ],
    ids=str,
)
def test_dlpack_refuses_options(options, error):
    with pytest.raises(error):
        pb.ones(2).__dlpack__(**options)


@pytest.mark.parametrize("bad", [3, None, "a", object(), [1.0]])
def test_dlpack_refuses_other_objects(bad):
    with pytest.raises((TypeError, AttributeError, RuntimeError, ValueError, BufferError)):
        pb.from_dlpack(bad)


@pytest.mark.beyond_torch
def test_dlpack_with_negative_strides_does_not_abort():
    try:
        assert pb.from_dlpack(np.arange(3)[::-1]).tolist() == [2, 1, 0]
    except (ValueError, RuntimeError, BufferError):
        pass


@pytest.mark.beyond_torch
def test_dlpack_of_read_only_memory_is_never_written():
    a = np.arange(3.0)
    a.flags.writeable = False
    try:
        pb.from_dlpack(a).add_(1)
    except (ValueError, RuntimeError, BufferError):
        pass
    assert a.tolist() == [0.0, 1.0, 2.0]


# Python values


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 1, 3)])
def test_tolist(shape):
    a = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    assert pb.tensor(a).tolist() == a.tolist()
    assert pb.tensor(a).t().tolist() == a.T.tolist() if len(shape) < 3 else True


def test_tolist_gives_python_types():
    assert type(pb.tensor([True]).tolist()[0]) is bool
    assert type(pb.tensor([1], dtype=pb.uint8).tolist()[0]) is int
    assert type(pb.tensor([1.0], dtype=pb.bfloat16).tolist()[0]) is float
    assert type(pb.tensor([1j]).tolist()[0]) is complex


def test_half_precision_values():
    assert pb.tensor([0.1], dtype=pb.float16).item() == float(np.float16(0.1))
    assert pb.tensor([1.00390625], dtype=pb.bfloat16).item() == 1.0  # ties to even
    assert pb.tensor([65520.0]).to(pb.float16).item() == float("inf")
    assert pb.tensor([3.4e38]).to(pb.bfloat16).item() == float("inf")


def test_numpy_of_what_requires_grad_is_allowed_under_no_grad():
    x = pb.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        x.numpy()
    with pb.no_grad():
        assert np.shares_memory(x.numpy(), x.detach().numpy())
