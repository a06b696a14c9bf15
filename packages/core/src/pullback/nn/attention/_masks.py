"""Masks of attention from functions of batch, head, query and key."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pullback
from pullback import Tensor
from pullback.nn.attention._block_mask import (
    BlockMask,
    MaskMod,
    dense_of,
    ordered,
    with_write_order,
)
from pullback.ops.rules.dtypes import type_name

__all__ = ["and_masks", "create_block_mask", "create_mask", "or_masks"]

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def over_indices(function: Callable[..., Tensor], has_score: bool) -> Callable[..., Tensor]:
    """Map a function over batch, head, query and key; its first argument may be scores."""
    for place in (3, 2, 1, 0):
        dims = tuple(0 if place == other else None for other in range(4))
        function = pullback.vmap(function, in_dims=(0, *dims) if has_score else dims)
    return function


def indices_of(sizes: Any, device: Any) -> tuple[Tensor, ...]:
    """Return the numbers of batches, heads, queries and keys, as int64."""
    return tuple(pullback.arange(0, size, device=device) for size in sizes)


def _takes_score(function: Callable[..., Tensor]) -> bool:
    """Return whether a function is a score_mod, by its arguments; otherwise it is a mask_mod."""
    parameters = inspect.signature(function).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    count = sum(one.kind in positional and one.default is one.empty for one in parameters)
    if count not in (4, 5):
        raise AssertionError(f"Expected 4 or 5 positional args, got {count}")
    return count == 5


def _check_callable(mask_mods: tuple[Any, ...]) -> None:
    if not all(map(callable, mask_mods)):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")


def and_masks(*mask_mods: MaskMod) -> MaskMod:
    """Return the mask_mod that shows what all of the given ones show.

    Raises: RuntimeError for what is not callable.

    >>> from pullback.nn.attention.flex_attention import and_masks, create_mask
    >>> near = and_masks(lambda b, h, q, kv: q >= kv, lambda b, h, q, kv: q - kv < 2)
    >>> create_mask(near, 1, 1, 3, 3).int().tolist()
    [[[[1, 0, 0], [1, 1, 0], [0, 1, 1]]]]
    """
    _check_callable(mask_mods)

    def and_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        seen = b.new_ones((), dtype=pullback.bool)
        for mask_mod in mask_mods:
            seen = seen & mask_mod(b, h, q_idx, kv_idx)
        return seen

    return and_mask


def or_masks(*mask_mods: MaskMod) -> MaskMod:
    """Return the mask_mod that shows what any of the given ones shows.

    Raises: RuntimeError for what is not callable.

    >>> from pullback.nn.attention.flex_attention import create_mask, or_masks
    >>> ends = or_masks(lambda b, h, q, kv: kv < 1, lambda b, h, q, kv: kv > 2)
    >>> create_mask(ends, 1, 1, 1, 4).int().tolist()
    [[[[1, 0, 0, 1]]]]
    """
    _check_callable(mask_mods)

    def or_mask(b: Tensor, h: Tensor, q_idx: Tensor, kv_idx: Tensor) -> Tensor:
        seen = b.new_zeros((), dtype=pullback.bool)
        for mask_mod in mask_mods:
            seen = seen | mask_mod(b, h, q_idx, kv_idx)
        return seen

    return or_mask


def create_mask(
    mod_fn: ScoreMod | MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
) -> Tensor:
    """Return what a mask_mod gives for every batch, head, query and key.

    Shape: (B, H, Q_LEN, KV_LEN), with 1 for None. Dtype: that of ``mod_fn``, which is bool. A
    score_mod, of five arguments, gives True where it leaves a score of 0 above -inf.

    Raises: AssertionError for a function of other than four or five arguments.

    >>> from pullback.nn.attention.flex_attention import create_mask
    >>> create_mask(lambda b, h, q, kv: q >= kv, 1, 1, 2, 3)
    tensor([[[[ True, False, False],
              [ True,  True, False]]]])
    """
    sizes = (1 if B is None else B, 1 if H is None else H, Q_LEN, KV_LEN)
    indices = indices_of(sizes, device)
    if not _takes_score(mod_fn):
        return over_indices(mod_fn, False)(*indices)
    scores = pullback.zeros(sizes, device=device)
    return ~pullback.isneginf(over_indices(mod_fn, True)(scores, *indices))


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = 128,
    _compile: bool = False,
    separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False,
    dq_kv_order: bool = True,
) -> BlockMask:
    """Return the BlockMask of a mask_mod, from its values everywhere.

    B and H are None or 1 where the mask is the same for all. ``BLOCK_SIZE`` is one size, or those
    of blocks of queries and of keys. Blocks that are seen whole are listed apart, unless not
    ``separate_full_blocks``. The other arguments are for kernels of torch: the order of writing is
    computed and kept, without effect.

    Raises: AssertionError for a function of other than four arguments, or whose values are not
    bool; ValueError for ``dq_kv_order`` that is not a bool.

    >>> from pullback.nn.attention.flex_attention import create_block_mask
    >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 4, 4, BLOCK_SIZE=2)
    >>> mask.sparsity(), mask.to_dense().tolist()
    (25.0, [[[[1, 0], [1, 1]]]])
    """
    if _takes_score(mask_mod):
        raise AssertionError(f"create-block_mask requires a mask_mod function! Got {mask_mod}")
    if not isinstance(dq_kv_order, bool):
        raise ValueError("dq_kv_order must be a bool when using create_block_mask")
    tall, wide = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else BLOCK_SIZE
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    if mask.dtype != pullback.bool:
        raise AssertionError(f"mask.dtype must be {pullback.bool}, got {mask.dtype}")
    padded = pullback.nn.functional.pad(mask, (0, -KV_LEN % wide, 0, -Q_LEN % tall))
    counts = padded.unflatten(3, (-1, wide)).unflatten(2, (-1, tall)).sum((3, 5))
    full = counts == tall * wide
    partial = (counts > 0) & ~full if separate_full_blocks else counts > 0
    lists = (*ordered(partial), *(ordered(full) if separate_full_blocks else (None, None)))
    made = BlockMask.from_kv_blocks(
        *lists,
        BLOCK_SIZE=(tall, wide),
        mask_mod=mask_mod,
        seq_lengths=(Q_LEN, KV_LEN),
        dq_kv_order=dq_kv_order if compute_dq_write_order else None,
    )
    return with_write_order(made) if compute_dq_write_order else made


create_block_mask._is_eager = True  # type: ignore[attr-defined]  # also when it is compiled


def seen_of(mask: BlockMask, sizes: tuple[int, ...], device: Any) -> Tensor:
    """Return where a mask shows a key to a query; its batch and heads may be 1, for all.

    A block that is listed as full is seen whole, one that is listed otherwise where mask_mod says.
    """
    shown = over_indices(mask.mask_mod, False)(*indices_of(sizes, device))
    if shown.dtype != pullback.bool:
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{type_name(shown.dtype)}"
        )
    for dim in (0, 1):  # what does not depend on them is computed once
        if sizes[dim] > 1 and shown.stride(dim) == 0:
            shown = shown.narrow(dim, 0, 1)
    shown = shown & _elements(mask, mask.kv_num_blocks, mask.kv_indices, sizes)
    if mask.full_kv_num_blocks is None:
        return shown
    return shown | _elements(mask, mask.full_kv_num_blocks, mask.full_kv_indices, sizes)


def _elements(mask: BlockMask, number: Tensor, indices: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return which elements are in blocks that are listed."""
    blocks = dense_of(number, indices).bool()
    blocks = blocks.reshape((1,) * (4 - blocks.dim()) + tuple(blocks.shape))
    for dim in (0, 1):  # lists of a shorter batch begin again
        if blocks.shape[dim] not in (1, sizes[dim]):
            places = pullback.arange(sizes[dim], device=blocks.device) % blocks.shape[dim]
            blocks = blocks.index_select(dim, places)
    for dim, size in zip((2, 3), mask.BLOCK_SIZE):
        listed = blocks.shape[dim] * size
        blocks = blocks.repeat_interleave(size, dim).narrow(dim, 0, min(listed, sizes[dim]))
        if listed < sizes[dim]:
            shape = [*blocks.shape[:dim], sizes[dim] - listed, *blocks.shape[dim + 1 :]]
            blocks = pullback.cat((blocks, blocks.new_zeros(shape)), dim)
    return blocks
