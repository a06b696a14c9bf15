"""Examples in docstrings and documents that need a device."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODULES = (
    *("runtime.driver", "runtime.device_properties", "runtime.memory", "runtime.streams"),
    "user_kernels",
)
DOCUMENTS = ("docs/howto/use-cuda.md", "packages/backend-cuda/README.md")
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS

pytestmark = pytest.mark.usefixtures("cuda")


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_modules(name):
    module = importlib.import_module(f"pullback_cuda.{name}")
    assert doctest.testmod(module, optionflags=FLAGS).failed == 0


@pytest.mark.parametrize("name", DOCUMENTS)
def test_examples_of_documents(name):
    path = ROOT / name
    if not path.is_file():
        pytest.skip("the repository is not here")
    result = doctest.testfile(str(path), module_relative=False, optionflags=FLAGS)
    assert result.attempted > 0
    assert result.failed == 0
