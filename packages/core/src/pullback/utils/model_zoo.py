"""The older names of ``pullback.hub``."""

from __future__ import annotations

from typing import Any

from pullback.hub import load_state_dict_from_url as load_url

__all__ = ["load_url", "tqdm"]


def tqdm(iterable: Any = None, **options: Any) -> Any:
    """Return a bar of progress of the package tqdm, or one that shows nothing without it.

    >>> from pullback.utils.model_zoo import tqdm
    >>> list(tqdm([1, 2], disable=True))
    [1, 2]
    """
    try:
        from tqdm.auto import tqdm as bar
    except ImportError:
        return _Silent(iterable)
    return bar(iterable, **options)


class _Silent:
    def __init__(self, iterable: Any):
        self.iterable = iterable

    def __iter__(self) -> Any:
        return iter(self.iterable or ())

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *failure: Any) -> None:
        return None

    def update(self, n: int = 1) -> None:
        return None

    def close(self) -> None:
        return None
