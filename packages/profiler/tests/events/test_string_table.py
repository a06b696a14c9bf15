"""Readable names."""

import ctypes

import pytest

from pullback_profiler.events import string_table
from pullback_profiler.events.string_table import StringTable, display_name


def has_a_runtime():
    return any(loads(name) for name in string_table._RUNTIMES)


def loads(name):
    try:
        return bool(ctypes.CDLL(name))
    except OSError:
        return False


@pytest.mark.parametrize("name", ["", "t", "pullback::mul", "_Znonsense", "_Z", "grün"])
def test_other_names_stay(name):
    assert StringTable()[name] == name


@pytest.mark.skipif(not has_a_runtime(), reason="needs a C++ runtime")
def test_symbols_become_readable():
    table = StringTable()
    assert table["_ZN4gemm3runEPKfi"] == "gemm::run(float const*, int)"
    assert table == {"_ZN4gemm3runEPKfi": "gemm::run(float const*, int)"}


def test_symbols_stay_without_a_runtime(monkeypatch):
    monkeypatch.setattr(string_table, "_RUNTIMES", ("libabsent.so.0",))
    string_table.demangler.cache_clear()
    try:
        assert StringTable()["_Z3fooi"] == "_Z3fooi"
    finally:
        string_table.demangler.cache_clear()


def test_steps_of_a_loop_share_a_name():
    assert display_name("ProfilerStep#12") == "ProfilerStep*"
    assert display_name("ProfilerSteps") == "ProfilerSteps"
