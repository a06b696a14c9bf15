"""The list of torch's names is what torch has, and what is here takes the same arguments."""

import inspect
import json
import warnings

import pytest

pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

# Parameters that only torch needs.
PRIVATE = {"_preallocate_and_copy"}


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
    assert json.loads(compatgen.NAMES.read_text()) == compatgen.torch_names()


def test_functions_take_torch_s_arguments(compatgen):
    different = {}
    for path, lists in json.loads(compatgen.NAMES.read_text())["sections"].items():
        ours, theirs = compatgen.find(path.replace("torch", "pullback", 1)), compatgen.find(path)
        for name in (name for names in lists.values() for name in names):
            if not compatgen.has(ours, name) or inspect.isclass(getattr(theirs, name)):
                continue
            expected, found = parameters(getattr(theirs, name)), parameters(getattr(ours, name))
            if expected and found is not None and expected[-2:] != ["args", "kwargs"]:
                expected = [parameter for parameter in expected if parameter not in PRIVATE]
                if found != expected:
                    different[f"{path}.{name}"] = found, expected
    assert different == {}
