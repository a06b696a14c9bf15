"""Compile the CUDA kernels ahead of time: each NAME.cu to NAME.fatbin.

    cd src/pullback_cuda
    compile_kernels.py --nvcc /usr/local/cuda/bin/nvcc --include . --out build kernels/*/*.cu

A fatbin has machine code for every architecture of TARGETS and, for later ones, the intermediate
code that the driver compiles when the kernels are loaded. Warnings are errors. A file is compiled
only if its fatbin is older than it, than a header it includes, or than this program; or if it was
made for other targets.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# The machine code of sm_80 is that of sm_86 and sm_89 too.
TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_75")
FLAGS = ("-std=c++17", "-fatbin", "-Werror", "all-warnings", "--compress-mode=size")
# All share the intermediate code of the oldest: to make that takes most of the time, and no kernel
# distinguishes architectures.
INTERMEDIATE = "75"


def sources_of(path, include, found=None):
    """Return the file and all that it includes with quotes, from its folder or ``include``."""
    found = set() if found is None else found
    found.add(path)
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"', text, re.MULTILINE):
        for folder in (path.parent, include or path.parent):
            header = folder / name
            if header.is_file() and header not in found:
                sources_of(header, include, found)
    return found


def target_flags(targets):
    """Return nvcc's flags for ``sm_90`` (machine code) and ``compute_75`` (intermediate code)."""
    made_from: dict[str, list[str]] = {}
    for target in targets:
        kind, _, number = target.partition("_")
        if kind not in ("sm", "compute") or not re.fullmatch(r"\d+[af]?", number):
            raise ValueError(f"{target!r} is no target: it is named as sm_90 or compute_75")
        source = INTERMEDIATE if kind == "sm" and not number.endswith(("a", "f")) else number
        made_from.setdefault(source, []).append(target)
    flags = []
    for source, codes in made_from.items():
        flags += ["-gencode", f"arch=compute_{source},code=[{','.join(codes)}]"]
    return flags


def is_current(path, include, output, stamp, command):
    """Whether ``output`` is newer than all it is made from, and was made by the same command."""
    try:
        if stamp.read_text(encoding="utf-8") != command:
            return False
        made = output.stat().st_mtime_ns
    except OSError:
        return False
    sources = [*sources_of(path, include), Path(__file__)]
    return all(source.stat().st_mtime_ns <= made for source in sources)


def compile_file(path, nvcc, folder, targets, include):
    """Compile one file; return its fatbin and the seconds it took, 0 where it was up to date."""
    output = folder / f"{path.stem}.fatbin"
    stamp = folder / f"{path.stem}.fatbin.command"
    include_flags = [f"-I{include}"] if include else []
    command = [os.fspath(nvcc), *FLAGS, *include_flags, *target_flags(targets), os.fspath(path)]
    if is_current(path, include, output, stamp, "\n".join(command)):
        return output, 0.0
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        made = Path(temporary) / output.name
        done = subprocess.run(
            [*command, "-o", os.fspath(made)],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": temporary},
        )
        if done.returncode != 0:
            raise RuntimeError(f"{path} does not compile:\n{done.stdout}")
        os.replace(made, output)
    stamp.write_text("\n".join(command), encoding="utf-8")
    return output, time.monotonic() - start


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="the .cu files")
    parser.add_argument("--list", action="store_true", help="print the targets and do nothing else")
    parser.add_argument("--nvcc", default="nvcc", help="the compiler")
    parser.add_argument("--out", type=Path, default=".", help="folder of the fatbins")
    parser.add_argument("--include", type=Path, help="folder that headers are named from")
    parser.add_argument("--jobs", type=int, default=1, help="files compiled at the same time")
    parser.add_argument(
        "--targets",
        type=lambda text: text.split(","),
        default=TARGETS,
        help=f"architectures, with commas between them (default: {','.join(TARGETS)})",
    )
    options = parser.parse_args(arguments)
    try:
        target_flags(options.targets)
    except ValueError as error:
        parser.error(str(error))
    if options.list:
        print("\n".join(options.targets))
        return 0
    if not options.files:
        parser.error("name the .cu files to compile")
    options.out.mkdir(parents=True, exist_ok=True)
    folder = options.out.resolve()
    include = options.include.resolve() if options.include else None
    failed = False
    with ThreadPoolExecutor(max(options.jobs, 1)) as pool:
        running = [
            pool.submit(
                compile_file, path.resolve(), options.nvcc, folder, options.targets, include
            )
            for path in options.files
        ]
        for path, result in zip(options.files, running, strict=True):
            try:
                output, seconds = result.result()
            except (OSError, RuntimeError) as error:
                print(error, file=sys.stderr)
                failed = True
                continue
            took = f"{seconds:.1f} s" if seconds else "up to date"
            print(f"{path.name}: {took}, {output.stat().st_size} bytes", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
