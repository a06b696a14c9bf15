"""What notebooks show: the parts of ``_repr_html_`` methods, and that of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from pullback._c.graph.tensor import Tensor
from pullback._c.transforms import batching

_LEFT = ' style="text-align: left"'


def text(shown: str) -> str:
    """Return text that keeps its line breaks and spaces.

    >>> text("a < b")
    '<pre>a &lt; b</pre>'
    """
    return f"<pre>{escape(shown)}</pre>"


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table with a row of headers; cells are shown as their ``str``.

    >>> print(table(["op", "bytes"], [["mul", 8]]))
    <table><thead><tr><th style="text-align: left">op</th><th style="text-align: left">bytes</th>\
</tr></thead><tbody><tr><td style="text-align: left">mul</td><td style="text-align: left">8</td>\
</tr></tbody></table>
    """
    return (
        f"<table><thead>{_row('th', headers)}</thead>"
        f"<tbody>{''.join(_row('td', row) for row in rows)}</tbody></table>"
    )


def _row(cell: str, values: Sequence[Any]) -> str:
    cells = (f"<{cell}{_LEFT}>{escape(str(value))}</{cell}>" for value in values)
    return f"<tr>{''.join(cells)}</tr>"


def folded(summary: str, *parts: str) -> str:
    """Return parts below a line that opens and closes them; at first they are open."""
    return f"<details open><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def tensor_html(tensor: Any) -> str | None:
    """Return a tensor's text below a line with its shape, dtype, device, bytes and ``grad_fn``.

    None, for which notebooks show the text alone, for tensors inside of ``vmap``, and for classes
    with their own ``__repr__`` or ``__torch_function__``.

    >>> print(tensor_html(pullback.ones(2, requires_grad=True) * 2))
    <div><small>2 · float32 · cpu · 8 bytes · MulBackward0</small>\
<pre>tensor([2., 2.], grad_fn=&lt;MulBackward0&gt;)</pre></div>
    """
    import pullback

    kind = type(tensor)
    if kind not in (Tensor, pullback.nn.Parameter) and (
        kind.__repr__ is not Tensor.__repr__
        or kind.__torch_function__ != vars(Tensor)["__torch_function__"].__get__(None, kind)
    ):
        return None
    if batching.describe(tensor) is not None:
        return None
    facts = [
        " x ".join(map(str, tensor.shape)) or "scalar",
        tensor.dtype.name,
        str(tensor.device),
        f"{tensor.nbytes:,} bytes",
    ]
    if tensor.grad_fn is not None:
        facts.append(tensor.grad_fn.name())
    elif tensor.requires_grad:
        facts.append("requires grad")
    return f"<div><small>{escape(' · '.join(facts))}</small>{text(repr(tensor))}</div>"
