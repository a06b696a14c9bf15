"""Writes the SQLite files that tests read, table by table."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def write_trace(path: Path, tables: dict[str, tuple[str, list[tuple]]]) -> Path:
    """Write a file with tables, each given as its columns, comma-separated, and its rows."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for name, (columns, rows) in tables.items():
            names = [f"[{column}]" for column in columns.split()]
            connection.execute(f"CREATE TABLE [{name}] ({', '.join(names)})")
            marks = ", ".join("?" * len(names))
            connection.executemany(f"INSERT INTO [{name}] VALUES ({marks})", rows)
    return path


def damage(path: Path, how: str) -> Path:
    """Break a file in one of several ways."""
    if how == "missing":
        path.unlink()
    elif how == "folder":
        path.unlink()
        path.mkdir()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_text("no database\n" * 1000)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        assert how == "overwritten"
        content = bytearray(path.read_bytes())
        content[100:] = b"\xff" * (len(content) - 100)
        path.write_bytes(bytes(content))
    return path


DAMAGES = ("missing", "folder", "empty", "text", "cut", "overwritten")
