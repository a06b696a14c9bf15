"""The installed distribution: version, and that importing it stays light."""

import importlib.metadata
import subprocess
import sys

import pullback_profiler


def test_version_is_the_distribution_s():
    assert pullback_profiler.__version__ == importlib.metadata.version("pullback-profiler")


def test_import_loads_neither_core_nor_numpy():
    code = (
        "import sys, pullback_profiler; "
        "print(sorted({'numpy', 'pullback', 'rich'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
