"""Devices: what is known of them, which one is current, contexts of others, threads, the end."""

import threading

import pytest

import pullback as pb

pytestmark = pytest.mark.usefixtures("cuda")


def test_devices_are_counted_and_described(fake_cuda):
    assert pb.cuda.is_available() is True
    assert pb.cuda.device_count() == pb.backend.device_count("cuda") == 2
    assert pb.cuda.get_device_name(1) == "Fake CUDA device 1"
    assert pb.cuda.get_device_capability() == (9, 0)
    properties = pb.cuda.get_device_properties("cuda:0")
    assert (properties.name, properties.major, properties.minor) == ("Fake CUDA device 0", 9, 0)
    assert properties.multi_processor_count == 8
    assert properties.total_memory == pb.cuda.mem_get_info()[1]


def test_tensors_know_their_device():
    x = pb.ones(3, device="cuda")
    assert x.is_cuda and x.device == pb.device("cuda:0") and x.get_device() == 0
    assert pb.ones(3).cuda(1).device == pb.device("cuda:1")


@pytest.mark.parametrize("where", ["cuda:2", "cuda:31", "cuda:32", "cuda:32767"])
def test_missing_device_is_named(where, fake_cuda):
    with pytest.raises(RuntimeError, match=rf"{where} does not exist.*2 device"):
        pb.ones(3, device=where)


def test_current_device_is_what_cuda_means(fake_cuda):
    assert pb.cuda.current_device() == 0
    with pb.cuda.device(1):
        assert pb.cuda.current_device() == 1
        assert pb.ones(2, device="cuda").device.index == 1
        with pb.cuda.device_of(pb.ones(2, device="cuda:0")):
            assert pb.empty(1, device="cuda").device.index == 0
        assert pb.cuda.current_device() == 1
    assert pb.cuda.current_device() == 0


def test_current_device_belongs_to_the_thread(fake_cuda):
    seen = []
    with pb.cuda.device(1):
        thread = threading.Thread(target=lambda: seen.append(pb.cuda.current_device()))
        thread.start()
        thread.join()
    assert seen == [0]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: pb.cuda.set_device(7), RuntimeError, "invalid device ordinal"),
        (lambda: pb.cuda.set_device(2**31), RuntimeError, "invalid device ordinal"),
        (lambda: pb.cuda.set_device(10**30), RuntimeError, "invalid device ordinal"),
        (lambda: pb.cuda.synchronize(10**30), RuntimeError, "Invalid device string"),
        (lambda: pb.cuda.Stream(2**31), RuntimeError, "from 0 to 32767, got 2147483648"),
        (lambda: pb.cuda.set_device("ref"), ValueError, "expected a cuda device"),
        (lambda: pb.cuda.get_device_name("cpu:0"), ValueError, "Expected a cuda device"),
        (lambda: pb.cuda.synchronize(9), RuntimeError, "cuda:9 does not exist"),
        (lambda: pb.ones(2).cuda("ref"), RuntimeError, "must be cuda device"),
    ],
)
def test_wrong_devices_are_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_another_context_stays_current(fake_cuda):
    import pycuda.driver as driver

    driver.init()
    other = driver.Device(0).make_context()
    try:
        assert (pb.ones(3, device="cuda") + 1).tolist() == [2, 2, 2]
        memory = driver.mem_alloc(64)  # in the context that was pushed, which is still current
        assert driver.Context.get_device() == driver.Device(0)
        memory.free()
    finally:
        other.pop()
        other.detach()


def test_many_threads_compute():
    results = []

    def work(number):
        x = pb.full((100,), float(number), device="cuda", requires_grad=True)
        for _ in range(20):
            x = x * 1.0 + 1.0
        results.append((number, x.sum().item()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [(i, 100.0 * (i + 20)) for i in range(8)]


END = """
import atexit, threading
import pullback as pb
x = pb.ones(1000, device='cuda', requires_grad=True)
thread = threading.Thread(target=lambda: globals().update(y=(x * 2).sum()))
thread.start(); thread.join()
y.backward()
side = pb.cuda.Stream()
with pb.cuda.stream(side):
    z = x.detach() * 3
event = pb.cuda.Event(); event.record()
pinned = pb.ones(10).pin_memory()
{end}
"""


@pytest.mark.parametrize(
    "end",
    [
        "",
        "raise SystemExit(0)",
        "del x, y, z",
        "keep = [x]; keep.append(keep)",
        "atexit.register(lambda: print((x.detach() + 1)[0]))",
    ],
    ids=["tensors-left", "exit", "freed", "cycle", "used-by-atexit"],
)
def test_end_of_the_process_is_clean(end, run_python):
    result = run_python(END.format(end=end))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


def test_exception_at_the_end_is_the_only_output(run_python):
    result = run_python(END.format(end="raise ValueError('mine')"))
    assert result.returncode == 1
    assert result.stderr.rstrip().endswith("ValueError: mine")
    assert "PyCUDA" not in result.stderr


def test_pinned_memory_lives_to_the_end(run_python):
    text = """
import atexit, pullback as pb
atexit.register(lambda: print(kept.sum().item()))
kept = pb.ones(2000).pin_memory()
"""
    result = run_python(text)
    assert result.stdout == "2000.0\n", result.stderr


def test_child_of_a_fork_gets_an_error(run_python):
    text = """
import os, pullback as pb
x = pb.ones(3, device='cuda')
pb.ones(3, pin_memory=True)
child = os.fork()
if child == 0:
    for use in (lambda: x + 1, lambda: pb.ones(3, device='cuda'),
                lambda: pb.ones(3, pin_memory=True), lambda: pb.cuda.Stream(1)):
        try:
            use()
        except RuntimeError as error:
            print(error, flush=True)
    del use, x
    os._exit(0)
print(os.waitpid(child, 0)[1])
print((x + 1).tolist())
"""
    result = run_python(text)
    lines = result.stdout.splitlines()
    assert len(lines) == 6, result.stderr
    assert all("forked" in line and "'spawn'" in line for line in lines[:4])
    assert lines[4:] == ["0", "[2.0, 2.0, 2.0]"]


def test_old_devices_are_refused(run_python, fake_cuda):
    text = """
import pullback as pb, pullback_cuda.runtime.devices as devices
devices.OLDEST = (9, 9)
try:
    pb.ones(3, device='cuda')
except RuntimeError as error:
    print(error)
"""
    assert run_python(text).stdout == (
        "cuda:0 (Fake CUDA device 0) has compute capability 9.0; pullback-cuda needs 7.5 or newer\n"
    )


def test_kernels_of_another_version_are_named(run_python, tmp_path):
    (tmp_path / "binary.fatbin").write_bytes(b"nothing")
    text = "import pullback as pb; x = pb.empty(3, device='cuda'); x + x"
    result = run_python(text, PULLBACK_CUDA_KERNELS=str(tmp_path))
    assert "RuntimeError: cuda:0: the image of 'binary' cannot be loaded: cuModule" in result.stderr
    result = run_python(text, PULLBACK_CUDA_KERNELS=str(tmp_path / "none"))
    assert "has no binary.fatbin" in result.stderr
