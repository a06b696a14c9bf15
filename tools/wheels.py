"""Build the distributions' wheels into ``dist/``, each only when its sources changed.

    python tools/wheels.py                     # all five, for the Python that runs this
    python tools/wheels.py core cpu            # these two
    python tools/wheels.py --install core cpu  # build, then install into that Python's environment
    python tools/wheels.py --install core --with scikit-learn
    python tools/wheels.py cuda --architectures sm_90  # its kernels for these GPUs alone

Needs nothing but pip. What is out of date is built side by side, against the headers of the source
tree, with the build tools of one folder beside the wheels; an interrupted or repeated build
compiles what is left. A digest of the sources is kept too, so a second call with nothing changed
builds nothing; several calls at once wait for each other.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
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
    options: tuple[str, ...] = ()  # for meson, which would keep what an earlier build gave


CONTRACT = (
    "packages/core/src/pullback/include",
    "packages/core/src/pullback/backend/translate.py",
    "packages/core/pyproject.toml",
)
PACKAGES = {
    "core": Package("pullback", "packages/core", True),
    "cpu": Package("pullback-cpu", "packages/backend-cpu", True, CONTRACT),
    "cuda": Package("pullback-cuda", "packages/backend-cuda", True, CONTRACT, ("architectures=",)),
    "profiler": Package("pullback-profiler", "packages/profiler", True, CONTRACT),
    "distributed": Package("pullback-distributed", "packages/distributed", False),
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
    digest = hashlib.sha256("\0".join(package.options).encode())
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


def stamp_of(package: Package, dist: Path) -> Path:
    """Return the file that tells what the package's wheel was made from."""
    return dist / ".stamps" / f"{package.distribution}-{build_tag(package)}.json"


def read_stamp(stamp: Path) -> dict[str, str]:
    """Return what was built last, or nothing if that is unknown."""
    try:
        return json.loads(stamp.read_text())
    except (OSError, ValueError):
        return {}


def built_wheel(package: Package, dist: Path) -> Path | None:
    """Return the package's wheel, or None if there is none of these sources."""
    built = read_stamp(stamp_of(package, dist))
    if built.get("digest") != source_digest(package) or not (dist / built["wheel"]).is_file():
        return None
    return dist / built["wheel"]


class BuildError(Exception):
    """A build failed; the message is its output."""


STEP = re.compile(r"\[(\d+)/(\d+)\] (?:Compiling|Linking|Generating) (.+)$")


def step_name(text: str) -> str:
    """Return what a step of ninja makes: ``C object a/scan_avx2.cpython-311.so.p/scan.c.o``."""
    parts = text.removesuffix(" with a custom command").rpartition(" ")[2].split("/")
    name = next((part for part in parts if part.endswith(".p")), parts[-1])
    return re.split(r"\.(?:cpython|cp3|abi3|so|pyd|c\b)", name)[0]


class Progress:
    """How far the builds are: one line, written over, in a terminal; else a line now and then.

    The threads of several builds report here.
    """

    def __init__(self, interval: float = 5.0) -> None:
        self.interval = interval
        self.counts: dict[str, tuple[int, int]] = {}
        self.lock = threading.Lock()
        self.shown = time.monotonic()
        self.live = sys.stdout.isatty()

    def report(self, name: str, line: str) -> None:
        """Take in a line of a build's output."""
        step = STEP.match(line)
        if step is None:
            return
        with self.lock:
            self.counts[name] = int(step[1]), int(step[2])
            now = time.monotonic()
            if self.live or now - self.shown >= self.interval:
                done, every = (sum(column) for column in zip(*self.counts.values()))
                self.show(f"[{done}/{every}] {name} {step_name(step[3])}")
                self.shown = now

    def show(self, text: str, end: bool = False) -> None:
        """Write a line, which the next one replaces in a terminal unless it is ``end``."""
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            text = f"\r{text[:width]:<{width}}" if not end else f"\r{'':<{width}}\r{text}"
        print(text, end="" if self.live and not end else "\n", flush=True)


def build_requirements() -> list[str]:
    """Return what the builds of all packages need, but for our own core."""
    found = {"build"}
    for package in PACKAGES.values():
        text = (ROOT / package.folder / "pyproject.toml").read_text(encoding="utf-8")
        listed = re.search(r"^requires = (\[.*?\])", text, re.MULTILINE | re.DOTALL)
        found |= set(ast.literal_eval(listed[1])) if listed else set()
    return sorted(name for name in found if not name.startswith("pullback"))


def build_environment(folder: Path, dist: Path) -> dict[str, str]:
    """Return this process's environment with the build tools, which are installed if need be."""
    stamp, wanted = folder / "requirements.txt", "\n".join(build_requirements())
    if not stamp.is_file() or stamp.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        print("installing the build tools", flush=True)
        run_pip(["install", "--quiet", "--target", str(folder), *wanted.split("\n")], dist)
        stamp.write_text(wanted)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    tools = os.pathsep.join([str(folder / "bin"), str(folder / "Scripts"), os.environ["PATH"]])
    return {**os.environ, "PYTHONPATH": path, "PATH": tools}


def run_build(
    package: Package, target: Path, work: Path, environment: dict[str, str], progress: Progress
) -> None:
    """Build a wheel into ``target``, compiling in ``work``; raise BuildError with the output."""
    settings = [f"-Cbuild-dir={work}", f"-Ccompile-args=-j{os.cpu_count() or 1}"]
    if package.headers:
        settings.append(f"-Csetup-args=-Dpullback_include={ROOT / CONTRACT[0]}")
    settings += [f"-Csetup-args=-D{option}" for option in package.options]
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", *settings]
    command += ["--skip-dependency-check", "--outdir", str(target), str(ROOT / package.folder)]
    with subprocess.Popen(
        command,
        env=environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        output = []
        for line in process.stdout or ():
            output.append(line)
            progress.report(package.distribution.replace("-", "_"), line)
    if process.returncode:
        raise BuildError("".join(output))


def build_wheel(
    package: Package, dist: Path, environment: dict[str, str], progress: Progress
) -> None:
    """Build a package's wheel into ``dist``, and note what it was made from."""
    digest, start = source_digest(package), time.perf_counter()
    name = f"{package.distribution}-{build_tag(package)}"
    target, work = dist / ".build" / f"new-{os.getpid()}-{name}", dist / ".build" / name
    present = work.exists()
    try:
        run_build(package, target, work, environment, progress)
    except BuildError as error:
        if not present or any(map(STEP.match, str(error).splitlines())):
            raise
        shutil.rmtree(work)  # what an older configuration left cannot be configured again
        run_build(package, target, work, environment, progress)
    (wheel,) = target.glob("*.whl")
    final = dist / wheel.name
    wheel.replace(final)
    target.rmdir()
    stamp_of(package, dist).write_text(json.dumps({"digest": digest, "wheel": final.name}))
    seconds, size = time.perf_counter() - start, final.stat().st_size / 1e6
    progress.show(f"built {final.name} ({size:.2f} MB, {seconds:.0f} s)", end=True)


def build_wheels(packages: list[Package], dist: Path) -> list[Path]:
    """Return the packages' wheels, building first, side by side, what is out of date."""
    old = [package for package in packages if built_wheel(package, dist) is None]
    if old:
        environment = build_environment(
            dist / ".build" / f"tools-{sys.implementation.cache_tag}", dist
        )
        progress = Progress()
        with concurrent.futures.ThreadPoolExecutor(len(old)) as pool:
            builds = [pool.submit(build_wheel, one, dist, environment, progress) for one in old]
        for package, build in zip(old, builds):
            error = build.exception()
            if error is not None:
                progress.show(f"{package.distribution} was not built:", end=True)
                sys.exit(str(error) if isinstance(error, BuildError) else repr(error))
    return [dist / read_stamp(stamp_of(package, dist))["wheel"] for package in packages]


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
    parser.add_argument("--architectures", help="what nvcc compiles for; all that are supported")
    parser.add_argument("--with", dest="others", nargs="+", default=[], help="further requirements")
    options = parser.parse_args()
    unknown = set(options.packages) - set(PACKAGES)
    if unknown:
        parser.error(
            f"unknown package {', '.join(sorted(unknown))}; there are {', '.join(PACKAGES)}"
        )

    packages = dict(PACKAGES)
    if options.architectures:
        chosen = f"architectures={options.architectures}"
        packages["cuda"] = packages["cuda"]._replace(options=(chosen,))
    names = [name for name in packages if name in options.packages or not options.packages]
    dist = options.dist.resolve()
    (dist / ".stamps").mkdir(parents=True, exist_ok=True)
    needed = {*names, *("core" for name in names if packages[name].headers)}
    with locked(dist / ".stamps" / "lock"):
        built = build_wheels([packages[name] for name in packages if name in needed], dist)
    if options.install:
        asked = {packages[name].distribution.replace("-", "_") for name in names}
        wheels = [wheel for wheel in built if wheel.name.partition("-")[0] in asked]
        install(wheels, options.others, dist)


if __name__ == "__main__":
    main()
