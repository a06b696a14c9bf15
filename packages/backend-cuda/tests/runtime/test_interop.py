"""Memory shared with other libraries: DLPack and __cuda_array_interface__, with their streams."""

import numpy as np
import pytest

import pullback as pb

pytestmark = pytest.mark.usefixtures("cuda")

DTYPES = [
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


class Lender:
    """An object of another library: what its interface says, and who keeps the memory."""

    def __init__(self, interface, owner=None, device=0):
        self.__cuda_array_interface__ = interface
        self.owner = owner
        self.device = device


@pytest.mark.parametrize("dtype", DTYPES)
def test_interface_describes_the_memory(dtype):
    x = pb.ones(3, 4, dtype=getattr(pb, dtype), device="cuda")
    interface = x.__cuda_array_interface__
    assert interface["typestr"] == np.dtype(dtype).newbyteorder("<").str.replace("<b1", "|b1")
    assert (
        interface["shape"] == (3, 4) and interface["strides"] is None and interface["version"] == 3
    )
    assert interface["data"] == (x.data_ptr(), False)
    assert interface["stream"] == pb.cuda.current_stream().cuda_stream
    turned = x.t()[1:, ::2]
    interface = turned.__cuda_array_interface__
    size = x.element_size()
    assert interface["shape"] == (3, 2) and interface["strides"] == (size, 8 * size)
    assert interface["data"][0] == x.data_ptr() + size


@pytest.mark.parametrize("dtype", DTYPES)
def test_memory_of_others_is_shared(dtype):
    x = pb.arange(12).reshape(3, 4).to(getattr(pb, dtype)).cuda()
    y = pb.as_tensor(Lender(x.__cuda_array_interface__, x))
    assert y.dtype == x.dtype and y.device == x.device and y.data_ptr() == x.data_ptr()
    assert pb.equal(y, x)
    y[0] = 1
    assert x[0].tolist() == [1] * 4 or dtype == "bool"
    turned = x.t()
    z = pb.as_tensor(Lender(turned.__cuda_array_interface__, turned))
    assert z.stride() == (1, 4) and pb.equal(z, turned)


def test_lender_lives_as_long_as_the_tensor():
    import gc
    import weakref

    x = pb.ones(5, device="cuda")
    lender = Lender(x.__cuda_array_interface__, x)
    seen = weakref.ref(lender)
    y = pb.as_tensor(lender)
    del lender, x
    gc.collect()
    assert seen() is not None and y.sum().item() == 5
    del y
    gc.collect()
    assert seen() is None


def test_copies_and_other_devices():
    x = pb.arange(4, device="cuda")
    lender = Lender(x.__cuda_array_interface__, x)
    assert pb.tensor(lender).data_ptr() != x.data_ptr()
    assert pb.as_tensor(lender, dtype=pb.float32).tolist() == [0, 1, 2, 3]
    assert pb.as_tensor(lender, device="cpu").device.type == "cpu"
    assert (
        pb.as_tensor(Lender({**x.__cuda_array_interface__, "data": (x.data_ptr(), True)}))[1].item()
        == 1
    )


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"typestr": "<U4"}, TypeError, "'<U4' are not supported"),
        ({"typestr": "<f16"}, TypeError, "'<f16' are not supported"),
        ({"strides": (6,)}, ValueError, "multiples of the element"),
        ({"strides": (-4,)}, ValueError, "negative"),
        ({"strides": (4, 4)}, ValueError, "1 dims, but 2 strides"),
        ({"stream": 0}, ValueError, "ambiguous"),
        ({"mask": object()}, TypeError, "masked"),
        ({"data": (0, False)}, ValueError, "NULL"),
    ],
)
def test_wrong_interfaces_are_refused(change, kind, words):
    x = pb.ones(4, device="cuda")
    with pytest.raises(kind, match=words):
        pb.as_tensor(Lender({**x.__cuda_array_interface__, **change}, x))


def test_interface_is_refused_where_it_says_too_much():
    with pytest.raises(AttributeError, match="non-CUDA tensor"):
        pb.ones(3).__cuda_array_interface__
    assert not hasattr(pb.ones(3), "__cuda_array_interface__")
    with pytest.raises(RuntimeError, match="requires grad"):
        pb.ones(3, device="cuda", requires_grad=True).__cuda_array_interface__


@pytest.mark.parametrize("dtype", [*DTYPES, "bfloat16"])
def test_dlpack_goes_there_and_back(dtype):
    x = pb.arange(6).reshape(2, 3).to(getattr(pb, dtype)).cuda()
    assert tuple(map(int, x.__dlpack_device__())) == (2, 0)
    y = pb.from_dlpack(x)
    assert y.dtype == x.dtype and y.data_ptr() == x.data_ptr() and pb.equal(x, y)
    assert pb.equal(pb.from_dlpack(x.t()), x.t())


@pytest.mark.parametrize("stream", [None, 1, 2, -1])
def test_dlpack_for_the_consumers_stream(stream):
    x = pb.ones(3, device="cuda") * 2
    assert pb.equal(pb.from_dlpack(x.__dlpack__(stream=stream)), x)


def test_consumer_s_stream_waits_for_ours(fake_cuda):
    side = pb.cuda.Stream()
    x = pb.zeros(1000, device="cuda")
    pb.cuda.synchronize()
    with fake_cuda.deferred():
        with pb.cuda.stream(side):
            y = x + 1
            capsule = y.__dlpack__(stream=pb.cuda.default_stream().cuda_stream)
        found = pb.from_dlpack(capsule) * 2
        assert found.cpu().sum().item() == 2000


def test_producer_s_stream_is_waited_for(fake_cuda):
    side = pb.cuda.Stream()
    x = pb.zeros(1000, device="cuda")
    pb.cuda.synchronize()
    with fake_cuda.deferred():
        with pb.cuda.stream(side):
            y = x + 3
            lender = Lender(y.__cuda_array_interface__, y)
        found = pb.as_tensor(lender) * 2
        assert found.cpu().sum().item() == 6000


def test_streams_of_no_device_are_refused(fake_cuda):
    x = pb.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="failed with error"):
        x.__dlpack__(stream=0xDEAD0)
    with pytest.raises(TypeError, match="stream must be"):
        x.__dlpack__(stream="1")


@pytest.mark.gpu
def test_torch_shares_memory_both_ways():
    torch = pytest.importorskip("torch")
    x = torch.arange(6.0, device="cuda").reshape(2, 3)
    for y in (pb.from_dlpack(x), pb.as_tensor(x)):
        assert y.data_ptr() == x.data_ptr()
        assert (y * 2).cpu().tolist() == (x * 2).cpu().tolist()
    z = pb.arange(4, device="cuda")
    assert torch.from_dlpack(z).cpu().tolist() == [0, 1, 2, 3]
    assert torch.as_tensor(z, device="cuda").data_ptr() == z.data_ptr()
    stream = torch.cuda.ExternalStream(pb.cuda.current_stream().cuda_stream)
    with torch.cuda.stream(stream):
        assert (x + 1).sum().item() == 21


@pytest.mark.gpu
def test_cupy_shares_memory_both_ways():
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(6, dtype="float32").reshape(2, 3)
    for y in (pb.from_dlpack(x), pb.as_tensor(x)):
        assert y.data_ptr() == x.data.ptr
        assert (y * 2).cpu().tolist() == (x * 2).get().tolist()
    z = pb.arange(4, device="cuda")
    assert cupy.asarray(z).data.ptr == z.data_ptr()
    assert cupy.from_dlpack(z).get().tolist() == [0, 1, 2, 3]
