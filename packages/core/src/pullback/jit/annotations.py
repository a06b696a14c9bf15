"""Annotations of lists that one number stands for, which code for TorchScript subscripts.

>>> from pullback.jit.annotations import BroadcastingList2
>>> BroadcastingList2[int] is None
True
"""

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035

__all__ = [
    "BroadcastingList1",
    "BroadcastingList2",
    "BroadcastingList3",
    "Dict",
    "List",
    "Optional",
    "Tuple",
    "Union",
]


class _BroadcastingList:
    def __getitem__(self, types: Any) -> None:
        return None


BroadcastingList1: Any = _BroadcastingList()
BroadcastingList2: Any = _BroadcastingList()
BroadcastingList3: Any = _BroadcastingList()
