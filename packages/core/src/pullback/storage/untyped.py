"""Storages without a dtype: blocks of bytes."""

from __future__ import annotations

import os
import sys
from functools import partial

from pullback._c.device.device import device as _device
from pullback._c.interop.arrays import host_device
from pullback._c.interop.storages import StorageBase
from pullback._help import explain_members
from pullback.storage.common import StorageMethods, is_storage
from pullback.storage.mapped_file import MappedFile

__all__ = ["StorageBase", "UntypedStorage"]


def _name_of(value):
    kind = type(value)
    if isinstance(value, StorageBase):
        return "pullback.storage.UntypedStorage"
    return kind.__name__


class UntypedStorage(StorageMethods, StorageBase):
    """A block of memory of a device, in bytes, that tensors are views of.

    ``UntypedStorage(nbytes, device=None)`` has uninitialised bytes; of a sequence of integers it
    has their lowest eight bits. All tensors that share memory have one storage object.

    Raises: RuntimeError for sequences of anything but integers; TypeError for other arguments.

    >>> import pullback
    >>> x = pullback.zeros(4)
    >>> x.untyped_storage() is x[1:].untyped_storage()
    True
    >>> pullback.UntypedStorage([1, 2, 3]).tolist()
    [1, 2, 3]
    """

    def __init__(self, *args, device=None, **unknown):
        if unknown or len(args) > 1:
            given = [_name_of(value) for value in args]
            given += [f"{name}={_name_of(value)}" for name, value in unknown.items()]
            raise TypeError(
                "pullback.UntypedStorage() received an invalid combination of arguments - got "
                f"({', '.join(given)}), but expected one of:\n * (*, pullback.device device = None)"
                "\n * (int size, *, pullback.device device = None)\n * (object sequence, *, "
                "pullback.device device = None)\n"
            )
        where = host_device() if device is None else _device(device)
        content = args[0] if args else 0
        if isinstance(content, int):
            self._allocate(content, where)
            return
        content = content.tolist() if isinstance(content, StorageBase) else content
        for item in content:
            if not isinstance(item, int):
                raise RuntimeError(
                    "pullback.UntypedStorage(): tried to construct a storage from a sequence "
                    f"({type(content).__name__}), but one of the items was of type "
                    f"{type(item).__name__} instead of int"
                )
        self._allocate(len(content), where)
        _fill(self, bytes(item & 255 for item in content))

    def _title(self):
        return "pullback.storage.UntypedStorage("

    def _untyped(self):
        return self

    def _elements(self):
        return self._bytes()

    __hash__ = object.__hash__

    def __eq__(self, other):
        return isinstance(other, StorageBase) and self._cdata == other._cdata

    def size(self):
        """Return the number of bytes."""
        return self.nbytes()

    def element_size(self):
        """Return 1: an element is a byte."""
        return 1

    def untyped(self):
        """Return the storage itself."""
        return self

    def new(self):
        """Return an empty storage on the same device."""
        return type(self)(device=self.device)

    # ---- bytes ----

    def _slice(self, key):
        start, stop, step = key.indices(self.nbytes())
        if step != 1:
            raise RuntimeError(
                f"Trying to slice with a step of {step}, but only a step of 1 is supported"
            )
        return start, max(stop, start)

    def __getitem__(self, key):
        if isinstance(key, slice):
            start, stop = self._slice(key)
            part = self._bytes()[start:stop]
            made = type(self)()
            made._over(part.data_ptr(), stop - start, memoryview(part), self._is_read_only())
            return made
        if not isinstance(key, int):
            raise TypeError(f"can't index a pullback.UntypedStorage with {type(key).__name__}")
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        return self._bytes()[self._index(key)].item()

    def __setitem__(self, key, value):
        if not isinstance(key, (int, slice)):
            raise RuntimeError(f"can't index a pullback.UntypedStorage with {type(key).__name__}")
        if not isinstance(value, int):
            raise RuntimeError(
                f"can only set storage content with a int types, but got {_name_of(value)} instead"
            )
        if isinstance(key, slice):
            start, stop = self._slice(key)
            self._bytes()[start:stop].fill_(value & 255)
        elif 0 <= key < self.nbytes():
            self._bytes()[key] = value & 255
        else:
            raise RuntimeError("out of bounds")

    def fill_(self, value):
        """Set all bytes to the lowest eight bits of an integer; returns the storage."""
        if not isinstance(value, int):
            raise RuntimeError(f"fill_ expects int, but got {type(value).__name__}")
        self._bytes().fill_(value & 255)
        return self

    def copy_(self, source, non_blocking=None):
        """Copy all bytes of a storage of the same size, of any device; returns the storage."""
        if not is_storage(source):
            raise TypeError(
                "copy_(): argument 'src' (position 1) must be pullback.Storage, not "
                f"{type(source).__name__}"
            )
        if source.nbytes() != self.nbytes():
            raise RuntimeError(
                f"size does not match, self was {self.nbytes()} bytes but src was "
                f"{source.nbytes()} bytes"
            )
        self._bytes().copy_(source._untyped()._bytes(), non_blocking=bool(non_blocking))
        return self

    def byteswap(self, dtype):
        """Reverse the order of the bytes in each number of a dtype, in place.

        Raises: RuntimeError if the size is no multiple of a number's.
        """
        import numpy

        size = dtype.itemsize // 2 if dtype.is_complex else dtype.itemsize
        if self.nbytes() % size:
            raise RuntimeError(f"the length of data is not a multiple of {size}")
        if size > 1 and self.nbytes():
            numpy.asarray(self._bytes()).view(f"u{size}").byteswap(inplace=True)

    def resize_(self, nbytes):
        """Change the number of bytes, for all tensors that share the memory; returns the storage.

        Bytes beyond the old size are uninitialised. Memory that is no longer needed is freed with
        the storage: a tensor that reaches beyond the new end shows old elements until then.
        Raises: RuntimeError for memory that another library owns or uses.
        """
        self._resize(nbytes)
        return self

    # ---- copies ----

    def clone(self):
        """Return a copy on the same device."""
        return type(self)(self.nbytes(), device=self.device).copy_(self)

    def to(self, *, device, non_blocking=False):
        """Return the storage itself if it is on the device, else a copy there."""
        where = _device(device)
        if where == self.device:
            return self
        return type(self)(self.nbytes(), device=where).copy_(self, non_blocking)

    def type(self, dtype=None, non_blocking=False):
        """Return the name of the class."""
        if dtype is None:
            return "pullback.storage.UntypedStorage"
        raise AttributeError(f"module 'pullback' has no storage class {dtype!r} of bytes")

    def pin_memory(self, device=None):
        """Return the storage itself if it is in pinned memory, else a copy there."""
        return self if self.is_pinned(device) else self._bytes().pin_memory().untyped_storage()

    def __deepcopy__(self, memo):
        if self._cdata not in (copies := memo.setdefault("pullback memory", {})):
            memory = self._bytes()  # kept, so that its address is not used again
            copies[self._cdata] = memory, memory.clone()
        return copies[self._cdata][1].untyped_storage()

    def __reduce__(self):
        data = None if self.device.type == "meta" else bytes(memoryview(self.cpu()._bytes()))
        where = None if self.device == host_device() else str(self.device)
        return _rebuild, (data, self.nbytes(), where)

    # ---- other processes and files ----

    def is_shared(self):
        """Return True if other processes can map the memory; always for CUDA devices."""
        return self.is_cuda or bool(getattr(self._owner(), "shared", False))

    def share_memory_(self):
        """Move the bytes to shared memory, for all tensors of the storage; returns the storage.

        Children of a fork then see writes, and queues of ``pullback.multiprocessing`` send the
        memory without a copy. Nothing happens on CUDA devices.
        Raises: RuntimeError for memory that is not the host's.

        >>> import pullback
        >>> pullback.ones(2).untyped_storage().share_memory_().is_shared()
        True
        """
        if not self.is_shared():
            from pullback.multiprocessing.blocks import move_to_shared_memory

            move_to_shared_memory(self)
        return self

    @property
    def filename(self):
        """The name of the file that is mapped, or None."""
        return getattr(self._owner(), "filename", None)

    @classmethod
    def _new_shared(cls, size, *, device="cpu"):
        return cls(size, device=host_device() if str(device) == "cpu" else device).share_memory_()

    @classmethod
    def from_buffer(cls, buffer, byte_order=None, count=-1, offset=0, *, dtype=None):
        """Return a storage with a copy of elements of an object with the buffer protocol.

        ``byte_order`` is that of the buffer: ``native``, ``big`` or ``little``; only elements of
        one byte need none. ``offset`` is in bytes, ``count`` in elements; -1 takes all.
        Raises: ValueError for another byte order and for sizes that do not fit the buffer.
        """
        if dtype is None:
            raise RuntimeError("argument 'dtype' cannot be None")
        if byte_order is None and dtype.itemsize > 1:
            raise ValueError("function missing required argument 'byte_order' (pos 2)")
        if byte_order not in (None, "native", "big", "little"):
            raise ValueError(
                f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')"
            )
        made = cls(_slice_of(memoryview(buffer).cast("B"), count, offset, dtype.itemsize))
        if byte_order not in (None, "native", sys.byteorder):
            made.byteswap(dtype)
        return made

    @classmethod
    def from_file(cls, filename, shared=False, nbytes=0):
        """Return a storage over a mapped file.

        With ``shared`` writes change the file, which is made or enlarged to ``nbytes``; otherwise
        they change memory of this process alone.
        Raises: RuntimeError if the file cannot be opened or is too short.

        >>> import pathlib, tempfile, pullback
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "numbers"
        >>> pullback.UntypedStorage.from_file(str(path), shared=True, nbytes=2)[0] = 7
        >>> path.read_bytes()
        b'\\x07\\x00'
        """
        made = cls()
        if nbytes:
            mapped = MappedFile(os.fspath(filename), shared, nbytes)
            made._over(mapped.address, nbytes, mapped)
        return made


explain_members(partial(setattr, UntypedStorage), "torch.UntypedStorage")


def _slice_of(view, count, offset, size):
    """Return the bytes of `count` elements behind an offset."""
    if not 0 <= offset <= view.nbytes:
        raise ValueError(
            f"offset must be non-negative and no greater than buffer length ({offset}) , but got "
            f"{view.nbytes}"
        )
    if count < 0:
        if (view.nbytes - offset) % size:
            raise ValueError(
                f"buffer size ({view.nbytes - offset}) must be a multiple of element size ({size})"
            )
        count = (view.nbytes - offset) // size
    if offset + count * size > view.nbytes:
        raise ValueError(
            f"buffer has only {view.nbytes - offset} elements after offset {offset}, but specified "
            f"a size of {count}"
        )
    return bytes(view[offset : offset + count * size])


def _fill(storage, data):
    if data:
        memory = storage._bytes()
        if storage.device == host_device():
            memoryview(memory)[:] = data
        elif storage.device.type != "meta":
            memory.copy_(UntypedStorage(data)._bytes())


def _rebuild(data, nbytes, where):
    """Make a storage of its pickled bytes; pickles call this."""
    made = UntypedStorage(nbytes, device=where)
    if data is not None:
        if len(data) != nbytes:
            raise ValueError(f"pickled storage: {len(data)} bytes for a storage of {nbytes}")
        _fill(made, data)
    return made
