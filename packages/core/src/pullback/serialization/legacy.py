"""Torch's format before zip: a row of pickles, then the storages' bytes."""

from __future__ import annotations

import pickle
import struct
import sys

from pullback.serialization.names import brief, storage_dtype
from pullback.serialization.options import settings
from pullback.serialization.pickler import bytes_of, pickled
from pullback.storage.typed import _typed
from pullback.storage.untyped import UntypedStorage

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
_COUNT = struct.Struct("<q")


def write_legacy(obj, file, pickle_module, protocol):
    """Write an object in the format before zip."""
    system = {
        "protocol_version": VERSION,
        "little_endian": sys.byteorder == "little",
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    for value in (MAGIC, VERSION, system):
        pickle.dump(value, file, protocol=protocol)
    data, saved = pickled(obj, pickle_module, protocol, legacy=True)
    file.write(data)
    pickle.dump([saved.numbers[s._cdata] for s in saved.storages], file, protocol=protocol)
    for storage in saved.storages:
        dtype = saved.dtypes.get(storage._cdata)
        size = 1 if dtype is None else dtype.itemsize
        file.write(_COUNT.pack(storage.nbytes() // size))
        data = bytes_of(storage, settings.skip)
        file.write(data[: storage.nbytes() // size * size])


def read_legacy(data, unpickle, restore):
    """Return the object of a file in the format before zip; ``data`` is all of it.

    ``unpickle(position, persistent_load)`` returns an object and the position behind its pickle.
    Raises: UnpicklingError for another format; RuntimeError for a wrong version, missing bytes and
    storages that do not fit.
    """
    magic, position = unpickle(0, None)
    if magic != MAGIC:
        raise pickle.UnpicklingError("Invalid magic number; corrupt file?")
    version, position = unpickle(position, None)
    if version != VERSION:
        raise RuntimeError(f"Invalid protocol version: {brief(version)}")
    system, position = unpickle(position, None)
    little = not isinstance(system, dict) or system.get("little_endian", True)
    storages: dict = {}

    def persistent_load(description):
        return _described(description, storages, restore, len(data))

    found, position = unpickle(position, persistent_load)
    keys, position = unpickle(position, None)
    if not isinstance(keys, list) or sorted(map(str, keys)) != sorted(storages):
        raise RuntimeError("the file lists other storages than its objects have")
    for key in keys:
        position = _read(data, position, storages[str(key)], little)
    return found


def _described(description, storages, restore, limit):
    """Return a storage, or a part of one, that a pickle describes; its bytes follow later."""
    if not isinstance(description, tuple) or len(description) != 6 or description[0] != "storage":
        raise RuntimeError(f"Unknown saved id type: {brief(description)}")
    kind, key, location, count, part = description[1:]
    dtype = storage_dtype(kind)
    size = 1 if dtype is None else dtype.itemsize
    if not (isinstance(key, str) and isinstance(location, str) and type(count) is int):
        raise RuntimeError("the description of a storage has parts of a wrong type")
    if not 0 <= count * size <= limit:
        raise RuntimeError(f"a storage of {count * size} bytes is larger than the file")
    if key not in storages:
        plain = UntypedStorage(count * size)
        storages[key] = plain, size, count, restore(plain, location)
    plain, known_size, known_count, restored = storages[key]
    if (known_size, known_count) != (size, count):
        raise RuntimeError(f"storage {key!r} is described in two ways")
    if part is not None:
        _, begin, length = part
        if not (type(begin) is type(length) is int and 0 <= begin <= begin + length <= count):
            raise RuntimeError(f"a part of storage {key!r} is beyond its end")
        restored = restored[begin * size : (begin + length) * size]
    return restored if dtype is None else _typed(restored, dtype)


def _read(data, position, described, little):
    """Fill a storage with its bytes; return the position behind them."""
    storage, size, count, restored = described
    if position + _COUNT.size > len(data):
        raise RuntimeError("unexpected EOF: the number of a storage's elements is missing")
    (stated,) = _COUNT.unpack(data[position : position + _COUNT.size])
    position += _COUNT.size
    if stated != count:
        raise RuntimeError(f"a storage has {stated} elements instead of {count}")
    missing = count * size - (len(data) - position)
    if missing > 0:
        raise RuntimeError(
            f"unexpected EOF, expected {missing} more bytes. The file might be corrupted."
        )
    if count * size:
        memoryview(storage._bytes())[:] = data[position : position + count * size]
        if restored is not storage and restored.device.type != "meta":
            restored.copy_(storage)  # it was moved before its bytes were there
    if little != (sys.byteorder == "little"):
        raise RuntimeError("files of the old format with another byte order cannot be loaded")
    return position + count * size
