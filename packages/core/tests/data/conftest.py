"""Fixtures of the tests of data loading."""

import subprocess
import sys

import pytest


@pytest.fixture
def run_lines_of():
    """Return a function that runs code in a fresh interpreter and returns what it printed."""

    def run(code):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run
