"""Random programs behave alike on Pullback and torch: values, flags, versions, graphs, errors."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

FOLDER = str(Path(__file__).parent)
CHUNK = 500


@pytest.fixture(scope="module")
def run_chunks():
    sys.path.insert(0, FOLDER)
    try:
        from fuzzer.runner import run_chunks
    finally:
        sys.path.remove(FOLDER)
    return run_chunks


@pytest.mark.parametrize("first", range(0, 5000, CHUNK))
def test_programs_differ_only_where_documented(run_chunks, first):
    report = run_chunks(first, CHUNK, CHUNK)
    assert report.programs + len(report.torch_died) == CHUNK
    assert not report.failed(), report.text()
    # Programs must go on to be worth running: most statements work, and few end in what is meant.
    assert report.errors < report.statements / 4
    assert sum(report.accepted.values()) < CHUNK / 4
