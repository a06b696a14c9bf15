"""Build CUDA source into images that run on the CPU, and run kernels of such an image.

``image(path)`` compiles a .cu file with g++ and emulation.h into a shared library and returns its
path. The library stays in a cache folder under a name that depends on the source, on the headers
it includes, on the emulation and on the flags, so an image is compiled once.

    kernels = Kernels(image("fill.cu"))
    kernels.launch("fill_4", 8, 256, 0, arguments)  # arguments: the struct as bytes

As a program: ``python build.py [--sanitize] [--cache FOLDER] [--jobs N] FILES...``.
"""

import argparse
import contextlib
import ctypes
import fcntl
import functools
import hashlib
import os
import platform
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

KEPT = 16  # images of the same name in the cache
HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent.parent / "src" / "pullback_cuda"
KERNELS = PACKAGE / "kernels"
EMULATION = sorted([*HERE.glob("*.h"), HERE / "shared.ld"])
FLAGS = (
    *("-std=c++17", "-O1", "-g1", "-x", "c++", "-DPULLBACK_EMULATION", "-fPIC", "-w"),
    # Two images in a process share nothing, and no list of finished threads is on a stack.
    *("-fvisibility=hidden", "-fno-gnu-unique", "-fno-exceptions", "-fno-rtti"),
    *("-fdata-sections", "-fno-math-errno", "-U_FORTIFY_SOURCE"),
)
# As nvcc does: a product is fused with the sum that it goes into, where the processor can do that.
FUSED = ("-ffp-contract=fast", "-fexpensive-optimizations")
CHECKS = "alignment,bounds,shift-exponent,integer-divide-by-zero,float-cast-overflow"
CHECK_FLAGS = (f"-fsanitize={CHECKS}", f"-fno-sanitize-recover={CHECKS}")  # see undefined.h
LINK_FLAGS = ("-shared", f"-Wl,-T,{HERE / 'shared.ld'}", "-lm", "-lpthread")
SANITIZE = ("-fsanitize=address", "-fno-omit-frame-pointer")


class BuildError(Exception):
    """The compiler rejected the source; the text is the compiler's."""


def compiler():
    """Return the C++ compiler's name."""
    return os.environ.get("PULLBACK_EMULATION_CXX", "g++")


@functools.lru_cache
def rounding_flags():
    """Return the flags for products that go into sums."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return FUSED if platform.machine() in ("aarch64", "arm64") else ("-ffp-contract=off",)
    try:
        able = " fma " in Path("/proc/cpuinfo").read_text()
    except OSError:
        able = False
    return (*FUSED, "-mfma") if able else ("-ffp-contract=off",)


@functools.lru_cache
def compiler_version(name):
    return subprocess.run([name, "--version"], capture_output=True, check=True).stdout


def cache_folder():
    named = os.environ.get("PULLBACK_EMULATION_CACHE")
    return Path(named or Path(tempfile.gettempdir()) / f"pullback-emulation-{os.getuid()}")


def included(text, folders, found=None):
    """Return the contents of all files that ``text`` includes with quotes, by their path."""
    found = {} if found is None else found
    for name in re.findall(rb'^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"', text, re.MULTILINE):
        for folder in folders:
            path = folder / os.fsdecode(name)
            if path.is_file():
                if path not in found:
                    found[path] = path.read_bytes()
                    included(found[path], [path.parent, *folders], found)
                break
    return found


def digest_of(text, folders, flags):
    """Return a name that changes with everything that the image depends on."""
    parts = [text, compiler_version(compiler()), repr(flags).encode()]
    parts += [path.read_bytes() for path in EMULATION]
    for path, content in sorted(included(text, folders).items()):
        parts += [os.fsencode(path), content]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:24]


def run_compiler(arguments, text=b""):
    done = subprocess.run([compiler(), *arguments], input=text, capture_output=True)
    if done.returncode != 0:
        raise BuildError(done.stderr.decode(errors="replace"))


def compile_text(text, name, folders, sanitize, cache):
    """Compile source to an image unless the cache has it; safe in several processes."""
    sanitize = SANITIZE if sanitize else ()
    flags = (*FLAGS, *rounding_flags(), *CHECK_FLAGS, *sanitize)
    cache = Path(cache or cache_folder())
    cache.mkdir(parents=True, exist_ok=True)
    folders = [*folders, HERE]
    target = cache / f"{name}-{digest_of(text, folders, (flags, LINK_FLAGS))}.so"
    if target.exists():
        os.utime(target)
        return target
    with open(cache / f"{target.stem}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if target.exists():
            return target
        with tempfile.TemporaryDirectory(dir=cache) as temporary:
            compiled, linked = Path(temporary) / "image.o", Path(temporary) / "image.so"
            include = [f"-I{folder}" for folder in folders]
            run_compiler([*flags, *include, "-c", "-", "-o", compiled], text)
            # Linked apart: else the compiler would add a library for its checks.
            run_compiler([*sanitize, compiled, *LINK_FLAGS, "-o", linked])
            os.replace(linked, target)
        (cache / f"{target.stem}.lock").unlink(missing_ok=True)
        forget_old_images(cache, name)
    return target


def forget_old_images(cache, name):
    """Remove the least recently used ones; a process that has loaded one keeps it."""
    found = []
    for path in cache.glob(f"{name}-{'[0-9a-f]' * 24}.so"):
        with contextlib.suppress(FileNotFoundError):  # another process removes as well
            found.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(found)[:-KEPT]:
        path.unlink(missing_ok=True)


def image(path, sanitize=False, cache=None):
    """Compile a .cu file and return the path of the image.

    With ``sanitize`` the address sanitizer watches every access; the process that loads the image
    must then run with ``sanitizer_environment()``.
    """
    path = Path(path).resolve()
    text = b'#line 1 "%s"\n' % os.fsencode(path) + path.read_bytes()
    return compile_text(text, path.stem, [path.parent, PACKAGE], sanitize, cache)


def image_of_text(text, name="text", sanitize=False, cache=None, folders=()):
    """Compile CUDA source and return the path of the image.

    Kernels may be defined by KERNEL, if the text includes "kernel.cuh", or be ``__global__``
    functions with any parameters.
    """
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    plain = re.sub(r"__launch_bounds__\s*\([^)]*\)", " ", plain)
    plain = re.sub(r"template\s*<[^;{}]*>\s*__global__", " ", plain)  # these have no plain name
    functions = re.findall(
        r"\b__global__\b[^;{}]*?\bvoid\b[^;{}()]*?(\w+)\s*\([^;{}]*?\)\s*\{", plain
    )
    ends = "".join(f"\nEMULATED_FUNCTION({function})" for function in functions)
    source = f'#include "emulation.h"\n#line 1 "{name}.cu"\n{text}\n{ends}\n'
    return compile_text(source.encode(), name, [*map(Path, folders), PACKAGE], sanitize, cache)


def images(paths, sanitize=False, cache=None, jobs=2):
    """Compile several .cu files, ``jobs`` of them in parallel; return the paths of the images."""
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda path: image(path, sanitize, cache), paths))


def sanitizer_environment():
    """Return the environment variables for a process that loads an image with the sanitizer."""
    found = subprocess.run(
        [compiler(), "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    return {
        **os.environ,
        "LD_PRELOAD": os.path.realpath(found.stdout.strip()),
        "ASAN_OPTIONS": "detect_stack_use_after_return=0:detect_leaks=0",
    }


class Record(ctypes.Structure):
    """What an image says of a kernel: ``emulated_kernel`` of kernels.h."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("argument_size", ctypes.c_size_t),
        (
            "run",
            ctypes.CFUNCTYPE(
                None,
                ctypes.c_char_p,
                ctypes.POINTER(ctypes.c_uint),
                ctypes.POINTER(ctypes.c_uint),
                ctypes.c_size_t,
            ),
        ),
    ]


class Kernels:
    """The kernels of an image, loaded into this process."""

    def __init__(self, path):
        self.library = ctypes.CDLL(os.fspath(path))
        listed = self.library.emulated_kernels
        listed.restype = ctypes.POINTER(Record)
        count = ctypes.c_size_t()
        records = listed(ctypes.byref(count))
        self.records = {records[i].name.decode(): records[i] for i in range(count.value)}

    def __iter__(self):
        return iter(self.records)

    def reverse(self, reversed=True):
        """Run blocks, and the threads of a block, from the last to the first."""
        self.library.emulated_reverse(int(reversed))

    def launch(self, name, grid, block, shared, arguments):
        """Run a kernel; grid and block are a number or a tuple of up to three numbers.

        ``arguments`` is the struct of the kernel as bytes, or anything with such a buffer: a
        ctypes structure, a NumPy record.
        """
        record = self.records[name]
        arguments = bytes(arguments)
        if len(arguments) != record.argument_size:
            raise ValueError(
                f"{name} takes {record.argument_size} bytes of arguments, not {len(arguments)}"
            )
        sizes = []
        for size in (grid, block):
            size = tuple(size) if isinstance(size, (tuple, list)) else (size,)
            sizes.append((ctypes.c_uint * 3)(*(size + (1, 1))[:3]))
        record.run(arguments, *sizes, shared)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--sanitize", action="store_true", help="with the address sanitizer")
    parser.add_argument("--cache", type=Path, help="folder of the images")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at once")
    options = parser.parse_args(arguments)
    try:
        for path in images(options.files, options.sanitize, options.cache, options.jobs):
            print(path)
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
