"""Builds the fake CUDA libraries with gcc, and loads them in place of NVIDIA's.

They are built once into a cache folder whose name holds a digest of the sources. Loaded before
pycuda and nvmath are imported, they are found by their names: the loader of dynamic libraries knows
a library that is loaded already by its SONAME. No LD_LIBRARY_PATH, no files outside the cache.

    control = build.load()          # before anything of CUDA is imported
    import pycuda.driver
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

from .control import Control

HERE = Path(__file__).resolve().parent
DRIVER = "libcuda.so.1"
DENSE = ["dense.c", "dense_eigen.c", "library.c"]
# Sources of each further library. Those without sources have to be there, because loading the
# ones above them asks for them, but nothing calls them.
LIBRARIES = {
    "libcublasLt.so.13": [],
    "libcublas.so.13": ["cublas.c", "cublas_gemm.c", "cublas_batched.c", *DENSE],
    "libnvJitLink.so.13": [],
    "libcusparse.so.12": [],
    "libcufft.so.12": ["cufft.c", "library.c"],
    "libcusolver.so.12": ["cusolver.c", "cusolver_svd.c", "cusolver_factor.c", *DENSE],
}
DRIVER_SOURCES = [
    "contexts.c",
    "control.c",
    "copies.c",
    "devices.c",
    "errors.c",
    "lookup.c",
    "memory.c",
    "modules.c",
    "streams.c",
]
FLAGS = [
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fcx-fortran-rules",
    "-pthread",
    "-Wall",
    "-Wextra",
]


def compiler() -> str | None:
    """Return the C compiler, or None where there is none; the fake can then not be built."""
    return shutil.which(os.environ.get("CC", "gcc")) or shutil.which("cc")


def cache_folder() -> Path:
    """Return where built libraries are kept: one folder for each state of the sources."""
    digest = hashlib.sha256(sysconfig.get_platform().encode() + repr((FLAGS, LIBRARIES)).encode())
    for source in sorted(HERE.glob("*.[ch]")) + [HERE / "entry_points.txt", Path(__file__)]:
        digest.update(source.name.encode() + source.read_bytes())
    base = os.environ.get("FAKE_CUDA_CACHE") or Path(tempfile.gettempdir()) / (
        f"pullback-fake-cuda-{os.getuid()}"
    )
    return Path(base) / digest.hexdigest()[:16]


def entry_point_table() -> str:
    """Return the C source of every entry point that no other file defines, and the table of all.

    Those are weak: they return CUDA_ERROR_NOT_SUPPORTED.
    """
    names = (HERE / "entry_points.txt").read_text().split()
    lines = ["#include <stddef.h>"]
    lines += [
        f'__attribute__((weak, visibility("default"))) int {name}(void) {{ return 801; }}'
        for name in names
    ]
    lines += ["const struct { const char *name; void (*address)(void); } fake_entry_points[] = {"]
    lines += [f'    {{"{name}", (void (*)(void)){name}}},' for name in names]
    lines += ["};", f"const size_t fake_entry_point_count = {len(names)};", ""]
    return "\n".join(lines)


def compile_library(folder: Path, soname: str, sources: list[Path], *more: str) -> None:
    command = [compiler() or "gcc", *FLAGS, f"-Wl,-soname,{soname}", "-I", str(HERE)]
    command += ["-o", str(folder / soname), *map(str, sources), *more, "-lm", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{soname} could not be built:\n{done.stderr}")


def build() -> Path:
    """Return the folder that holds the libraries, after building them if need be."""
    folder = cache_folder()
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        work = Path(name) / "libraries"
        work.mkdir()
        table = Path(name) / "entry_points.c"
        table.write_text(entry_point_table())
        empty = Path(name) / "empty.c"
        empty.write_text("")
        # Names are sorted as strcmp sorts them; the weak definitions differ in type from CUDA's.
        compile_library(work, DRIVER, [HERE / source for source in DRIVER_SOURCES] + [table])
        for soname, sources in LIBRARIES.items():
            paths = [HERE / source for source in sources] or [empty]
            compile_library(work, soname, paths, *([str(work / DRIVER)] if sources else []))
        try:
            work.rename(folder)
        except OSError:  # another process was faster
            if not folder.is_dir():
                raise
    return folder


def loaded_driver() -> ctypes.CDLL | None:
    """Return the driver's library that this process has loaded, real or fake, or None."""
    try:
        return ctypes.CDLL(DRIVER, os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def load(*, libraries: bool = True) -> Control:
    """Load the fakes into this process and return what steers them.

    Raises: RuntimeError, if NVIDIA's driver is loaded already or there is no compiler.
    """
    if compiler() is None:
        raise RuntimeError("the fake CUDA driver needs a C compiler, and there is none")
    # Compiled functions call kernels one by one: a test that generates some says how to compile.
    os.environ.setdefault("PULLBACK_CUDA_FUSE", "0")
    folder = build()
    driver = loaded_driver()
    if driver is not None:
        if not hasattr(driver, "fake_reset"):
            raise RuntimeError("NVIDIA's driver is loaded already, so a fake one cannot be")
        return Control(driver, folder)
    driver = ctypes.CDLL(str(folder / DRIVER), ctypes.RTLD_GLOBAL)
    if libraries:
        for soname in LIBRARIES:
            ctypes.CDLL(str(folder / soname), ctypes.RTLD_GLOBAL)
    return Control(driver, folder)
