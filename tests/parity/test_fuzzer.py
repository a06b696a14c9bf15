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
    assert sum(map(len, report.accepted.values())) < CHUNK / 4


UNFOLDED = [
    "t0 = m.tensor([0.1, 0.2, 0.3, 0.4], dtype=m.float64)",
    "t1 = t0.unfold(0, 2, 1)",
    "t2 = transform('jacfwd', 'out', t1)",
]
REPLACED = [
    "t0 = m.tensor([0.1, 0.2], dtype=m.float64, requires_grad=True)",
    "t1 = t0.sin().sin()",
    "t1.data = m.tensor([0.3, 0.4], dtype=m.float64)",
    "t2, = own(m.autograd.grad(t1.sum(), [t0]))",
]
WRITTEN = [
    "t0 = m.tensor([0.1, 0.2], dtype=m.float64, requires_grad=True)",
    "t1 = (t0 * 2).view_as(t0)",
    "t1.mul_(t1)",
]


@pytest.mark.parametrize(
    ("proof", "statements"),
    [
        ("torch_agrees_on_a_copy", UNFOLDED),
        ("nothing_saved_was_overwritten", REPLACED),
        ("the_rest_is_the_same", WRITTEN),
    ],
)
def test_a_proof_fails_where_a_value_is_wrong(run_chunks, monkeypatch, proof, statements):
    monkeypatch.syspath_prepend(FOLDER)
    from fuzzer import proofs
    from fuzzer.compare import Difference

    import pullback

    trace = proofs.run_program(pullback, statements, "all")
    assert [step["outcome"][0] for step in trace] == ["ok"] * (len(statements) + 1), trace
    step = len(statements) - 1
    found = Difference(step, statements[step], "", None, None, "", {})
    proves = getattr(proofs, proof)
    assert proves(statements, "all", trace, found)
    seen = trace[step]["seen"]["t1" if proof == "the_rest_is_the_same" else "t2"]
    value = seen["tensor"]["value"]
    while isinstance(value[0], list):
        value = value[0]
    value[0] += 0.125
    assert not proves(statements, "all", trace, found)


def test_proofs_are_of_reasons(run_chunks, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    from fuzzer import meant, proofs

    assert proofs.PROOFS.keys() <= meant.MEANT.keys()
