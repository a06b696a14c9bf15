"""Device objects, and tensors that have a shape but no data."""

import copy
import pickle
import subprocess
import sys

import pytest
from pullback._c.dispatch.launch import run_primitive

import pullback as pb


def test_device_object():
    device = pb.ones(1).device
    assert pb.device(device) == device
    assert pb.device(str(device)) == device
    assert pb.device(device.type).type == device.type
    assert pb.zeros(2, device=device).device == device
    assert pb.zeros(2, device=str(device)).device == device
    assert len({device, pb.device(str(device))}) == 1
    assert repr(device) == f"device(type='{device.type}')"
    assert pickle.loads(pickle.dumps(device)) == copy.deepcopy(device) == device


def test_device_with_index():
    device = pb.device("cuda:1")
    assert (device.type, device.index) == ("cuda", 1)
    assert str(device) == "cuda:1"
    assert device == pb.device("cuda", 1)
    assert device != pb.device("cuda:0")
    assert pb.ones(1).device.index is None


@pytest.mark.parametrize("bad", ["cuda:-1", "cuda:x", "", ":1", "cuda:1:2", 1.5, None, [1]])
def test_wrong_device_is_refused(bad):
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        pb.device(bad)


def test_move_to_own_device_is_free():
    x = pb.ones(2)
    assert x.to(x.device) is x
    assert x.to(device=x.device, dtype=pb.float64).dtype == pb.float64
    assert x.to(pb.zeros(1, dtype=pb.float64)).dtype == pb.float64


# Shapes without data


def shapes_only(*shape, **options):
    return pb.empty(*shape, device="meta", **options)


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        (lambda x: x + 1, (2, 3)),
        (lambda x: x @ x.t(), (2, 2)),
        (lambda x: x.sum(0), (3,)),
        (lambda x: x.reshape(3, 2)[1:], (2, 2)),
        (lambda x: x.softmax(1).exp(), (2, 3)),
        (lambda x: pb.cat([x, x]), (4, 3)),
        (lambda x: x.expand(5, 2, 3), (5, 2, 3)),
    ],
)
def test_operations_on_shapes(op, shape):
    y = op(shapes_only(2, 3))
    assert y.shape == shape
    assert y.device.type == "meta"
    assert op(shapes_only(2, 3, dtype=pb.float64)).dtype == pb.float64


def test_gradients_of_shapes():
    x = shapes_only(2, 3, requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.shape == (2, 3)
    assert x.grad.device.type == "meta"


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[0].item(),
        lambda x: x.tolist(),
        lambda x: x.numpy(),
        lambda x: bool(x[0]),
        lambda x: x.to(pb.ones(1).device),
        lambda x: x.__dlpack__(),
    ],
)
def test_shapes_have_no_data_to_read(read):
    with pytest.raises((RuntimeError, NotImplementedError, TypeError, BufferError, ValueError)):
        read(shapes_only(2))


def test_shapes_and_data_do_not_mix():
    with pytest.raises(RuntimeError):
        shapes_only(2) + pb.ones(2)


# A meta operand has no memory: a kernel that reads it crashes. The conformance check "devices" puts
# one into every position of every op.
@pytest.mark.parametrize(
    ("call", "argument", "name"),
    [
        (lambda x, rows: pb.gather(x, 0, rows), "index", "gather"),
        (lambda x, rows: x.index_add_(0, rows, pb.ones(2)), "index", "index_add"),
        (lambda x, rows: pb.nn.functional.embedding(rows, pb.ones(3, 2)), "", "embedding"),
        (lambda x, rows: pb.nn.functional.embedding(pb.tensor([0]), rows[:, None]), "", "embed"),
        (lambda x, rows: pb.linalg.solve(pb.eye(2), rows.to(pb.float32)), "", "solve"),
        (lambda x, rows: pb.bincount(pb.tensor([0, 1]), rows), "weights", "bincount"),
        (lambda x, rows: pb.cat([x, x.to("meta")]), "tensors", "cat"),
        (lambda x, rows: x.lerp_(x.to("meta"), 0.5), "", "lerp_"),
        (lambda x, rows: run_primitive("neg", x, x.to("meta")), "self", "neg"),
    ],
)
def test_operand_on_another_device_is_refused(call, argument, name):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device") as info:
        call(pb.ones(4), shapes_only(2, dtype=pb.int64))
    assert f"for argument {argument}" in str(info.value)
    assert name in str(info.value)


def test_shapes_take_no_memory():
    x = shapes_only(10**6, 10**6)
    assert (x + x).numel() == 10**12
    assert repr(x)


UNPINNED = """
import pullback as pb
if pb.cuda.is_available():
    raise SystemExit
for make in (pb.ones, pb.empty, pb.zeros, pb.tensor, pb.rand, pb.arange):
    try:
        make(3, pin_memory=True)
    except RuntimeError as error:
        assert "pin_memory=True requires a CUDA or other accelerator" in str(error), error
    else:
        raise AssertionError(make)
try:
    pb.ones(3).pin_memory()
except RuntimeError as error:
    assert "Cannot access accelerator device when none is available" in str(error), error
"""


def test_memory_can_be_pinned_for_an_accelerator_only():
    done = subprocess.run(
        [sys.executable, "-c", UNPINNED], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
