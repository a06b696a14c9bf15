"""Records of memory by interval, against a plain search."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pullback_profiler.events.memory_records import MemRecordsAcc


class Record:
    def __init__(self, ns):
        self.ns = ns

    def start_ns(self):
        return self.ns


@settings(deadline=None)
@given(st.lists(st.integers(0, 20)), st.integers(-1, 21), st.integers(-1, 21))
def test_in_interval_finds_what_a_plain_search_finds(times, start, end):
    records = [(Record(ns), number) for number, ns in enumerate(times)]
    found = list(MemRecordsAcc(records).in_interval(start, end))
    inside = [record for record in records if start <= record[0].ns <= end]
    assert found == sorted(inside, key=lambda record: record[0].ns)
