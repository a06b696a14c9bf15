"""``load``: both of torch's formats, with and without the restricted unpickler."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import pickletools
import sys

from pullback.serialization import names
from pullback.serialization.legacy import read_legacy
from pullback.serialization.locations import new_storage, restore_function
from pullback.serialization.options import MAP_SHARED, LoadEndianness, settings
from pullback.serialization.restricted import RestrictedUnpickler, _safe
from pullback.serialization.zip_format import ZipReader
from pullback.storage.mapped_file import MappedFile
from pullback.storage.typed import _typed
from pullback.storage.untyped import UntypedStorage

__all__ = ["get_unsafe_globals_in_checkpoint", "load"]

_REFUSED = """Weights only load failed. {why}
Loading with `weights_only=False` would use all of pickle, which can run any code that the file \
contains: do that only with files from a source that you trust."""


def load(
    f,
    map_location=None,
    pickle_module=None,
    *,
    weights_only=None,
    mmap=None,
    **pickle_load_args,
):
    """Return the object of a file that ``save`` has written, here or in torch.

    ``f`` is a path or a file object that can seek. ``map_location`` says where storages go: a
    device or its name, a dict of names, or a function of (storage, name) that returns a storage or
    None. ``mmap`` maps the file at a path instead of reading it: elements are read when they are
    used, and their checksums are not checked.

    Only tensors, numbers, text and containers of them are made, and no code of the file runs,
    unless ``weights_only=False`` or ``add_safe_globals`` permits more.

    Raises: pickle.UnpicklingError for what is not permitted and for broken pickles; RuntimeError
    for broken archives, wrong checksums, tensors beyond their storage and absent devices; EOFError
    for an empty file.

    >>> import io, pullback
    >>> file = io.BytesIO()
    >>> pullback.save(pullback.nn.Linear(2, 1).state_dict(), file)
    >>> _ = file.seek(0)
    >>> list(pullback.load(file, map_location="meta"))
    ['weight', 'bias']
    """
    weights_only = True if weights_only is None else weights_only
    if weights_only and pickle_module is not None:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    restore = restore_function(map_location)
    unpickler = _Unpicklers(weights_only, pickle_module or pickle, pickle_load_args)
    if mmap and not isinstance(f, (str, os.PathLike)):
        raise ValueError("f must be a string or os.PathLike object when mmap=True")
    with _opened(f) as file:
        start = file.read(4)
        file.seek(-len(start), 1)
        if start == b"PK\x03\x04":
            mapped = None
            if mmap:
                mapped = MappedFile(os.fspath(f), settings.mapping == MAP_SHARED)
            return _load_zip(_from_here(file), restore, unpickler, mapped)
        if mmap:
            raise RuntimeError(
                "mmap can only be used with files saved with "
                "`pullback.save(_use_new_zipfile_serialization=True), please pullback.save your "
                "checkpoint with this option in order to use mmap."
            )
        data = file.read()
        if not data:
            raise EOFError("Ran out of input")
        return _load_legacy(data, restore, unpickler)


@contextlib.contextmanager
def _opened(f):
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb", buffering=0) as file:
            yield file
        return
    for name in ("seek", "tell", "read"):
        if not hasattr(f, name):
            raise AttributeError(
                f"'{type(f).__name__}' object has no attribute '{name}'. You can only "
                "pullback.load from a file that is seekable. Please pre-load the data into a "
                "buffer like io.BytesIO and try to load from it instead."
            )
    yield f


class _Rest(io.RawIOBase):
    """A file object from its position on."""

    def __init__(self, file):
        self.file, self.begin = file, file.tell()

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=0):
        moved = self.file.seek(offset + (self.begin if whence == 0 else 0), whence)
        return moved - self.begin

    def tell(self):
        return self.file.tell() - self.begin

    def readinto(self, part):
        data = self.file.read(len(part))
        part[: len(data)] = data
        return len(data)


def _from_here(file):
    return file if file.tell() == 0 else _Rest(file)


# ---- pickles -------------------------------------------------------------------------------------


class _Unpicklers:
    """Reads the pickles of a file, restricted or not."""

    def __init__(self, weights_only, module, arguments):
        self.weights_only, self.module = weights_only, module
        self.arguments = {"encoding": "utf-8", **arguments}
        unknown = set(arguments) - {"encoding", "errors", "fix_imports", "buffers"}
        if unknown:
            raise TypeError(f"load() got an unexpected keyword argument '{unknown.pop()}'")

    def read(self, data, position, persistent_load):
        """Return the object of the pickle at a position, and the position behind it."""
        persistent_load = persistent_load or _no_storage
        if not self.weights_only:
            return self._read_all(data, position, persistent_load)
        encoding = self.arguments["encoding"]
        unpickler = RestrictedUnpickler(data, position, persistent_load, encoding)
        try:
            return unpickler.load(), unpickler.position
        except pickle.UnpicklingError as error:
            raise pickle.UnpicklingError(_REFUSED.format(why=error)) from None

    def _read_all(self, data, position, persistent_load):
        class Unpickler(self.module.Unpickler):  # type: ignore[name-defined]
            def find_class(self, module, name):
                found = names.find(module, name)
                return super().find_class(module, name) if found is None else found

        Unpickler.persistent_load = staticmethod(persistent_load)
        file = io.BytesIO(data)
        file.seek(position)
        found = Unpickler(file, **self.arguments).load()
        return found, file.tell()


def _no_storage(description):
    raise pickle.UnpicklingError("a storage is where none can be")


# ---- zip -----------------------------------------------------------------------------------------


def _load_zip(file, restore, unpickler, mapped):
    reader = ZipReader(file)
    if reader.has("constants.pkl"):
        raise RuntimeError("TorchScript archives cannot be loaded")
    swap = _byte_order(reader) != sys.byteorder
    storages: dict = {}

    def persistent_load(description):
        if not isinstance(description, tuple) or len(description) != 5:
            raise RuntimeError(f"Unknown saved id type: {names.brief(description)}")
        what, kind, key, location, count = description
        if what != "storage":
            raise RuntimeError(
                f"Unknown type for persistent load, expected 'storage' not {names.brief(what)}"
            )
        dtype = names.storage_dtype(kind)
        size = 1 if dtype is None else dtype.itemsize
        if not (isinstance(key, str) and isinstance(location, str) and type(count) is int):
            raise RuntimeError("the description of a storage has parts of a wrong type")
        if key not in storages:
            storages[key] = _storage(
                reader, key, location, dtype if swap else None, restore, mapped
            )
        storage = storages[key]
        if not 0 <= storage.nbytes() - count * size < size:
            raise RuntimeError(
                f"storage {key!r} has {storage.nbytes()} bytes instead of {count * size}"
            )
        return storage if dtype is None else _typed(storage, dtype)

    return unpickler.read(reader.read("data.pkl"), 0, persistent_load)[0]


def _byte_order(reader):
    """Return the byte order of a file: what it says, the default, or little-endian."""
    if reader.has("byteorder"):
        found = reader.read("byteorder") if reader.length("byteorder") < 16 else b"long"
        if found not in (b"little", b"big"):
            raise ValueError("Unknown endianness type: " + found.decode("ascii", "replace"))
        return found.decode()
    chosen = settings.endianness or LoadEndianness.LITTLE
    return sys.byteorder if chosen is LoadEndianness.NATIVE else chosen.name.lower()


def _storage(reader, key, location, swapped_dtype, restore, mapped):
    """Return the storage of a record: read, or in the mapped file."""
    name = f"data/{key}"
    nbytes = reader.length(name)
    begin = reader.begin(name)
    made = UntypedStorage()
    if mapped is not None and begin is not None and nbytes:
        if begin + nbytes > len(mapped.bytes):
            raise RuntimeError(f"record {name!r} is beyond the end of the mapped file")
        made._over(mapped.address + begin, nbytes, mapped)
    else:
        made = new_storage(nbytes)
        if nbytes and not settings.skip:
            reader.read_into(name, memoryview(made._bytes()))
    if swapped_dtype is not None and not settings.skip:
        made.byteswap(swapped_dtype)
    return restore(made, location)


# ---- the older format ----------------------------------------------------------------------------


def _load_legacy(data, restore, unpickler):
    view = memoryview(data)

    def unpickle(position, persistent_load):
        return unpickler.read(view, position, persistent_load)

    if data[:1] != b"\x80":
        raise pickle.UnpicklingError(
            "Invalid magic number; corrupt file? It is no file of pullback.save or torch.save."
        )
    return read_legacy(view, unpickle, restore)


# ---- what a file names ---------------------------------------------------------------------------


def get_unsafe_globals_in_checkpoint(f):
    """Return the names of functions and classes that a file has and ``load`` does not allow.

    Raises: ValueError for files of the format before zip.

    >>> import fractions, io, pullback
    >>> file = io.BytesIO()
    >>> pullback.save([fractions.Fraction(1, 2)], file)
    >>> _ = file.seek(0)
    >>> pullback.serialization.get_unsafe_globals_in_checkpoint(file)
    ['fractions.Fraction']
    """
    with _opened(f) as file:
        if file.read(4) != b"PK\x03\x04":
            raise ValueError("Expected input to be a checkpoint returned by pullback.save")
        data = ZipReader(file).read("data.pkl")
    found: list = []
    strings: list[str] = []
    for code, argument, _ in pickletools.genops(data):
        if code.name == "GLOBAL":
            found.append(str(argument).split(" ", 1))
        elif code.name == "STACK_GLOBAL":
            found.append((strings[-2], strings[-1]))
        elif isinstance(argument, str):
            strings.append(argument)
    full = [f"{m if m != '__builtin__' else 'builtins'}.{n}" for m, n in found]
    return [name for name in dict.fromkeys(full) if name not in names.ALLOWED and name not in _safe]
