"""How tensors are printed: torch's text, character for character.

Values are fetched as nested Python lists, with a mark where long dimensions are summarised. All
shown values determine one number format for the tensor; then the lists are formatted, and notes
(device, dtype, graph) follow.
"""

from __future__ import annotations

import contextlib
import math
import textwrap
from collections.abc import Iterator
from typing import Any

import pullback as pb
from pullback._c.transforms import batching

__all__ = ["format_tensor", "get_printoptions", "printoptions", "set_printoptions"]


class _Options:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


_OPTIONS = _Options()

_PROFILES: dict[str, dict[str, Any]] = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


# -- options -------------------------------------------------------------------------------------


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed; options that are None stay, except ``sci_mode``.

    ``precision`` counts digits after the point. A tensor of more than ``threshold`` elements is
    summarised: ``edgeitems`` at both ends of each dimension are shown. ``linewidth`` is where
    lines are broken. ``profile`` is 'default', 'short' or 'full'; other options override it.
    ``sci_mode`` forces (True) or forbids (False) scientific notation, None decides by value.

    >>> pullback.set_printoptions(precision=2)
    >>> pullback.tensor([1.12345])
    tensor([1.12])
    >>> pullback.set_printoptions(profile="default")
    """
    changes: dict[str, Any] = {}
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(
                f"set_printoptions(): expected profile to be one of {sorted(_PROFILES)}, "
                f"got {profile!r}"
            )
        changes.update(_PROFILES[profile])
    given = {"precision": precision, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in given.items():
        if value is not None:
            changes[name] = _check_count(name, value)
    if threshold is not None:
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)):
            raise TypeError(
                "set_printoptions(): expected threshold to be a number, got "
                f"{type(threshold).__name__}"
            )
        changes["threshold"] = threshold
    if sci_mode is not None and not isinstance(sci_mode, bool):
        raise TypeError(
            "set_printoptions(): expected sci_mode to be a bool or None, "
            f"got {type(sci_mode).__name__}"
        )
    for name, value in changes.items():
        setattr(_OPTIONS, name, value)
    _OPTIONS.sci_mode = sci_mode


def _check_count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(
            f"set_printoptions(): expected {name} to be an int, got {type(value).__name__}"
        )
    if value < 0:
        raise ValueError(f"set_printoptions(): expected {name} >= 0, got {value}")
    return value


def get_printoptions() -> dict[str, Any]:
    """Return the options as a dictionary that ``set_printoptions`` takes."""
    return {name: getattr(_OPTIONS, name) for name in _Options.__annotations__}


@contextlib.contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """Set print options for the time of a ``with`` block."""
    before = get_printoptions()
    set_printoptions(**options)
    try:
        yield
    finally:
        set_printoptions(**before)


# -- fetching values -----------------------------------------------------------------------------


class _Cut:
    """The mark, in a list of values, for those that are not shown."""


_CUT = _Cut()


def _fetch(tensor: Any) -> Any:
    """Return the values to show as nested lists (of a 0-d tensor, its value)."""
    if tensor.numel() <= _OPTIONS.threshold:
        return tensor.tolist()
    return _fetch_edges(tensor, ())


def _fetch_edges(tensor: Any, index: tuple[slice, ...]) -> Any:
    """Return the values in a block, cutting the dimensions that ``index`` does not cover."""
    dim = len(index)
    if dim == tensor.dim():
        return tensor[index].tolist()
    size, edge = tensor.shape[dim], _OPTIONS.edgeitems
    if size <= 2 * edge:
        return _fetch_edges(tensor, (*index, slice(0, size)))
    first = _fetch_edges(tensor, (*index, slice(0, edge)))
    last = _fetch_edges(tensor, (*index, slice(size - edge, size)))
    return _join(first, last, dim)


def _join(first: list[Any], last: list[Any], depth: int) -> list[Any]:
    """Join two blocks along a dimension, marking the cut."""
    if depth == 0:
        return [*first, _CUT, *last]
    return [_join(a, b, depth - 1) for a, b in zip(first, last, strict=True)]


def _flatten(values: Any) -> Iterator[Any]:
    if isinstance(values, list):
        for item in values:
            yield from _flatten(item)
    elif values is not _CUT:
        yield values


# -- formatting one value ------------------------------------------------------------------------


class _PlainFormat:
    """Format of integers and booleans."""

    def __init__(self, values: list[Any]) -> None:
        self.width = max((len(str(value)) for value in values), default=1)

    def format(self, value: Any) -> str:
        return str(value).rjust(self.width)


class _FloatFormat:
    """Format of floating values: whole numbers, fixed point or scientific.

    Zeros, infinities and NaN do not influence the choice, nor the width of the column.
    """

    def __init__(self, values: list[float]) -> None:
        counted = [value for value in values if value != 0 and math.isfinite(value)]
        self.whole = all(value.is_integer() for value in counted)
        self.scientific = bool(counted) and self._wants_scientific(counted)
        self.width = 1
        self.width = max((len(self.format(value)) for value in counted), default=1)

    def _wants_scientific(self, counted: list[float]) -> bool:
        if _OPTIONS.sci_mode is not None:
            return _OPTIONS.sci_mode
        sizes = [abs(value) for value in counted]
        smallest, largest = min(sizes), max(sizes)
        return largest / smallest > 1000.0 or largest > 1.0e8 or smallest < 1.0e-4

    def format(self, value: float) -> str:
        if self.scientific:
            text = f"{value:.{_OPTIONS.precision}e}"
        elif self.whole:
            text = f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"
        else:
            text = f"{value:.{_OPTIONS.precision}f}"
        return text.rjust(self.width)


class _ComplexFormat:
    """Format of complex values: one format for real parts, one for imaginary parts."""

    def __init__(self, values: list[complex]) -> None:
        self.real = _FloatFormat([value.real for value in values])
        self.imag = _FloatFormat([value.imag for value in values])
        self.width = self.real.width + self.imag.width + 1

    def format(self, value: complex) -> str:
        imag = self.imag.format(value.imag).lstrip()
        sign = "" if imag.startswith("-") else "+"
        return f"{self.real.format(value.real)}{sign}{imag}j"


_Format = _PlainFormat | _FloatFormat | _ComplexFormat


def _choose_format(dtype: Any, values: list[Any]) -> _Format:
    if dtype.is_complex:
        return _ComplexFormat(values)
    return _FloatFormat(values) if dtype.is_floating_point else _PlainFormat(values)


# -- formatting nested lists ---------------------------------------------------------------------


def _lay_out(values: Any, depth: int, indent: int, number: _Format) -> str:
    """Return nested lists of ``depth`` levels as text that starts in column ``indent``."""
    if depth == 0:
        return number.format(values)
    if depth == 1:
        return _lay_out_row(values, indent, number)
    blocks = [
        "..." if item is _CUT else _lay_out(item, depth - 1, indent + 1, number) for item in values
    ]
    return "[" + ("," + "\n" * (depth - 1) + " " * (indent + 1)).join(blocks) + "]"


def _lay_out_row(values: list[Any], indent: int, number: _Format) -> str:
    # torch writes a space before the dots, except where nothing else is shown.
    dots = " ..." if len(values) > 1 else "..."
    texts = [dots if value is _CUT else number.format(value) for value in values]
    per_line = max(1, (_OPTIONS.linewidth - indent) // (number.width + 2))
    lines = [", ".join(texts[start : start + per_line]) for start in range(0, len(texts), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


# -- notes after the values ----------------------------------------------------------------------


def _list_notes(tensor: Any, plain: Any, tangent: Any) -> list[str]:
    """Return the notes after the values, in torch's order."""
    notes = []
    if _is_elsewhere(plain.device):
        notes.append(f"device='{plain.device}'")
    is_meta = plain.device.type == "meta"
    is_empty = plain.numel() == 0
    if is_meta or (plain.dim() != 1 if is_empty else not _OPTIONS.edgeitems):
        notes.append(f"size={tuple(plain.shape)}")
    if not _shows_dtype(plain, only_default=is_meta or is_empty):
        notes.append(f"dtype={plain.dtype}")
    graph = _describe_graph(tensor)
    if graph:
        notes.append(graph)
    if tangent is not None:
        notes.append(f"tangent={tangent}")
    return notes


def _is_elsewhere(device: Any) -> bool:
    """Return True for a device other than the default one."""
    default = pb.get_default_device()
    if device.type != default.type:
        return True
    return None not in (device.index, default.index) and device.index != default.index


def _shows_dtype(tensor: Any, *, only_default: bool) -> bool:
    """Return True if the printed values determine the dtype."""
    default = pb.get_default_dtype()
    if only_default or tensor.dtype == default:
        return bool(tensor.dtype == default)
    default_complex = pb.complex128 if default == pb.float64 else pb.complex64
    return tensor.dtype in (default_complex, pb.int64, pb.bool)


def _describe_graph(tensor: Any) -> str:
    try:
        node = tensor.grad_fn
    except RuntimeError:
        # A view whose history cannot be updated must still be printable.
        return "grad_fn=<Invalid>"
    if node is not None:
        return f"grad_fn=<{node.name().rsplit('::', 1)[-1]}>"
    return "requires_grad=True" if tensor.requires_grad else ""


def _append_notes(text: str, notes: list[str], indent: int) -> str:
    """Add notes, on new lines where the line would grow too long."""
    column = len(text) - text.rfind("\n") + 1
    for note in notes:
        if column + len(note) + 2 > _OPTIONS.linewidth:
            text += ",\n" + " " * indent + note
            column = indent + len(note)
        else:
            text += ", " + note
            column += len(note) + 2
    return text + ")"


# -- the whole text ------------------------------------------------------------------------------


def format_tensor(tensor: Any) -> str:
    """Return the text that ``repr`` gives for a tensor.

    >>> pullback._printing.format_tensor(pullback.tensor([1.0, 2.5]))
    'tensor([1.0000, 2.5000])'
    """
    described = batching.describe(tensor)
    if described is not None:
        level, value = described
        inner = textwrap.indent(format_tensor(value), "    ")
        return f"BatchedTensor(lvl={level}, bdim=0, value=\n{inner}\n)"
    kind = type(tensor)
    prefix = "tensor(" if kind is pb.Tensor else f"{kind.__name__}("
    with pb.no_grad():
        primal, tangent = pb.autograd.forward_ad.unpack_dual(tensor)
        plain = primal.detach()
        text = _format_elements(plain, len(prefix))
        notes = _list_notes(tensor, plain, tangent)
    return _append_notes(prefix + text, notes, len(prefix))


def _format_elements(plain: Any, indent: int) -> str:
    if plain.device.type == "meta":
        return "..."
    if plain.numel() == 0:
        return "[]"
    values = _fetch(plain)
    number = _choose_format(plain.dtype, list(_flatten(values)))
    return _lay_out(values, plain.dim(), indent, number)


def format_sparse(tensor: Any, indices: Any, values: Any) -> str:
    """Return the text that ``repr`` gives for a tensor in coordinate format."""
    lines = []
    for name, part in (("indices", indices), ("values", values)):
        head = f"{name}=tensor("
        size = f", size={tuple(part.shape)}" if part.numel() == 0 else ""
        lines.append(f"{head}{_format_elements(part.detach(), 7 + len(head))}{size})")
    notes = [f"size={tuple(tensor.shape)}", f"nnz={values.shape[0]}"]
    if _is_elsewhere(values.device):
        notes.insert(0, f"device='{values.device}'")
    if not _shows_dtype(values, only_default=values.numel() == 0):
        notes.append(f"dtype={values.dtype}")
    notes.append(f"layout={tensor.layout}")
    text = "tensor(" + (",\n" + " " * 7).join(lines)
    return text + ",\n" + " " * 7 + _append_notes("", notes, 7).removeprefix(", ")
