"""Files of tensors in the format of the ``safetensors`` library, which reads and checks them.

The functions are those of ``safetensors.torch``. Loaded tensors are parts of the mapped file, which
is read where they are used; a write changes memory of this process alone. The library is optional:
``pip install pullback[safetensors]``.
"""

from __future__ import annotations

import math
import os
import sys
from collections import defaultdict

from pullback import Tensor
from pullback._c.base.dtype import ALL
from pullback._c.device.device import device as _device
from pullback._c.interop.arrays import host_device
from pullback.storage.mapped_file import MappedFile
from pullback.storage.untyped import UntypedStorage

__all__ = ["load", "load_file", "load_model", "safe_open", "save", "save_file", "save_model"]

_BY_NAME = {dtype.name: dtype for dtype in ALL}
_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "I16": "int16",
    "I32": "int32",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "U16": "uint16",
    "U32": "uint32",
    "U64": "uint64",
}
_ADVICE = "More information at https://huggingface.co/docs/safetensors/torch_shared_tensors"


def _library():
    try:
        import safetensors
    except ImportError:
        raise ImportError(
            "pullback.safetensors needs the library safetensors: "
            "pip install 'pullback[safetensors]'"
        ) from None
    return safetensors


def _dtype(name):
    """Return our dtype of the format's name."""
    if name not in _DTYPES:
        raise _library().SafetensorError(f"pullback has no dtype {name}")
    return _BY_NAME[_DTYPES[name]]


# ---- loading -------------------------------------------------------------------------------------


class _Slice:
    """A tensor of an open file, of which an index reads a part."""

    def __init__(self, file, name):
        self._file, self._name = file, name

    def get_shape(self):
        """Return the sizes, as a list."""
        return list(self._file._places[self._name][1])

    def get_dtype(self):
        """Return the format's name of the dtype, such as ``F32``."""
        return self._file._places[self._name][0]

    def __getitem__(self, key):
        return self._file.get_tensor(self._name)[key]


class safe_open:
    """Open a file whose tensors are read when they are asked for; a context manager.

    ``framework`` is that of the library and changes nothing; tensors go to ``device``.

    Raises: FileNotFoundError; safetensors.SafetensorError for another format.

    >>> import pathlib, tempfile, pullback
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.safetensors"
    >>> pullback.safetensors.save_file({"x": pullback.arange(4)}, path, {"made": "here"})
    >>> with pullback.safetensors.safe_open(path) as file:
    ...     file.keys(), file.metadata(), file.get_slice("x")[1:3]
    (['x'], {'made': 'here'}, tensor([1, 2]))
    """

    def __init__(self, filename, framework="pt", device="cpu"):
        path = os.fspath(filename)
        with _library().safe_open(path, "np") as file:
            self._metadata = file.metadata()
            self._keys = file.keys()
            self._order = file.offset_keys()
            slices = [(name, file.get_slice(name)) for name in self._order]
            shapes = [(name, part.get_dtype(), part.get_shape()) for name, part in slices]
        self._mapped = MappedFile(path)
        self._device = host_device() if str(device) == "cpu" else _device(device)
        self._places = {}
        position = 8 + int.from_bytes(self._mapped.bytes[:8], "little")
        for name, dtype, shape in shapes:  # the library has checked that there are no gaps
            self._places[name] = dtype, shape, position
            position += math.prod(shape) * _dtype(dtype).itemsize
        if position != len(self._mapped.bytes):
            raise _library().SafetensorError(f"the file {path} was changed while it was opened")
        self._storage = UntypedStorage()
        self._storage._over(self._mapped.address, len(self._mapped.bytes), self._mapped)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None

    def keys(self):
        """Return the names of the tensors."""
        return list(self._keys)

    def offset_keys(self):
        """Return the names in the order of the file."""
        return list(self._order)

    def metadata(self):
        """Return the texts that were saved with the tensors, or None."""
        return self._metadata

    def get_tensor(self, name):
        """Return a tensor, over the mapped file where its place allows it.

        Raises: safetensors.SafetensorError if there is none of this name.
        """
        if name not in self._places:
            raise _library().SafetensorError(f"File does not contain tensor {name}")
        dtype, shape, position = self._places[name]
        dtype = _dtype(dtype)
        count = math.prod(shape)
        if position % dtype.itemsize or sys.byteorder == "big":
            return _copied(self._storage, position, count, dtype).view(shape).to(self._device)
        made = self._storage._tensor(dtype, position // dtype.itemsize, (count,), (1,))
        return (
            made.view(shape) if self._device == made.device else made.view(shape).to(self._device)
        )

    def get_tensors(self):
        """Return all tensors by name."""
        return {name: self.get_tensor(name) for name in self._keys}

    def get_slice(self, name):
        """Return an object of which an index reads part of a tensor."""
        if name not in self._places:
            raise _library().SafetensorError(f"File does not contain tensor {name}")
        return _Slice(self, name)


def _copied(storage, position, count, dtype):
    """Return a 1-d tensor with a copy of elements at any place of a storage."""
    part = storage[position : position + count * dtype.itemsize].clone()
    if sys.byteorder == "big":
        part.byteswap(dtype)
    return part._tensor(dtype, 0, (count,), (1,))


def load_file(filename, device="cpu", *, backend="mmap"):
    """Return the tensors of a file by name, over the mapped file.

    Raises: FileNotFoundError; safetensors.SafetensorError for another format.

    >>> import pathlib, tempfile, pullback
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.safetensors"
    >>> pullback.safetensors.save_file({"x": pullback.ones(2)}, path)
    >>> pullback.safetensors.load_file(path)
    {'x': tensor([1., 1.])}
    """
    return safe_open(filename, device=device).get_tensors()


def load(data):
    """Return the tensors of a file's bytes by name; they are copied.

    Raises: safetensors.SafetensorError for another format.

    >>> import pullback
    >>> pullback.safetensors.load(pullback.safetensors.save({"x": pullback.ones(2)}))
    {'x': tensor([1., 1.])}
    """
    found = {}
    for name, part in _library().deserialize(data):
        dtype = _dtype(part["dtype"])
        storage = UntypedStorage.from_buffer(part["data"], "little", dtype=dtype)
        found[name] = storage._tensor(dtype, 0, (math.prod(part["shape"]),), (1,)).view(
            part["shape"]
        )
    return found


# ---- saving --------------------------------------------------------------------------------------


def _extent(tensor):
    """Return the addresses of a tensor's first byte and behind its last."""
    reach = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size()


def _shared_groups(tensors):
    """Return sets of names whose tensors overlap in memory."""
    storages = defaultdict(list)
    for name, tensor in tensors.items():
        if tensor.device.type != "meta" and tensor.numel():
            storages[tensor.untyped_storage()._cdata].append((*_extent(tensor), name))
    groups = []
    for places in storages.values():
        end = None
        for begin, stop, name in sorted(places):
            if end is not None and begin < end:
                groups[-1].add(name)
                end = max(end, stop)
            else:
                groups.append({name})
                end = stop
    return [group for group in groups if len(group) > 1]


def _specs(tensors):
    """Return what the library writes, and the tensors that must live until then.

    Raises: ValueError for anything but contiguous tensors; RuntimeError for shared memory.
    """
    if not isinstance(tensors, dict):
        raise ValueError(f"Expected a dict of [str, pullback.Tensor] but received {type(tensors)}")
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(
                f"Key `{name}` is invalid, expected pullback.Tensor but received {type(tensor)}"
            )
    shared = _shared_groups(tensors)
    if shared:
        raise RuntimeError(
            "Some tensors share memory, this will lead to duplicate memory on disk and potential "
            f"differences when loading them again: {shared}. A potential way to correctly save "
            f"your model is to use `save_model`. {_ADVICE}"
        )
    specs, kept = {}, []
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which is not allowed. "
                "It either means you are trying to save tensors which are reference of each other "
                "in which case it's recommended to save only the full tensors, and reslice at load "
                "time, or simply call `.contiguous()` on your tensor to pack it before saving."
            )
        if tensor.device.type == "meta":
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        plain = tensor.detach().resolve_conj().resolve_neg().cpu()
        if sys.byteorder == "big":
            plain = plain.clone()
            plain.untyped_storage().byteswap(plain.dtype)
        kept.append(plain)
        specs[name] = _library().TensorSpec(
            dtype=plain.dtype.name,
            shape=list(plain.shape),
            data_ptr=plain.data_ptr(),
            data_len=plain.nbytes,
        )
    return specs, kept


def save_file(tensors, filename, metadata=None):
    """Write tensors by name, and texts by name, to a file.

    Raises: ValueError for tensors that are not contiguous; RuntimeError for tensors that share
    memory; TypeError for names and texts of another type.

    >>> import pathlib, tempfile, pullback
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.safetensors"
    >>> pullback.safetensors.save_file({"x": pullback.ones(2)}, path)
    """
    specs, kept = _specs(tensors)
    _library().serialize_file(specs, os.fspath(filename), metadata=metadata)
    del kept


def save(tensors, metadata=None):
    """Return the bytes of a file with tensors by name; raises what ``save_file`` raises.

    >>> import pullback
    >>> len(pullback.safetensors.save({"x": pullback.ones(2)}))
    72
    """
    specs, kept = _specs(tensors)
    data = _library().serialize(specs, metadata=metadata)
    del kept
    return data


# ---- modules -------------------------------------------------------------------------------------


def _duplicates(state, preferred=()):
    """Return by the name that is kept the other names of the same memory.

    Raises: RuntimeError if no tensor of a group covers the memory that they share.
    """
    found = {}
    for group in _shared_groups(state):
        extents = {name: _extent(state[name]) for name in group}
        whole = min(e[0] for e in extents.values()), max(e[1] for e in extents.values())
        complete = sorted(name for name in group if extents[name] == whole)
        size = whole[1] - whole[0]
        complete = [n for n in complete if state[n].untyped_storage().nbytes() == size]
        if not complete:
            raise RuntimeError(
                "Error while trying to find names to remove to save state dict, but found no "
                f"suitable name to keep for saving amongst: {group}. None is covering the entire "
                "storage. Refusing to save/load the model since you could be storing much more "
                f"memory than needed. {_ADVICE}"
            )
        keep = next((name for name in complete if name in preferred), complete[0])
        found[keep] = sorted(group - {keep})
    return found


def save_model(model, filename, metadata=None, force_contiguous=True):
    """Write a module's state dict; of tensors that share memory one is written.

    Raises: RuntimeError if none covers the memory that they share; ValueError for tensors that are
    not contiguous, unless ``force_contiguous`` copies them.

    >>> import pathlib, tempfile, pullback
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.safetensors"
    >>> model = pullback.nn.Linear(2, 3)
    >>> pullback.safetensors.save_model(model, path)
    >>> pullback.safetensors.load_model(pullback.nn.Linear(2, 3), path)
    (set(), [])
    """
    state, metadata = dict(model.state_dict()), dict(metadata or {})
    for keep, others in _duplicates(state).items():
        for name in others:
            metadata.setdefault(name, keep)
            del state[name]
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    try:
        save_file(state, filename, metadata=metadata or None)
    except ValueError as error:
        raise ValueError(f"{error} Or use save_model(..., force_contiguous=True).") from None


def load_model(model, filename, strict=True, device="cpu", *, backend="mmap"):
    """Load a file into a module; returns the missing and the unexpected names.

    Raises: RuntimeError that lists all of them if ``strict``, and all tensors of another shape.

    >>> import pathlib, tempfile, pullback
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.safetensors"
    >>> pullback.safetensors.save_file({"weight": pullback.ones(3, 2)}, path)
    >>> pullback.safetensors.load_model(pullback.nn.Linear(2, 3), path, strict=False)
    ({'bias'}, [])
    """
    state = load_file(filename, device=device)
    others = _duplicates(model.state_dict(), preferred=state.keys())
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing, unexpected = set(missing), list(unexpected)
    for name in [name for names in others.values() for name in names]:
        if name in missing:
            missing.remove(name)
        else:
            unexpected.append(name)
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for kind, names in (("Missing", sorted(missing)), ("Unexpected", sorted(unexpected))):
            if names:
                listed = ", ".join(f'"{name}"' for name in names)
                lines.append(f"    {kind} key(s) in state_dict: {listed}")
        raise RuntimeError("\n".join(lines))
    return missing, unexpected
