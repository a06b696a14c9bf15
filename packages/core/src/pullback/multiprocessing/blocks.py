"""Blocks of shared memory: their names, who removes them, and storages that move into one.

A name lives until the last reference to the block is given back. If a process is killed, the
resource tracker of ``multiprocessing`` removes its names after the last process of the tree; blocks
whose message nobody received are removed when the first process of the tree ends.
"""

from __future__ import annotations

import glob
import hashlib
import os
import secrets
import sys
import weakref
from multiprocessing import parent_process, process, resource_tracker, util

from pullback._c.interop.shared_memory import HEADER, SharedBlock

_ON_WINDOWS = sys.platform == "win32"
_ORDER = -100  # at exit, after processes have been joined and finalizers of the user have run

_blocks: weakref.WeakSet[Block] = weakref.WeakSet()
_cleans_up_in = None  # the process that has the finalizer


class Block(SharedBlock):
    """A block of shared memory that this process maps."""

    shared = True


def _tree():
    """Return a text that the processes of a tree share: they inherit the key of connections."""
    return hashlib.sha256(bytes(process.current_process().authkey)).hexdigest()[:8]


def new_block(nbytes):
    """Return a new block with `nbytes` bytes of zeros for data, and one reference.

    Raises: RuntimeError if there is not enough shared memory.
    """
    name = f"/pb_{_tree()}_{secrets.token_hex(8)}"
    length = nbytes + HEADER
    try:
        if _ON_WINDOWS:
            return _opened(_map_on_windows(length, name), length, name, new=True)
        return _made(name, length)
    except OSError as error:
        raise RuntimeError(
            f"unable to allocate {nbytes} bytes of shared memory </{name[1:]}>: "
            f"{error.strerror} ({error.errno})"
        ) from None


def _made(name, length):
    import _posixshmem

    number = _posixshmem.shm_open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, mode=0o600)
    resource_tracker.register(name, "shared_memory")
    try:
        os.ftruncate(number, length)
        if hasattr(os, "posix_fallocate"):  # without it, a write beyond the space is a bus error
            os.posix_fallocate(number, 0, length)
        return _opened(number, length, name, new=True)
    except BaseException:
        _unlink(name)
        raise
    finally:
        os.close(number)


def open_block(name, nbytes):
    """Map a block that a message names; the message's reference becomes this process's.

    Raises: RuntimeError if the block has no name any more or is shorter.
    """
    length = nbytes + HEADER
    if _ON_WINDOWS:
        return _opened(_map_on_windows(length, name), length, name, new=False)
    import _posixshmem

    try:
        number = _posixshmem.shm_open(name, os.O_RDWR, mode=0o600)
    except OSError as error:
        raise RuntimeError(
            f"unable to open shared memory object <{name}> in read-write mode: {error.strerror} "
            f"({error.errno})"
        ) from None
    try:
        if os.fstat(number).st_size < length:
            raise RuntimeError(f"shared memory object <{name}> is shorter than {length} bytes")
        return _opened(number, length, name, new=False)
    finally:
        os.close(number)


def _map_on_windows(length, name):
    import mmap

    return mmap.mmap(-1, length, tagname=name)  # type: ignore[call-arg]


def _opened(source, length, name, new):
    block = Block(source, length, name, _unlink, new)
    _blocks.add(block)
    _clean_up_at_exit()
    return block


def _unlink(name):
    if _ON_WINDOWS:
        return
    import _posixshmem

    try:
        _posixshmem.shm_unlink(name)
    except OSError:  # another process has removed it
        return
    resource_tracker.unregister(name, "shared_memory")


# ---- the end of processes ------------------------------------------------------------------------


def start_tracker():
    """Start the process that removes names after a crash, before a fork: children share it."""
    if not _ON_WINDOWS:
        resource_tracker.ensure_running()


def _clean_up_at_exit():
    global _cleans_up_in
    if _cleans_up_in != os.getpid():
        _cleans_up_in = os.getpid()
        util.Finalize(None, _clean_up, exitpriority=_ORDER)


def _clean_up():
    for block in list(_blocks):
        block.give_back()
    if parent_process() is None and os.path.isdir("/dev/shm"):
        for path in glob.glob(f"/dev/shm/pb_{_tree()}_*"):
            _unlink("/" + os.path.basename(path))


# ---- storages ------------------------------------------------------------------------------------


def move_to_shared_memory(storage):
    """Move the bytes of a storage on the host into a new block; its tensors see it there.

    Raises: RuntimeError for storages of other devices.
    """
    if storage.device.type == "meta" or storage.get_device() != -1:
        raise RuntimeError(f"share_memory_: only available on CPU, not on {storage.device}")
    block = new_block(storage.nbytes())
    block.kept = storage._move_to(block.address, block)


def sent_block(storage):
    """Return the name of the storage's block, with a reference for the message that has the name.

    A storage that is not in shared memory moves there; so does a copy whose block lost its name,
    because it is a child's and the parent has freed its own.
    """
    storage.share_memory_()
    block = storage._owner()
    if not isinstance(block, Block) or not block.take():
        block = new_block(storage.nbytes())
        block.kept = (storage._owner(), storage._move_to(block.address, block))
        block.take()
    return block.name
