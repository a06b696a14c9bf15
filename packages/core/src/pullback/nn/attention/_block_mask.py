"""Masks of attention by blocks of queries and keys: which blocks are seen, and in what order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pullback
from pullback import Tensor

__all__ = ["BlockMask", "noop_mask"]

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]

# The parts that are tensors or None, in torch's order.
_TENSORS = (
    *("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"),
    *("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices"),
    *("dq_write_order", "dq_write_order_full", "dq_kv_order"),
)


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """Return True for every query and key: the ``mask_mod`` that hides nothing.

    Shape and dtype: a bool tensor without dims.

    >>> import pullback
    >>> from pullback.nn.attention.flex_attention import noop_mask
    >>> noop_mask(*pullback.arange(4))
    tensor(True)
    """
    return batch.new_ones((), dtype=pullback.bool)


def _sliced_mask_mod_error(
    batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor
) -> Tensor:
    """Raise RuntimeError: a part of a mask does not know where in the whole it was."""
    raise RuntimeError(
        "Cannot use mask_mod from a sliced BlockMask. Indexing leaves out the mask_mod, which "
        "counts from the beginning of the whole mask: set `mask_mod` of the part to one that adds "
        "the part's offset to what the whole mask's mask_mod gets."
    )


# -- lists of blocks -------------------------------------------------------------------------------


def ordered(dense: Tensor) -> tuple[Tensor, Tensor]:
    """Return how many blocks of each row are set, and the columns: those set first, in order."""
    columns = dense.argsort(dim=-1, descending=True, stable=True)
    return dense.sum(-1).to(pullback.int32), columns.to(pullback.int32)


def dense_of(num_blocks: Tensor, indices: Tensor) -> Tensor:
    """Return 1 for each block that is listed, 0 for the others, as int32.

    Shape: as ``indices``, (..., rows, columns). Of each row the first ``num_blocks`` are listed.
    """
    columns = indices.shape[-1]
    slots = pullback.arange(columns, device=indices.device)
    # What is not listed goes to one more column, which is cut off.
    targets = pullback.where(slots < num_blocks.unsqueeze(-1), indices, columns).long()
    dense = targets.new_zeros((*targets.shape[:-1], columns + 1), dtype=pullback.int32)
    return dense.scatter(-1, targets, 1)[..., :columns]


def _transposed(num_blocks: Tensor | None, indices: Tensor | None) -> Any:
    """Return the lists of rows for each column, or two of None."""
    if num_blocks is None or indices is None:
        return None, None
    return ordered(dense_of(num_blocks, indices).transpose(-2, -1))


def _cropped(num_blocks: Tensor | None, indices: Tensor | None, rows: int, columns: int) -> Any:
    """Return the lists of the first rows and columns, or two of None."""
    if num_blocks is None or indices is None:
        return None, None
    return ordered(dense_of(num_blocks, indices)[..., :rows, :columns])


def _as_slice(place: Any, size: int) -> Any:
    """Return what an int of an index takes as a slice, anything else as it is."""
    if not isinstance(place, int):
        return place
    start = place + size if place < 0 else place
    return slice(start, start + 1)


def _check_pair(num_blocks: Any, indices: Any, name: str) -> None:
    if (num_blocks is None) != (indices is None):
        raise AssertionError(
            f"{name}_num_blocks and {name}_indices must be both provided or omitted"
        )


class BlockMask:
    """Which blocks of queries and keys attention computes, and the mask in them.

    Shape: queries and keys are cut into blocks of ``BLOCK_SIZE``, a pair. Of each block of queries,
    ``kv_num_blocks`` (batch, heads, rows) says how many blocks of keys ``mask_mod`` hides in part,
    and ``kv_indices`` (batch, heads, rows, columns) begins with them. ``full_kv_num_blocks`` and
    ``full_kv_indices`` list blocks that are seen whole, without a call of ``mask_mod``. What
    neither lists is not seen. ``q_num_blocks``, ``q_indices``, ``full_q_num_blocks`` and
    ``full_q_indices`` list the same by blocks of keys. A batch or heads of size 1 are for all.

    Dtype: lists are int32. ``seq_lengths`` is the pair of lengths; ``create_block_mask`` makes
    masks from functions and :meth:`from_kv_blocks` from lists. The orders of writing ``dq_*`` are
    for kernels of torch; here they are kept and have no effect.

    Source: Dong et al., "Flex Attention: a programming model for generating optimized attention
    kernels", 2024.

    Raises: RuntimeError for lists without rows, AssertionError where one of two lists is missing.

    >>> from pullback.nn.attention.flex_attention import create_block_mask
    >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, 1, 1, 8, 8, BLOCK_SIZE=4)
    >>> mask.kv_indices.tolist(), mask.full_kv_num_blocks.tolist()
    ([[[[0, 1], [1, 0]]]], [[[0, 1]]])
    >>> mask.shape, mask.sparsity()
    ((1, 1, 8, 8), 25.0)
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (128, 128),
        mask_mod: MaskMod = noop_mask,
        *,
        dq_write_order: Tensor | None = None,
        dq_write_order_full: Tensor | None = None,
        dq_kv_order: Tensor | None = None,
        dq_kv_order_spt: bool | None = None,
    ) -> None:
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if kv_num_blocks is None:
            raise AssertionError("kv_num_blocks must be provided")
        _check_pair(full_kv_num_blocks, full_kv_indices, "full_kv")
        _check_pair(full_q_num_blocks, full_q_indices, "full_q")
        if dq_write_order_full is not None and dq_write_order is None:
            raise ValueError("dq_write_order_full requires dq_write_order")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks = kv_num_blocks
        self.kv_indices = kv_indices
        self.full_kv_num_blocks = full_kv_num_blocks
        self.full_kv_indices = full_kv_indices
        self.q_num_blocks = q_num_blocks
        self.q_indices = q_indices
        self.full_q_num_blocks = full_q_num_blocks
        self.full_q_indices = full_q_indices
        self.dq_write_order = dq_write_order
        self.dq_write_order_full = dq_write_order_full
        self.dq_kv_order = dq_kv_order
        self.dq_kv_order_spt = dq_kv_order_spt
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = 128,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
        *,
        dq_write_order: Tensor | None = None,
        dq_write_order_full: Tensor | None = None,
        dq_kv_order: Tensor | bool | None = None,
    ) -> BlockMask:
        """Return the mask of lists of blocks of keys, each for a block of queries.

        Shape: ``kv_num_blocks`` (..., rows), ``kv_indices`` (..., rows, columns), both or neither
        of the full ones alike. ``mask_mod`` is the mask in blocks that are not full, by default
        without effect; ``seq_lengths`` are by default those of whole blocks. The lists by blocks of
        keys are left out without ``compute_q_blocks``.

        Raises: RuntimeError for lists without rows, AssertionError where one of two is missing,
        ValueError for orders of writing that do not fit.

        >>> import pullback
        >>> from pullback.nn.attention.flex_attention import BlockMask
        >>> number, indices = pullback.tensor([[[1, 2]]]), pullback.tensor([[[[0, 1], [0, 1]]]])
        >>> BlockMask.from_kv_blocks(number, indices, BLOCK_SIZE=2).to_dense().tolist()
        [[[[1, 0], [1, 1]]]]
        """
        if kv_indices.dim() < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        _check_pair(full_kv_num_blocks, full_kv_indices, "full_kv")
        spt = None
        if isinstance(dq_kv_order, bool):
            spt, dq_kv_order = dq_kv_order, None
        elif not (dq_kv_order is None or isinstance(dq_kv_order, Tensor)):
            raise ValueError("dq_kv_order must be a bool, Tensor, or None")
        if isinstance(BLOCK_SIZE, int):
            BLOCK_SIZE = (BLOCK_SIZE, BLOCK_SIZE)
        if seq_lengths is None:
            rows, columns = kv_num_blocks.shape[-1], kv_indices.shape[-1]
            seq_lengths = (rows * BLOCK_SIZE[0], columns * BLOCK_SIZE[1])
        by_keys = (None,) * 4
        if compute_q_blocks:
            by_keys = (
                *_transposed(kv_num_blocks, kv_indices),
                *_transposed(full_kv_num_blocks, full_kv_indices),
            )
        return cls(
            seq_lengths,
            kv_num_blocks,
            kv_indices,
            full_kv_num_blocks,
            full_kv_indices,
            *by_keys,
            BLOCK_SIZE=BLOCK_SIZE,
            mask_mod=noop_mask if mask_mod is None else mask_mod,
            dq_write_order=dq_write_order,
            dq_write_order_full=dq_write_order_full,
            dq_kv_order=dq_kv_order,
            dq_kv_order_spt=spt,
        )

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """Return the parts; pairs of ints are two parts each with ``flatten``.

        >>> from pullback.nn.attention.flex_attention import create_block_mask, noop_mask
        >>> create_block_mask(noop_mask, 1, 1, 4, 6).as_tuple()[:2]
        (4, 6)
        """
        parts = [getattr(self, name) for name in _TENSORS]
        lengths, sizes = (self.seq_lengths,), (self.BLOCK_SIZE,)
        if flatten:
            lengths, sizes = tuple(self.seq_lengths), tuple(self.BLOCK_SIZE)
        return (*lengths, *parts, self.dq_kv_order_spt, *sizes, self.mask_mod)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the mask: batch, heads, queries, keys.

        >>> from pullback.nn.attention.flex_attention import create_block_mask, noop_mask
        >>> create_block_mask(noop_mask, None, 3, 4, 6).shape
        (1, 3, 4, 6)
        """
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def numel(self) -> int:
        """Return the number of elements of the mask, not of its blocks.

        >>> from pullback.nn.attention.flex_attention import create_block_mask, noop_mask
        >>> create_block_mask(noop_mask, 1, 3, 4, 6).numel()
        72
        """
        return math.prod(self.shape)

    def sparsity(self) -> float:
        """Return the percentage that is not computed; below 0 where blocks reach past the end.

        >>> from pullback.nn.attention.flex_attention import create_block_mask
        >>> create_block_mask(lambda b, h, q, kv: q >= kv, 1, 1, 8, 8, BLOCK_SIZE=2).sparsity()
        37.5
        """
        blocks = int(self.kv_num_blocks.sum())
        if self.full_kv_num_blocks is not None:
            blocks += int(self.full_kv_num_blocks.sum())
        size = blocks * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1]
        return 100 * (1 - size / self.numel())

    def to_dense(self) -> Tensor:
        """Return 1 for each block that is seen in part or whole, 0 for the others, as int32.

        Shape: (batch, heads, blocks of queries, blocks of keys).

        >>> from pullback.nn.attention.flex_attention import create_block_mask
        >>> create_block_mask(lambda b, h, q, kv: q >= kv, 1, 1, 4, 4, BLOCK_SIZE=2).to_dense()
        tensor([[[[1, 0],
                  [1, 1]]]], dtype=pullback.int32)
        """
        partial = dense_of(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None:
            return partial
        return partial | dense_of(self.full_kv_num_blocks, self.full_kv_indices)

    def to(self, device: Any) -> BlockMask:
        """Return the mask with its lists on a device; tensors of ``mask_mod`` stay where they are.

        Raises: RuntimeError for a device that is not there.

        >>> from pullback.nn.attention.flex_attention import create_block_mask, noop_mask
        >>> create_block_mask(noop_mask, 1, 1, 4, 4).to("meta").kv_indices.device
        device(type='meta')
        """
        parts = [getattr(self, name) for name in _TENSORS]
        moved = [None if part is None else part.to(device) for part in parts]
        return self._with(moved, self.seq_lengths, self.mask_mod)

    def _with(self, parts: Any, seq_lengths: tuple[int, int], mask_mod: MaskMod) -> BlockMask:
        """Return a mask of other parts, in the order of ``_TENSORS``."""
        *lists, write_order, write_order_full, kv_order = parts
        return type(self)(
            seq_lengths,
            *lists,
            BLOCK_SIZE=self.BLOCK_SIZE,
            mask_mod=mask_mod,
            dq_write_order=write_order,
            dq_write_order_full=write_order_full,
            dq_kv_order=kv_order,
            dq_kv_order_spt=self.dq_kv_order_spt,
        )

    def _part(self, lists: Any, seq_lengths: Any, mask_mod: MaskMod, kv_order: Any) -> BlockMask:
        """Return a mask of other lists of keys; those of queries are made where they were."""
        by_keys = (None,) * 4
        if self.q_indices is not None:
            by_keys = (*_transposed(*lists[:2]), *_transposed(*lists[2:]))
        part = self._with((*lists, *by_keys, None, None, kv_order), seq_lengths, mask_mod)
        return part if self.dq_write_order is None else with_write_order(part)

    def __getitem__(self, index: Any) -> BlockMask:
        """Return a part by batch, head and block of queries; ints leave a dim of size 1.

        ``seq_lengths`` stay, and ``mask_mod`` is one that raises RuntimeError: set both for the
        part.

        >>> from pullback.nn.attention.flex_attention import create_block_mask
        >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, 2, 3, 8, 8, BLOCK_SIZE=4)
        >>> mask[0, 1:].shape, mask[:, :, 1].kv_indices.shape
        ((1, 2, 8, 8), pullback.Size([2, 3, 1, 2]))
        """
        places = [*index] if isinstance(index, tuple) else [index]
        missing = [slice(None)] * (3 - len(places))
        for number, place in enumerate(places):
            if place is Ellipsis:
                places[number : number + 1] = [slice(None), *missing]
        places = [*places, *missing][:3]
        index = tuple(map(_as_slice, places, self.kv_num_blocks.shape))
        lists = (
            *(self.kv_num_blocks, self.kv_indices),
            *(self.full_kv_num_blocks, self.full_kv_indices),
        )
        parts = [None if part is None else part[index] for part in lists]
        kv_order = None if self.dq_kv_order is None else self.dq_kv_order[index[:2]]
        return self._part(parts, self.seq_lengths, _sliced_mask_mod_error, kv_order)

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """Return the mask of the first queries and keys, with the same ``mask_mod``.

        Longer lengths add no blocks: what is past the last block is not seen.

        >>> from pullback.nn.attention.flex_attention import create_block_mask
        >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, 1, 1, 8, 8, BLOCK_SIZE=4)
        >>> mask._adjust(3, 8).to_dense().tolist()
        [[[[1, 0]]]]
        """
        rows, columns = (
            -(-length // size) for length, size in zip((new_q_len, new_kv_len), self.BLOCK_SIZE)
        )
        lists = (
            *_cropped(self.kv_num_blocks, self.kv_indices, rows, columns),
            *_cropped(self.full_kv_num_blocks, self.full_kv_indices, rows, columns),
        )
        return self._part(lists, (new_q_len, new_kv_len), self.mask_mod, self.dq_kv_order)

    # -- text --------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        lines = [
            f"{name}={None if part is None else part.shape}"
            for name, part in ((name, getattr(self, name)) for name in _TENSORS[:8])
        ]
        lines += [
            f"BLOCK_SIZE={self.BLOCK_SIZE}",
            f"shape={self.shape}",
            f"sparsity={self.sparsity():.2f}%",
            f"mask_mod={getattr(self.mask_mod, '__name__', self.mask_mod)}",
        ]
        return "BlockMask(\n    " + ",\n    ".join(lines) + "\n)"

    def __str__(self) -> str:
        head = f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, "
        return f"{head}\n{self.to_string().strip()}\n)"

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """Return a picture for each batch and head, of at most ``limit``.

        A picture has about ``grid_size`` rows and columns, -1 for one per block. A place is dark
        where all of its blocks are seen, light where some are, blank where none is.

        >>> from pullback.nn.attention.flex_attention import create_block_mask
        >>> mask = create_block_mask(lambda b, h, q, kv: q <= kv, 1, 1, 8, 8, BLOCK_SIZE=2)
        >>> print(mask.to_string(2))
        (0, 0)
        ░░██
          ░░
        <BLANKLINE>
        """
        dense = self.to_dense()
        *batch, rows, columns = dense.shape
        tall, wide = (grid_size, grid_size) if isinstance(grid_size, int) else grid_size
        tall = 1 if tall == -1 else max(-(-rows // tall), 1)
        wide = 1 if wide == -1 else max(-(-columns // wide), 1)
        pictures = []
        for number, place in enumerate(itertools.product(*map(range, batch))):
            if number == limit:
                pictures.append(
                    "...\nTo print out more, set BlockMask.to_string(limit=N)\n"
                    "You can also index (BlockMask[batch, head]) to choose a specific batch or head"
                )
                break
            lines = _drawn(dense[place].tolist(), tall, wide)
            pictures.append("\n".join((str(place), *lines, "")))
        return "\n".join(pictures)


def _drawn(rows: list[list[int]], tall: int, wide: int) -> list[str]:
    """Return the lines of a picture with a place for every ``tall`` x ``wide`` blocks."""
    lines = []
    for top in range(0, len(rows), tall):
        band = rows[top : top + tall]
        places = []
        for left in range(0, len(band[0]), wide):
            blocks = [block for row in band for block in row[left : left + wide]]
            seen = sum(blocks)
            places.append(("██" if seen == len(blocks) else "░░") if seen else "  ")
        lines.append("".join(places))
    return lines


# -- the order of writing --------------------------------------------------------------------------


def with_write_order(mask: BlockMask) -> BlockMask:
    """Set the ``dq_write_order`` of a mask: for each listed block, which of its row's it is.

    Rows count their blocks from the last one where ``dq_kv_order_spt``, otherwise from the first.
    """
    dense = mask.to_dense()
    order = dense.cumsum(-1) - dense
    if mask.dq_kv_order_spt:
        order = dense.sum(-1, True) - 1 - order
    by_keys = order.transpose(-2, -1).to(pullback.int32)
    mask.dq_write_order = by_keys.gather(-1, mask.q_indices.long())
    if mask.full_q_indices is not None:
        mask.dq_write_order_full = by_keys.gather(-1, mask.full_q_indices.long())
    return mask
