"""Copies between devices, pinned memory, memory that streams share, and what is reported late."""

import pytest
from async_device import MEMORY, address, current, forget, given, leaf, on, wait

import pullback as pb

HOST = pb.get_default_device()

# ---- two devices


def test_copies_between_devices():
    x = leaf(1.0, 2.0)
    y = (x * 2).to("async:1")
    assert y.device == pb.device("async:1")
    z = (y * 3).to("async:0")
    z.sum().backward()
    assert x.grad.device == pb.device("async:0")
    assert x.grad.tolist() == [6.0, 6.0]
    assert "copy_between" in given(0)
    assert "copy_between" in given(0, device=1)
    assert "read" not in given(0) + given(0, device=1)


@pytest.mark.parametrize(
    "shape",
    [
        lambda x: x,
        lambda x: x.t(),
        lambda x: x[:, 1:],
        lambda x: x[1:],
        lambda x: x.t()[1:],
        lambda x: x[1].expand(4, 3),
        lambda x: x.to(pb.float64),
        lambda x: x[:0],
    ],
)
def test_layouts_survive_a_move(shape):
    here = pb.arange(6.0).reshape(2, 3)
    for view in (shape(here), shape(here.to("async:0")), shape(here.to("async:1"))):
        for where in ("async:0", "async:1", HOST):
            moved = view.to(where)
            assert moved.tolist() == shape(here).tolist()
            target = pb.zeros(3, *view.shape, dtype=pb.float64, device=where)
            target[1].copy_(view)
            target[2].t().copy_(view.t())
            assert target[0].sum().item() == 0
            assert target[1:].tolist() == [shape(here).tolist()] * 2


def test_device_without_a_number_is_the_current_one():
    x = pb.ones(2, device="async:0")
    assert x.to("async") is x
    pb.backend.set_current_device("async", 1)
    try:
        assert x.to("async").device == pb.device("async:1")
        assert x.to("async:0") is x
    finally:
        pb.backend.set_current_device("async", 0)


def test_streams_of_two_devices():
    x = leaf(1.0, 2.0)
    with on(1):
        a = x * 2
        with on(2, device=1):
            b = a.to("async:1")
            c = b * b
            d = c.to("async:0")
        loss = d.sum()
    wait(0, 1)
    loss.backward()
    assert x.grad.tolist() == [8.0, 16.0]
    assert current(1) == address(1, 0)
    assert x.grad.tolist() == [8.0, 16.0]


def test_function_with_outputs_on_two_devices():
    class Both(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, (x * 3).to("async:1")

        @staticmethod
        def backward(ctx, first, second):
            where.append((current(0), current(1)))
            return first * 2 + second.to("async:0") * 3

    where = []
    x = leaf(1.0, 2.0)
    with on(1), on(2, device=1):
        first, second = Both.apply(x)
    wait(0, 1)
    wait(0, 2, device=1, other=1)
    with on(3):
        wait(3, 0)
        left = first * 10
    wait(0, 3)
    (left + (second * 100).to("async:0")).sum().backward()
    assert where == [(address(0, 1), address(1, 2))]
    assert x.grad.tolist() == [320.0, 320.0]


def test_host_tensors_in_between():
    x = leaf(1.0, 2.0)
    with on(1):
        y = (x * 2).cpu()
    with on(2):
        z = (y * 3).to("async:1")
        z.sum().backward()
        assert x.grad.tolist() == [6.0, 6.0]


# ---- memory that streams share


def test_gradient_is_not_used_again_while_another_stream_reads_it():
    x = leaf(1.0, 2.0)
    with on(1):
        y = x * 3
    wait(0, 1)
    z = y * 5
    w = z * 1
    forget()
    w.backward(pb.ones(2, device="async"))
    trash = [pb.full((2,), 99.0, device="async") for _ in range(8)]
    assert all(t.tolist() == [99.0, 99.0] for t in trash)
    assert x.grad.tolist() == [15.0, 15.0]


def test_leaf_gradient_is_not_used_again_while_the_caller_reads_it():
    x = leaf(1.0, 2.0)
    with on(1):
        y = (x * 3).sum()
    wait(0, 1)
    y.backward()
    kept = x.grad + 0
    x.grad = None
    with on(1):
        trash = [pb.full((2,), 99.0, device="async") for _ in range(8)]
        assert all(t.tolist() == [99.0, 99.0] for t in trash)
    assert kept.tolist() == [3.0, 3.0]


class Address:
    def __init__(self, **names):
        vars(self).update(names)


@pytest.mark.parametrize(
    "stream",
    [
        address(0, 1),
        Address(cuda_stream=address(0, 1)),
        Address(handle=address(0, 1)),
        Address(cuda_stream=None, handle=address(0, 1)),
    ],
)
def test_record_stream_takes(stream):
    x = pb.ones(2, device="async")
    x.record_stream(stream)
    x[1:].view(1).data.record_stream(stream)
    (block,) = (block for block in MEMORY.blocks.values() if block.users)
    assert [user.handle for user in block.users] == [address(0, 1)]


def test_record_stream_refuses():
    x = pb.ones(2, device="async")
    for wrong in ("1", None, 1.0, True, Address(handle="1")):
        with pytest.raises(TypeError, match="stream"):
            x.record_stream(wrong)
    with pytest.raises(ValueError, match="no stream"):
        x.record_stream(0x12345)
    for host in (pb.ones(2), pb.ones(2, device="meta")):
        with pytest.raises(NotImplementedError):
            host.record_stream(address(0, 1))
    pb.empty(0, device="async").record_stream(address(0, 1))


# ---- pinned memory


def test_pinned_memory():
    x = pb.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    assert not x.is_pinned()
    y = x.t().pin_memory()
    assert y.is_pinned()
    assert y.is_pinned("async")
    assert not y.is_pinned(HOST)
    assert y.device == x.device
    assert y.pin_memory() is y
    assert y.detach()[0].is_pinned()
    assert not (y + 0).is_pinned()
    assert type(y.grad_fn).__name__ == "PinMemoryBackward0"
    (y * y.detach()).sum().backward()
    assert x.grad.tolist() == x.tolist()
    assert pb.empty(0).pin_memory("async").is_pinned()
    del y
    assert not MEMORY.pinned


FACTORIES = {
    "empty": lambda **options: pb.empty(2, 3, **options),
    "zeros": lambda **options: pb.zeros((2, 3), **options),
    "ones": lambda **options: pb.ones(2, 3, **options),
    "full": lambda **options: pb.full((2, 3), 7, **options),
    "eye": lambda **options: pb.eye(2, 3, **options),
    "arange": lambda **options: pb.arange(6, **options),
    "linspace": lambda **options: pb.linspace(0, 1, 6, **options),
    "logspace": lambda **options: pb.logspace(0, 1, 6, **options),
    "rand": lambda **options: pb.rand(2, 3, **options),
    "randn": lambda **options: pb.randn(2, 3, **options),
    "normal": lambda **options: pb.normal(0.0, 1.0, (2, 3), **options),
    "randint": lambda **options: pb.randint(9, (2, 3), **options),
    "randperm": lambda **options: pb.randperm(6, **options),
    "empty_strided": lambda **options: pb.empty_strided((2, 3), (1, 2), **options),
    "zeros_like": lambda **options: pb.zeros_like(pb.ones(2, 3), **options),
    "full_like": lambda **options: pb.full_like(pb.ones(2, 3), 7, **options),
    "rand_like": lambda **options: pb.rand_like(pb.ones(2, 3), **options),
    "randint_like": lambda **options: pb.randint_like(pb.ones(2, 3), 9, **options),
    "new_zeros": lambda **options: pb.ones(1).new_zeros(2, 3, **options),
    "new_full": lambda **options: pb.ones(1).new_full((2, 3), 7, **options),
    "scalar_tensor": lambda **options: pb.scalar_tensor(5, **options),
    "tensor": lambda **options: pb.tensor([[1, 2, 3], [4, 5, 6]], **options),
}


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
def test_factories_make_pinned_memory(make):
    pb.manual_seed(0)
    plain = make(dtype=pb.float64)
    pb.manual_seed(0)
    pinned = make(dtype=pb.float64, pin_memory=True)
    assert pinned.is_pinned("async")
    assert not plain.is_pinned()
    assert not pinned.requires_grad
    assert (pinned.shape, pinned.stride(), pinned.dtype) == (
        plain.shape,
        plain.stride(),
        plain.dtype,
    )
    if make not in (FACTORIES["empty"], FACTORIES["empty_strided"]):
        assert pinned.tolist() == plain.tolist()
    leaf = make(dtype=pb.float64, pin_memory=True, requires_grad=True)
    assert leaf.is_pinned() and leaf.requires_grad and leaf.is_leaf
    there = make(dtype=pb.float64, pin_memory=True, device="meta")
    assert there.is_meta and not there.is_pinned()
    with pytest.raises(RuntimeError, match="cannot pin a tensor on async:0"):
        make(dtype=pb.float64, pin_memory=True, device="async")
    with pb.device("async"), pytest.raises(RuntimeError, match="cannot pin"):
        pb.ones(2, pin_memory=True)


@pytest.mark.parametrize("strides", [(10, 1), (0, 1), (1, 3), (0, 0)])
def test_pinned_memory_has_the_strides_that_are_asked_for(strides):
    for make in (pb.empty_strided, pb.ones(1).new_empty_strided):
        x = make((2, 3), strides, pin_memory=True)
        assert x.is_pinned() and x.stride() == strides
        x[1, 2] = 5.0
        assert x.tolist()[1][2] == 5.0


def test_indices_can_be_pinned():
    x = pb.tril_indices(2, 2, pin_memory=True)
    assert x.is_pinned() and x.tolist() == [[0, 1, 1], [0, 0, 1]]


def test_random_numbers_of_vmap_are_pinned():
    x = pb.func.vmap(lambda v: pb.rand_like(v, pin_memory=True), randomness="different")(
        pb.ones(3, 2)
    )
    assert x.shape == (3, 2) and len(set(x.flatten().tolist())) == 6


def test_what_is_written_into_memory_that_is_there_is_not_pinned():
    out = pb.ones(2, 3)
    assert pb.zeros(2, 3, out=out, pin_memory=True) is out
    assert not out.is_pinned() and out.sum() == 0


def test_pin_memory_is_a_bool():
    for make in (pb.ones, pb.tensor, pb.ones(1).new_zeros):
        with pytest.raises(TypeError, match="argument 'pin_memory' must be bool"):
            make(2, pin_memory=1)
    assert not pb.ones(2, pin_memory=None).is_pinned()


def test_pinned_memory_refuses():
    for wrong in (pb.ones(2, device="async"), pb.ones(2, device="meta")):
        assert not wrong.is_pinned()
        with pytest.raises(RuntimeError, match="cannot pin"):
            wrong.pin_memory()
    with pytest.raises(RuntimeError, match="no pinned memory"):
        pb.ones(2).pin_memory("meta")


def test_no_memory_to_pin(monkeypatch):
    def full(nbytes):
        raise MemoryError

    monkeypatch.setattr(MEMORY, "allocate_pinned", full)
    with pytest.raises(MemoryError, match="8 bytes of pinned memory"):
        pb.ones(2).pin_memory()


def test_copies_from_pinned_memory_need_not_be_waited_for():
    pinned = pb.tensor([1.0, 2.0]).pin_memory()
    later = pinned.to("async", non_blocking=True)
    at_once = pinned.to("async")
    positional = pinned.to("async", pb.float32, True)
    target = pb.zeros(2, device="async").copy_(pinned, non_blocking=True)
    pinned.mul_(10)
    assert at_once.tolist() == [1.0, 2.0]
    for each in (later, positional, target):
        assert each.tolist() == [10.0, 20.0]


def test_copies_to_pinned_memory_need_not_be_waited_for():
    x = pb.tensor([1.0, 2.0]).to("async")
    there = pb.zeros(2).pin_memory()
    there.copy_(x + 1, non_blocking=True)
    assert there.tolist() == [0.0, 0.0]
    pb.synchronize("async")
    assert there.tolist() == [2.0, 3.0]
    there.copy_(x)
    assert there.tolist() == [1.0, 2.0]


def test_copies_of_other_memory_are_waited_for():
    plain = pb.tensor([1.0, 2.0])
    x = plain.to("async", non_blocking=True)
    plain.mul_(10)
    assert x.tolist() == [1.0, 2.0]
    assert x.to(HOST, non_blocking=True).tolist() == [1.0, 2.0]
    halves = pb.tensor([1.0, 2.0]).pin_memory()
    y = pb.zeros(2, dtype=pb.float64, device="async").copy_(halves, non_blocking=True)
    halves.mul_(10)
    assert y.tolist() == [1.0, 2.0]


# ---- what is reported late


READS = {
    "tolist": lambda x: x.tolist(),
    "item": lambda x: x[0].item(),
    "cpu": lambda x: x.cpu(),
    "synchronize": lambda x: pb.synchronize("async"),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize(
    ("raised", "expected", "text"),
    [
        (IndexError, IndexError, "^index 7 is out of bounds$"),
        (MemoryError, MemoryError, "^index 7 is out of bounds$"),
        (OSError, RuntimeError, "OSError: index 7 is out of bounds$"),
        (KeyboardInterrupt, KeyboardInterrupt, "^index 7 is out of bounds$"),
    ],
)
def test_failure_of_earlier_work(read, raised, expected, text):
    x = pb.ones(2, device="async")
    MEMORY.synchronize(0)
    MEMORY.failure = raised("index 7 is out of bounds")
    with pytest.raises(expected, match=text):
        read(x)
    assert x.tolist() == [1.0, 1.0]


def test_kernel_reports_an_index_late():
    x = pb.arange(3.0).to("async")
    y = x.gather(0, pb.tensor([1, 7]).to("async"))
    with pytest.raises(IndexError, match="7"):
        y.tolist()


# ---- the interface for backends


def test_current_stream():
    before = pb.backend.set_stream("async:1", address(1, 2))
    assert before == address(1, 0)
    assert pb.backend.current_stream("async:1") == address(1, 2)
    assert pb.backend.current_stream("async") == address(0, 0)
    assert pb.backend.set_stream("async:1", 0) == address(1, 2)
    assert pb.backend.current_stream("async:1") == address(1, 0)
    assert pb.backend.current_stream(HOST) == 0


def test_streams_that_are_not_there():
    with pytest.raises(ValueError, match="no stream"):
        pb.backend.set_stream("async", 0x77)
    with pytest.raises(RuntimeError, match="no stream"):
        pb.backend.wait_stream("async", 0x77, 0)
    with pytest.raises(RuntimeError, match="does not exist"):
        pb.backend.set_stream("async:2", 0)
    with pytest.raises(RuntimeError, match="no streams"):
        pb.backend.set_stream("meta", 1)
    with pytest.raises(RuntimeError, match="no streams"):
        pb.backend.wait_stream("meta", 0, 0)
    with pytest.raises(RuntimeError, match="cannot wait"):
        pb.backend.wait_stream("async", 0, 0, "meta")
    with pytest.raises(OverflowError):
        pb.backend.set_stream("async", -1)
    assert current() == address(0, 0)


def test_memory_with_half_of_the_streams_is_refused():
    from pullback._c.device.py_allocator import wrap_memory

    class Half:
        allocate = release = write = read = copy = set_stream = current_stream = print

    with pytest.raises(TypeError, match=r"has no wait_stream\(\)"):
        wrap_memory("half", Half())
