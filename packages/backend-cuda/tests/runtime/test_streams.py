"""Streams and events: order of work, backward over streams, memory that others still use.

The fake driver holds work back until a call waits for it: a missing wait reads old bytes.
"""

import copy
import pickle
import threading

import pytest

import pullback as pb

pytestmark = pytest.mark.usefixtures("cuda")


@pytest.fixture(params=[1, 2], ids=["late", "late-reversed"])
def late(request, cuda):
    """Work runs only when a call waits for it."""
    warm = pb.rand(8, 8, device="cuda", requires_grad=True)
    (warm @ warm).tanh().sum().backward()
    pb.cuda.synchronize()
    if cuda is None:
        yield
        return
    with cuda.deferred(request.param):
        yield
        pb.cuda.synchronize()


def work(x, times=30):
    """Enough for a device to be busy with."""
    for _ in range(times):
        x = x * 1.0 + 1.0
    return x


# ---- streams and events --------------------------------------------------------------------------


def test_streams_have_an_identity():
    first, second = pb.cuda.Stream(), pb.cuda.Stream()
    assert first != second and first == first and len({first, second, first}) == 2
    assert first.cuda_stream != second.cuda_stream != 0
    assert first.device == pb.device("cuda:0") and "cuda:0" in repr(first)
    assert pb.cuda.current_stream() == pb.cuda.default_stream()
    assert pb.cuda.current_stream() != first
    assert first.__cuda_stream__() == (0, first.cuda_stream)


def test_streams_are_dealt_out_in_turn():
    streams = [pb.cuda.Stream() for _ in range(80)]
    assert len({stream.cuda_stream for stream in streams}) == 32
    urgent = [pb.cuda.Stream(priority=-1) for _ in range(80)]
    assert len({stream.cuda_stream for stream in urgent}) == 30
    assert not set(streams) & set(urgent)
    assert urgent[0].priority == -1 and streams[0].priority == 0


def test_stream_of_a_block_is_current_in_it():
    side, other = pb.cuda.Stream(), pb.cuda.Stream()
    default = pb.cuda.current_stream()
    with pb.cuda.stream(side) as entered:
        assert entered is side and pb.cuda.current_stream() == side
        with pb.cuda.stream(other):
            assert pb.cuda.current_stream() == other
        with pb.cuda.stream(None):
            assert pb.cuda.current_stream() == side
        assert pb.cuda.current_stream() == side
    assert pb.cuda.current_stream() == default
    with pytest.raises(ValueError, match="mine"), pb.cuda.stream(side):
        raise ValueError("mine")
    assert pb.cuda.current_stream() == default


def test_current_stream_belongs_to_the_thread():
    seen = []
    with pb.cuda.stream(pb.cuda.Stream()):
        thread = threading.Thread(target=lambda: seen.append(pb.cuda.current_stream()))
        thread.start()
        thread.join()
    assert seen == [pb.cuda.default_stream()]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: pb.cuda.Stream("cpu"), ValueError, "Expected a cuda device"),
        (lambda: pb.cuda.Stream(priority="high"), TypeError, "'priority' must be int"),
        (lambda: pb.cuda.stream(3), TypeError, "'stream' must be Stream, not int"),
        (lambda: pb.ones(1, device="cuda").record_stream(-1), RuntimeError, "no address: -1"),
        (lambda: pb.ones(1, device="cuda").record_stream(2**64), RuntimeError, "no address"),
        (lambda: pb.cuda.Event(interprocess=True), RuntimeError, "several processes"),
        (lambda: pb.cuda.Event().elapsed_time(pb.cuda.Event()), RuntimeError, "enable_timing"),
        (lambda: pb.cuda.Event(True).elapsed_time(pb.cuda.Event(True)), RuntimeError, "recorded"),
    ],
)
def test_wrong_uses_are_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_events_know_whether_and_when():
    start, end = pb.cuda.Event(True), pb.cuda.Event(enable_timing=True)
    assert start.query() and "uninitialized" in repr(start)
    start.record()
    work(pb.ones(100, device="cuda"))
    end.record(pb.cuda.current_stream())
    end.synchronize()
    assert end.query() and start.elapsed_time(end) >= 0
    assert isinstance(pb.cuda.current_stream().record_event(), pb.cuda.Event)
    assert repr(end) == "<pullback.cuda.Event on cuda:0>"


def test_events_cannot_be_copied_or_changed():
    event = pb.cuda.Event()
    event.record()
    for change in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            change(event)
    with pytest.raises(AttributeError):
        event.enable_timing = True
    assert event.enable_timing is False


def test_stream_s_device_is_current_with_it(fake_cuda):
    before = pb.cuda.current_stream(), pb.cuda.current_device()
    try:
        pb.cuda.set_stream(pb.cuda.Stream(device=1))
        assert pb.cuda.current_device() == 1
        assert pb.cuda.current_stream().device_index == 1
    finally:
        pb.cuda.set_stream(pb.cuda.default_stream(1))
        pb.cuda.set_stream(before[0])
    assert pb.cuda.current_device() == before[1]


def test_event_of_another_device_is_refused(fake_cuda):
    event = pb.cuda.Event()
    event.record(pb.cuda.current_stream(0))
    with pytest.raises(RuntimeError, match="does not match recording stream's"):
        event.record(pb.cuda.current_stream(1))


def test_stream_waits_for_stream(late):
    side = pb.cuda.Stream()
    x = work(pb.zeros(100, device="cuda"))
    side.wait_stream(pb.cuda.current_stream())
    with pb.cuda.stream(side):
        y = work(x)
    pb.cuda.current_stream().wait_stream(side)
    assert (y + 1).sum().item() == 6100
    assert side.query()


def test_stream_waits_for_event(late):
    side = pb.cuda.Stream()
    with pb.cuda.stream(side):
        x = work(pb.zeros(100, device="cuda"))
        event = side.record_event()
        work(x)
    event.wait()
    assert x.sum().item() == 3000
    other = pb.cuda.Stream()
    other.wait_event(event)
    with pb.cuda.stream(other):
        assert (x + 1).sum().item() == 3100


def test_missing_wait_shows(late, fake_cuda):
    """That these tests can fail: without the wait the other stream's work is not there yet."""
    side = pb.cuda.Stream()
    x = pb.zeros(100, device="cuda")
    pb.cuda.synchronize()
    with pb.cuda.stream(side):
        x.add_(1)
    assert x.sum().item() == 0
    side.synchronize()
    assert x.sum().item() == 100


# ---- backward ------------------------------------------------------------------------------------


def test_backward_runs_on_the_streams_of_forward(late, fake_cuda):
    side = pb.cuda.Stream()
    x = pb.full((64,), 2.0, device="cuda", requires_grad=True)
    a = work(x * 3, 2)
    side.wait_stream(pb.cuda.current_stream())
    with pb.cuda.stream(side):
        b = work(a * a, 2)
    pb.cuda.current_stream().wait_stream(side)
    loss = (a + b).sum()
    pb.cuda.synchronize()
    before = fake_cuda.counter("launches")
    loss.backward()
    pb.cuda.synchronize()
    count = fake_cuda.counter("launches") - before
    assert len({launch.stream for launch in fake_cuda.launches()[-count:]}) == 2
    assert x.grad.tolist() == [3 * (1 + 2 * (6.0 + 2))] * 64


def test_graphs_on_two_streams_do_not_wait_for_each_other(late, fake_cuda):
    """Forward and backward of one stream are done while another stream's are not."""
    streams = pb.cuda.Stream(), pb.cuda.Stream()
    leaves, ends = [], []
    for stream in streams:
        with pb.cuda.stream(stream):
            x = pb.full((64,), 2.0, device="cuda", requires_grad=True)
            work(x * x, 2).sum().backward()
            leaves.append(x)
            ends.append(stream.record_event())
    with pb.cuda.stream(streams[1]):
        assert leaves[1].grad.tolist() == [4.0] * 64
    assert ends[1].query()
    assert not ends[0].query()  # asked, the fake driver begins with what it holds back
    with pb.cuda.stream(streams[0]):
        assert leaves[0].grad.tolist() == [4.0] * 64


def test_gradients_are_added_without_waiting_for_the_device(late, fake_cuda):
    x = pb.full((64,), 2.0, device="cuda", requires_grad=True)
    for _ in range(3):
        work(x * x, 2).sum().backward()
    end = pb.cuda.current_stream().record_event()
    assert not end.query()
    assert x.grad.tolist() == [12.0] * 64


def test_gradients_of_two_streams_meet(late):
    x = pb.full((64,), 2.0, device="cuda", requires_grad=True)
    streams = [pb.cuda.Stream() for _ in range(3)]
    parts = []
    for i, stream in enumerate(streams):
        stream.wait_stream(pb.cuda.current_stream())
        with pb.cuda.stream(stream):
            parts.append(work(x * (i + 1)))
    for stream in streams:
        pb.cuda.current_stream().wait_stream(stream)
    sum(part.sum() for part in parts).backward()
    assert x.grad.tolist() == [6.0] * 64
    x.grad.add_(1)
    assert x.grad.tolist() == [7.0] * 64


def test_caller_s_stream_waits_for_leaves(late):
    side = pb.cuda.Stream()
    with pb.cuda.stream(side):
        x = pb.ones(64, device="cuda", requires_grad=True)
        loss = work(x * x).sum()
    pb.cuda.current_stream().wait_stream(side)
    loss.backward()
    assert (x.grad * 2).cpu().tolist() == [4.0] * 64  # on the default stream
    (grad,) = pb.autograd.grad(side_sum(side, x), x)
    assert (grad + 1).cpu().tolist() == [4.0] * 64


def side_sum(side, x):
    side.wait_stream(pb.cuda.current_stream())
    with pb.cuda.stream(side):
        result = work(x * 3).sum()
    pb.cuda.current_stream().wait_stream(side)
    return result


def test_backward_within_a_stream_waits_for_the_root(late):
    x = pb.ones(64, device="cuda", requires_grad=True)
    loss = work(x * 5).sum()
    side = pb.cuda.Stream()
    side.wait_stream(pb.cuda.current_stream())
    with pb.cuda.stream(side):
        seed = work(pb.zeros((), device="cuda"), 2)
        loss.backward(seed)
        assert x.grad.cpu().tolist() == [10.0] * 64


def test_second_derivatives_over_streams(late):
    side = pb.cuda.Stream()
    x = pb.full((8,), 2.0, device="cuda", requires_grad=True)
    side.wait_stream(pb.cuda.current_stream())
    with pb.cuda.stream(side):
        y = (x**3).sum()
    pb.cuda.current_stream().wait_stream(side)
    (first,) = pb.autograd.grad(y, x, create_graph=True)
    (second,) = pb.autograd.grad(first.sum(), x)
    assert second.cpu().tolist() == [12.0] * 8


@pytest.mark.filterwarnings("ignore:a leaf's only gradient comes from another stream")
def test_threads_with_streams_of_their_own(late):
    x = pb.ones(32, device="cuda", requires_grad=True)
    pb.cuda.synchronize()

    def run(i):
        side = pb.cuda.Stream()
        with pb.cuda.stream(side):
            work(x * float(i)).sum().backward()
            side.synchronize()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pb.cuda.synchronize()
    assert x.grad.cpu().tolist() == [6.0] * 32


def test_passes_on_several_streams_add_to_a_leaf_in_turn(late):
    x = pb.ones(32, device="cuda", requires_grad=True)
    pb.cuda.synchronize()
    for i in range(1, 5):
        with pb.cuda.stream(pb.cuda.Stream() if i != 3 else None):
            work(x * float(i)).sum().backward()
    pb.cuda.synchronize()
    assert x.grad.cpu().tolist() == [10.0] * 32


def test_exception_in_backward_restores_the_stream():
    side = pb.cuda.Stream()
    x = pb.ones(4, device="cuda", requires_grad=True)
    with pb.cuda.stream(side):
        y = x * 2
        y.register_hook(lambda grad: 1 / 0)
    default = pb.cuda.current_stream()
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    assert pb.cuda.current_stream() == default


def test_checkpoint_recomputes_on_its_stream(late):
    from pullback.utils.checkpoint import checkpoint

    side = pb.cuda.Stream()
    x = pb.full((16,), 0.5, device="cuda", requires_grad=True)
    side.wait_stream(pb.cuda.current_stream())
    with pb.cuda.stream(side):
        y = checkpoint(lambda t: work(t * t), x, use_reentrant=False).sum()
    pb.cuda.current_stream().wait_stream(side)
    y.backward()
    assert x.grad.cpu().tolist() == [1.0] * 16


# ---- memory and copies ---------------------------------------------------------------------------


def test_block_used_elsewhere_is_kept_until_that_is_done(late):
    side = pb.cuda.Stream()
    x = pb.ones(5000, device="cuda")
    pb.cuda.synchronize()
    side.wait_stream(pb.cuda.current_stream())
    with pb.cuda.stream(side):
        y = work(x)
    x.record_stream(side)
    address = x.data_ptr()
    del x
    z = pb.zeros(5000, device="cuda")  # must not be the block that the other stream still reads
    assert z.data_ptr() != address
    side.synchronize()
    assert y.sum().item() == 5000 * 31
    del z
    assert pb.zeros(5001, device="cuda").data_ptr() is not None


def test_copies_from_pinned_memory_need_no_wait(late):
    x = pb.arange(1000.0).pin_memory()
    assert x.is_pinned() and not pb.ones(3).is_pinned()
    y = x.cuda(non_blocking=True)
    z = work(y)
    assert z.cpu().tolist() == [i + 30.0 for i in range(1000)]
    back = pb.zeros(1000).pin_memory()
    back.copy_(z, non_blocking=True)
    pb.cuda.synchronize()
    assert back.tolist() == [i + 30.0 for i in range(1000)]


def test_pinned_memory_is_not_reused_while_a_copy_reads_it(late):
    pb.cuda.synchronize()
    x = pb.full((5000,), 7.0).pin_memory()
    y = x.cuda(non_blocking=True)
    del x
    other = pb.full((5000,), 9.0).pin_memory()
    assert y.sum().item() == 35000
    del other


def test_copies_between_devices(fake_cuda):
    x = work(pb.arange(100.0, device="cuda:0"))
    with fake_cuda.deferred():
        y = work(x).to("cuda:1")
        z = work(y)
        assert z.device.index == 1
        assert z.cpu().tolist() == [i + 90.0 for i in range(100)]
        back = z.to("cuda:0") + 1
        assert back.cpu().tolist() == [i + 91.0 for i in range(100)]
        pb.cuda.synchronize(1)
        pb.cuda.synchronize(0)


def test_gradients_cross_devices(fake_cuda):
    x = pb.full((50,), 3.0, device="cuda:0", requires_grad=True)
    w = pb.full((50,), 2.0, device="cuda:1", requires_grad=True)
    with fake_cuda.deferred():
        (x.to("cuda:1") * w).to("cuda:0").mul(x).sum().backward()
        assert x.grad.device.index == 0 and w.grad.device.index == 1
        assert x.grad.cpu().tolist() == [12.0] * 50
        assert w.grad.cpu().tolist() == [9.0] * 50
        pb.cuda.synchronize(1)
        pb.cuda.synchronize(0)


def test_operands_of_two_devices_are_refused(fake_cuda):
    with pytest.raises(RuntimeError, match=r"same device|cuda:1"):
        pb.ones(3, device="cuda:0") + pb.ones(3, device="cuda:1")
