"""Build the distributions' wheels into ``dist/``, each only when its sources changed.

    python tools/wheels.py                     # all four, for the Python that runs this
    python tools/wheels.py core cpu            # these two
    python tools/wheels.py --install core cpu  # build, then install into that Python's environment
    python tools/wheels.py --install core --with scikit-learn

Needs nothing but pip. The core comes first: the compiled backends are built against its headers,
which pip's isolated builds find as a wheel in ``dist/`` (PIP_FIND_LINKS). A digest of the sources
is kept beside the wheels, so a second call with nothing changed builds nothing; several at once
wait for each other.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
IGNORED_FOLDERS = {"build", "dist", "tests", "__pycache__"}


class Package(NamedTuple):
    """One distribution: its folder, and what its wheel depends on."""

    distribution: str
    folder: str
    compiled: bool
    headers: tuple[str, ...] = ()  # sources of other packages that its build reads


CONTRACT = ("packages/core/src/pullback/include", "packages/core/pyproject.toml")
PACKAGES = {
    "core": Package("pullback", "packages/core", True),
    "cpu": Package("pullback-cpu", "packages/backend-cpu", True, CONTRACT),
    "cuda": Package("pullback-cuda", "packages/backend-cuda", True, CONTRACT),
    "profiler": Package("pullback-profiler", "packages/profiler", True, CONTRACT),
}


def iter_files(top: Path) -> Iterator[Path]:
    """Yield the files under ``top`` that a wheel could be made of, in a fixed order."""
    if top.is_file():
        yield top
        return
    for path in sorted(top.iterdir()):
        if path.is_dir():
            if path.name not in IGNORED_FOLDERS and not path.name.startswith("."):
                yield from iter_files(path)
        elif path.suffix not in {".pyc", ".so", ".pyd"}:
            yield path


def source_digest(package: Package) -> str:
    """Return one number for everything that the package's wheel is made of."""
    digest = hashlib.sha256()
    for top in (package.folder, *package.headers):
        for path in iter_files(ROOT / top):
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def build_tag(package: Package) -> str:
    """Return what a wheel is valid for: this Python and platform, or any."""
    if not package.compiled:
        return "any"
    return f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}"


def pip_environment(dist: Path) -> dict[str, str]:
    """Return this process's environment in which pip also searches ``dist``."""
    links = [dist.as_uri(), os.environ.get("PIP_FIND_LINKS", "")]
    return {**os.environ, "PIP_FIND_LINKS": " ".join(filter(None, links))}


def run_pip(arguments: list[str], dist: Path) -> None:
    """Run pip of this Python; end this process with pip's exit code if it fails."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    code = subprocess.run(command, env=pip_environment(dist), cwd=ROOT, check=False).returncode
    if code:
        sys.exit(code)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time in; without ``fcntl`` (Windows) there is no such guard."""
    with open(path, "w") as file:
        try:
            import fcntl
        except ImportError:
            yield
            return
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def read_stamp(stamp: Path) -> dict[str, str]:
    """Return what was built last, or nothing if that is unknown."""
    try:
        return json.loads(stamp.read_text())
    except (OSError, ValueError):
        return {}


def build_wheel(package: Package, dist: Path) -> Path:
    """Return the package's wheel, building it first if its sources changed."""
    stamp = dist / ".stamps" / f"{package.distribution}-{build_tag(package)}.json"
    built, digest = read_stamp(stamp), source_digest(package)
    if built.get("digest") == digest and (dist / built["wheel"]).is_file():
        return dist / built["wheel"]
    start = time.perf_counter()
    target = dist / ".stamps" / f"new-{os.getpid()}"
    run_pip(["wheel", "--quiet", "--no-deps", "-w", str(target), str(ROOT / package.folder)], dist)
    (wheel,) = target.glob("*.whl")
    final = dist / wheel.name
    wheel.replace(final)
    target.rmdir()
    stamp.write_text(json.dumps({"digest": digest, "wheel": final.name}))
    seconds = time.perf_counter() - start
    print(f"built {final.name} ({final.stat().st_size / 1e6:.2f} MB, {seconds:.0f} s)", flush=True)
    return final


def install(wheels: list[Path], others: list[str], dist: Path) -> None:
    """Install the wheels; other versions of our packages are removed."""
    ours = {package.distribution for package in PACKAGES.values()}
    present = sorted(ours & {str(d.metadata["Name"]) for d in importlib.metadata.distributions()})
    if present:  # pip would keep one with an equal version number
        run_pip(["uninstall", "--quiet", "--yes", *present], dist)
    run_pip(["install", "--quiet", *map(str, wheels), *others], dist)
    print("installed", ", ".join(wheel.name for wheel in wheels), flush=True)


def main() -> None:
    """Read the command line, build, and install if asked to."""
    parser = argparse.ArgumentParser(description="Build the wheels that are out of date.")
    parser.add_argument("packages", nargs="*", metavar="package", help=f"of {', '.join(PACKAGES)}")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where wheels go")
    parser.add_argument("--install", action="store_true", help="install them afterwards")
    parser.add_argument("--with", dest="others", nargs="+", default=[], help="further requirements")
    options = parser.parse_args()
    unknown = set(options.packages) - set(PACKAGES)
    if unknown:
        parser.error(
            f"unknown package {', '.join(sorted(unknown))}; there are {', '.join(PACKAGES)}"
        )

    names = [name for name in PACKAGES if name in options.packages or not options.packages]
    dist = options.dist.resolve()
    (dist / ".stamps").mkdir(parents=True, exist_ok=True)
    with locked(dist / ".stamps" / "lock"):
        if any(PACKAGES[name].headers for name in names):
            build_wheel(PACKAGES["core"], dist)
        wheels = [build_wheel(PACKAGES[name], dist) for name in names]
    if options.install:
        install(wheels, options.others, dist)


if __name__ == "__main__":
    main()
