"""SQLite files of tracing tools, with every value checked."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pullback_profiler.events.string_table import StringTable


class TraceFile:
    """A SQLite file, open for reading until the ``with`` block ends.

    Raises: FileNotFoundError; ValueError, here and in each method, for a file that is not
    a SQLite database, is damaged, or holds unexpected values.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise FileNotFoundError(f"there is no trace file {str(self.path)!r}")
        try:
            self._connection = sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)
        except sqlite3.Error as error:
            raise self.error(str(error)) from error

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def error(self, what: str) -> ValueError:
        """Return an error that names the file."""
        return ValueError(f"the trace file {str(self.path)!r} cannot be used: {what}")

    def columns(self, table: str) -> set[str]:
        """Return the names of a table's columns; an empty set if there is no such table."""
        return {row[1] for row in self._fetch(f"PRAGMA table_info([{table}])")}

    def rows(self, table: str, required: Mapping[str, Any], **optional: Any) -> list[tuple]:
        """Return the rows of a table; a missing optional column is None in each row.

        Columns are given with the type of their values; ``int | None`` is one that may be empty.
        """
        present = self.columns(table)
        if not present:
            raise self.error(f"there is no table {table}")
        missing = [name for name in required if name not in present]
        if missing:
            raise self.error(f"the table {table} has no column {', '.join(missing)}")
        types = dict(required)
        types.update((name, kind) for name, kind in optional.items() if name in present)
        wanted = [f"[{name}]" if name in types else "NULL" for name in (*required, *optional)]
        rows = self._fetch(f"SELECT {', '.join(wanted)} FROM [{table}]")
        for position, name in enumerate((*required, *optional)):
            if name in types:
                self._check(table, name, types[name], {type(row[position]) for row in rows})
        return rows

    def _check(self, table: str, column: str, kind: Any, found: set[type]) -> None:
        for other in found:
            if not issubclass(other, kind):
                expected = kind.__name__ if isinstance(kind, type) else kind
                raise self.error(
                    f"expected {expected} in {table}.{column}, got a value of type {other.__name__}"
                )

    def _fetch(self, query: str) -> list[tuple]:
        try:
            return self._connection.execute(query).fetchall()
        except (sqlite3.Error, UnicodeError) as error:  # names of columns are decoded strictly
            raise self.error(str(error)) from error


class Names:
    """The strings that a trace refers to by number, C++ symbols among them as readable names."""

    def __init__(self, trace: TraceFile, table: str, number: str, text: str) -> None:
        rows = trace.rows(table, {number: int, text: str}) if trace.columns(table) else []
        self._texts = dict(rows)
        self._readable = StringTable()
        self._trace = trace
        self._table = table

    def __getitem__(self, number: int) -> str:
        """Return a string.

        Raises: ValueError if there is none of that number.
        """
        if number not in self._texts:
            raise self._trace.error(f"there is no string {number} in {self._table}")
        return self._readable[self._texts[number]]


def microseconds(
    trace: TraceFile, what: str, start: int, end: int, origin: int
) -> tuple[float, float]:
    """Return start and end, given in nanoseconds, in microseconds after ``origin``.

    Raises: ValueError if the end comes before the start.
    """
    if end < start:
        raise trace.error(f"{what} ends at {end}, before its start at {start}")
    return (start - origin) / 1e3, (end - origin) / 1e3
