"""Reading nvprof's files, made by hand."""

import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_files import DAMAGES, damage, write_trace

from pullback_profiler.importers.nvprof import EnforceUnique, load_nvprof, parse_nvprof_trace

MARKERS = "CUPTI_ACTIVITY_KIND_MARKER"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
DRIVER = "CUPTI_ACTIVITY_KIND_DRIVER"
KERNELS = "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"
API_COLUMNS = "_id_ cbid start end correlationId"
EPOCH = 1_700_000_000_000_000_000  # nvprof counts nanoseconds of the wall clock


def trace(path, ranges=(), launches=(), strings=(), **changes):
    """Write a file of ranges (id, name, start, end) and launches (call start, end, kernel ns).

    A name is the number of a string; launches all have the string 1 as their kernel's name.
    """
    rows = [(number, name, EPOCH + start) for number, name, start, _ in ranges]
    rows += [(number, 0, EPOCH + end) for number, _, _, end in ranges if end is not None]
    calls = [
        (number, 211, EPOCH + start, EPOCH + end, 100 + number)
        for number, (start, end, _) in enumerate(launches)
    ]
    kernels = [
        (EPOCH + end + 500, EPOCH + end + 500 + length, 100 + number, 1)
        for number, (_, end, length) in enumerate(launches)
    ]
    names = {1: "_Z3addPfi", 2: "pullback::mm, seq = 6", 3: "pullback::matmul, seq = 6"}
    tables = {
        "StringTable": ("_id_ value", list((names | dict(strings)).items())),
        MARKERS: ("id name timestamp", rows),
        CALLS: (API_COLUMNS, calls),
        KERNELS: ("start end correlationId name", kernels),
    }
    tables.update(changes)
    return write_trace(path, {name: table for name, table in tables.items() if table is not None})


def spans(events):
    return [(event.name, event.time_range.start, event.time_range.end) for event in events]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "trace.nvvp"


def test_ranges_become_events_in_order(file):
    trace(file, [(8, 2, 2000, 5500), (7, 3, 1000, 9000), (9, 2, 20_000, 20_001)])
    events = parse_nvprof_trace(file)
    assert spans(events) == [
        ("pullback::matmul, seq = 6", 0.0, 8.0),
        ("pullback::mm, seq = 6", 1.0, 4.5),
        ("pullback::mm, seq = 6", 19.0, 19.001),
    ]
    assert [(event.id, event.thread, event.node_id) for event in events] == [
        (7, 0, 0),
        (8, 0, 0),
        (9, 0, 0),
    ]
    assert all(event.kernels == [] for event in events)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the C++ library of Linux")
def test_names_are_demangled(file):
    trace(file, [(1, 4, 0, 9000)], [(1000, 2000, 70)], strings=[(4, "_ZN2at3addEi")])
    (event,) = parse_nvprof_trace(str(file))
    assert (event.name, event.kernels[0].name) == ("at::add(int)", "add(float*, int)")


def test_kernels_belong_to_every_range_around_their_launch(file):
    launches = [(2500, 2600, 70), (1500, 1600, 30), (6000, 6100, 1500), (9500, 9600, 5)]
    trace(file, [(7, 3, 1000, 9000), (8, 2, 2000, 5500)], launches)
    outer, inner = parse_nvprof_trace(file)
    assert [kernel.duration for kernel in outer.kernels] == [0.03, 0.07, 1.5]
    assert [(kernel.device, kernel.duration) for kernel in inner.kernels] == [(0, 0.07)]


@pytest.mark.parametrize(
    ("call", "inside"),
    [
        ((1001, 8999), True),
        ((1000, 8999), False),
        ((1001, 9000), False),
        ((999, 5000), False),
        ((5000, 9001), False),
        ((8999, 9000), False),
    ],
)
def test_call_has_to_lie_between_start_and_end(file, call, inside):
    trace(file, [(7, 3, 1000, 9000)], [(*call, 10)])
    assert len(parse_nvprof_trace(file)[0].kernels) == inside


def test_kernels_launched_through_the_driver_are_found(file):
    """A kernel of the run-time library has a call in both tables: that of the library counts."""
    trace(
        file,
        [(7, 3, 1000, 9000), (8, 2, 1510, 1590)],
        [(1500, 1600, 30)],
        **{
            DRIVER: (
                API_COLUMNS,
                [
                    (1, 307, EPOCH + 1520, EPOCH + 1580, 100),
                    (2, 307, EPOCH + 3000, EPOCH + 3100, 555),
                ],
            ),
            KERNELS: (
                "start end correlationId name deviceId",
                [(EPOCH + 2000, EPOCH + 2030, 100, 1, 0), (EPOCH + 4000, EPOCH + 4050, 555, 1, 3)],
            ),
        },
    )
    outer, inner = parse_nvprof_trace(file)
    assert [(kernel.device, kernel.duration) for kernel in outer.kernels] == [(0, 0.03), (3, 0.05)]
    assert inner.kernels == []


def test_marks_and_unfinished_ranges_are_left_out(file):
    trace(file, [(7, 3, 1000, 9000), (8, 2, 2000, None)])
    assert [event.id for event in parse_nvprof_trace(file)] == [7]


def test_file_without_ranges_gives_no_events(file):
    assert parse_nvprof_trace(trace(file, launches=[(1, 2, 3)])) == []
    assert len(load_nvprof(file)) == 0


def test_loaded_times_add_up(file):
    trace(
        file,
        [(7, 3, 0, 10_000), (8, 2, 2000, 5000), (9, 2, 6000, 7000)],
        [(1000, 1100, 1000), (3000, 3100, 2000), (6100, 6200, 4000)],
    )
    events = load_nvprof(file)
    outer, first, second = events
    assert first.cpu_parent is second.cpu_parent is outer
    assert events.self_cpu_time_total == 10.0 == outer.cpu_time_total
    assert [event.self_cpu_time_total for event in events] == [6.0, 3.0, 1.0]
    assert [event.device_time_total for event in events] == [7.0, 2.0, 4.0]
    assert [event.self_device_time_total for event in events] == [1.0, 2.0, 4.0]
    text = events.table()
    assert "Self CUDA" in text and "pullback::matmul, seq = 6" in text


def test_two_ranges_of_one_number_are_refused(file):
    trace(file, [(7, 3, 1000, 9000), (7, 2, 2000, 5500)])
    with pytest.raises(RuntimeError, match=r"duplicate key: \(7,\)"):
        parse_nvprof_trace(file)


@pytest.mark.parametrize("twice", [CALLS, KERNELS])
def test_two_kernels_of_one_launch_are_refused(file, twice):
    call = (1, 211, EPOCH + 1500, EPOCH + 1600, 100)
    kernel = (EPOCH + 2000, EPOCH + 2030, 100, 1)
    tables = {
        CALLS: (API_COLUMNS, [call]),
        KERNELS: ("start end correlationId name", [kernel]),
    }
    tables[twice][1].append(tables[twice][1][0])
    trace(file, [(7, 3, 1000, 9000)], **tables)
    with pytest.raises(RuntimeError, match=r"duplicate key: \(7, 100\)"):
        parse_nvprof_trace(file)


def test_other_call_than_a_launch_is_refused_inside_a_range_only(file):
    calls = (API_COLUMNS, [(1, 212, EPOCH + 1500, EPOCH + 1600, 100)])
    ranges = [(7, 3, 1000, 9000)]
    trace(file, ranges, [(1500, 1600, 30)], **{CALLS: calls})
    with pytest.raises(AssertionError, match=r"211 .cudaLaunchKernel., got 212"):
        parse_nvprof_trace(file)
    file.unlink()
    trace(file, [(7, 3, 2000, 9000)], [(1500, 1600, 30)], **{CALLS: calls})
    assert parse_nvprof_trace(file)[0].kernels == []


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_files_are_refused(file, how):
    ranges = [(number, 2, 10 * number, 10 * number + 5) for number in range(1, 3000)]
    damage(trace(file, ranges, [(12, 13, 4)] * 500), how)
    with pytest.raises((ValueError, FileNotFoundError), match=r"trace\.nvvp"):
        parse_nvprof_trace(file)


@pytest.mark.parametrize("table", [MARKERS, CALLS, KERNELS])
def test_missing_table_is_named(file, table):
    trace(file, [(7, 3, 1000, 9000)], **{table: None})
    with pytest.raises(ValueError, match=rf"trace\.nvvp.*there is no table {table}"):
        parse_nvprof_trace(file)


def test_missing_strings_are_named(file):
    trace(file, [(7, 44, 1000, 9000)])
    with pytest.raises(ValueError, match="there is no string 44 in StringTable"):
        parse_nvprof_trace(file)
    file.unlink()
    trace(file, [(7, 2, 1000, 9000)], StringTable=None)
    with pytest.raises(ValueError, match="there is no string 2 in StringTable"):
        parse_nvprof_trace(file)


def test_missing_columns_are_named(file):
    trace(file, [(7, 3, 1000, 9000)], **{CALLS: ("_id_ start", [])})
    with pytest.raises(ValueError, match=f"{CALLS} has no column correlationId, cbid, end"):
        parse_nvprof_trace(file)


@pytest.mark.parametrize(
    ("value", "found"), [("soon", "str"), (1.5, "float"), (None, "NoneType"), (b"\0", "bytes")]
)
def test_values_of_another_type_are_refused(file, value, found):
    trace(file, **{MARKERS: ("id name timestamp", [(1, 2, EPOCH), (1, 0, value)])})
    message = rf"expected int in {MARKERS}\.timestamp, got a value of type {found}"
    with pytest.raises(ValueError, match=message):
        parse_nvprof_trace(file)


def test_end_before_start_is_refused(file):
    trace(file, [(7, 3, 9000, 1000)])
    with pytest.raises(ValueError, match=r"'pullback::matmul, seq = 6' ends at \d+, before"):
        parse_nvprof_trace(file)
    file.unlink()
    trace(file, [(7, 3, 1000, 9000)], [(1500, 1600, -1)])
    with pytest.raises(ValueError, match=r"the kernel .* ends at"):
        parse_nvprof_trace(file)


times = st.integers(0, 60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(times, times), max_size=8), st.lists(st.tuples(times, times), max_size=8))
def test_kernels_are_found_for_any_ranges(tmp_path, ranges, calls):
    """Compared with looking at every pair."""
    ranges = [sorted(pair) for pair in ranges]
    calls = [sorted(pair) for pair in calls]
    file = tmp_path / "any.nvvp"
    file.unlink(missing_ok=True)
    rows = [(number, 2, *pair) for number, pair in enumerate(ranges, 1)]
    trace(file, rows, [(*pair, 1000 * number) for number, pair in enumerate(calls)])
    found = {
        event.id: sorted(kernel.duration for kernel in event.kernels)
        for event in parse_nvprof_trace(file)
    }
    assert found == {
        number: [
            float(index)
            for index, (start, end) in enumerate(calls)
            if begin < start and end < finish
        ]
        for number, (begin, finish) in enumerate(ranges, 1)
    }


def test_enforce_unique_takes_keys_of_any_length():
    unique = EnforceUnique()
    unique.see(1)
    unique.see(1, 2)
    unique.see(2, 1)
    with pytest.raises(RuntimeError, match=r"duplicate key: \(1, 2\)"):
        unique.see(1, 2)
