"""Verbs for users and developers; ``python -m nox --list`` shows them, ``nox -s VERB`` runs one.

The matrix over several Pythons is ``python -m tox``. Sessions here use the Python that runs nox.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nox

ROOT = Path(__file__).parent
ALL = ("core", "cpu", "cuda", "profiler", "distributed")
FOLDERS = {
    "core": "packages/core",
    "cpu": "packages/backend-cpu",
    "cuda": "packages/backend-cuda",
    "profiler": "packages/profiler",
    "distributed": "packages/distributed",
}
LINTERS = ("-r", "tools/lint-requirements.txt")
TEST_TOOLS = (
    *("pytest>=8", "cython>=3.1", "hypothesis", "einops", "ml_dtypes", "mpmath", "mypy", "scipy"),
    *("safetensors>=0.8", "optree>=0.13", "array-api-strict>=2.4", "array-api-compat"),
    "scikit-learn",
    *("mpi4py>=4", "mpich"),
    *("threadpoolctl", "ittapi", "nvtx", "perfetto", "viztracer", "nvmath-python"),
)
DOCS_TOOLS = (
    *("sphinx==9.0.4", "furo==2025.12.19", "myst-parser==5.2.0", "sphinx-copybutton==0.5.2"),
    *("docutils==0.22.4", "matplotlib==3.11.2", "myst-nb==1.3.0", "ipykernel==7.4.0"),
)
DEMO_TOOLS = ("scikit-learn", "scipy", "matplotlib", "rich")

nox.needs_version = ">=2024.3.2"
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["lint", "test"]


def install_wheels(session: nox.Session, *packages: str, others: tuple[str, ...] = ()) -> None:
    """Build what is out of date and install these packages' wheels into the session."""
    extra = ("--with", *others) if others else ()
    session.run("python", "-u", "tools/wheels.py", "--install", *packages, *extra)


def run_pytest(session: nox.Session, *arguments: str) -> None:
    """Run pytest with the repository's settings."""
    environment = {"PULLBACK_TEST_DIST": str(ROOT / "dist")}
    session.run("python", "-m", "pytest", "-c", "pyproject.toml", *arguments, env=environment)


def c_sources() -> list[str]:
    """Return the sources of the packages in C and CUDA, their headers included."""
    kinds = (".c", ".h", ".cu", ".cuh")
    folders = [ROOT / folder / "src" for folder in FOLDERS.values()]
    found = (path for folder in folders for path in folder.rglob("*") if path.suffix in kinds)
    return [str(path.relative_to(ROOT)) for path in sorted(found)]


@nox.session
def demo(session: nox.Session) -> None:
    """Build the wheels, install them into a fresh environment and train on handwritten digits."""
    install_wheels(session, "core", "cpu", "profiler", others=DEMO_TOOLS)
    session.run("python", "examples/digits/train.py", *session.posargs)


@nox.session
def examples(session: nox.Session) -> None:
    """Train every example, or those named, to its stated quality; pictures go to demo-output."""
    install_wheels(session, "core", "cpu", "profiler", others=DEMO_TOOLS)
    scripts = {path.parent.name: path for path in sorted(ROOT.glob("examples/*/train.py"))}
    for name in session.posargs or scripts:
        session.run("python", str(scripts[name]), "--output", f"demo-output/{name}")


@nox.session(venv_backend="none")
def dev(session: nox.Session) -> None:
    """Make .venv with editable installs; compiled parts are rebuilt when they are imported."""
    venv = ROOT / ".venv"
    if not venv.exists():
        session.run("python", "-m", "venv", str(venv), external=True)
    folder = venv / ("Scripts" if os.name == "nt" else "bin")
    python = str(folder / "python")
    # The build tools must be on PATH and stay installed: an editable package calls them on import.
    environment = {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(venv)}
    pip = (python, "-m", "pip", "install", "--quiet")
    build_tools = ("meson-python", "meson", "ninja", "cython>=3.1", "hatchling", "editables")
    tools = (*build_tools, "numpy>=2", "pluggy", *TEST_TOOLS, *LINTERS)
    session.run(*pip, *tools, external=True, env=environment)
    for name in ALL:  # the core first: the others build against it
        # An import that rebuilds says what it builds.
        options = ("--no-build-isolation", "--no-deps", "-Ceditable-verbose=true")
        editable = (*options, "--editable", FOLDERS[name])
        session.run(*pip, *editable, external=True, env=environment)
    session.log(f"ready: activate {venv} (the build tools must be on PATH when you import)")


@nox.session
def gen(session: nox.Session) -> None:
    """Write torch's names, examples and types of classes; `-- --stubs DIR` stubs of ops."""
    session.install("numpy>=2")
    if session.posargs:
        session.run("python", "packages/core/tools/opgen.py", *session.posargs)
    else:
        install_wheels(session, "core", "cpu", "profiler")
        for tool in ("examplegen", "classstubs"):
            session.run("python", f"packages/core/tools/{tool}.py")
        compat = ("packages/core/tools/compatgen.py", "--docs", "docs/reference", "--reasons")
        session.run("python", *compat)


@nox.session
def expand(session: nox.Session) -> None:
    """Print what a kernel template becomes; `-- NAME`, `-- cuda NAME`, `-- core MODULE`."""
    session.install("cython>=3.1", "numpy>=2")
    session.run("python", "tools/expand.py", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and types: ruff, mypy, cython-lint, clang-format."""
    session.install(*LINTERS, "numpy>=2")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("cython-lint", "packages")
    session.run("clang-format", "--dry-run", "-Werror", *c_sources())


@nox.session
def test(session: nox.Session) -> None:
    """Run every test on wheels, in one environment with all four packages."""
    session.run("python", "-u", "tools/pycuda_wheel.py", "--install")
    install_wheels(session, *ALL, others=TEST_TOOLS + DEMO_TOOLS)
    folders = [f"{folder}/tests" for folder in FOLDERS.values()]
    run_pytest(session, *(session.posargs or [*folders, "tests"]))


@nox.session
def matrix(session: nox.Session) -> None:
    """Run tox's cells without shares: hours. `-- -e py312-cpu` for one of them."""
    session.install("tox>=4.11")
    whole = {"PULLBACK_TEST_SHARE": "0/1", "PULLBACK_TEST_MODULES": "0/1"}
    session.run("python", "-m", "tox", "run", *session.posargs, env=whole)


@nox.session
def conform(session: nox.Session) -> None:
    """Run the shipped conformance suite on the backends of this repository, or those named."""
    example = "./examples/third_party_backend"
    install_wheels(session, "core", "cpu", others=("pytest>=8", "scipy", example))
    for device in session.posargs or ("ref", "cpu", "example"):
        options = ("--pyargs", "pullback.testing.suite", "-q", "--pullback-device", device)
        options += ("--pullback-device-strict",)
        run_pytest(session, *options)


@nox.session
def certify(session: nox.Session) -> None:
    """Compare every derivative with independent truths; write the docs' page. `-- --op NAME`."""
    install_wheels(session, "core", "cpu", others=("mpmath",))
    jobs = ("--quiet", "--jobs", str(os.cpu_count()), "--device", "cpu", "ref")
    chosen = session.posargs or ("--report", "docs/reference/certainty.md")
    session.run("python", "-m", "pullback.testing", "certify", *jobs, *chosen)


@nox.session
def fuzz(session: nox.Session) -> None:
    """Call ops with hostile arguments, compile random programs; `-- --count N --seed S`."""
    install_wheels(session, "core", "cpu", others=("pytest>=8",))
    for device in ("ref", "cpu"):
        options = session.posargs or ["--count", "100000"]
        session.run("python", "-m", "pullback.testing", "hostile", "--device", device, *options)
    options = session.posargs or ["--count", "20000"]
    session.run("python", "-m", "fuzzer.compiled", *options, env={"PYTHONPATH": "tests/parity"})
    session.env["PULLBACK_TEST_ALLOCATIONS"] = "1"
    run_pytest(session, "packages/core/tests/behaviour/test_failing_allocations.py")


@nox.session
def interrupts(session: nox.Session) -> None:
    """Interrupt every long call of the CPU backend, and print how long that takes."""
    install_wheels(session, "core", "cpu", others=("pytest>=8", "ml_dtypes"))
    session.env["PULLBACK_TEST_INTERRUPTS"] = "all"
    run_pytest(session, "packages/backend-cpu/tests/runtime/test_interrupts.py", "-q")
    session.run("python", "-m", "benchmarks.interrupts", *session.posargs)


def install_checked(session: nox.Session, *packages: str, options: tuple[str, ...]) -> None:
    """Build packages with meson options and install them into the session, not as wheels."""
    tools = ("meson-python>=0.18", "meson", "ninja", "cython>=3.1", "numpy>=2", "pluggy")
    tests = (
        "pytest>=8",
        "pytest-xdist",
        "hypothesis",
        "scipy",
        "ml_dtypes",
        "mpmath",
        "optree>=0.13",
        "safetensors>=0.8",
    )
    session.install(*tools, *tests)
    # A build must not import a core that was built so, to ask for its headers.
    headers = f"-Dpullback_include={ROOT / 'packages/core/src/pullback/include'}"
    for name in packages:
        chosen = options if name == "core" else (*options, headers)
        settings = [f"-Csetup-args={option}" for option in chosen]
        session.install("--no-build-isolation", "--no-deps", *settings, f"./{FOLDERS[name]}")


@nox.session
def bounds(session: nox.Session) -> None:
    """Run the core's tests on a build that checks indices and None in compiled code."""
    install_checked(session, "core", options=("-Dbounds_checks=true",))
    run_pytest(session, "-n", "2", *(session.posargs or ["packages/core/tests"]))


@nox.session
def sanitize(session: nox.Session) -> None:
    """Run tests of the core and the CPU backend under the address sanitizer (Linux, GCC)."""
    options = ("-Db_sanitize=address", "-Db_lundef=false", "-Dbuildtype=debugoptimized")
    install_checked(session, "core", "cpu", options=options)
    # With the C++ library, or the sanitizer cannot hand on exceptions that SciPy throws.
    libraries = [
        str(session.run("gcc", f"-print-file-name={name}", silent=True, external=True)).strip()
        for name in ("libasan.so", "libstdc++.so.6")
    ]
    session.env.update(
        LD_PRELOAD=" ".join(libraries),
        ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1",
        PYTHONMALLOC="malloc",  # else the sanitizer sees only large blocks of Python's
    )
    core = [f"packages/core/tests/{name}" for name in ("autograd", "devices", "unit")]
    folders = session.posargs or [*core, "packages/backend-cpu/tests/kernels"]
    # The sanitizer ends the process: its report must not be in a buffer of pytest's.
    run_pytest(session, "-n", "2", "--capture=sys", *folders)


@nox.session
def coverage(session: nox.Session) -> None:
    """Measure which lines of the Python sources the core's tests run; compiled code is not seen."""
    install_wheels(session, "core", "cpu", others=(*TEST_TOOLS, "coverage"))
    # Not by a plugin of pytest: ours imports the package before such a one begins to measure.
    measure = ("coverage", "run", "--source=pullback,pullback_cpu", "-m", "pytest")
    tests = session.posargs or ["packages/core/tests"]
    session.run("python", "-m", *measure, "-c", "pyproject.toml", *tests)
    session.run("python", "-m", "coverage", "report", "--skip-covered")


@nox.session
def bench(session: nox.Session) -> None:
    """Measure beside torch, NumPy, JAX; `-- --torch-python PATH` takes a torch from elsewhere."""
    given = any(argument.startswith("--torch-python") for argument in session.posargs)
    others = ("scipy", "matplotlib", "safetensors>=0.8")
    others = others if given else (*others, "torch==2.13.*")
    install_wheels(session, "core", "cpu", "profiler", others=others)
    session.run("python", "-m", "benchmarks.run", *session.posargs)


@nox.session
def growth(session: nox.Session) -> None:
    """Measure how cost grows; write the docs' page on it. `-- --plots DIR` draws it, too."""
    plots = ("matplotlib",) if "--plots" in session.posargs else ()
    install_wheels(session, "core", "cpu", others=plots)
    session.run("python", "-m", "benchmarks.growth", *session.posargs)


@nox.session
def scaling(session: nox.Session) -> None:
    """Measure training on several processes; write the docs' page. `-- --torch` compares, too."""
    torch = ("torch==2.13.*",) if "--torch" in session.posargs else ()
    packages = ("core", "cpu", "profiler", "distributed")
    install_wheels(session, *packages, others=("mpich", *torch))
    session.run("python", "-m", "benchmarks.scaling", *session.posargs)


@nox.session
def parity(session: nox.Session) -> None:
    """Compare with torch, which is installed, and with the text of the array API standard."""
    install_wheels(
        session,
        *("core", "cpu"),
        others=("pytest>=8", "torch==2.13.*", "safetensors>=0.8", "array-api==1.*"),
    )
    run_pytest(session, "tests/parity", *session.posargs)


@nox.session(venv_backend="none")
def gpu(session: nox.Session) -> None:
    """Test and measure the CUDA backend on this machine's device; write docs/gpu/REPORT.md."""
    session.run("python", "tools/gpu.py", *session.posargs, external=True)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site of the documentation into docs/_build; warnings are errors; needs Graphviz."""
    if shutil.which("dot") is None:
        session.error("the docs' graphs are drawn by Graphviz: install it (apt install graphviz)")
    session.install(*DOCS_TOOLS)
    packages = ("core", "cpu", "profiler", "distributed")
    install_wheels(session, *packages, others=("pytest>=8", "optree", "scipy"))
    shutil.rmtree(ROOT / "docs" / "_build", ignore_errors=True)
    session.run("python", "packages/core/tools/opdocs.py", "docs/reference")
    session.run("python", "-m", "benchmarks.chart", "docs/images/benchmarks.png")
    strict = ("-W", "--keep-going", "-j", "auto")
    session.run("sphinx-build", *strict, "-b", "html", "docs", "docs/_build", *session.posargs)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build all wheels into dist/ and show their sizes."""
    session.run("python", "-u", "tools/wheels.py", *session.posargs)
    for path in sorted((ROOT / "dist").glob("*.whl")):
        session.log(f"{path.stat().st_size / 1e6:7.2f} MB  {path.name}")


@nox.session
def changelog(session: nox.Session) -> None:
    """Show the next release's notes; `-- --version X` writes them into CHANGELOG.md."""
    session.install("towncrier")
    session.run("towncrier", "build", *(session.posargs or ["--draft", "--version", "next"]))
