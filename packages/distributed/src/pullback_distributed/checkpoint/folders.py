"""A folder that is replaced as a whole: at any moment the old one or the new one stands.

The new folder is made beside the target, as ``.NAME.new-`` and 16 hexadecimal digits. When all is
in it and on the disk, the old folder is renamed to ``.NAME.old`` and the new one to the target.
After a crash between these two renames the target is missing and ``.NAME.old`` is whole: loading
reads it there, and the next save puts it back before anything else.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable
from typing import Any

from pullback_distributed.checkpoint.index import INDEX, is_whole, read_index


def target_of(caller: str, checkpoint_id: Any) -> str:
    """Return the folder of a checkpoint as an absolute path without symbolic links.

    Raises: TypeError if it is no path; ValueError for an empty one and for a root.
    """
    if not isinstance(checkpoint_id, (str, os.PathLike)):
        raise TypeError(
            f"{caller}: expected `checkpoint_id` to be the path of a folder, but got "
            f"{type(checkpoint_id).__name__}"
        )
    given = os.fsdecode(os.fspath(checkpoint_id))
    target = os.path.realpath(given)
    if not given or not os.path.basename(target):
        raise ValueError(f"{caller}: `checkpoint_id` is no path of a folder: {given!r}")
    return target


def _old_of(target: str) -> str:
    parent, name = os.path.split(target)
    return os.path.join(parent, f".{name}.old")


def standing(target: str) -> str:
    """Return where the checkpoint is: the target, or the old folder after a crash."""
    old = _old_of(target)
    has_index = [os.path.exists(os.path.join(folder, INDEX)) for folder in (target, old)]
    return old if has_index == [False, True] else target


def sync(path: str) -> None:
    """Return when what was written to a file, or the names in a folder, are on the disk."""
    if os.path.isdir(path):
        with contextlib.suppress(OSError):  # some systems cannot, and need not
            _sync(path, os.O_RDONLY)
    else:
        _sync(path, os.O_RDWR)


def _sync(path: str, flags: int) -> None:
    number = os.open(path, flags)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _own_files(folder: str) -> set[str]:
    """Return the names of the files that a save wrote into a folder."""
    try:
        return {*read_index("save", folder).files, INDEX}
    except (OSError, RuntimeError):
        return set()


def _check_replaceable(target: str, new_files: Iterable[str]) -> None:
    """Raise FileExistsError if the target is there and not a checkpoint or an empty folder."""
    if not os.path.lexists(target):
        return
    if not os.path.isdir(target):
        raise FileExistsError(f"save: {target} is there and not a folder")
    present = set(os.listdir(target))
    if not present:
        return
    own = _own_files(target)
    if not own:
        raise FileExistsError(
            f"save: {target} is there, but its {INDEX} is missing or damaged: remove the folder "
            "or give another checkpoint_id"
        )
    lost = sorted((present - own) & set(new_files))
    if lost:
        raise FileExistsError(
            f"save: {os.path.join(target, lost[0])} is not of the checkpoint there, and a new file "
            "would have its name: move it"
        )


def _retire(old: str, target: str) -> None:
    """Remove the old folder; files in it that no save wrote move to the target."""
    own = _own_files(old)
    for name in os.listdir(old):
        place = os.path.join(target, name)
        if name not in own and not os.path.lexists(place):
            os.rename(os.path.join(old, name), place)
    for name in sorted(own - {INDEX}):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(old, name))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(old, INDEX))  # the last: it says which files are ours
    os.rmdir(old)


def _settle(old: str, target: str) -> None:
    """Put the old folder that a crash left back in its place, or remove it if the new one stands.

    Raises: FileExistsError if another folder has its place: nothing is removed then.
    """
    if not os.path.isdir(old):
        return
    if is_whole(target):
        _retire(old, target)
        return
    if os.path.isdir(target) and not os.listdir(target):
        os.rmdir(target)
    if os.path.lexists(target):
        raise FileExistsError(
            f"save: {old} is left from a save that was interrupted, and {target} is there but no "
            "whole checkpoint: move one of them"
        )
    os.rename(old, target)
    sync(os.path.dirname(target))


def begin(target: str, new_files: Iterable[str]) -> str:
    """Repair and remove what a crash left; make a new folder beside the target, return its path.

    Raises: FileExistsError if the target is there and not a checkpoint or an empty folder; OSError.
    """
    parent, name = os.path.split(target)
    os.makedirs(parent, exist_ok=True)
    _settle(_old_of(target), target)
    _check_replaceable(target, new_files)
    leftover = re.compile(rf"\.{re.escape(name)}\.new-[0-9a-f]{{16}}")
    for entry in os.listdir(parent):
        if leftover.fullmatch(entry):
            shutil.rmtree(os.path.join(parent, entry))
    made = os.path.join(parent, f".{name}.new-{secrets.token_hex(8)}")
    os.mkdir(made)
    return made


def publish(made: str, target: str) -> None:
    """Put the new folder in the place of the target, and remove the old one.

    Raises: OSError; the old folder is then back in its place.
    """
    old, parent = _old_of(target), os.path.dirname(target)
    replaces = os.path.lexists(target)
    if replaces:
        shutil.copymode(target, made)
    sync(made)
    if replaces:
        os.rename(target, old)
    try:
        os.rename(made, target)
    except BaseException:
        if replaces:
            os.rename(old, target)
        raise
    sync(parent)
    if replaces:
        with contextlib.suppress(OSError):  # the new checkpoint stands; the next save tries again
            _retire(old, target)
