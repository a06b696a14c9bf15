"""The table, text by text. In the texts here ``|`` marks the end of a line with trailing blanks."""

import pytest

from pullback_profiler.events.event_list import EventList
from pullback_profiler.events.function_event import FunctionEvent


def made(spans, device=None, **options):
    """Return a list of events, of (name, thread, start, end) and further attributes each."""
    events = EventList(
        (
            FunctionEvent(number, *span, use_device=device, **more)
            for number, (span, more) in enumerate(spans)
        ),
        use_device=device,
        **options,
    )
    events.build_tree()
    return events


def timed(*names, length=4.0, device=None, **more):
    """Return events of one length, one after another."""
    return made(
        [((name, 1, at * length, (at + 1) * length), more) for at, name in enumerate(names)],
        device,
    )


def steps():
    return made(
        [
            (("step", 1, 0.0, 2000.0), {}),
            (("mul", 1, 100.0, 400.0), {}),
            (("mul", 1, 500.0, 1300.0), {}),
            (("add", 2, 0.0, 1_500_000.0), {}),
            (("wait", 2, 0.0, 250.0), {"is_async": True}),
        ]
    )


def everything():
    shapes = [[8, 16], [16, 4]]
    outer = dict(input_shapes=shapes, flops=1024, cpu_memory_usage=4045, node_id=0)
    inner = dict(input_shapes=shapes, flops=2_500_000, cpu_memory_usage=-2048, node_id=0)
    events = made(
        [
            (("matmul", 1, 0.0, 900.0), dict(outer, device_memory_usage=5 << 30)),
            (("mm", 1, 100.0, 600.0), dict(inner, device_memory_usage=132, overload_name="out")),
            (("gemm_kernel", 7, 200.0, 1700.0), dict(device_type="cuda", input_shapes=[])),
        ],
        device="cuda",
        profile_memory=True,
        with_flops=True,
    )
    events[1].append_kernel("gemm_kernel", 0, 1500.0)
    return events


def stacked(**options):
    path = "/a/very/long/path/to/train.py(9): step"
    return made(
        [
            (("mul", 1, 0.0, 3.0), dict(stack=["net.py(3): forward", path], flops=7)),
            (("add", 1, 4.0, 5.0), dict(stack=["train.py(9): step"])),
            (("none", 1, 6.0, 7.0), {}),
        ],
        **options,
    )


def check(text, golden):
    assert text == golden.replace("|\n", "\n")


def cells(text, column):
    """Return the cells of a column, of a table without empty cells."""
    rows = [line.split("  ") for line in text.splitlines() if "-----" not in line]
    rows = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    at = next(row.index(column) for row in rows if column in row)
    first = next(number for number, row in enumerate(rows) if column in row) + 1
    return [row[at] for row in rows[first:] if len(row) > at]


def headers(text):
    """Return the names of the columns."""
    lines = text.splitlines()
    return [name.strip() for name in lines[1].split("  ") if name.strip()]


STEPS = """\
--------  ------------  ------------  ------------  ------------  ------------  ------------  |
    Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  |
--------  ------------  ------------  ------------  ------------  ------------  ------------  |
    step         0.06%     900.000us         0.13%       2.000ms       2.000ms             1  |
     mul         0.02%     300.000us         0.02%     300.000us     300.000us             1  |
     mul         0.05%     800.000us         0.05%     800.000us     800.000us             1  |
     add        99.87%        1.500s        99.87%        1.500s        1.500s             1  |
    wait         0.00%       0.000us             0     250.000us     250.000us             1  |
--------  ------------  ------------  ------------  ------------  ------------  ------------  |
Self CPU time total: 1.502s
"""

AVERAGES = """\
============================================================================================
Steps
--------  ------------  ------------  ------------  ------------  ------------  ------------  |
    Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  |
--------  ------------  ------------  ------------  ------------  ------------  ------------  |
     add        99.87%        1.500s        99.87%        1.500s        1.500s             1  |
    step         0.06%     900.000us         0.13%       2.000ms       2.000ms             1  |
     mul         0.07%       1.100ms         0.07%       1.100ms     550.000us             2  |
    wait         0.00%       0.000us             0     250.000us     250.000us             1  |
--------  ------------  ------------  ------------  ------------  ------------  ------------  |
Self CPU time total: 1.502s
"""

TOP_LEVEL = """\
============================================================================================
Steps
============================================================================================
This report only display top-level ops statistics
--------  ------------  ------------  ------------  ------------  ------------  ------------  |
    Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  |
--------  ------------  ------------  ------------  ------------  ------------  ------------  |
    step         0.06%       0.900ms         0.13%       2.000ms       2.000ms             1  |
     add        99.87%    1500.000ms        99.87%    1500.000ms    1500.000ms             1  |
--------  ------------  ------------  ------------  ------------  ------------  ------------  |
Self CPU time total: 1502.000ms
"""

EVERYTHING = """\
---------------  ---------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ----------------------  ------------  |
           Name    Overload Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg     Self CUDA   Self CUDA %    CUDA total  CUDA time avg       CPU Mem  Self CPU Mem      CUDA Mem  Self CUDA Mem    # of Calls       Node ID            Input Shapes  Total KFLOPs  |
---------------  ---------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ----------------------  ------------  |
         matmul                         44.44%     400.000us       100.00%     900.000us     900.000us       0.000us         0.00%       1.500ms       1.500ms       3.95 KB       5.95 KB       5.00 GB       5.00 GB             1             0      [[8, 16], [16, 4]]         1.024  |
             mm              out        55.56%     500.000us        55.56%     500.000us     500.000us       1.500ms       100.00%       1.500ms       1.500ms      -2.00 KB      -2.00 KB         132 B         132 B             1             0      [[8, 16], [16, 4]]      2500.000  |
    gemm_kernel                          0.00%       0.000us         0.00%       0.000us       0.000us       1.500ms       100.00%       1.500ms       1.500ms           0 B           0 B           0 B           0 B             1            -1                      []            --  |
---------------  ---------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ----------------------  ------------  |
Self CPU time total: 900.000us
Self CUDA time total: 1.500ms
"""  # noqa: E501

STACKED = """\
--------  ------------  ------------  ------------  ------------  ------------  ------------  --------------------  |
    Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg    # of Calls  Source Location       |
--------  ------------  ------------  ------------  ------------  ------------  ------------  --------------------  |
     mul        60.00%       3.000us        60.00%       3.000us       3.000us             1  net.py(3): forward    |
                                                                                              ...train.py(9): step  |
                                                                                                                    |
     add        20.00%       1.000us        20.00%       1.000us       1.000us             1  train.py(9): step     |
                                                                                                                    |
    none        20.00%       1.000us        20.00%       1.000us       1.000us             1                        |
                                                                                                                    |
--------  ------------  ------------  ------------  ------------  ------------  ------------  --------------------  |
Self CPU time total: 5.000us
"""  # noqa: E501


def test_events_in_the_list_s_order():
    check(steps().table(), STEPS)
    assert str(steps()) == steps().table()


def test_averages_sorted_below_a_header():
    check(steps().key_averages().table(sort_by="cpu_time_total", header="Steps"), AVERAGES)


def test_top_level_events_in_one_unit():
    text = steps().table(header="Steps", top_level_events_only=True, row_limit=2, time_unit="ms")
    check(text, TOP_LEVEL)


def test_every_column_of_numbers():
    check(everything().table(), EVERYTHING)


def test_rows_of_stacks():
    check(stacked().table(max_src_column_width=20), STACKED)


def test_flops_follow_the_source_in_header_and_rows():
    lines = stacked(with_flops=True).table().splitlines()
    shown = [
        ("Source Location", "Total FLOPs"),
        ("net.py(3): forward", "7.000"),
        ("/a/very/long/path/to/train.py(9): step", ""),
        ("", ""),
        ("train.py(9): step", "--"),
    ]
    for line, (source, flops) in zip([lines[1], *lines[3:]], shown):
        assert line.endswith(f"  {source:<42}  {flops:>12}  ")
    assert {len(line) for line in lines[:-1]} == {len(lines[0])}


def test_empty_list_has_an_empty_table():
    assert EventList().table(header="Steps") == ""


def test_no_time_at_all_has_no_percentages():
    text = timed("mul", length=0.0).table()
    assert cells(text, "Self CPU %") == cells(text, "CPU total %") == ["NaN"]


def test_percentages_are_of_all_events_shown_or_not():
    text = timed("a", "b", "c", "d").table(row_limit=1)
    assert cells(text, "Self CPU %") == ["25.00%"]
    assert text.endswith("Self CPU time total: 16.000us\n")


@pytest.mark.parametrize(("limit", "rows"), [(0, 0), (2, 2), (9, 4), (-1, 4), (None, 4)])
def test_row_limit(limit, rows):
    assert len(cells(timed("a", "b", "c", "d").table(row_limit=limit), "Self CPU")) == rows


def test_row_limit_counts_shown_rows():
    text = steps().table(top_level_events_only=True, row_limit=2)
    assert cells(text, "Name") == ["step", "add", "Self CPU time total: 1.502s"]


@pytest.mark.parametrize(
    ("length", "limit", "shown", "width"),
    [
        (51, 55, "x" * 51, 55),
        (52, 55, "x" * 52 + "...", 55),
        (60, 55, "x" * 52 + "...", 55),
        (60, None, "x" * 60, 64),
        (7, 10, "x" * 7 + "...", 10),
        (6, 10, "x" * 6, 10),
    ],
)
def test_width_of_names(length, limit, shown, width):
    lines = timed("x" * length).table(max_name_column_width=limit).splitlines()
    assert lines[0].split("  ")[0] == "-" * width
    assert lines[3][:width].strip() == shown


@pytest.mark.parametrize(
    ("limit", "shown", "width"),
    [(80, "[[2, 3], []]", 16), (None, "[[2, 3], []]", 16), (6, "[[2, 3", 6)],
)
def test_width_of_shapes(limit, shown, width):
    events = made([(("mul", 1, 0, 1), dict(input_shapes=[[2, 3], []])), (("add", 1, 1, 2), {})])
    lines = events.table(max_shapes_column_width=limit).splitlines()
    assert lines[0].split("  ")[-2] == "-" * width
    assert lines[3].endswith(f"  {shown:>{width}}  ")
    assert lines[4].endswith("1  " + " " * (width + 2))


@pytest.mark.parametrize(
    ("limit", "shown"),
    [(None, "/x/train.py(9): f"), (12, "....py(9): f"), (3, ": f"), (17, "/x/train.py(9): f")],
)
def test_width_of_sources(limit, shown):
    events = made([(("mul", 1, 0, 1), dict(stack=["/x/train.py(9): f"]))])
    lines = events.table(max_src_column_width=limit).splitlines()
    assert lines[3].rstrip().endswith(f"1  {shown}")
    assert len(lines[0].split("  ")[-2]) == (21 if limit is None else limit)


@pytest.mark.parametrize(
    ("smallest", "unit", "cell"),
    [
        (999, "FLOPs", "999.000"),
        (1000, "KFLOPs", "1.000"),
        (2_500_000, "MFLOPs", "2.500"),
        (10**9, "GFLOPs", "1.000"),
        (10**12, "TFLOPs", "1.000"),
        (10**15, "PFLOPs", "1.000"),
        (10**19, "PFLOPs", "10000.000"),
    ],
)
def test_unit_of_flops_is_the_smallest_positive_value_s(smallest, unit, cell):
    amounts = (smallest, None, 0, 10**20)
    events = made(
        [((f"op{i}", 1, i, i + 1), dict(flops=flops)) for i, flops in enumerate(amounts)],
        with_flops=True,
    )
    assert cells(events.table(), f"Total {unit}")[:3] == [cell, "--", "--"]


def test_no_flops_no_column():
    events = made([(("mul", 1, 0, 1), dict(flops=0))], with_flops=True)
    assert headers(events.table())[-1] == "# of Calls"


@pytest.mark.parametrize(
    ("unit", "shown"), [(None, "1.500ms"), ("s", "0.002s"), ("ms", "1.500ms"), ("us", "1500.000us")]
)
def test_time_unit(unit, shown):
    text = timed("mul", length=1500.0).table(time_unit=unit)
    assert cells(text, "Self CPU") == cells(text, "CPU total") == [shown]
    assert text.endswith(f"Self CPU time total: {shown}\n")


@pytest.mark.parametrize(
    ("sort_by", "expected"),
    [
        (None, "abcd"),
        ("cpu_time_total", "cabd"),
        ("self_cpu_time_total", "cbda"),
        ("cpu_time", "cabd"),
        ("cuda_time_total", "abcd"),
        ("self_cuda_time_total", "bacd"),
        ("self_xpu_time_total", "bacd"),
        ("privateuse1_time", "abcd"),
        ("device_time", "abcd"),
        ("cpu_memory_usage", "dabc"),
        ("self_cpu_memory_usage", "dabc"),
        ("cuda_memory_usage", "cabd"),
        ("self_cuda_memory_usage", "cabd"),
        ("count", "abcd"),
        ("flops", "bdac"),
        ("id", "dcba"),
    ],
)
def test_sort_by_puts_the_largest_first_and_keeps_equals(sort_by, expected):
    events = made(
        [
            (("a", 1, 0, 10), {}),
            (("b", 1, 1, 10), dict(flops=9)),
            (("c", 2, 0, 50), dict(device_memory_usage=8)),
            (("d", 3, 0, 5), dict(cpu_memory_usage=8, flops=7)),
        ],
        device="cuda",
    )
    events[0].append_kernel("gemm", 0, 1.0)
    events[1].append_kernel("gemm", 0, 2.0)
    names = cells(events.table(sort_by=sort_by), "Name")
    assert "".join(name for name in names if len(name) == 1) == expected


@pytest.mark.parametrize("sort_by", ["speed", "name", "cpu_children", "time_range", ""])
@pytest.mark.parametrize("kind", [ValueError, AttributeError])
def test_sort_by_no_number_lists_the_keys(sort_by, kind):
    with pytest.raises(kind, match=rf"sort_by should be .* cuda_time_total, .*got '{sort_by}'"):
        steps().table(sort_by=sort_by)


@pytest.mark.parametrize("unit", ["ns", "", "S"])
def test_unknown_time_unit_is_refused(unit):
    with pytest.raises(
        ValueError, match=f"time_unit should be None, 's', 'ms' or 'us', got '{unit}'"
    ):
        steps().table(time_unit=unit)


def test_table_does_not_change_the_list():
    events = steps()
    before = [(id(event), repr(event)) for event in events]
    events.table(sort_by="cpu_time_total", row_limit=1, top_level_events_only=True)
    assert [(id(event), repr(event)) for event in events] == before


def test_kernels_are_the_device_s_time_where_it_has_no_events():
    events = timed("a", "b", device="cuda")
    events[0].append_kernel("gemm", 0, 3.0)
    events[1].append_kernel("gemm", 0, 1.0)
    text = events.table()
    assert cells(text, "Self CUDA %") == ["75.00%", "25.00%"]
    assert text.endswith("Self CUDA time total: 4.000us\n")


def test_blocks_on_the_device_do_not_count_its_time_again():
    spans = [("gemm", 7, 0.0, 3.0), ("block", 7, 0.0, 8.0), ("add", 1, 0.0, 1.0)]
    kinds = [("cuda", False), ("cuda", True), ("cpu", False)]
    events = made(
        [
            (span, dict(device_type=kind, is_user_annotation=block))
            for span, (kind, block) in zip(spans, kinds)
        ],
        device="cuda",
    )
    text = events.table()
    assert cells(text, "Self CUDA %") == ["100.00%", "266.67%", "0.00%"]
    assert text.endswith("Self CUDA time total: 3.000us\n")


def test_legacy_events_count_the_device_s_time():
    events = timed("a", device="xpu", is_legacy=True)
    events[0].append_kernel("a", 0, 3.0)
    assert events.table().endswith("Self XPU time total: 3.000us\n")


def test_time_of_an_unnamed_device_is_refused():
    events = timed("a", device="cuda")
    events[0].append_kernel("gemm", 0, 3.0)
    averages = EventList(events.key_averages())
    averages[0].use_device = None
    with pytest.raises(RuntimeError, match="use_device is None, but there are times of a device"):
        averages.table()


@pytest.mark.parametrize("amount", [0, -100])
def test_device_memory_needs_some_that_was_taken(amount):
    events = made([(("a", 1, 0, 1), dict(device_memory_usage=amount))], "cuda", profile_memory=True)
    assert headers(events.table())[-3:] == ["CPU Mem", "Self CPU Mem", "# of Calls"]


@pytest.mark.parametrize("option", ["src", "name", "shapes"])
def test_a_width_below_zero_is_refused(option):
    name = f"max_{option}_column_width"
    with pytest.raises(ValueError, match=f"{name} should be None or at least 0 characters, got -1"):
        steps().table(**{name: -1})


def test_html_has_the_cells_of_the_text():
    events = timed("a<b", "mul")
    shown = events.html(sort_by="self_cpu_time_total")
    rows = [line.split() for line in events.table().splitlines()[3:5]]
    for name, row in zip(("a&lt;b", "mul"), rows):
        assert "".join(f"<td>{cell}</td>" for cell in [name, *row[1:]]) in shown
    assert "Self CPU time total: 8.000us" in shown
    assert events._repr_html_() == events.html()
    assert events.html(row_limit=1).count("<tr>") == 2
    assert EventList().html() == "<div></div>"


def test_html_refuses_keys_that_are_no_numbers():
    with pytest.raises(ValueError, match="sort_by should be a number that events have"):
        timed("mul").html(sort_by="name")
