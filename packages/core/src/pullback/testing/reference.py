"""What an op should return, computed by NumPy or SciPy in their widest dtypes."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from pullback.testing.samples import Sample, replace_tensors

__all__ = ["expect", "find_reference"]

KEYWORDS = {"dim": "axis", "keepdim": "keepdims"}


def find_reference(ref: str | Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that an entry's ``ref`` names; its arguments are the op's.

    A dotted name is a function of NumPy or SciPy, called with their names for ``dim`` and
    ``keepdim``. A function gets the module ``numpy`` first.

    Raises: ImportError when the module is not installed.
    """
    if callable(ref):
        return functools.partial(ref, np)
    module, _, name = ref.rpartition(".")
    return getattr(importlib.import_module(module), name)


def expect(sample: Sample) -> Any:
    """Return what a sample call should give: arrays where the result has tensors."""
    entry = sample.entry
    function = find_reference(entry.ref)
    narrow = entry.promote != "float"
    args, kwargs = (
        replace_tensors(part, lambda tensor: widened(tensor, keep_integers=narrow))
        for part in (sample.args, sample.kwargs)
    )
    if isinstance(entry.ref, str):
        args, kwargs = in_numpys_words(entry, args, kwargs)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy warns of means of nothing
        return function(*args, **kwargs)


def widened(tensor: pb.Tensor, *, keep_integers: bool) -> np.ndarray:
    """Return the values as an array of the widest dtype of their kind."""
    if tensor.is_complex():
        return tensor.detach().cpu().to(pb.complex128).numpy(force=True)
    if tensor.is_floating_point() or not keep_integers:
        return tensor.detach().cpu().to(pb.float64).numpy(force=True)
    return tensor.detach().cpu().numpy(force=True)


def in_numpys_words(
    entry: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments as NumPy wants them: ``axis``, ``keepdims``, and no ``dtype``."""
    names = [argument.name for argument in entry.arguments]
    given = dict(zip(names, args)) | kwargs
    given.pop("dtype", None)
    first = next(iter(given.values()), None)
    if isinstance(first, np.ndarray) and first.ndim == 0 and "Tensor[]" not in entry.signature:
        given.pop("dim", None)  # NumPy has no axis 0 of a number
    if given.get("dim") == ():
        given["dim"] = None
    words = {KEYWORDS[name]: given.pop(name) for name in KEYWORDS if name in given}
    return list(given.values()), words
