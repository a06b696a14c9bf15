"""What kernels find wrong, and what the driver reports: which exception, and what is left."""

import pytest

import pullback as pb

pytestmark = pytest.mark.usefixtures("cuda")


@pytest.fixture
def late(fake_cuda):
    """Work waits until its result is requested, as it does on a device."""
    pb.ones(3, device="cuda") + 1
    pb.cuda.synchronize()
    with fake_cuda.deferred():
        yield
        try:
            pb.cuda.synchronize()
        except (IndexError, RuntimeError):
            pass  # what the test left to be found


BAD = [
    (lambda x, i: x[i], r"index 7 is out of bounds for dimension 0 with size 4"),
    (lambda x, i: x.gather(0, i), r"index 7 is out of bounds for dimension 0 with size 4"),
    (lambda x, i: x.clone().scatter_(0, i, x[:1]), r"index 7 is out of bounds"),
    (lambda x, i: x.clone().index_put_((i,), x[:1]), r"index 7 is out of bounds"),
    (lambda x, i: x.index_select(0, i), r"index.*out of (range|bounds)"),
    (lambda x, i: pb.nn.functional.embedding(i, x.reshape(4, 1)), r"index.*out of (range|bounds)"),
]


@pytest.mark.parametrize(("use", "words"), BAD)
def test_bad_index_raises_as_on_the_host(use, words):
    x, i = pb.rand(4, device="cuda"), pb.tensor([7], device="cuda")
    with pytest.raises((IndexError, RuntimeError), match=words) as known:
        use(x.cpu(), i.cpu())
    with pytest.raises((IndexError, RuntimeError), match=words) as found:
        use(x, i).cpu()
    assert found.type is known.type
    assert (x + 1).cpu().shape == (4,)  # the device goes on


def test_bad_index_raises_when_the_result_is_requested(late):
    x, i = pb.rand(4, device="cuda"), pb.tensor([0, 9], device="cuda")
    y = x[i] * 2
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 4"):
        y.cpu()
    assert (x * 0).cpu().tolist() == [0] * 4


def test_bad_index_is_raised_by_synchronize(late):
    x, i = pb.rand(4, device="cuda"), pb.tensor([-5], device="cuda")
    x[i]
    with pytest.raises(IndexError, match="index -5 is out of bounds for dimension 0 with size 4"):
        pb.cuda.synchronize()
    pb.cuda.synchronize()  # raised once


def test_first_of_several_failures_is_raised():
    x = pb.rand(4, device="cuda")
    with pytest.raises(IndexError):
        x[pb.tensor([0, 1, 2, 9, 8, 7], device="cuda")].cpu()
    x[pb.tensor([0, 1, 2], device="cuda")].cpu()


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod"])
@pytest.mark.parametrize("dtype", [pb.uint8, pb.int8, pb.int16, pb.int32, pb.int64])
def test_integer_division_by_zero(name, dtype):
    x = pb.tensor([1, 2, 3], dtype=dtype, device="cuda")
    y = pb.tensor([1, 0, 2], dtype=dtype, device="cuda")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        getattr(pb, name)(x, y).cpu()
    assert getattr(pb, name)(x, x).cpu().shape == (3,)


def test_class_out_of_range():
    scores = pb.rand(3, 4, device="cuda").log_softmax(1)
    target = pb.tensor([0, 4, 1], device="cuda")
    with pytest.raises(IndexError, match="4 is out of bounds"):
        pb.nn.functional.nll_loss(scores, target).item()


@pytest.mark.parametrize("name", ["cuLaunchKernel", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"])
def test_errors_of_the_driver_name_device_and_call(name, fake_cuda):
    x = pb.rand(4, device="cuda")
    uses = {
        "cuLaunchKernel": lambda: x + 1,
        "cuMemcpyHtoDAsync": lambda: pb.rand(4).cuda(),
        "cuMemcpyDtoHAsync": lambda: x.cpu(),
    }
    fake_cuda.fail(name, "UNKNOWN", times=1)
    with pytest.raises(RuntimeError, match=f"{name}.*"):
        uses[name]()
    assert (x + 1).cpu().shape == (4,)


def test_failed_launch_in_backward_leaves_the_graph(fake_cuda):
    x = pb.rand(4, device="cuda", requires_grad=True)
    y = (x * 2).tanh().sum()
    fake_cuda.fail("cuLaunchKernel", "UNKNOWN", times=1)
    with pytest.raises(RuntimeError, match="cuLaunchKernel"):
        y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None


def test_failure_of_an_earlier_op_is_not_taken_for_this_one_s(late):
    x = pb.arange(6.0, device="cuda") + 10
    bad = pb.zeros(4, device="cuda")[pb.tensor([1, 9], device="cuda")]
    event = pb.cuda.Event()
    event.record()
    event.synchronize()  # reported by the device, not raised yet
    taken = pb.take(x, pb.tensor([0, 1], device="cuda"))
    gathered = x.gather(0, pb.tensor([2], device="cuda"))
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 4"):
        taken.cpu()
    assert taken.cpu().tolist() == [10.0, 11.0] and gathered.cpu().tolist() == [12.0]
    assert bad.shape == (2,)


def test_failed_launch_does_not_hide_the_failure_of_an_earlier_op(late, fake_cuda):
    x, i = pb.rand(4, device="cuda"), pb.tensor([1, 9], device="cuda")
    y, j = pb.rand(6, device="cuda"), pb.tensor([0, 1], device="cuda")
    x[i]  # raised when a result is requested
    fake_cuda.fail("cuLaunchKernel", "UNKNOWN", times=1)
    with pytest.raises(RuntimeError, match="launch of take"):
        pb.take(y, j)
    fake_cuda.fail_nothing()
    end = pb.cuda.Event()
    end.record()
    end.synchronize()
    pb.take(y, j)
    with pytest.raises(IndexError, match="index 9 is out of bounds for dimension 0 with size 4"):
        pb.cuda.synchronize()


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("cuDeviceGetName", lambda: pb.cuda.get_device_name()),
        ("cuDeviceTotalMem", lambda: pb.cuda.set_per_process_memory_fraction(1.0)),
        ("cuDeviceCanAccessPeer", lambda: pb.cuda.can_device_access_peer(0, 1)),
    ],
)
def test_questions_that_fail_name_the_device(name, ask, fake_cuda):
    fake_cuda.fail(name, "UNKNOWN", times=1)
    with pytest.raises(RuntimeError, match=rf"^cuda:[01]: {name} failed"):
        ask()


def test_start_without_memory_is_out_of_memory(run_python, fake_cuda):
    text = """
import fake_driver, pullback as pb
fake_driver.load().fail("cuDevicePrimaryCtxRetain", "OUT_OF_MEMORY", times=2)
for start in (lambda: pb.ones(3, device='cuda'), pb.cuda.Stream, lambda: pb.ones(3).cuda()):
    try:
        print(start() is not None)
    except pb.OutOfMemoryError as error:
        print(error)
"""
    result = run_python(text)
    first, second, third = result.stdout.splitlines()
    assert first == second and first.startswith("cuda:0: cuDevicePrimaryCtxRetain failed")
    assert third == "True" and not result.stderr


def test_start_that_fails_can_be_tried_again(run_python, fake_cuda):
    text = """
import fake_driver, pullback as pb
control = fake_driver.load()
control.fail("cuStreamCreate", "OUT_OF_MEMORY", times=1)
for _ in range(2):
    try:
        print(pb.ones(3, device='cuda').tolist())
    except RuntimeError as error:
        print(error)
"""
    first, second = run_python(text).stdout.splitlines()
    assert first.startswith("cuda:0: cuStreamCreate failed")
    assert second == "[1.0, 1.0, 1.0]"


def test_libraries_work_beside_a_context_of_the_user(run_python, fake_cuda):
    text = """
import pycuda.autoinit, pullback as pb
a = pb.rand(30, 30, dtype=pb.float64)
u, s, vh = pb.linalg.svd(a.cuda())
print(((u * s) @ vh - a.cuda()).abs().max().item() < 1e-10)
b = pb.rand(300, 300, dtype=pb.float64) + 300 * pb.eye(300, dtype=pb.float64)
x = pb.linalg.solve(b.cuda(), pb.ones(300, 1, dtype=pb.float64, device='cuda'))
print((b.cuda() @ x - 1).abs().max().item() < 1e-10)
"""
    result = run_python(text)
    assert result.stdout.split() == ["True", "True"], result.stderr


def test_interrupt_is_no_other_error(run_python, fake_cuda):
    text = """
import signal, pullback as pb
class Stop(BaseException): pass
def handler(*args): raise Stop
signal.signal(signal.SIGALRM, handler)
x = pb.ones(3000, device='cuda')
(x * 2 + 1).cpu()  # loads the kernels: an interrupt of a finalizer in there would be ignored
def run(seconds):
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        while True:
            (x * 2 + 1).cpu()
    except BaseException as error:
        return type(error).__name__
print({run(0.0003 + i * 1e-6) for i in range(2000)})
"""
    result = run_python(text)
    assert result.stdout == "{'Stop'}\n", result.stderr


def test_interrupt_leaves_no_context_on_the_stack(run_python, fake_cuda):
    text = """
import signal, pullback as pb
from pullback_cuda.runtime import devices
class Stop(Exception): pass
def handler(*args): raise Stop
signal.signal(signal.SIGALRM, handler)
device = devices.started(0)
stops = 0
for i in range(2000):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0001 + i * 1e-7)
        while True:
            with device.pushed():
                pass
    except Stop:
        stops += 1
print(stops)
"""
    result = run_python(text)  # at the end pycuda aborts if its stack is not empty
    assert (result.returncode, result.stdout, result.stderr) == (0, "2000\n", "")
