"""Formats of times and memory; values from the profiler's specification."""

import gzip
import os

import pytest

from pullback_profiler.events.util import (
    Interval,
    format_memory,
    format_time,
    open_text,
    without_halves,
)


@pytest.mark.parametrize(
    ("time_us", "expected"),
    [
        (0, "0.000us"),
        (12.3456, "12.346us"),
        (999.9996, "1000.000us"),  # the unit is chosen before rounding
        (1000, "1.000ms"),
        (999_999, "999.999ms"),
        (1e6, "1.000s"),
        (90e6, "90.000s"),
    ],
)
def test_format_time(time_us, expected):
    assert format_time(time_us) == expected


@pytest.mark.parametrize(
    ("nbytes", "expected"),
    [
        (0, "0 B"),
        (132, "132 B"),
        (-1023, "-1023 B"),
        (4045, "3.95 KB"),
        (-2048, "-2.00 KB"),
        (3 * 1024**2, "3.00 MB"),
        (5 * 1024**3, "5.00 GB"),
    ],
)
def test_format_memory(nbytes, expected):
    assert format_memory(nbytes) == expected


def test_interval_has_a_length():
    interval = Interval(2.5, 10.0)
    assert interval.elapsed_us() == 7.5
    assert repr(interval) == "Interval(start=2.5, end=10.0)"


@pytest.mark.parametrize(("name", "read"), [("plain.txt", open), ("packed.txt.gz", gzip.open)])
def test_paths_may_be_bytes(tmp_path, name, read):
    with open_text(os.fsencode(tmp_path / name)) as file:
        file.write("frame 1")
    with read(tmp_path / name, "rt") as file:
        assert file.read() == "frame 1"


def test_only_halves_of_characters_are_replaced():
    whole = "\U0001f600 caf\u00e9"
    assert without_halves(whole + "\ud83d!\udce9") == whole + "\ufffd!\ufffd"
