"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat


@contextlib.contextmanager
def written_file(path):
    """Open a new file beside a path, which takes its place when everything is on the disk.

    A crash at any moment leaves the old file or the new one. A device or pipe is written directly.
    Raises: RuntimeError if the folder does not exist.
    """
    path = os.path.realpath(os.fspath(path))
    folder, name = os.path.split(path)
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    mode = None
    if os.path.exists(path):
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            with open(path, "wb") as file:
                yield file
            return
    temporary = os.path.join(folder, f".{name[:200]}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(folder)


def _sync_folder(folder):
    with contextlib.suppress(OSError):  # some systems cannot, and need not
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
