"""The example backend in pure Python, installed as a stranger would do it."""

import os
import subprocess
import sys

import pytest

SETUP = "import warnings; warnings.simplefilter('error'); import pullback as pb\n"


@pytest.fixture(scope="module")
def site(root, tmp_path_factory):
    """A folder with the example installed."""
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    source = root / "examples/third_party_backend"
    result = subprocess.run(
        [sys.executable, *command, str(source)],
        capture_output=True,
        text=True,
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return str(folder)


@pytest.fixture
def run(run_python, site):
    """Run code with the example installed and the fallback forbidden; return its lines."""

    def run_code(code, **environment):
        done = run_python(SETUP + code, PYTHONPATH=site, PULLBACK_FALLBACK="error", **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run_code


def test_it_has_at_most_300_lines(root):
    files = (root / "examples/third_party_backend/src").rglob("*.py")
    assert sum(path.read_text().count("\n") for path in files) <= 300


def test_every_required_kernel_is_there_and_no_other(run):
    code = (
        "from pullback.optable.slots import SLOTS\n"
        "from pullback_example.kernels import KERNELS\n"
        "print(set(KERNELS) == {name for name, slot in SLOTS.items() if slot.required})"
    )
    assert run(code) == ["True"]


def test_a_network_trains_on_it(run):
    code = (
        "pb.set_default_device('example'); pb.manual_seed(0)\n"
        "w, x, labels = pb.randn(4, 3, requires_grad=True), pb.randn(8, 4), pb.arange(8) % 3\n"
        "losses = []\n"
        "for step in range(30):\n"
        "    loss = pb.nn.functional.cross_entropy(pb.tanh(x @ w), labels)\n"
        "    loss.backward()\n"
        "    losses.append(loss.item())\n"
        "    with pb.no_grad():\n"
        "        w -= w.grad; w.grad = None\n"
        "print(losses[-1] < 0.8 * losses[0], w.device)"
    )
    assert run(code) == ["True example:0"]


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
