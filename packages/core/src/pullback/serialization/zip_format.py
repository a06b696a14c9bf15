"""Zip archives of torch's form: records without compression, aligned to 64 bytes.

Every field that a file states is checked against the file before memory is allocated for it.
Source: PKWARE's APPNOTE.TXT 6.3.10, sections 4.3 and 4.5.3.
"""

from __future__ import annotations

import struct
import zipfile

from pullback._c.interop.checksum import crc32
from pullback.serialization.options import settings

ALIGNMENT = 64
_CHUNK = 1 << 20
_DEFLATE_AT_MOST = 1032  # bytes of a deflated byte
_MAX32 = 0xFFFFFFFF

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END64 = struct.Struct("<4sQ2H2I4Q")
_LOCATOR = struct.Struct("<4sIQI")
_END = struct.Struct("<4s4H2IH")


class ZipWriter:
    """Writes records to a file object, of which it needs ``write`` alone."""

    def __init__(self, file, root):
        self.file, self.root = file, root
        self.position = 0
        self.directory: list[bytes] = []
        self.checksums = 0

    def _write(self, data):
        self.file.write(data)
        self.position += len(data)

    def record(self, name, data):
        """Write a record of bytes or of a contiguous memoryview of bytes."""
        view = memoryview(data).cast("B") if len(data) else memoryview(b"")
        checksum = crc32(view) if settings.checksums else 0
        path = f"{self.root}/{name}".encode()
        start, size = self.position, view.nbytes
        long = size >= _MAX32
        sizes = struct.pack("<2H2Q", 1, 16, size, size) if long else b""
        head = start + _LOCAL.size + len(path) + len(sizes) + 4
        extra = sizes + struct.pack("<2s", b"FB")
        padding = -head % ALIGNMENT
        extra += struct.pack("<H", padding) + b"Z" * padding
        short = _MAX32 if long else size
        self._write(
            _LOCAL.pack(
                *(b"PK\x03\x04", 45 if long else 0, 0x0800, 0, 0, 0, checksum, short, short),
                *(len(path), len(extra)),
            )
            + path
            + extra
        )
        for begin in range(0, size, _CHUNK * 64):
            self._write(view[begin : begin + _CHUNK * 64])
        far = struct.pack("<2H", 1, 24) + struct.pack("<3Q", size, size, start)
        far = far if long or start >= _MAX32 else b""
        if far:
            short = start_field = _MAX32
        else:
            start_field = start
        self.directory.append(
            _CENTRAL.pack(
                *(b"PK\x01\x02", 0, 45 if far else 0, 0x0800, 0, 0, 0, checksum, short, short),
                *(len(path), len(far), 0, 0, 0, 0, start_field),
            )
            + path
            + far
        )
        self.checksums = crc32(path + struct.pack("<I", checksum), self.checksums)

    def close(self):
        """Write the directory."""
        start, count = self.position, len(self.directory)
        for entry in self.directory:
            self._write(entry)
        size, end = self.position - start, self.position
        self._write(_END64.pack(b"PK\x06\x06", 44, 0x031E, 45, 0, 0, count, count, size, start))
        self._write(_LOCATOR.pack(b"PK\x06\x07", 0, end, 1))
        few, near = min(count, 0xFFFF), min(start, _MAX32)
        self._write(_END.pack(b"PK\x05\x06", 0, 0, few, few, min(size, _MAX32), near, 0))


def _broken(why):
    return RuntimeError(
        f"failed reading zip archive: {why}. The file is probably corrupted: it was not saved or "
        "transferred completely, or changed afterwards."
    )


class ZipReader:
    """Reads records of a file object that can seek."""

    def __init__(self, file):
        self.file = file
        self.size = file.seek(0, 2)
        try:
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
        except MemoryError:
            raise
        except Exception as error:
            raise _broken(str(error) or type(error).__name__) from None
        if not entries:
            raise _broken("it has no records")
        self.root = entries[0].filename.partition("/")[0]
        self.entries = {entry.filename: entry for entry in entries}
        if len(self.entries) != len(entries):
            raise _broken("two records have one name")
        self.begins = {}

    def has(self, name):
        """Return True if there is a record of this name."""
        return f"{self.root}/{name}" in self.entries

    def _entry(self, name):
        entry = self.entries.get(f"{self.root}/{name}")
        if entry is None:
            raise _broken(f"there is no record {name!r}")
        return entry

    def length(self, name):
        """Return the number of bytes of a record."""
        entry = self._entry(name)
        if entry.compress_type == zipfile.ZIP_STORED:
            self.begin(name)
        elif entry.file_size > _DEFLATE_AT_MOST * entry.compress_size + ALIGNMENT:
            raise _broken(f"record {name!r} states a size that it cannot have")
        return entry.file_size

    def begin(self, name):
        """Return the offset of a record's data in the file; None if it is compressed."""
        entry = self._entry(name)
        if entry.compress_type != zipfile.ZIP_STORED:
            return None
        if name not in self.begins:
            self.begins[name] = self._find(name, entry)
        return self.begins[name]

    def _find(self, name, entry):
        head = b""
        if 0 <= entry.header_offset <= self.size - _LOCAL.size:
            self.file.seek(entry.header_offset)
            head = self.file.read(_LOCAL.size)
        if len(head) != _LOCAL.size:
            raise _broken(f"record {name!r} is beyond the end")
        fields = _LOCAL.unpack(head)
        path = self.file.read(fields[9])
        begin = entry.header_offset + _LOCAL.size + fields[9] + fields[10]
        if fields[0] != b"PK\x03\x04" or path != entry.orig_filename.encode():
            raise _broken(f"record {name!r} is not where the directory says")
        if entry.file_size != entry.compress_size or begin + entry.file_size > self.size:
            raise _broken(f"record {name!r} has {entry.file_size} bytes, beyond the end")
        return begin

    def read(self, name):
        """Return the bytes of a record, with its checksum checked."""
        data = bytearray(self.length(name))
        self.read_into(name, memoryview(data))
        return bytes(data)

    def read_into(self, name, view):
        """Fill a memoryview of the record's size, and check the checksum."""
        entry, begin = self._entry(name), self.begin(name)
        if begin is None:
            return self._decompress(name, entry, view)
        self.file.seek(begin)
        checksum, done = 0, 0
        while done < entry.file_size:
            part = view[done : done + _CHUNK]
            count = _fill(self.file, part)
            if count == 0:
                raise _broken(f"record {name!r} ends after {done} of {entry.file_size} bytes")
            checksum = crc32(part[:count], checksum)
            done += count
        if entry.CRC and checksum != entry.CRC:  # torch writes 0 where checksums are off
            raise _broken(f"record {name!r} has a wrong checksum")
        return None

    def _decompress(self, name, entry, view):
        self.length(name)
        try:
            with zipfile.ZipFile(self.file) as archive:
                data = archive.read(entry)
        except MemoryError:
            raise
        except Exception as error:
            raise _broken(str(error) or type(error).__name__) from None
        if len(data) != entry.file_size:
            raise _broken(f"record {name!r} has a wrong size")
        view[:] = data


def _fill(file, part):
    """Read into a memoryview; return how many bytes it got."""
    if hasattr(file, "readinto"):
        return file.readinto(part) or 0
    data = file.read(part.nbytes)
    part[: len(data)] = data
    return len(data)
