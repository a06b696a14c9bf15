"""How lists of tensors are sorted for functions of lists."""

from __future__ import annotations

from typing import Any

__all__ = ["_group_tensors_by_device_and_dtype"]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: list[list[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """Return lists of tensors, apart by the device and dtype of the first list's tensors.

    A group has the members of each list, and their indices in the lists where asked for.

    Raises: RuntimeError for lists that differ in length.

    >>> import pullback
    >>> from pullback.utils._foreach_utils import _group_tensors_by_device_and_dtype as group
    >>> lists = [[pullback.ones(1), pullback.ones(1, dtype=pullback.int64)], [None, None]]
    >>> [indices for lists, indices in group(lists, with_indices=True).values()]
    [[0], [1]]
    """
    first = tensorlistlist[0]
    if any(len(given) not in (0, len(first)) for given in tensorlistlist):
        raise RuntimeError("Tensor lists must have the same number of tensors.")
    groups: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for index, tensor in enumerate(first):
        key = (tensor.device, tensor.dtype)
        lists, indices = groups.setdefault(key, ([[] for _ in tensorlistlist], []))
        for members, given in zip(lists, tensorlistlist):
            if given:
                members.append(given[index])
        if with_indices:
            indices.append(index)
    return groups
