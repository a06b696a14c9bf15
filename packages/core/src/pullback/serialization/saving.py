"""``save``: torch's zip format, and its older one."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys

from pullback._c.interop.checksum import crc32
from pullback.serialization.atomic import written_file
from pullback.serialization.legacy import write_legacy
from pullback.serialization.options import settings
from pullback.serialization.pickler import bytes_of, pickled
from pullback.serialization.zip_format import ALIGNMENT, ZipWriter

__all__ = ["save"]

DEFAULT_PROTOCOL = 2


def save(
    obj,
    f,
    pickle_module=pickle,
    pickle_protocol=DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization=True,
    _disable_byteorder_record=False,
):
    """Write an object to a file that ``load`` reads, here and in torch.

    ``f`` is a path or an object with ``write``. Tensors that share memory share it in the file; the
    whole storage of each is written. A path is written beside the old file, which it then replaces:
    a crash loses nothing. Anything that pickle takes may be saved, but ``load`` makes only tensors,
    numbers, text and containers of them unless it is told otherwise.

    Raises: RuntimeError if the folder does not exist, or if tensors of two dtypes share memory.

    >>> import io, pullback
    >>> file = io.BytesIO()
    >>> pullback.save({"x": pullback.arange(3)}, file)
    >>> _ = file.seek(0)
    >>> pullback.load(file)
    {'x': tensor([0, 1, 2])}
    """
    if not isinstance(f, (str, os.PathLike)) and not hasattr(f, "write"):
        raise AttributeError(
            "expected 'f' to be string, path, or a file-like object with a 'write' attribute"
        )
    is_path = isinstance(f, (str, os.PathLike))
    with written_file(f) if is_path else contextlib.nullcontext(f) as file:
        if _use_new_zipfile_serialization:
            root = _root_of(f) if is_path else "archive"
            _write_zip(obj, file, root, pickle_module, pickle_protocol, _disable_byteorder_record)
        else:
            write_legacy(obj, file, pickle_module, pickle_protocol)


def _root_of(path):
    """Return the folder in the archive: the file's name without its ending, if it is ASCII."""
    name = os.path.basename(os.fspath(path))
    name = os.path.splitext(name)[0] or "archive"
    return name if name.isascii() else "archive"


def _write_zip(obj, file, root, pickle_module, protocol, without_byte_order):
    data, saved = pickled(obj, pickle_module, protocol)
    writer = ZipWriter(file, root)
    writer.record("data.pkl", data)
    writer.record(".format_version", b"1")
    writer.record(".storage_alignment", str(ALIGNMENT).encode())
    if not without_byte_order:
        writer.record("byteorder", sys.byteorder.encode())
    for number, storage in enumerate(saved.storages):
        writer.record(f"data/{number}", bytes_of(storage, settings.skip))
    writer.record("version", b"3\n")
    names = crc32(data)
    writer.record(".data/serialization_id", b"%020d%020d" % (names, writer.checksums))
    writer.close()
