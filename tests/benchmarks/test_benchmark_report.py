"""What the benchmarks write: tables, verdicts, misses with reasons, charts."""

import math

import pytest

import pullback as pb
from benchmarks import chart, growth, reasons, report

ROW = report.Row(
    "A row",
    ours=[1.0, 2.0, 4.0],
    torch=[10.0, 10.0, 10.0],
    noise=[10.0, 11.0, 12.0],
    budget=1 / 4,
    stretch=1 / 8,
)
SLOW = ROW._replace(title="A slow row", ours=[9.0, 9.0, 9.0], key="elementwise/slow")
FAILED = ROW._replace(
    title="A bad row", ours=[], key="linalg/bad", errors={"ours": "ValueError: x"}
)


def test_ratio_is_the_median_over_the_rounds():
    assert ROW.ratio == 0.2
    line = report.ratio_table([ROW])[-1]
    assert line == "| A row | 10 s | 1 s | 1/5 | 1/10 .. 1/2.5 | 1.10 | 1/4 | 1/8 | within |"


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, "**over**"), (0.2, "within"), (0.1, "stretch"), (0.125, "stretch"), (math.nan, "")],
)
def test_verdict_compares_with_the_budget(value, expected):
    assert report.verdict(value, 1 / 4, 1 / 8) == expected
    assert report.verdict(value, None, None) == ""


def test_columns_appear_with_what_fills_them():
    full = ROW._replace(numpy=[2.0, 4.0, 8.0], jax=[1.0, 1.0, 1.0], fraction=0.5, two=SLOW)
    head, _, line, other = report.ratio_table([full, ROW])
    assert head.split(" | ")[6:9] == ["NumPy", "JAX", "floor"]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[6:9] == ["1/2", "2.00", "50 %"]
    assert cells[9:12] == ["10 s", "9 s", "1/1.1"]
    assert cells[-1] == "**over**"  # with two threads
    assert head.count("|") == line.count("|") == other.count("|")


def test_bars_in_a_title_do_not_end_its_cell():
    assert report.ratio_table([ROW._replace(title="a|b")])[-1].startswith(r"| a\|b |")


def test_over_budget_names_the_rows():
    big = report.Limit("A big one", 7.0, None, "MB", 6, 3)
    small = report.Limit("A small one", 2.0, None, "MB", 6, 3)
    rows = [ROW, SLOW, FAILED]
    assert report.over_budget(rows, [big, small]) == ["A slow row", "A bad row", "A big one"]
    assert report.over_budget(rows, [big, small], 1.1) == ["A slow row", "A bad row", "A big one"]
    assert report.over_budget(rows, [big, small], 10) == ["A bad row"]  # it failed
    text = report.render(rows, [big, small], {"Python": "3"})
    assert "| A big one |  | 7 MB | 6 MB | 3 MB | **over** |" in text
    assert "- Python: 3" in text


def test_misses_are_listed_with_their_reason(monkeypatch):
    monkeypatch.setitem(reasons.REASONS, "elementwise/*", "waits for memory")
    lines = report.misses([ROW, SLOW, FAILED], [])
    assert lines[2:] == [
        "| A bad row |  |  | 1/4 | failed: ValueError: x |",
        "| A slow row | 1/1.1 |  | 1/4 | waits for memory |",
    ]
    assert report.misses([ROW], []) == ["Nothing is over its budget or slower than torch."]


def test_row_within_its_budget_but_slower_than_torch_is_a_miss():
    row = ROW._replace(ours=[10.5, 10.5, 10.5], budget=1.1, stretch=1.0)
    assert len(report.misses([row], [])) == 3
    assert report.over_budget([row], []) == []


def test_failure_of_another_process_is_told_but_no_miss():
    row = ROW._replace(errors={"NumPy": "TypeError: no"})
    assert report.failures([row]) == ["- A row: NumPy failed: TypeError: no"]
    assert report.over_budget([row], []) == []


def test_row_without_torch_has_no_ratio():
    row = ROW._replace(torch=[], errors={"torch": "RuntimeError: no"})
    assert math.isnan(row.ratio)
    line = report.ratio_table([row])[-1]
    assert line == "| A row |  | 1 s |  |  |  | 1/4 | 1/8 |  |"


def test_what_stays_below_its_floor_is_listed():
    far = ROW._replace(key="elementwise/x", fraction=0.4)
    near = ROW._replace(key="elementwise/y", fraction=0.9)
    product = ROW._replace(key="linalg/z", fraction=0.9, torch=[0.5, 0.5, 0.5])
    lines = report.below_floor([near, far, product])
    assert [line.split(" | ")[2] for line in lines[2:]] == [
        "40 % of bandwidth",
        "50 % of the best library's rate",
    ]
    assert len(report.below_floor([near])) == 1


def test_summary_counts_by_class():
    line = report.summary_table([SLOW, FAILED])[2]
    assert line == "| elementwise | 1 | 1/1.1 |  | 0 | 1 | 0 |"


@pytest.mark.parametrize(
    ("seconds", "text"), [(2, "2 s"), (0.0123, "12.3 ms"), (4.5e-6, "4.5 us"), (2.34e-7, "234 ns")]
)
def test_seconds_get_a_fitting_unit(seconds, text):
    assert report.format_seconds(seconds) == text


def test_columns_of_the_chart_repeat_the_class():
    rows = [ROW._replace(key=f"{group}/{i}") for group in ("one", "two") for i in range(5)]
    parts = chart.split_lines(rows, 2)
    assert [part[0] for part in parts] == ["one", "two"]
    assert [part[0] for part in chart.split_lines(rows, 4)][1] == "one, continued"
    assert sum(isinstance(line, report.Row) for part in parts for line in part) == 10


def test_chart_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [ROW._replace(key=f"some/{i}", two=SLOW) for i in range(30)]
    assert chart.draw([*rows, FAILED], tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert not chart.draw([FAILED], tmp_path / "none.png")


def test_chart_reads_the_rows_that_were_written():
    rows = [ROW._replace(key="some/a", title="a|b", two=SLOW), FAILED._replace(key="some/b")]
    text = report.render([*rows, SLOW], [], {})
    found = list(chart.read_rows(text))
    assert [(row.title, row.group) for row in found] == [
        (r"a\|b", "some"),
        ("A slow row", "elementwise"),
    ]
    first = found[0]
    assert (first.ratio, min(first.ratios), max(first.ratios)) == pytest.approx((0.2, 0.1, 0.4))
    assert first.budget == 1 / 4
    assert first.two is not None
    assert first.two.ratio == pytest.approx(0.9, abs=0.02)


def test_growth_is_the_cost_of_a_unit_beside_the_smallest():
    points = [(10, {"forward": 1.0}), (100, {"forward": 10.0}), (1000, {"forward": 150.0})]
    assert growth.growth_of(points, "forward") == pytest.approx(1.5)


def test_growth_writes_its_page_and_the_plots_asked_for(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    threads = pb.get_num_threads()
    page, plots = tmp_path / "cost.md", tmp_path / "plots"
    try:
        assert growth.main(["--quick", "--page", str(page), "--plots", str(plots)]) == 0
    finally:
        pb.set_num_threads(threads)
    text = page.read_text()
    names = sorted(path.name for path in plots.iterdir())
    assert names == sorted(f"growth-{series.name}.png" for series in growth.SERIES)
    assert text.count("largest / smallest") == len(growth.SERIES)
