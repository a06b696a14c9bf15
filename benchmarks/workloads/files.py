"""Loading of files: 100 MB of tensors, and many small ones."""

from __future__ import annotations

import atexit
import functools
import importlib
import pathlib
import shutil
import tempfile

from benchmarks.workloads.registry import FULL, workload

COUNT = 25  # tensors of 4 MB
EDGE = 1024
MANY = 1000


@functools.cache
def folder():
    """Return a new folder, which is removed when the process ends."""
    path = tempfile.mkdtemp(prefix="benchmark-files-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return pathlib.Path(path)


def safetensors_of(module):
    """Return the functions for safetensors files of a module."""
    ours = module.__name__ == "pullback"
    return importlib.import_module("pullback.safetensors" if ours else "safetensors.torch")


@functools.cache
def large_file(module, kind, edge):
    """Return the path of a file of 25 matrices, written once."""
    path = folder() / f"{edge}.{kind}"
    tensors = {f"layer{i}.weight": module.randn(edge, edge) for i in range(COUNT)}
    if kind == "safetensors":
        safetensors_of(module).save_file(tensors, path)
    else:
        module.save(tensors, path)
    return path


@functools.cache
def small_file(module, count):
    """Return the path of an archive of small tensors, written once."""
    path = folder() / "small.pt"
    module.save({f"layer{i}.bias": module.randn(8, 1) for i in range(count)}, path)
    return path


def first_element(value):
    """Read one element."""
    return value[0, 0]


def repeated(n, load, use=first_element):
    """Return a function that loads ``n`` times and uses each tensor."""

    def timed():
        for _ in range(n):
            for value in load().values():
                use(value)

    return timed


@workload(None, 1.0, 0.8, group="files")
def load_safetensors(module, n, size=FULL):
    """Load 25 tensors of 4 MB from a safetensors file, and read an element of each."""
    path, library = large_file(module, "safetensors", size(EDGE)), safetensors_of(module)
    return repeated(n, lambda: library.load_file(path))


@workload(None, 1.0, 0.9, group="files")
def read_safetensors(module, n, size=FULL):
    """Load 25 tensors of 4 MB from a safetensors file, and sum each."""
    path, library = large_file(module, "safetensors", size(EDGE)), safetensors_of(module)
    return repeated(n, lambda: library.load_file(path), lambda value: value.sum())


@workload(None, 1.0, 0.9, group="files")
def load_archive(module, n, size=FULL):
    """Load 25 tensors of 4 MB from an archive; ours checks checksums, which torch does not."""
    path = large_file(module, "pt", size(EDGE))
    return repeated(n, lambda: module.load(path))


@workload(None, 1.0, 0.8, group="files")
def map_archive(module, n, size=FULL):
    """Map an archive with 25 tensors of 4 MB, and read an element of each."""
    path = large_file(module, "pt", size(EDGE))
    return repeated(n, lambda: module.load(path, mmap=True))


@workload(None, 1.0, 0.8, group="files")
def load_many(module, n, size=FULL):
    """Load 1000 tensors of 8 elements from an archive."""
    path = small_file(module, size(MANY))
    return repeated(n, lambda: module.load(path))
