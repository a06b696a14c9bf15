"""What storages with and without a dtype have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pullback._c.interop.arrays import host_device


class StorageMethods:
    """What both kinds of storage have: ``_untyped()`` is the memory, ``_elements()`` a tensor."""

    __slots__ = ()
    is_sparse = is_sparse_csr = is_hpu = False

    if TYPE_CHECKING:  # methods of the subclasses

        def __getattr__(self, name) -> Any: ...

    @property
    def is_cuda(self):
        """Whether the memory is on a CUDA device."""
        return self.device.type == "cuda"

    def __len__(self):
        return self.size()

    def __iter__(self):
        return iter(self.tolist())

    def __str__(self):
        where = f"device={self.device}) of size {self.size()}]"
        lines = ["..."] if self.device.type == "meta" else map(str, self.tolist())
        return "\n ".join(["", *lines])[1:] + f"\n[{self._title()}{where}"

    __repr__ = __str__

    def __copy__(self):
        return self.clone()

    def __sizeof__(self):
        return object.__sizeof__(self) + self.nbytes()

    def tolist(self):
        """Return the elements as a list of Python numbers."""
        if self.device.type == "meta":
            raise NotImplementedError("Not available for 'meta' device type")
        return self._elements().tolist()

    def get_device(self):
        """Return the number of the device; -1 on the host."""
        return self._elements().get_device()

    def cpu(self):
        """Return the storage itself if it is in host memory, else a copy there."""
        return self if self.device == host_device() else self.to(device=host_device())

    def cuda(self, device=None, non_blocking=False):
        """Return the storage itself if it is on the CUDA device, else a copy there."""
        return self.to(device="cuda" if device is None else device, non_blocking=non_blocking)

    def is_pinned(self, device=None):
        """Return True if the memory is pinned."""
        return self._elements().is_pinned(device)

    def _index(self, key):
        """Return a non-negative position.

        Raises: IndexError for one out of range.
        """
        position = key + self.size() if key < 0 else key
        if not 0 <= position < self.size():
            raise IndexError(f"index {key} out of range for storage of size {self.size()}")
        return position


def is_storage(obj, /):
    """Return True for storages, with or without a dtype.

    >>> import pullback
    >>> pullback.is_storage(pullback.ones(2).untyped_storage())
    True
    """
    return isinstance(obj, StorageMethods)
