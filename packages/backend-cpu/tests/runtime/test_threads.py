"""Threads share large calls: results do not depend on which one works, and idle ones sleep."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from kernel_calls import run_kernel

import pullback as pb
from pullback.testing.kernel_calls import KernelError
from pullback_cpu.runtime import threads

LARGE = 300_001
LIMITS = (1, 2, 3, 8)


@pytest.fixture(autouse=True)
def keep_limit():
    """Leave the limit of threads as it was."""
    before = threads.get_num_threads()
    yield
    threads.set_num_threads(before)


def random_array(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def layouts_of_pairs():
    """Pairs of large operands whose loops are cut in different ways."""
    line = random_array(LARGE)
    square = random_array(700, 701)
    thin = random_array(3, LARGE)
    return {
        "line": (line, line[::-1]),
        "every second": (line[:-1:2], line[1::2]),
        "scalar": (line, np.broadcast_to(line[:1], line.shape)),
        "rows": (square[:, ::2], square[:, :351]),
        "transposed": (square[:, :700], square[:, :700].T),
        "row vector": (square, np.broadcast_to(square[0], square.shape)),
        "column vector": (square, np.broadcast_to(square[:, :1], square.shape)),
        "few long rows": (thin[:, :-1], thin[:, 1:]),
        "few long transposed rows": (thin[:, :-1], thin.T.copy().T[:, 1:]),
    }


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("layout", layouts_of_pairs())
def test_results_do_not_depend_on_the_number_of_threads(layout, limit):
    x, y = layouts_of_pairs()[layout]
    out = np.full(x.shape, np.nan, np.float32)
    threads.set_num_threads(limit)
    run_kernel("sub", out, [x, y])
    np.testing.assert_array_equal(out, x - y)


@pytest.mark.parametrize("limit", LIMITS)
def test_an_error_in_any_piece_is_reported(limit):
    x = np.full(LARGE, 7, np.int64)
    y = np.ones(LARGE, np.int64)
    y[-5] = 0
    threads.set_num_threads(limit)
    with pytest.raises(KernelError, match="ZeroDivisionError"):
        run_kernel("floor_divide", np.empty_like(x), [x, y])


def test_several_threads_may_compute_at_the_same_time():
    threads.set_num_threads(3)
    inputs = [random_array(LARGE) + k for k in range(6)]
    outs = [np.zeros(LARGE, np.float32) for _ in inputs]

    def work(k):
        for _ in range(20):
            run_kernel("add", outs[k], [inputs[k], inputs[k]])

    workers = [threading.Thread(target=work, args=(k,)) for k in range(len(inputs))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    for x, out in zip(inputs, outs, strict=True):
        np.testing.assert_array_equal(out, 2 * x)


@pytest.mark.parametrize("count", [0, -3])
def test_the_limit_is_at_least_one(count):
    threads.set_num_threads(count)
    assert threads.get_num_threads() == 1


# -- processes ------------------------------------------------------------------------------------


def run_python(code, **variables):
    """Run a program in a fresh interpreter and return what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    for name in ("PULLBACK_NUM_THREADS", "OMP_NUM_THREADS", "PULLBACK_CPU_LEVEL"):
        if name not in variables:
            environment.pop(name, None)
    result = subprocess.run(
        [sys.executable, "-W", "always", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip(), result.stderr


SHOW_LIMIT = (
    "pb.ones(1, device='cpu'); from pullback_cpu.runtime import threads; "
    "print(threads.get_num_threads(), pb.get_num_threads())"
)
LIMIT = f"import pullback as pb; {SHOW_LIMIT}"


def test_environment_variables_set_the_limit():
    assert run_python(LIMIT, PULLBACK_NUM_THREADS="3")[0] == "3 3"
    assert run_python(LIMIT, OMP_NUM_THREADS="5")[0] == "5 5"
    assert run_python(LIMIT, OMP_NUM_THREADS="5", PULLBACK_NUM_THREADS="2")[0] == "2 2"


def test_without_a_variable_every_processor_of_the_process_has_a_thread():
    expected = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert run_python(LIMIT)[0] == f"{expected} {expected}"


@pytest.mark.parametrize("text", ["none", "0", "-1", "1.5"])
def test_a_variable_that_is_no_positive_integer_is_ignored_with_a_warning(text):
    printed, warned = run_python(LIMIT, PULLBACK_NUM_THREADS=text)
    assert int(printed.split()[0]) >= 1
    assert "RuntimeWarning" in warned
    assert f"PULLBACK_NUM_THREADS is {text!r}" in warned


def test_set_num_threads_reaches_the_kernels():
    code = f"import pullback as pb; pb.set_num_threads(4); {SHOW_LIMIT}"
    assert run_python(code)[0] == "4 4"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_has_threads_of_its_own():
    code = """
import os, sys, warnings
import numpy as np
from kernel_calls import run_kernel
import pullback as pb
from pullback_cpu.runtime import threads

threads.set_num_threads(3)
x = np.arange(500_000, dtype=np.float32)
out = np.empty_like(x)
run_kernel("add", out, [x, x])  # starts the parent's threads
warnings.simplefilter("ignore")
child = os.fork()
out[:] = 0
for _ in range(50):
    run_kernel("add", out, [x, x])
right = bool((out == 2 * x).all())
if child == 0:
    os._exit(0 if right else 1)
print(right, os.waitpid(child, 0)[1])
"""
    assert run_python(code)[0] == "True 0"


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="needs Linux's view of threads")
def test_idle_threads_sleep():
    code = """
import os, time
import numpy as np
from kernel_calls import run_kernel
import pullback as pb
from pullback_cpu.runtime import threads

threads.set_num_threads(3)
x = np.ones(500_000, np.float32)
run_kernel("add", np.empty_like(x), [x, x])
time.sleep(0.5)
me = str(os.getpid())
others = [task for task in os.listdir("/proc/self/task") if task != me]
states = {open(f"/proc/self/task/{task}/stat").read().rpartition(")")[2].split()[0]
          for task in others}
print(len(others) >= 2, states)
"""
    assert run_python(code)[0] == "True {'S'}"


def test_threadpoolctl_sees_and_limits_the_threads():
    pytest.importorskip("threadpoolctl")
    code = """
import pullback as pb
{first}
pb.ones(1, device="cpu")
{second}
import pullback as pb
from pullback_cpu.runtime import threads
pb.set_num_threads(4)
ours = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "pullback"]
print([(pool["internal_api"], pool["num_threads"]) for pool in ours])
with threadpoolctl.threadpool_limits(limits=2):
    print(threads.get_num_threads())
with threadpoolctl.threadpool_limits(limits=1, user_api="pullback"):
    print(threads.get_num_threads())
print(threads.get_num_threads())
"""
    expected = "[('pullback_cpu', 4)]\n2\n1\n4"
    early = code.format(first="import threadpoolctl", second="")
    asked = "import importlib.util; assert importlib.util.find_spec('threadpoolctl')"
    late = code.format(first="", second=f"{asked}; import threadpoolctl")
    assert run_python(early)[0] == expected
    assert run_python(late)[0] == expected


# -- instruction sets -----------------------------------------------------------------------------


def test_every_instruction_set_that_is_here_can_be_chosen():
    from pullback_cpu.runtime.isa import available_isas

    code = (
        "from pullback_cpu.runtime.isa import ISA; import pullback as pb; "
        "print(ISA, (pb.arange(5, device='cpu') + 1).tolist())"
    )
    for isa in available_isas():
        assert run_python(code, PULLBACK_CPU_LEVEL=isa)[0] == f"{isa} [1, 2, 3, 4, 5]"
    assert run_python(code)[0] == f"{available_isas()[-1]} [1, 2, 3, 4, 5]"


def test_an_unknown_instruction_set_makes_the_device_unusable_and_says_why():
    code = """
import pullback as pb
try:
    pb.ones(1, device="cpu")
except RuntimeError as error:
    print(error)
"""
    printed, _ = run_python(code, PULLBACK_CPU_LEVEL="avx1024")
    assert "PULLBACK_CPU_LEVEL is 'avx1024', but here it must be one of ['baseline'" in printed


def test_bits_of_a_product_while_other_threads_multiply():
    rng = np.random.default_rng(5)
    z = pb.tensor(rng.normal(size=(300, 300)) + 1j * rng.normal(size=(300, 300)))
    v = pb.tensor(rng.normal(size=(2000, 700)))
    w = pb.tensor(rng.normal(size=700))
    expected = [(z @ z).numpy().tobytes(), (v @ w).numpy().tobytes()]
    found = []

    def work():
        for _ in range(8):
            found.append([(z @ z).numpy().tobytes(), (v @ w).numpy().tobytes()])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 24
    assert all(bits == expected for bits in found)
