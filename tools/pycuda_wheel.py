"""Build a wheel of pycuda into ``dist/`` on a machine without CUDA, once.

    python tools/pycuda_wheel.py             # prints the wheel's path
    python tools/pycuda_wheel.py --install   # and installs it, with what it needs

pycuda is published as source only, and wants CUDA's headers and a driver's library to link with.
The headers come from the package index. The library is a stub with the names that they declare: the
wheel needs it for linking alone, and NVIDIA's driver, or the fake one of the tests, when it runs.
Needs pip and a C++ compiler.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
VERSION = "2026.1"
HEADERS = ("nvidia-cuda-runtime==13.0.*", "nvidia-cuda-profiler-api==13.0.*")
BUILD_TOOLS = ("setuptools", "wheel", "numpy>=2")


def pip(*arguments: str, **options) -> None:
    """Run pip of this Python; end this process with its exit code if it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    code = subprocess.run(command, check=False, **options).returncode
    if code:
        sys.exit(code)


def unpack_headers(folder: Path) -> Path:
    """Return a folder that looks like a CUDA toolkit as far as headers go."""
    for requirement in HEADERS:
        pip("download", "--quiet", "--no-deps", "--dest", str(folder), requirement)
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    root = folder / "toolkit"
    (include,) = folder.glob("nvidia/*/include")
    root.mkdir()
    include.rename(root / "include")
    return root


def build_stub(include: Path, folder: Path) -> None:
    """Write libcuda.so with every function that the headers declare; each of them fails."""
    compiler = os.environ.get("CC", "cc")
    text = "".join(f"#include <{name}>\n" for name in ("cuda.h", "cudaProfiler.h"))
    command = [compiler, "-E", "-P", "-I", str(include), "-x", "c", "-"]
    headers = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    names = sorted(set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", headers)))
    source = folder / "stub.c"
    source.write_text("".join(f"int {name}(void) {{ return 34; }}\n" for name in names))
    options = ["-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    command = [compiler, *options, "-o", str(folder / "libcuda.so"), str(source)]
    subprocess.run(command, check=True)


def unpack_source(folder: Path) -> Path:
    """Return the unpacked source distribution."""
    requirement = f"pycuda=={VERSION}"
    environment = {**os.environ, "PATH": path_without_nvcc()}
    pip(
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary",
        "pycuda",
        "--dest",
        str(folder),
        requirement,
        env=environment,
    )
    (archive,) = folder.glob("pycuda-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data") if hasattr(
            tarfile, "data_filter"
        ) else opened.extractall(folder)
    return folder / archive.name.removesuffix(".tar.gz")


def path_without_nvcc() -> str:
    """Return PATH without nvcc: pycuda takes the folder above it for the toolkit."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(name for name in folders if not (Path(name) / "nvcc").exists())


def build(folder: Path) -> Path:
    """Build the wheel; return its path in ``dist/``."""
    root = unpack_headers(folder)
    build_stub(root / "include", folder)
    source = unpack_source(folder)
    tools = folder / "tools"
    pip("install", "--quiet", "--target", str(tools), *BUILD_TOOLS)
    environment = {**os.environ, "PATH": path_without_nvcc(), "PYTHONPATH": str(tools)}
    configure = [
        *(sys.executable, "configure.py", f"--cuda-root={root}"),
        *(f"--cudadrv-lib-dir={folder}", "--no-cuda-enable-curand"),
        *("--cxxflags=-O1,-g0,-w", "--ldflags=-s"),
    ]
    subprocess.run(configure, cwd=source, env=environment, check=True, stdout=subprocess.DEVNULL)
    jobs = str(os.cpu_count() or 1)
    parallel = [sys.executable, "setup.py", "build_ext", "--parallel", jobs]
    subprocess.run(parallel, cwd=source, env=environment, check=True, stdout=subprocess.DEVNULL)
    pip(
        "wheel",
        "--quiet",
        "--no-build-isolation",
        "--no-deps",
        "-w",
        str(folder),
        str(source),
        env=environment,
    )
    (wheel,) = folder.glob("pycuda-*.whl")
    DIST.mkdir(exist_ok=True)
    return Path(shutil.move(wheel, DIST / wheel.name))


def find_wheel() -> Path | None:
    """Return the wheel for this Python that was built before, or None."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    return next(DIST.glob(f"pycuda-{VERSION}-{tag}-*.whl"), None)


def main() -> None:
    """Read the command line, build if need be, and install if asked to."""
    parser = argparse.ArgumentParser(description="Build a wheel of pycuda without CUDA.")
    parser.add_argument("--install", action="store_true", help="into this Python's environment")
    options = parser.parse_args()
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        print("pycuda is built on Linux only: what needs it is skipped here")
        return
    wheel = find_wheel()
    if wheel is None:
        with tempfile.TemporaryDirectory() as folder:
            wheel = build(Path(folder))
    print(wheel.relative_to(ROOT))
    if options.install:
        pip("install", "--quiet", str(wheel))


if __name__ == "__main__":
    main()
