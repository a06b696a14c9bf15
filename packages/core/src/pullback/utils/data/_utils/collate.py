"""Batches made of samples: tensors are stacked, and containers keep their class."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence

import numpy

import pullback
from pullback._c.graph.tensor import Tensor
from pullback.utils.data._utils import shared

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]

np_str_obj_array_pattern = re.compile(r"[SaUO]")
default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)


# ---- containers ----------------------------------------------------------------------------------


def mapping_like(like: Mapping, items: dict) -> Mapping:
    """Return items in a mapping of a class; in a dict where the class cannot be made so."""
    try:
        if isinstance(like, MutableMapping):
            clone = copy.copy(like)
            clone.update(items)
            return clone
        return type(like)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def sequence_like(like: Sequence, values: list) -> Sequence:
    """Return values in a sequence of a class; in a list where the class cannot be made so.

    A named tuple keeps its class, another tuple becomes a list.
    """
    if isinstance(like, tuple):
        return type(like)(*values) if hasattr(like, "_fields") else values
    try:
        if isinstance(like, MutableSequence):
            clone = copy.copy(like)
            for number, value in enumerate(values):
                clone[number] = value
            return clone
        return type(like)(values)  # type: ignore[call-arg]
    except TypeError:
        return values


def map_leaves(function: Callable, data):
    """Apply a function to what is in containers, which keep their class; a text is none."""
    if isinstance(data, Mapping):
        return mapping_like(data, {key: map_leaves(function, data[key]) for key in data})
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return sequence_like(data, [map_leaves(function, value) for value in data])
    return function(data)


# ---- collation -----------------------------------------------------------------------------------


def collate(batch, *, collate_fn_map: dict | None = None):
    """Return the batch of a list of samples, leaf by leaf.

    ``collate_fn_map`` has, for classes or tuples of them, functions that take a list of leaves and
    ``collate_fn_map`` itself. The first sample says what containers there are.
    Raises: TypeError for a leaf whose class is not there; RuntimeError for sequences of different
    lengths.

    >>> from pullback.utils.data._utils.collate import collate
    >>> collate([("a",), ("b",)], collate_fn_map={str: lambda batch, **_: "".join(batch)})
    ['ab']
    """
    first = batch[0]
    kind = type(first)
    if collate_fn_map is not None:
        function = collate_fn_map.get(kind)
        if function is None:
            for classes, candidate in collate_fn_map.items():
                if isinstance(first, classes):
                    function = candidate
                    break
        if function is not None:
            return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        items = {
            key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map)
            for key in first
        }
        return mapping_like(first, items)
    if isinstance(first, Sequence):
        if not (isinstance(first, tuple) and hasattr(first, "_fields")):
            size = len(first)
            if any(len(sample) != size for sample in batch):
                raise RuntimeError("each element in list of batch should be of equal size")
        columns = [collate(values, collate_fn_map=collate_fn_map) for values in zip(*batch)]
        return sequence_like(first, columns)
    raise TypeError(default_collate_err_msg_format.format(kind))


def collate_tensor_fn(batch, *, collate_fn_map: dict | None = None):
    """Stack tensors; in a worker process into the memory that the batch is sent in."""
    first = batch[0]
    writer = shared.writer
    if writer is None or not all(
        type(tensor) is Tensor
        and tensor.shape == first.shape
        and tensor.dtype == first.dtype
        and tensor.device == writer.device
        and not tensor.requires_grad
        for tensor in batch
    ):
        return pullback.stack(batch, 0)
    out = writer.empty((len(batch), *first.shape), first.dtype)
    if shared.is_large(first):
        return shared.fill(out, batch)
    return pullback.stack(batch, 0, out=out)


def collate_numpy_array_fn(batch, *, collate_fn_map: dict | None = None):
    """Stack arrays as a tensor."""
    dtype = batch[0].dtype
    if np_str_obj_array_pattern.search(dtype.str) is not None:
        raise TypeError(default_collate_err_msg_format.format(dtype))
    return collate([pullback.as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch, *, collate_fn_map: dict | None = None):
    """Make a tensor of NumPy's numbers."""
    return pullback.as_tensor(batch)


def collate_float_fn(batch, *, collate_fn_map: dict | None = None):
    """Make a float64 tensor of numbers."""
    return pullback.tensor(batch, dtype=pullback.float64)


def collate_int_fn(batch, *, collate_fn_map: dict | None = None):
    """Make a tensor of integers or bools."""
    return pullback.tensor(batch)


def collate_str_fn(batch, *, collate_fn_map: dict | None = None):
    """Leave texts as they are."""
    return batch


default_collate_fn_map: dict = {
    Tensor: collate_tensor_fn,
    numpy.ndarray: collate_numpy_array_fn,
    (numpy.bool_, numpy.number, numpy.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_collate(batch):
    """Return the batch of a list of samples: what a ``DataLoader`` does with them by default.

    Tensors and arrays are stacked along a new dim 0, numbers become a tensor (floats a float64
    one), texts stay in a list. Mappings, named tuples and other sequences keep their class, tuples
    become lists, and what is in them is collated.
    Raises: TypeError for a sample of another class; RuntimeError for shapes that differ, and for
    sequences of different lengths.

    >>> from pullback.utils.data import default_collate
    >>> default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
    {'x': tensor([1, 2]), 'name': ['a', 'b']}
    >>> default_collate([(1, 2.5), (3, 4.5)])
    [tensor([1, 3]), tensor([2.5000, 4.5000], dtype=pullback.float64)]
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


# ---- conversion ----------------------------------------------------------------------------------


def default_convert(data):
    """Return a sample with arrays and NumPy's numbers as tensors: the default without batches.

    Containers keep their class, tuples become lists; everything else stays as it is.

    >>> import numpy
    >>> from pullback.utils.data import default_convert
    >>> default_convert({"x": numpy.array([1, 2]), "name": "a"})
    {'x': tensor([1, 2]), 'name': 'a'}
    """
    return map_leaves(_convert_leaf, data)


def _convert_leaf(data):
    kind = type(data)
    if kind.__module__ != "numpy" or kind.__name__ in ("str_", "bytes_"):
        return data
    if kind is numpy.ndarray and np_str_obj_array_pattern.search(data.dtype.str) is not None:
        return data
    return pullback.as_tensor(data)
