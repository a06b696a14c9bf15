"""python -m pullback.testing: the totals, and an exit status that tells of failures."""

import pytest

from pullback.optable import ENTRIES
from pullback.testing.__main__ import main


def test_report_counts_ops_and_samples(capsys):
    assert main(["--gradcheck", "--op", "tanh", "mul"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2 ops in the table" in lines[0]
    assert [line.split(":")[0].strip() for line in lines[1:]] == ["grad", "gradgrad"]
    assert all("2 ops, " in line and " 0 failures" in line for line in lines[1:])


def test_report_lists_failures(capsys, monkeypatch):
    wrong = ENTRIES["tanh"]._replace(ref="numpy.sinh")
    monkeypatch.setitem(ENTRIES, "tanh", wrong)
    assert main(["--check", "value", "--op", "tanh"]) == 1
    output = capsys.readouterr().out
    assert "value of tanh #0" in output
    assert "Mismatched elements" in output


def test_unknown_op_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--op", "tanhh"])
    assert "no entry 'tanhh'" in capsys.readouterr().err
