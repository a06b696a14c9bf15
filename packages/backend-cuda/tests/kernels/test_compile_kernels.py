"""The tool that compiles the kernels ahead of time, with a stand-in for nvcc and with nvcc."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "compile_kernels.py"
PACKAGE = ROOT / "src" / "pullback_cuda"

FAKE_NVCC = """#!{python}
import sys
arguments = sys.argv[1:]
source, output = arguments[-3], arguments[-1]
text = open(source).read()
if "wrong" in text:
    print(source + ": wrong is wrong")
    sys.exit(2)
open(output, "w").write(" ".join(arguments[:-3]))
"""


def find_nvcc():
    return shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


@pytest.fixture
def compile_in(tmp_path):
    """Return a function that runs the tool with the stand-in and returns what it printed."""
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(FAKE_NVCC.format(python=sys.executable))
    nvcc.chmod(0o755)

    def run(*files, code=0, arguments=()):
        out = tmp_path / "out"
        done = subprocess.run(
            [sys.executable, TOOL, "--nvcc", nvcc, "--out", out, *arguments, *files],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    return run


def make_older(*paths):
    for path in paths:
        os.utime(path, (1, 1))


def test_all_targets_by_default(tmp_path, compile_in):
    (tmp_path / "own.cu").write_text("")
    said = compile_in("own.cu")
    assert said.startswith("own.cu: 0.") and said.endswith(" bytes\n")
    assert (tmp_path / "out" / "own.fatbin").read_text() == (
        "-std=c++17 -fatbin -Werror all-warnings --compress-mode=size"
        " -gencode arch=compute_75,code=[sm_75,sm_80,sm_90,sm_100,sm_120,compute_75]"
    )


def test_chosen_targets(tmp_path, compile_in):
    (tmp_path / "own.cu").write_text("")
    compile_in("own.cu", arguments=["--targets", "sm_89,compute_90,sm_103a"])
    assert (
        (tmp_path / "out" / "own.fatbin")
        .read_text()
        .endswith(
            " -gencode arch=compute_75,code=[sm_89] -gencode arch=compute_90,code=[compute_90]"
            " -gencode arch=compute_103a,code=[sm_103a]"
        )
    )
    said = compile_in("own.cu", code=2, arguments=["--targets", "sm_90,gfx90a"])
    assert "'gfx90a' is no target: it is named as sm_90 or compute_75" in said


def test_what_is_up_to_date_stays(tmp_path, compile_in):
    for name, text in [
        ("own.cu", '#include "own.h"\n'),
        ("own.h", '  #  include "deep.h"\n#include <stdint.h>\n#include "nowhere.h"\n'),
        ("deep.h", '#include "own.h"\n'),
        ("other.cu", ""),
    ]:
        (tmp_path / name).write_text(text)
    sources = [tmp_path / name for name in ["own.cu", "own.h", "deep.h", "other.cu"]]
    make_older(*sources)
    assert "up to date" not in compile_in("own.cu", "other.cu", arguments=["--jobs", "2"])
    assert compile_in("own.cu", "other.cu").count("up to date") == 2
    for path in sources[:3]:
        path.touch()
        said = compile_in("own.cu", "other.cu").split("\n")
        assert "up to date" not in said[0] and "up to date" in said[1]
        make_older(path)
    assert "up to date" not in compile_in("own.cu", arguments=["--targets", "sm_90"])
    (tmp_path / "out" / "own.fatbin").unlink()
    assert "up to date" not in compile_in("own.cu", arguments=["--targets", "sm_90"])


def test_headers_are_looked_for_in_the_folder_that_is_named(tmp_path, compile_in):
    (tmp_path / "own.cu").write_text('#include "common/own.h"\n')
    header = tmp_path / "headers" / "common" / "own.h"
    header.parent.mkdir(parents=True)
    header.write_text("")
    make_older(tmp_path / "own.cu", header)
    include = ["--include", str(tmp_path / "headers")]
    assert "up to date" not in compile_in("own.cu", arguments=include)
    assert f"-I{tmp_path / 'headers'}" in (tmp_path / "out" / "own.fatbin").read_text()
    assert "up to date" in compile_in("own.cu", arguments=include)
    header.touch()
    assert "up to date" not in compile_in("own.cu", arguments=include)


def test_a_file_that_does_not_compile_leaves_nothing(tmp_path, compile_in):
    (tmp_path / "bad.cu").write_text("wrong")
    (tmp_path / "own.cu").write_text("")
    said = compile_in("bad.cu", "own.cu", code=1)
    assert "bad.cu does not compile:\n" in said and "wrong is wrong" in said
    assert "own.cu: " in said
    assert sorted(os.listdir(tmp_path / "out")) == ["own.fatbin", "own.fatbin.command"]
    (tmp_path / "own.cu").write_text("wrong")
    compile_in("own.cu", code=1)
    assert (tmp_path / "out" / "own.fatbin").exists()
    assert "does not compile" in compile_in("own.cu", code=1)


def test_a_compiler_that_is_not_there(tmp_path, compile_in):
    (tmp_path / "own.cu").write_text("")
    assert "No such file" in compile_in("own.cu", code=1, arguments=["--nvcc", "no-nvcc"])


@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")
def test_the_header_compiles_for_the_oldest_and_the_newest_target(tmp_path):
    source = tmp_path / "own.cu"
    source.write_text("""
#include "kernels/common/kernel.cuh"
struct own_arguments { float *out; int64_t size; void *failure; };
KERNEL(own, own_arguments) {
    DYNAMIC_SHARED(float, all);
    all[threadIdx.x] = INFINITY;
    __syncthreads();
    if (args.size < INT64_MAX - 1)
        report(args.failure, FAILURE_COUNT, PB_E_RUNTIME, args.size, INT32_MIN);
    args.out[threadIdx.x] = all[0];
}
""")
    command = [sys.executable, TOOL, "--nvcc", find_nvcc(), "--out", tmp_path]
    command += ["--include", PACKAGE]
    subprocess.run([*command, "--targets", "sm_75,sm_120,compute_75", source], check=True)
    assert (tmp_path / "own.fatbin").read_bytes()[:4] == bytes.fromhex("50ed55ba")


@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")
def test_hot_kernels_load_16_bytes_and_keep_everything_in_registers(tmp_path):
    """Properties that cost bandwidth on a device, as far as the compiler reports them."""
    source = tmp_path / "own.cu"
    source.write_text("""
#include "kernels/common/kernel.cuh"
#include "kernels/common/elementwise_driver.cuh"
BINARY(add_float, floats, x + y)
BINARY(add_double, doubles, x + y)
UNARY(half_float, floats, x / 2)
""")
    command = [find_nvcc(), "-std=c++17", "-arch=sm_90", f"-I{PACKAGE}", source]
    subprocess.run([*command, "-ptx", "-o", tmp_path / "own.ptx"], check=True)
    kernels = re.split(r"\.entry ", (tmp_path / "own.ptx").read_text())[1:]
    assert [text.partition("(")[0] for text in kernels] == ["add_float", "add_double", "half_float"]
    for text, width in zip(kernels, ("v4", "v2", "v4"), strict=True):
        assert re.search(rf"ld\.global[.\w]*\.{width}\.", text)
        assert re.search(rf"st\.global[.\w]*\.{width}\.", text)
    done = subprocess.run(
        [*command, "-cubin", "-Xptxas", "-v", "-o", tmp_path / "own.cubin"],
        check=True,
        capture_output=True,
        text=True,
    )
    usage = re.findall(
        r"(\d+) bytes stack frame, (\d+) bytes spill.*\n.*Used (\d+) registers", done.stderr
    )
    assert len(usage) == 3
    for stack, spilled, registers in usage:
        assert (int(stack), int(spilled)) == (0, 0)
        assert int(registers) <= 64  # four blocks of 256 threads on a multiprocessor
