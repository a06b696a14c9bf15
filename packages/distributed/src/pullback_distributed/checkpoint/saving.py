"""Write checkpoints."""

from __future__ import annotations

import os
import shutil
from typing import Any

import pullback
from pullback import Tensor
from pullback_distributed.checkpoint import folders
from pullback_distributed.checkpoint.agreement import Ranks, ranks_of
from pullback_distributed.checkpoint.boxes import Box, part_of, whole
from pullback_distributed.checkpoint.entries import Leaf, encode, flatten, with_states
from pullback_distributed.checkpoint.index import INDEX, Index, TensorEntry, ValueEntry
from pullback_distributed.checkpoint.plan import Listed, Piece, file_of, make_plan
from pullback_distributed.checkpoint.shards import Shard
from pullback_distributed.collectives.buffers import readable
from pullback_distributed.groups.process_group import ProcessGroup

# The format has no name for these: they are written as their real and imaginary parts.
AS_PAIRS = {pullback.complex32: pullback.float16, pullback.complex128: pullback.float64}


def tensor_of(caller: str, name: str, value: Tensor | Shard) -> tuple[Tensor, tuple[int, ...], Box]:
    """Return the local tensor of a tensor or shard, the whole shape and the part's place.

    Raises: TypeError for a sparse tensor; ValueError for one without values.
    """
    tensor = value.tensor if isinstance(value, Shard) else value
    if tensor.layout is not pullback.strided:
        raise TypeError(f"{caller}: expected a dense tensor at {name!r}, not {tensor.layout}")
    if tensor.device.type == "meta":
        raise ValueError(f"{caller}: the tensor at {name!r} is on meta and has no values")
    if isinstance(value, Shard):
        return tensor, value.shape, value.box
    return tensor, tuple(tensor.shape), whole(tensor.shape)


def _listed(leaves: dict[str, Leaf]) -> dict[str, Listed]:
    """Return what the other ranks need to know of this rank's leaves."""
    found = {}
    for name, leaf in leaves.items():
        if isinstance(leaf.value, (Tensor, Shard)):
            tensor, shape, box = tensor_of("save", name, leaf.value)
            found[name] = Listed(TensorEntry(leaf.path, shape, tensor.dtype.name), box)
        elif leaf.path:
            found[name] = Listed(ValueEntry(leaf.path, encode("save", name, leaf.value)), None)
    return found


def _packed(leaves: dict[str, Leaf], pieces: list[Piece]) -> dict[str, Tensor]:
    """Return the tensors that the library writes, by their names in the file."""
    found: dict[str, Tensor] = {}
    memories = set()
    for name, key, box in pieces:
        tensor, _, own = tensor_of("save", name, leaves[name].value)
        plain = readable(part_of(tensor.detach(), own, box))
        memory = plain.untyped_storage().data_ptr()
        if memory in memories:  # tied tensors: the library refuses them
            plain = plain.clone()
        memories.add(plain.untyped_storage().data_ptr())
        found[key] = pullback.view_as_real(plain) if plain.dtype in AS_PAIRS else plain
    return found


def write_file(tensors: dict[str, Tensor], path: str, save_name: str) -> int:
    """Write a rank's file, return when it is on the disk; returns its size in bytes.

    Raises: OSError that names the file.
    """
    with open(path, "xb") as file:
        mode = os.fstat(file.fileno()).st_mode
    try:
        pullback.safetensors.save_file(tensors, path, {"save": save_name})
    except (OSError, MemoryError, ImportError):
        raise
    except Exception as error:  # the library's own kind, also for a full disk
        raise OSError(f"save: cannot write {path}: {error}") from error
    os.chmod(path, mode & 0o777)  # the library's files are for their owner alone
    folders.sync(path)
    return os.path.getsize(path)


def _write_index(made: str, index: Index) -> None:
    path = os.path.join(made, INDEX)
    with open(path, "x", encoding="utf-8") as file:
        file.write(index.text())
    folders.sync(path)


def save(
    state_dict: dict[Any, Any],
    *,
    checkpoint_id: str | os.PathLike[str],
    process_group: ProcessGroup | None = None,
) -> None:
    """Write a state dict to a folder, by all ranks of a group together; returns None.

    ``state_dict`` has nested dicts with keys that are strings or ints, lists, tensors of any dense
    dtype and shape, and plain values: numbers, strings, bytes, None, tuples of those. A value with
    ``state_dict`` and ``load_state_dict``, such as a module, stands for its state dict. A tensor is
    the same on all ranks that have it, of which one writes it; for a tensor of which each rank has
    a part there is a ``Shard``. Plain values must be the same on all ranks that have them.
    ``checkpoint_id`` is the folder, the same for all; one that is there is replaced. Without
    ``process_group`` all processes take part, and before ``init_process_group`` this one alone.

    The folder is written under another name and renamed when everything is on the disk. A crash at
    any moment leaves the old checkpoint whole, and if one rank fails, all raise and the old one
    stays. Files of others in the folder are kept.
    Raises: TypeError for what a checkpoint cannot hold; ValueError where ranks do not agree or
    shards are not a whole tensor; FileExistsError if the folder is there and no checkpoint; OSError
    where writing fails; on the other ranks the same, with the rank's number.

    >>> import pathlib, tempfile, pullback
    >>> import pullback.distributed.checkpoint as dcp
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "step-1"
    >>> dcp.save({"model": {"weight": pullback.ones(2)}, "step": 1}, checkpoint_id=folder)
    >>> sorted(path.name for path in folder.iterdir())
    ['index.json', 'rank-00000.safetensors']
    """
    ranks = ranks_of("save", process_group)
    if ranks is None:
        return
    leaves: dict[str, Leaf] = {}

    def look() -> tuple[str, dict[str, Listed]]:
        target = folders.target_of("save", checkpoint_id)
        leaves.update(flatten("save", with_states(state_dict)))
        return os.path.basename(target), _listed(leaves)

    looked = ranks.together(look)
    names = sorted({name for name, _ in looked})
    if len(names) > 1:
        raise ValueError(f"save: ranks have different folders in `checkpoint_id`: {names}")
    plan = make_plan([listing for _, listing in looked])
    target = folders.target_of("save", checkpoint_id)
    files = [file_of(rank) for rank in range(ranks.size)]
    made_by_first = ranks.first(lambda: folders.begin(target, files))
    save_name = os.path.basename(made_by_first)
    made = os.path.join(os.path.dirname(target), save_name)
    try:
        _fill(ranks, leaves, plan.pieces[ranks.rank], made, plan.entries)
        ranks.first(lambda: folders.publish(made, target))
    except BaseException:
        if ranks.rank == 0:
            shutil.rmtree(made, ignore_errors=True)
        raise


def _fill(
    ranks: Ranks, leaves: dict[str, Leaf], pieces: list[Piece], made: str, entries: dict[str, Any]
) -> None:
    """Write all files of a checkpoint into a new folder."""
    save_name = os.path.basename(made)

    def write() -> int | None:
        if not pieces:
            return None
        path = os.path.join(made, file_of(ranks.rank))
        return write_file(_packed(leaves, pieces), path, save_name)

    sizes = ranks.together(write)
    files = {file_of(rank): size for rank, size in enumerate(sizes) if size is not None}
    ranks.first(lambda: _write_index(made, Index(save_name, files, entries)))
