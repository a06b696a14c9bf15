"""The list of torch's names is what torch has, and what is here takes the same arguments."""

import inspect
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

# Parameters that only torch needs; that of a method is the tensor; out= is in no signature there.
PRIVATE = {"_preallocate_and_copy", "_caller", "_devices_kw", "_random_samples", "_stacklevel"}
PRIVATE |= {"_", "self", "input", "out"}
# torch.split's own names are taken too; einsum's signature says nothing; order of dtype and out.
OTHERWISE = {"torch.split", "torch.einsum", "torch.norm"}


@pytest.fixture(autouse=True)
def quiet():
    """Deprecated attributes are names, too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def parameters(value):
    """Return the names of a function's parameters; None where it has no signature."""
    try:
        return list(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return None


def test_list_of_names_is_torch_s(compatgen):
    code = "import json, compatgen; print(json.dumps(compatgen.torch_names()))"
    command = [sys.executable, "-W", "ignore", "-c", code]  # other tests import more of torch
    found = subprocess.run(
        command, cwd=Path(compatgen.__file__).parent, capture_output=True, text=True, check=True
    )
    assert json.loads(compatgen.NAMES.read_text()) == json.loads(found.stdout)


def test_functions_take_torch_s_arguments(compatgen):
    different = {}
    for path, lists in json.loads(compatgen.NAMES.read_text())["sections"].items():
        ours, theirs = compatgen.find(path.replace("torch", "pullback", 1)), compatgen.find(path)
        for name in (name for names in lists.values() for name in names):
            if not compatgen.has(ours, name) or inspect.isclass(getattr(theirs, name)):
                continue
            expected, found = parameters(getattr(theirs, name)), parameters(getattr(ours, name))
            if expected and found is not None and expected[-2:] != ["args", "kwargs"]:
                expected, found = (
                    [parameter for parameter in names if parameter not in PRIVATE]
                    for names in (expected, found)
                )
                if found != expected and f"{path}.{name}" not in OTHERWISE:
                    different[f"{path}.{name}"] = found, expected
    assert different == {}
