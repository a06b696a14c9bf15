"""Read checkpoints."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import pullback
from pullback import Tensor
from pullback_distributed.checkpoint import folders
from pullback_distributed.checkpoint.agreement import ranks_of
from pullback_distributed.checkpoint.boxes import Box, common, part_of
from pullback_distributed.checkpoint.entries import (
    Leaf,
    decode,
    dtype_of,
    flatten,
    is_stateful,
    nested,
    with_states,
)
from pullback_distributed.checkpoint.index import (
    Entry,
    Part,
    TensorEntry,
    ValueEntry,
    is_whole,
    read_index,
)
from pullback_distributed.checkpoint.saving import AS_PAIRS, tensor_of
from pullback_distributed.checkpoint.shards import Shard
from pullback_distributed.collectives.buffers import Written
from pullback_distributed.groups.process_group import ProcessGroup


class Read(NamedTuple):
    """A part of a file that goes into a part of a tensor: ``wanted`` of the whole tensor."""

    part: Part
    wanted: Box


class Destination(NamedTuple):
    """A tensor that is filled: the part ``box`` of the entry called ``name``."""

    name: str
    tensor: Tensor
    box: Box
    reads: list[Read]


class Place(NamedTuple):
    """Where a value is put when all has been read."""

    leaf: Leaf
    items: list[tuple[Any, Any]]  # paths below the leaf's, and what is there


def _kind(entry: Entry) -> str:
    if isinstance(entry, TensorEntry):
        return "a tensor"
    return f"a value of type {type(decode(entry.value)).__name__}"


class Loader:
    """A load on one rank, in steps: ``prepare`` changes nothing, ``copy`` and ``finish`` do."""

    def __init__(self, state_dict: Any, checkpoint_id: Any) -> None:
        self._given = state_dict
        self._checkpoint_id = checkpoint_id
        self._files: dict[str, Any] = {}
        self.destinations: list[Destination] = []
        self._places: list[Place] = []

    # ---- what is to be read ----

    def prepare(self) -> str:
        """Find and check all that this rank needs; return the name of the save."""
        self._folder = folders.standing(folders.target_of("load", self._checkpoint_id))
        self._state = with_states(self._given)
        leaves = flatten("load", self._state)
        self._index = read_index("load", self._folder)
        missing = [name for name, leaf in leaves.items() if not self._want(name, leaf)]
        if missing:
            shown = ", ".join(repr(name) for name in missing[:5])
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise RuntimeError(
                f"load: Missing key in checkpoint state_dict: {shown}{more}: "
                f"{self._folder} does not have it"
            )
        for destination in self.destinations:
            for read in destination.reads:
                self._check(destination.name, read.part)
        return self._index.save

    def _want(self, name: str, leaf: Leaf) -> bool:
        """Plan how a leaf is filled; return False if the checkpoint has nothing for it."""
        if leaf.value is None or isinstance(leaf.value, dict):
            return self._want_all_below(name, leaf)
        entry = self._index.entries.get(name)
        if entry is None:
            return False
        if isinstance(leaf.value, (Tensor, Shard)):
            if not isinstance(entry, TensorEntry):
                raise ValueError(
                    f"load: {name!r} is {_kind(entry)} in the checkpoint, but a tensor in "
                    "`state_dict`"
                )
            self._want_tensor(name, leaf.value, entry)
        elif isinstance(entry, ValueEntry):
            self._places.append(Place(leaf, [((), decode(entry.value))]))
        else:
            raise ValueError(
                f"load: {name!r} is a tensor in the checkpoint, but a value of type "
                f"{type(leaf.value).__name__} in `state_dict`"
            )
        return True

    def _want_all_below(self, name: str, leaf: Leaf) -> bool:
        """Plan that an empty dict or None takes all that was saved there."""
        depth, items = len(leaf.path), []
        for inner, entry in self._index.entries.items():
            if entry.path[:depth] != leaf.path:
                continue
            below = entry.path[depth:]
            if leaf.value is not None and self._is_no_dict(below, entry):
                kind = "a list" if below else _kind(entry)
                raise ValueError(
                    f"load: {name!r} is {kind} in the checkpoint, but a dict in `state_dict`"
                )
            if isinstance(entry, TensorEntry):
                made = pullback.empty(entry.shape, dtype=dtype_of(entry.dtype))
                self._want_tensor(inner, made, entry)
                items.append((below, made))
            else:
                items.append((below, decode(entry.value)))
        self._places.append(Place(leaf, items))
        return bool(items) or not leaf.path

    @staticmethod
    def _is_no_dict(below: tuple[Any, ...], entry: Entry) -> bool:
        if below:
            return isinstance(below[0], tuple)
        return isinstance(entry, TensorEntry) or decode(entry.value) != {}

    def _want_tensor(self, name: str, value: Tensor | Shard, entry: TensorEntry) -> None:
        tensor, shape, box = tensor_of("load", name, value)
        if shape != entry.shape:
            raise ValueError(
                f"load: Size mismatch between saved {entry.shape} and current: {shape} for {name!r}"
            )
        if tensor.dtype.name != entry.dtype:
            raise ValueError(
                f"load: {name!r} has the dtype {entry.dtype} in the checkpoint, but "
                f"{tensor.dtype.name} in `state_dict`"
            )
        found = ((part, common(part.box, box)) for part in entry.parts)
        reads = [Read(part, wanted) for part, wanted in found if wanted is not None]
        self.destinations.append(Destination(name, tensor, box, reads))

    def _check(self, name: str, part: Part) -> None:
        """Raise unless a part is in its file as the index says."""
        file = self._open(name, part.file)
        entry = self._index.entries[name]
        assert isinstance(entry, TensorEntry)
        dtype, shape = dtype_of(entry.dtype), part.box.sizes
        if dtype in AS_PAIRS:
            dtype, shape = AS_PAIRS[dtype], (*shape, 2)
        where = f"load: the file {os.path.join(self._folder, part.file)} is damaged:"
        if part.key not in file.offset_keys():
            raise RuntimeError(f"{where} there is no {part.key!r} in it, a part of {name!r}")
        found = file.get_tensor(part.key)
        if tuple(found.shape) != shape or found.dtype != dtype:
            raise RuntimeError(
                f"{where} {part.key!r} is {found.dtype} of shape {tuple(found.shape)}, not a part "
                f"of {name!r}, {entry.dtype} of shape {part.box.sizes}"
            )

    def _open(self, name: str, file: str) -> Any:
        if file in self._files:
            return self._files[file]
        path = os.path.join(self._folder, file)
        size = self._index.files[file]
        try:
            present = os.path.getsize(path)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"load: the file {path} is missing, with a part of {name!r}"
            ) from None
        damaged = f"load: the file {path} is damaged, with a part of {name!r}:"
        if present != size:
            raise RuntimeError(f"{damaged} it has {present} bytes, but {size} were written")
        try:
            opened = pullback.safetensors.safe_open(path)
        except (OSError, ImportError):
            raise
        except Exception as error:  # the library's own kind
            raise RuntimeError(f"{damaged} {error}") from error
        if (opened.metadata() or {}).get("save") != self._index.save:
            raise RuntimeError(f"{damaged} it is of another save than {self._index.save}")
        self._files[file] = opened
        return opened

    # ---- reading ----

    def copy(self) -> None:
        """Read into the tensors."""
        for destination in self.destinations:
            written = Written(destination.tensor)
            plain = written.plain.detach()
            if plain.dtype in AS_PAIRS:
                plain = pullback.view_as_real(plain)
            with pullback.no_grad():
                for read in destination.reads:
                    source = self._files[read.part.file].get_tensor(read.part.key)
                    part_of(plain, destination.box, read.wanted).copy_(
                        part_of(source, read.part.box, read.wanted)
                    )
            written.done()

    def finish(self) -> None:
        """Put plain values into the state dict, and give objects their state."""
        for leaf, items in self._places:
            found = nested(items)
            if isinstance(leaf.value, dict):
                leaf.value.update(found)
            else:
                leaf.owner[leaf.key] = found
        if self._state is self._given:
            return
        for key, value in list(self._given.items()):
            if is_stateful(value):
                value.load_state_dict(self._state[key])
            else:
                self._given[key] = self._state[key]


def load(
    state_dict: dict[Any, Any],
    *,
    checkpoint_id: str | os.PathLike[str],
    process_group: ProcessGroup | None = None,
) -> None:
    """Read a checkpoint into a state dict in place, by all ranks of a group; returns None.

    Every tensor and ``Shard`` in ``state_dict`` is filled from the entry of its name, from whatever
    parts it was saved in: each rank reads the bytes that it needs. Shapes (of the whole tensor) and
    dtypes must be those that were saved. Plain values are replaced. An empty dict, or None, takes
    all that was saved under its name, with new tensors on the default device: so a new optimizer
    gets its state, and ``{}`` the whole checkpoint. What the checkpoint has besides is left out.
    Values with ``load_state_dict``, such as modules, get their state by it.
    ``checkpoint_id`` and ``process_group`` are as in ``save``; the number of processes may be
    another one.
    Raises: FileNotFoundError if the folder or a file is missing; RuntimeError for a missing name or
    a damaged file or index; ValueError for another shape, dtype or kind; TypeError for other types;
    on the other ranks the same, with the rank's number. All but failures of the disk is found
    before anything is changed.

    >>> import pathlib, tempfile, pullback
    >>> import pullback.distributed.checkpoint as dcp
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "step-1"
    >>> dcp.save({"weight": pullback.arange(4), "step": 1}, checkpoint_id=folder)
    >>> half = dcp.Shard(pullback.empty(2, dtype=pullback.int64), (4,), offsets=(2,))
    >>> state = {"weight": half, "step": 0}
    >>> dcp.load(state, checkpoint_id=folder)
    >>> half.tensor, state["step"]
    (tensor([2, 3]), 1)
    """
    ranks = ranks_of("load", process_group)
    if ranks is None:
        return
    loader = Loader(state_dict, checkpoint_id)
    found = ranks.together(loader.prepare)
    if len(set(found)) > 1:
        raise RuntimeError(f"load: ranks see different checkpoints at {checkpoint_id}")
    ranks.together(loader.copy)
    ranks.together(loader.finish)


def is_complete(checkpoint_id: str | os.PathLike[str]) -> bool:
    """Return whether there is a whole checkpoint: an index, and all its files with their sizes.

    Every process may ask this alone. Raises: TypeError if ``checkpoint_id`` is no path.

    >>> from pullback.distributed.checkpoint import is_complete
    >>> is_complete("no-such-folder")
    False
    """
    return is_whole(folders.standing(folders.target_of("is_complete", checkpoint_id)))
