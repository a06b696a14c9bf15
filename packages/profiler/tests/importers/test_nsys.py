"""Reading SQLite exports of Nsight Systems, made by hand."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_files import DAMAGES, damage, write_trace

from pullback_profiler.importers.nsys import load_nsys

CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
RANGE_COLUMNS = "start end eventType domainId text textId globalTid"
KERNEL_COLUMNS = "start end deviceId streamId correlationId globalPid demangledName shortName"
PUSH_POP, START_END, MARK, DOMAIN = 59, 60, 34, 75
PROCESS = 4711 << 24
THREAD = PROCESS | 4712
OTHER_THREAD = PROCESS | 4713


def trace(path, ranges=(), launches=(), **changes):
    """Write a file of ranges (name, start, end[, thread]) and launches (time, kernel ns[, thread]).

    The kernel of a launch is on device 1; its short name is ``add``.
    """
    rows, calls, kernels = [], [], []
    for name, start, end, *thread in ranges:
        rows.append((start, end, PUSH_POP, 1, name, None, *(thread or [THREAD])))
    for number, (time, length, *thread) in enumerate(launches):
        (where,) = thread or [THREAD]
        calls.append((time, time + 5, where, number, 3))
        process = where >> 24 << 24
        kernels.append((time + 99, time + 99 + length, 1, 7, number, process, 2, 1))
    tables = {
        "StringIds": (
            "id value",
            [(1, "add"), (2, "_Z3addPfi"), (3, "cudaLaunchKernel"), (4, "op")],
        ),
        "NVTX_EVENTS": (RANGE_COLUMNS, rows),
        CALLS: ("start end globalTid correlationId nameId", calls),
        KERNELS: (KERNEL_COLUMNS, kernels),
    }
    tables.update(changes)
    return write_trace(path, {name: table for name, table in tables.items() if table is not None})


def lines(events):
    return [
        (
            event.name,
            event.thread,
            event.time_range.start,
            event.time_range.end,
            [kernel.duration for kernel in event.kernels],
        )
        for event in events
    ]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "trace.sqlite"


def test_ranges_of_a_thread_become_a_tree(file):
    trace(file, [("mm", 3000, 5000), ("matmul", 2000, 9000), ("add", 10_000, 10_500)])
    events = load_nsys(file)
    assert lines(events) == [
        ("matmul", 1, 0.0, 7.0, []),
        ("mm", 1, 1.0, 3.0, []),
        ("add", 1, 8.0, 8.5, []),
    ]
    assert events[1].cpu_parent is events[0] and events[2].cpu_parent is None
    assert events.self_cpu_time_total == 7.5
    assert [event.id for event in events] == [0, 1, 2]


def test_kernels_belong_to_the_innermost_range_of_their_thread(file):
    trace(
        file,
        [
            ("outer", 0, 10_000),
            ("inner", 2000, 4000),
            ("worker", 1000, 9000, OTHER_THREAD),
        ],
        [
            (2500, 70_000),
            (1500, 30_000),
            (4001, 5000),
            (2600, 8000, OTHER_THREAD),
            (10_001, 1),
            (500, 2, OTHER_THREAD),
        ],
    )
    events = load_nsys(file)
    assert lines(events) == [
        ("outer", 1, 0.0, 10.0, [30.0, 5.0]),
        ("worker", 2, 1.0, 9.0, [8.0]),
        ("inner", 1, 2.0, 4.0, [70.0]),
    ]
    assert [event.device_time_total for event in events] == [105.0, 8.0, 70.0]
    assert [event.self_device_time_total for event in events] == [35.0, 8.0, 70.0]
    assert events[0].kernels[0].device == 1
    assert "Self CUDA" in events.table()


def test_registered_and_missing_names(file):
    rows = [
        (0, 10, PUSH_POP, 1, None, 4, THREAD),
        (20, 30, PUSH_POP, 1, "text", 4, THREAD),
        (40, 50, PUSH_POP, 1, None, None, THREAD),
    ]
    trace(file, NVTX_EVENTS=(RANGE_COLUMNS, rows))
    assert [event.name for event in load_nsys(file)] == ["op", "text", ""]


def test_only_finished_pushed_ranges_are_read(file):
    rows = [
        (0, 10, PUSH_POP, 1, "kept", None, THREAD),
        (0, None, PUSH_POP, 1, "not ended", None, THREAD),
        (None, 10, PUSH_POP, 1, "not begun", None, THREAD),
        (0, 10, START_END, 1, "process", None, THREAD),
        (5, None, MARK, 1, "mark", None, THREAD),
        (None, None, DOMAIN, 1, "pullback", None, None),
    ]
    trace(file, NVTX_EVENTS=(RANGE_COLUMNS, rows))
    assert [event.name for event in load_nsys(file)] == ["kept"]


def test_ranges_of_two_domains_may_overlap(file):
    """The one pushed later counts as the inner one while both are open."""
    ranges = [("first", 0, 5000), ("second", 3000, 9000)]
    trace(file, ranges, [(1000, 1000), (4000, 2000), (6000, 4000), (9500, 8000)])
    assert lines(load_nsys(file)) == [
        ("first", 1, 0.0, 5.0, [1.0]),
        ("second", 1, 3.0, 9.0, [2.0, 4.0]),
    ]


def test_calls_that_launch_nothing_have_no_number(file):
    calls = [(500, 600, THREAD, None, 3), (1000, 1100, THREAD, 0, 3), (2000, 2100, None, 1, 3)]
    trace(
        file,
        [("range", 0, 9000)],
        [(1000, 50), (2000, 70)],
        **{CALLS: ("start end globalTid correlationId nameId", calls)},
    )
    assert lines(load_nsys(file)) == [("range", 1, 0.0, 9.0, [0.05])]


def test_kernel_name_is_the_long_one_where_there_is_one(file):
    kernel = (2000, 2500, 0, 1)
    for columns, row, expected in (
        ("start end correlationId shortName", kernel, "add"),
        ("start end correlationId shortName demangledName", (*kernel, 4), "op"),
    ):
        trace(file, [("range", 0, 9000)], [(1000, 1)], **{KERNELS: (columns, [row])})
        (event,) = load_nsys(file)
        assert [kernel.name for kernel in event.kernels] == [expected]
        assert [kernel.device for kernel in event.kernels] == [0]
        file.unlink()


def test_processes_number_their_launches_apart(file):
    elsewhere = (99 << 24) | 100
    ranges = [("ours", 0, 1000), ("theirs", 0, 1000, elsewhere)]
    calls = [(10, 15, THREAD, 0, 3), (20, 25, elsewhere, 0, 3)]
    kernels = [(30, 1030, 0, 7, 0, PROCESS, 2, 1), (40, 5040, 0, 7, 0, 99 << 24, 2, 1)]
    trace(
        file,
        ranges,
        **{CALLS: ("start end globalTid correlationId nameId", calls)},
        **{KERNELS: (KERNEL_COLUMNS, kernels)},
    )
    assert {event.name: event.kernels[0].duration for event in load_nsys(file)} == {
        "ours": 1.0,
        "theirs": 5.0,
    }


def test_call_recorded_for_the_driver_too_counts_once_where_it_began(file):
    ranges = [("outer", 0, 9000), ("inner", 2050, 4000)]
    calls = [(2100, 2200, THREAD, 0, 3), (2000, 2300, THREAD, 0, 3)]
    trace(
        file,
        ranges,
        [(2000, 50)],
        **{CALLS: ("start end globalTid correlationId nameId", calls)},
    )
    assert [len(event.kernels) for event in load_nsys(file)] == [1, 0]


def test_range_covers_its_first_and_its_last_nanosecond(file):
    ranges = [("inner", 1000, 2000), ("outer", 1000, 9000)]
    trace(file, ranges, [(999, 1), (1000, 2000), (2000, 4000), (2001, 8000), (9000, 16_000)])
    assert lines(load_nsys(file)) == [
        ("outer", 1, 0.0, 8.0, [8.0, 16.0]),
        ("inner", 1, 0.0, 1.0, [2.0, 4.0]),
    ]


@pytest.mark.parametrize("table", [CALLS, KERNELS, "StringIds"])
def test_missing_tables_of_other_things_mean_that_there_were_none(file, table):
    launches = [] if table == "StringIds" else [(1000, 1)]
    trace(file, [("range", 0, 9000)], launches, **{table: None})
    (event,) = load_nsys(file)
    assert event.kernels == [] and event.use_device is None


def test_file_without_ranges_says_what_to_record(file):
    trace(file, NVTX_EVENTS=None)
    message = r"trace\.sqlite.*no table NVTX_EVENTS.*--trace=nvtx,cuda.*emit_nvtx.*--type=sqlite"
    with pytest.raises(ValueError, match=message):
        load_nsys(file)


def test_empty_table_of_ranges_gives_no_events(file):
    events = load_nsys(trace(file, launches=[(1000, 1)]))
    assert len(events) == 0 and events.table() == ""


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_files_are_refused(file, how):
    ranges = [("range", 10 * number, 10 * number + 5) for number in range(3000)]
    damage(trace(file, ranges, [(12, 4)] * 500), how)
    with pytest.raises((ValueError, FileNotFoundError), match=r"trace\.sqlite"):
        load_nsys(file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"NVTX_EVENTS": ("start end", [])}, "NVTX_EVENTS has no column eventType, globalTid"),
        ({CALLS: ("start", [])}, f"{CALLS} has no column globalTid, correlationId"),
        ({KERNELS: ("start end", [])}, f"{KERNELS} has no column correlationId, shortName"),
        ({"StringIds": ("id", [])}, "StringIds has no column value"),
        (
            {"NVTX_EVENTS": (RANGE_COLUMNS, [(0, "x", 59, 1, "a", None, THREAD)])},
            r"expected int \| None in NVTX_EVENTS\.end, got a value of type str",
        ),
        (
            {"NVTX_EVENTS": (RANGE_COLUMNS, [(0, 1, 59, 1, None, 77, THREAD)])},
            "there is no string 77 in StringIds",
        ),
        (
            {"NVTX_EVENTS": (RANGE_COLUMNS, [(5, 1, 59, 1, "late", None, THREAD)])},
            "the range 'late' ends at 1, before its start at 5",
        ),
    ],
)
def test_files_with_other_content_are_refused(file, changes, message):
    trace(file, [("range", 0, 10)], [(1, 1)], **changes)
    with pytest.raises(ValueError, match=rf"trace\.sqlite.*{message}"):
        load_nsys(file)


@st.composite
def nested_ranges(draw):
    """Ranges that open and close like brackets, at distinct times."""
    open_ranges, done, time = [], [], 0
    for opens in draw(st.lists(st.booleans(), max_size=16)):
        time += 10
        if opens or not open_ranges:
            open_ranges.append(time)
        else:
            done.append((open_ranges.pop(), time))
    while open_ranges:
        time += 10
        done.append((open_ranges.pop(), time))
    return done


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(nested_ranges(), st.lists(st.integers(0, 200), max_size=10))
def test_kernels_are_found_for_any_nesting(tmp_path, ranges, times):
    """Compared with looking for the shortest range around each launch."""
    file = tmp_path / "any.sqlite"
    file.unlink(missing_ok=True)
    launches = [(10 * time + 5, 1000 * number) for number, time in enumerate(times)]
    trace(file, [(str(start), 10 * start, 10 * end) for start, end in ranges], launches)
    found = {event.name: sorted(k.duration for k in event.kernels) for event in load_nsys(file)}
    expected = {str(start): [] for start, _ in ranges}
    for time, length in launches:
        around = [(end - start, start) for start, end in ranges if 10 * start <= time <= 10 * end]
        if around:
            expected[str(min(around)[1])].append(length / 1000)
    assert found == expected


def test_a_column_whose_name_is_no_text_is_refused(tmp_path):
    path = tmp_path / "trace.sqlite"
    trace(path, [("op", 0, 9)])
    data = path.read_bytes()
    assert b"eventType" in data
    path.write_bytes(data.replace(b"eventType", b"eventTyp\xff"))
    with pytest.raises(ValueError, match=r"trace\.sqlite' cannot be used: "):
        load_nsys(path)
