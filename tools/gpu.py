"""Test and measure the CUDA backend on this machine's device, and write docs/gpu/REPORT.md.

    python tools/gpu.py                        # build, test, sanitize, measure, report
    python tools/gpu.py --steps build test     # some of these; the report keeps what others found
    python tools/gpu.py --quick                # small measurements, no sanitizer

Needs no network and no pip: Python with NumPy, SciPy, ml_dtypes, pluggy, Cython, meson, ninja,
pytest, hypothesis, nvtx and pycuda, and a C compiler; nvcc, or cuda-bindings with NVRTC, for the
kernels; nvmath-python for matrix products. torch and CuPy are measured beside it where they are.
What is built goes into build/gpu.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "gpu"
SITE = BUILD / "site"
TESTS = "packages/backend-cuda/tests"
SANITIZED = ("test_devices.py", "test_memory.py", "test_streams.py", "test_matrices.py")
INTERFACE = f"-Dpullback_include={ROOT / 'packages/core/src/pullback/include'}"
PACKAGES = {
    "core": ("packages/core", ()),
    "cpu": ("packages/backend-cpu", (INTERFACE,)),
    "cuda": ("packages/backend-cuda", (INTERFACE,)),
    "profiler": ("packages/profiler", (INTERFACE,)),
}
STEPS = ("build", "test", "sanitize", "measure")
ABOUT = """
import json, platform, pycuda, pycuda.driver as driver
driver.init()
device = driver.Device(0)
found = {"device": device.name(), "memory": device.total_memory(),
         "capability": "%d.%d" % device.compute_capability(),
         "multiprocessors": device.multiprocessor_count, "driver": driver.get_driver_version(),
         "pycuda": pycuda.VERSION_TEXT, "python": platform.python_version()}
for name in ("numpy", "torch", "cupy", "nvmath"):
    try:
        found[name] = __import__(name).__version__
    except Exception:
        found[name] = None
print(json.dumps(found))
"""


def environment(**more: str) -> dict[str, str]:
    """Return the variables under which what was built is found."""
    path = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "PULLBACK_TEST_GPU": "required", **more}


def run(command: list[str], **options) -> subprocess.CompletedProcess:
    """Run a command in the root of the repository; show what it is."""
    print("$", " ".join(command), flush=True)
    return subprocess.run(command, check=False, cwd=ROOT, text=True, **options)


def build() -> float:
    """Build and install the packages into build/gpu/site; return the seconds it took."""
    start = time.perf_counter()
    shutil.rmtree(SITE, ignore_errors=True)
    folders = [f"-Dpython.{kind}libdir={SITE}" for kind in ("pure", "plat")]
    for name, (source, options) in PACKAGES.items():
        target = BUILD / name
        again = ["--reconfigure"] if (target / "meson-info").exists() else []
        meson = [sys.executable, "-m", "mesonbuild.mesonmain"]
        run(
            [*meson, "setup", *again, str(target), source, *folders, *options],
            check=True,
            env=environment(),
            stdout=subprocess.DEVNULL,
        )
        run([*meson, "install", "--quiet", "-C", str(target)], check=True, env=environment())
        write_metadata(source)
    return time.perf_counter() - start


def write_metadata(source: str) -> None:
    """Give the folder the metadata of an installed wheel."""
    text = (ROOT / source / "pyproject.toml").read_text()
    name, version = (
        re.findall(rf'^{key} = "(.*)"', text, re.MULTILINE)[0] for key in ("name", "version")
    )
    folder = SITE / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    points = []
    for group, entries in re.findall(
        r'^\[project\.entry-points\."?([\w.]+)"?\]\n((?:.+\n)*)', text, re.MULTILINE
    ):
        points += [f"[{group}]", entries.replace('"', "")]
    (folder / "entry_points.txt").write_text("\n".join(points))


def test(*more: str) -> tuple[int, str]:
    """Run the tests on the device; return pytest's exit code and closing line."""
    processes = min(8, max(1, (os.cpu_count() or 1) // 2))
    shared = importlib.util.find_spec("xdist") is not None and processes > 1
    command = [
        *(sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-q", TESTS),
        *("--pullback-device", "cuda", "--pullback-device-strict", "--junit-xml=gpu-report.xml"),
        *(("-n", str(processes), "--dist", "worksteal") if shared else ()),
        *more,
    ]
    done = run(command, env=environment(), stdout=subprocess.PIPE, check=False)
    print(done.stdout[-6000:])
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    return done.returncode, lines[-1].strip("= ") if lines else "no output"


def sanitize() -> list[tuple[str, str]]:
    """Run some tests under compute-sanitizer; return the tools and their last lines."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return [("compute-sanitizer", "not found")]
    found = []
    for tool in ("memcheck", "racecheck"):
        command = [
            *(program, "--tool", tool, "--target-processes", "all", "--error-exitcode", "9"),
            *(sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-q", "-x"),
            *(f"{TESTS}/{name}" for name in SANITIZED),
        ]
        done = run(
            command,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        summary = re.findall(r"=+ (?:ERROR|RACECHECK) SUMMARY: .*", done.stdout)
        found.append((tool, summary[-1].strip("= ") if summary else done.stdout[-300:].strip()))
    return found


def measure(quick: bool) -> tuple[str, dict]:
    """Run the benchmarks; return their table and figures."""
    figures = BUILD / "figures.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--json", str(figures)]
    done = run(
        [*command, *(["--quick"] if quick else [])],
        env=environment(),
        check=False,
        stdout=subprocess.PIPE,
    )
    if done.returncode:
        return f"The benchmarks failed with exit code {done.returncode}.", {}
    return done.stdout, json.loads(figures.read_text())


def write_report(path: Path, about: dict, parts: dict) -> None:
    """Write the page with what was found."""
    lines = [
        "# The CUDA backend on a device",
        "",
        f"Written by `tools/gpu.py` on {datetime.date.today():%Y-%m-%d}.",
        "",
        "| | |",
        "| --- | --- |",
        f"| device | {about['device']}, compute capability {about['capability']}, "
        f"{about['multiprocessors']} multiprocessors, {about['memory'] / 2**30:.0f} GiB |",
        f"| driver | {about['driver']} |",
        f"| host | {platform.machine()}, {os.cpu_count()} cores, Python {about['python']} |",
        *(
            f"| {name} | {about[name] or 'not there'} |"
            for name in ("pycuda", "nvmath", "numpy", "torch", "cupy")
        ),
        f"| build | {parts.get('build', 'not run')} |",
        "",
        "## Tests",
        "",
        f"`python -m pytest -c pyproject.toml {TESTS}` with `PULLBACK_TEST_GPU=required`: "
        f"{parts.get('tests', 'not run')}.",
        "",
        *(f"- compute-sanitizer, {tool}: {line}" for tool, line in parts.get("sanitizer", [])),
        "",
        "## Measured",
        "",
        "Best of several rounds, the libraries in turn in one process; of `us/op` and of the time "
        "beside torch's less is better. An aim is reached if it is missed by 2 % at most.",
        "",
        parts.get("table", "Not run.").strip(),
        "",
    ]
    path.write_text("\n".join(lines))


def main() -> None:
    """Read the command line and do all of it; the exit code is the tests'."""
    parser = argparse.ArgumentParser(description="Test and measure the CUDA backend.")
    parser.add_argument("--quick", action="store_true", help="small measurements, no sanitizer")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "gpu" / "REPORT.md")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=STEPS, metavar="STEP")
    parser.add_argument("--tests", nargs="*", default=[], help="more arguments for pytest")
    options = parser.parse_args()
    kept, code = BUILD / "parts.json", 0
    parts = json.loads(kept.read_text()) if kept.is_file() else {}
    if "build" in options.steps:
        parts["build"] = f"{build():.0f} s"
    answer = run(
        [sys.executable, "-c", ABOUT], env=environment(), stdout=subprocess.PIPE, check=True
    )
    about = json.loads(answer.stdout.splitlines()[-1])
    if "test" in options.steps:
        code, parts["tests"] = test(*options.tests)
    if "sanitize" in options.steps and not options.quick:
        parts["sanitizer"] = sanitize()
    if "measure" in options.steps:
        parts["table"], _ = measure(options.quick)
    kept.write_text(json.dumps(parts))
    write_report(options.report, about, parts)
    print(options.report.read_text())
    sys.exit(code)


if __name__ == "__main__":
    main()
