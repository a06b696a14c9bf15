"""The example backend in pure Python, installed as a stranger would do it."""

import pytest

SETUP = "import warnings; warnings.simplefilter('error'); import pullback as pb\n"


@pytest.fixture(scope="module")
def site(install_example):
    """A folder with the example installed."""
    return install_example("third_party_backend")


@pytest.fixture
def run(run_lines, site):
    """Run code with the example installed and the fallback forbidden; return its lines."""
    return lambda code: run_lines(site, SETUP + code, PULLBACK_FALLBACK="error")


def test_it_stays_small(root):
    """What a backend needs; its executor of compiled programs comes on top."""
    files = list((root / "examples/third_party_backend/src").rglob("*.py"))
    lines = {path.name: path.read_text().count("\n") for path in files}
    assert lines.pop("executor.py") <= 90
    assert sum(lines.values()) <= 350


def test_every_required_kernel_is_there_and_no_other(run):
    code = (
        "from pullback.ops.table.primitives import LIBRARY, PRIMITIVES\n"
        "from pullback_example.kernels import KERNELS\n"
        "print(set(KERNELS) == {name for name, p in PRIMITIVES.items() if p.required} - LIBRARY)"
    )
    assert run(code) == ["True"]


def test_a_network_trains_on_it(run, training):
    assert run(training("example")) == ["True example:0"]


def test_memory_is_its_own_and_given_back(run):
    code = (
        "x = pb.ones(1000, device='example', requires_grad=True)\n"
        "in_use = lambda: pb.memory_stats('example')['allocated_bytes.all.current']\n"
        "before = in_use()\n"
        "(x.exp() + x).sum().backward(); x.grad = None\n"
        "print(before >= 4000, in_use() - before)"
    )
    assert run(code) == ["True 0"]


def test_elements_move_in_and_out(run):
    code = (
        "import numpy as np\n"
        "a = np.arange(6.0).reshape(2, 3)\n"
        "x = pb.from_numpy(a).to('example')\n"
        "x[:, 1] = 7\n"
        "print(x.t().cpu().tolist(), x[1, 2].item(), pb.tensor([1, 2], device='example'))"
    )
    assert run(code) == [
        "[[0.0, 3.0], [7.0, 7.0], [2.0, 5.0]] 5.0 tensor([1, 2], device='example:0')"
    ]


def test_errors_of_its_memory_reach_the_user(run):
    code = (
        "from pullback_example.memory import MEMORY\n"
        "x = pb.ones(3, device='example')\n"
        "def fail(*given): raise OSError('the cable is loose')\n"
        "MEMORY.read = fail\n"
        "try:\n    x.tolist()\n"
        "except RuntimeError as error:\n    print(error)\n"
        "def full(*given): raise MemoryError\n"
        "MEMORY.allocate = full\n"
        "try:\n    x + x\n"
        "except MemoryError as error:\n    print(error)"
    )
    loose, full = run(code)
    assert "OSError: the cable is loose" in loose
    assert full == "example: cannot allocate 12 bytes"


@pytest.mark.parametrize("missing", ["allocate", "release", "write", "read", "copy"])
def test_memory_without_a_method_is_refused(run_python, write_plugin, missing):
    names = {"allocate", "release", "write", "read", "copy"} - {missing}
    methods = "".join(f"    def {name}(self, *given): pass\n" for name in sorted(names))
    path = write_plugin(
        "odd",
        f"class Memory:\n{methods}"
        "from pullback.backend import hookimpl\n"
        "@hookimpl\n"
        "def pullback_backend(device): return Memory()\n"
        "@hookimpl\n"
        "def pullback_register_kernels(table, device): pass\n",
    )
    done = run_python("import pullback as pb; pb.zeros(1, device='odd')", PYTHONPATH=path)
    assert done.returncode == 1
    assert f"Memory has no {missing}()" in done.stderr
    assert "'odd'" in done.stderr


OPTIONAL = """
class Memory:
    calls = []
    def device_count(self): return 2
    def synchronize(self, device):
        self.calls.append(("synchronize", device))
        if device == 0: raise OSError("the cable is loose")
    def empty_cache(self, device): self.calls.append(("empty_cache", device))
    def memory_stats(self, device): return 5 * 1024, 20 * 1024, 2**20, 3
    def reset_peak_memory_stats(self, device): self.calls.append(("reset_peak", device))
    def allocate(self, *given): self.calls.append(("allocate", given[0])); return 1
    def release(self, *given): pass
    read = write = copy = release
MEMORY = Memory()
from pullback.backend import hookimpl
@hookimpl
def pullback_backend(device): return MEMORY if device == "twin" else None
@hookimpl
def pullback_register_kernels(table, device): pass
"""


def test_optional_methods_of_memory_are_called(run_lines, write_plugin):
    code = (
        "x = pb.empty(1, device='twin:1')\n"
        "pb.synchronize('twin:1'); pb.empty_cache('twin:1')\n"
        "pb.reset_peak_memory_stats('twin:1')\n"
        "from plugin_of_twin import MEMORY\n"
        "print(MEMORY.calls)\n"
        "for call in (lambda: pb.empty(1, device='twin:2'), lambda: pb.synchronize('twin')):\n"
        "    try:\n        call()\n"
        "    except RuntimeError as error:\n        print(error)"
    )
    calls, beyond, loose = run_lines(write_plugin("twin", OPTIONAL), SETUP + code)
    assert calls == ("[('allocate', 1), ('synchronize', 1), ('empty_cache', 1), ('reset_peak', 1)]")
    assert beyond == "device twin:2 does not exist: the backend 'twin' has 2 device(s)"
    assert loose == "synchronize() failed on twin: OSError: the cable is loose"


def test_memory_in_a_table(run_lines, write_plugin):
    code = (
        "print(pb.memory_summary('twin:1'))\n"
        "print(len(pb.memory_summary('twin:1', abbreviated=True).splitlines()))"
    )
    title, _, _, allocated, reserved, count, short = run_lines(
        write_plugin("twin", OPTIONAL), SETUP + code
    )
    assert title == "Memory of twin:1"
    assert allocated.split() == "| Allocated memory | 5120 B | 20 KiB |".split()
    assert reserved.split() == "| Reserved memory | 1024 KiB | |".split()
    assert count.split() == "| Allocations made | 3 | |".split()
    assert short == "5"


def test_an_op_with_two_results_is_composed(run):
    code = (
        "found = pb.tensor([1., 3., 2.], device='example').cummax(0)\n"
        "print(type(found).__name__, found.values.tolist(), found.indices.tolist())\n"
        "half = pb.tensor([2., 1.], device='example', dtype=pb.float16).cummin(0).values\n"
        "print(half.dtype, half.tolist(), half.device)"
    )
    assert run(code) == [
        "cummax [1.0, 3.0, 3.0] [0, 1, 1]",
        "pullback.float16 [2.0, 1.0] example:0",
    ]


def test_memory_without_optional_methods_has_one_device(run):
    code = (
        "pb.synchronize('example'); pb.empty_cache('example')\n"
        "try:\n    pb.empty(1, device='example:1')\n"
        "except RuntimeError as error:\n    print(error)"
    )
    assert run(code) == ["device example:1 does not exist: the backend 'example' has 1 device(s)"]


def test_its_executor_fuses_products_into_sums(run):
    """Fewer arrays are written, and the results have the same bits."""
    code = """
from pullback_example import executor

runs = []
call = executor.Executor.__call__
executor.Executor.__call__ = lambda self, calls: runs.append(self.summands) or call(self, calls)


def function(x, y):
    kept = x * y  # the square reads it, too: it is stored
    return (x * y.exp() + x) * (y * x + kept), kept * kept


compiled = pb.compile(function)
for seed in range(3):
    pb.manual_seed(seed)
    x, y = pb.randn(4, 5, device="example"), pb.randn(4, 5, device="example")
    for found, expected in zip(compiled(x, y), function(x, y), strict=True):
        assert found.tolist() == expected.tolist()
print(len(runs), sorted(map(len, runs)))
"""
    assert run(code) == ["2 [2, 2]"]


def test_it_computes_what_the_reference_does(run):
    code = (
        "from pullback.testing import compare_backends\n"
        "model = pb.nn.Sequential(pb.nn.Linear(3, 8), pb.nn.Tanh(), pb.nn.Linear(8, 1))\n"
        "print(compare_backends(model, pb.rand(5, 3), devices=('ref', 'example')))\n"
    )
    assert run(code)[0].startswith("equal: ref and example agree on ")
