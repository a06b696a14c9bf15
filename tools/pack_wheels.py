"""Compress the files of wheels again, in place: ``python tools/pack_wheels.py dist/*.whl``.

Wheels have deflate's format, and most builders write it with zlib. libdeflate (the package
``deflate``) searches longer for what repeats: a wheel becomes about a twentieth smaller, and is
read as before. What is published is packed so.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from typing import Any
from unittest import mock

LEVEL = 12  # libdeflate's highest


class Compressor:
    """What ``zipfile`` uses of ``zlib``'s compressors, for whole files."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def compress(self, data: bytes) -> bytes:
        """Keep some of the file."""
        self.parts.append(bytes(data))
        return b""

    def flush(self) -> bytes:
        """Return the compressed file."""
        import deflate

        return bytes(deflate.deflate_compress(b"".join(self.parts), LEVEL))


def compressor(method: int, *_: Any) -> Compressor | None:
    """Return an object that compresses a member, or None for one that is stored as it is."""
    return Compressor() if method == zipfile.ZIP_DEFLATED else None


def pack(wheel: Path) -> None:
    """Replace a wheel by one with the same files and metadata, if that is smaller."""
    packed = wheel.with_name(wheel.name + ".packed")
    with (
        mock.patch.object(zipfile, "_get_compressor", compressor),
        zipfile.ZipFile(wheel) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for member in source.infolist():
            data = source.read(member)
            target.writestr(member, data, zipfile.ZIP_DEFLATED if data else zipfile.ZIP_STORED)
    if packed.stat().st_size < wheel.stat().st_size:
        packed.replace(wheel)
    else:
        packed.unlink()


def main() -> None:
    """Pack the wheels of the command line, and print their sizes."""
    for wheel in map(Path, sys.argv[1:]):
        before = wheel.stat().st_size
        pack(wheel)
        print(f"{wheel.name}: {before / 1e6:.3f} -> {wheel.stat().st_size / 1e6:.3f} MB")


if __name__ == "__main__":
    main()
