"""The text of a range in the timeline of another tool."""

from __future__ import annotations

from collections.abc import Iterable


def range_text(
    name: str,
    sequence: int = -1,
    *,
    stashed: bool = False,
    op_id: int | None = None,
    sizes: list | None = None,
    input_op_ids: Iterable[tuple[int, int]] | None = None,
) -> str:
    """Return the name of a range, followed by what is known about it.

    ``sequence`` is the number that the thread's following node gets; a node's own range gives the
    number that the node was made with, as ``stashed``. So a range with ``stashed seq = 6`` is the
    backward of the ranges with ``seq = 6`` on the forward's thread. A negative number is left out,
    and so is everything that is None or empty. ``sizes`` has one list for each argument, empty
    unless it is a tensor. ``input_op_ids`` has the range that made each input, and as which output.

    >>> range_text("pullback::mm", 6, sizes=[[8, 16], [16, 4]])
    'pullback::mm, seq = 6, sizes = [[8, 16], [16, 4]]'
    >>> range_text("MmBackward0", 6, stashed=True)
    'MmBackward0, stashed seq = 6'
    """
    text = name
    if sequence >= 0:
        text += f", stashed seq = {sequence}" if stashed else f", seq = {sequence}"
    if op_id is not None:
        text += f", op_id = {op_id}"
    if sizes:
        text += f", sizes = {sizes}"
    if input_op_ids:
        pairs = ", ".join(f"({made_by},{output})" for made_by, output in input_op_ids)
        text += f", input_op_ids = [{pairs}]"
    return text
