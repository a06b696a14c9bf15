"""Mapped files, as memory of storages."""

from __future__ import annotations

import mmap
import os

from pullback._c.base.dtype import ALL
from pullback._c.interop.arrays import share_bytes

_UINT8 = next(found for found in ALL if found.name == "uint8")


class MappedFile:
    """A mapped file, which owns the memory of a storage: shared with the file, or private copies.

    Raises: RuntimeError if it cannot be opened, or is too short and not shared.
    """

    def __init__(self, filename, shared=False, nbytes=None):
        self.filename, self.shared = filename, bool(shared)
        try:
            flags = (os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY) | getattr(os, "O_BINARY", 0)
            number = os.open(filename, flags, 0o666)
        except OSError as error:
            mode = "read-write mode" if shared else "read-only mode"
            raise RuntimeError(
                f"unable to open file <{filename}> in {mode}: {error.strerror} ({error.errno})"
            ) from None
        try:
            size = os.fstat(number).st_size
            nbytes = size if nbytes is None else nbytes
            if size < nbytes and not shared:
                raise RuntimeError(
                    f"unable to mmap {nbytes} bytes from file <{filename}>: the file has {size}"
                )
            if size < nbytes:
                os.truncate(number, nbytes)
            access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
            self.memory = mmap.mmap(number, nbytes, access=access)
        finally:
            os.close(number)
        self.bytes = memoryview(self.memory)  # so that the memory cannot be closed
        self.address = share_bytes(self.bytes, _UINT8, nbytes).data_ptr()
