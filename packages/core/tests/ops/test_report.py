"""python -m pullback.testing: the totals, and an exit status that reports failures."""

import pytest

from pullback.ops import ENTRIES
from pullback.testing import Requirements
from pullback.testing.__main__ import main


def test_report_counts_ops_and_samples(capsys):
    assert main(["--gradcheck", "--op", "tanh", "mul", "--quiet"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2 ops in the table" in lines[0]
    assert [line.split(":")[0].strip() for line in lines[1:-1]] == ["grad", "gradgrad"]
    assert all("2 ops, " in line and " 0 failures" in line for line in lines[1:-1])


def test_matrix_has_a_line_for_each_op(capsys):
    assert main(["--check", "value", "grad", "--op", "tanh", "eq"]) == 0
    heading, tanh, eq = (line.split() for line in capsys.readouterr().out.splitlines()[1:4])
    assert heading == ["value", "grad"]
    assert tanh[0] == "tanh"
    assert int(tanh[1]) > int(tanh[2]) > 0
    assert eq[0] == "eq"
    assert eq[2] == "-"


def test_page_shows_failures_and_what_was_expected(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(ENTRIES, "tanh", ENTRIES["tanh"]._replace(ref="numpy.sinh"))
    wanted = Requirements(expected_failures={"value:tanh": "no <tanh> here", "neg": "gone"})
    monkeypatch.setattr("pullback.testing.__main__.requirements_of", lambda device: wanted)
    path = tmp_path / "matrix.html"
    assert main(["--check", "value", "--op", "tanh", "neg", "exp", "--html", str(path)]) == 1
    text = path.read_text()
    assert "no &lt;tanh&gt; here" in text
    assert ">expected<" in text
    assert ">repaired<" in text
    output = capsys.readouterr().out
    assert "2 ops expected to fail" in output
    assert "value of neg: passes, but was expected to fail" in output


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
