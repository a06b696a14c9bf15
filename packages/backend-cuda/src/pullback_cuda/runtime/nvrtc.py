"""Compile CUDA text on this machine: kernels that the wheel lacks, and those of users.

NVRTC is tried first, which needs no toolkit (``pip install pullback-cuda[nvrtc]``), then nvcc.
Images are kept in the user's cache folder, under a digest of the text, the headers and options.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

NO_COMPILER = (
    "{name}: the cuda device needs a compiler for this, and there is none ({reason}): run `pip "
    "install pullback-cuda[nvrtc]`, or put the CUDA toolkit's nvcc on PATH"
)
OPTIONS = ("--std=c++17",)
PACKAGE = Path(__file__).parents[1]  # headers are named from here
KERNELS = PACKAGE / "kernels"


class CompileError(RuntimeError):
    """The compiler rejected the text; the message is the compiler's."""


def compile_family(family: str, device) -> bytes:
    """Return the image of a family of kernels, from its source in this package.

    Raises: RuntimeError where there is no compiler, CompileError where it fails.
    """
    (path,) = KERNELS.rglob(f"{family}.cu")
    return compile_text(path.read_text(), path.name, device.device.compute_capability())


def compile_text(text: str, name: str, capability: tuple[int, int]) -> bytes:
    """Return the image of CUDA text for a compute capability.

    The text may include the headers of this package's kernels. Raises: RuntimeError where there is
    no compiler, CompileError where it fails.
    """
    architecture = f"sm_{capability[0]}{capability[1]}"
    kept = _cache_folder() / f"{Path(name).stem[:60]}-{architecture}-{_digest(text)}.cubin"
    if kept.is_file():
        return kept.read_bytes()
    image = _compile(text, name, architecture)
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        temporary = kept.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(image)
        temporary.replace(kept)
    except OSError:
        pass  # it cannot be kept: compile it again next time
    return image


def _cache_folder() -> Path:
    from platformdirs import user_cache_dir  # comes with pycuda

    return Path(user_cache_dir("pullback-cuda", appauthor=False))


def _digest(text: str) -> str:
    digest = hashlib.sha256(repr(OPTIONS).encode())
    for path in sorted((*PACKAGE.rglob("*.cuh"), *PACKAGE.rglob("*.h"))):
        digest.update(path.read_bytes())
    digest.update(text.encode())
    return digest.hexdigest()[:32]


def _compile(text: str, name: str, architecture: str) -> bytes:
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except Exception as reason:  # the package, or the library that it looks for, is not there
        return _compile_by_nvcc(text, name, architecture, reason)
    return _compile_by_nvrtc(nvrtc, text, name, architecture)


def _compile_by_nvrtc(nvrtc, text: str, name: str, architecture: str) -> bytes:
    def checked(result):
        code, *values = result
        if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise CompileError(f"{name}: NVRTC failed: {code}")
        return values[0] if values else None

    # Without the last one NVRTC takes lambdas in device code for functions of the host.
    options = [
        *OPTIONS,
        f"--gpu-architecture={architecture}",
        f"--include-path={PACKAGE}",
        "-default-device",
    ]
    program = checked(nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], []))
    encoded = [option.encode() for option in options]
    (code,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    if code != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = bytearray(checked(nvrtc.nvrtcGetProgramLogSize(program)))
        checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise CompileError(f"{name} does not compile:\n{log.rstrip(bytes(1)).decode()}")
    image = bytearray(checked(nvrtc.nvrtcGetCUBINSize(program)))
    checked(nvrtc.nvrtcGetCUBIN(program, image))
    nvrtc.nvrtcDestroyProgram(program)
    return bytes(image)


def _compile_by_nvcc(text: str, name: str, architecture: str, reason: Exception) -> bytes:
    import pycuda.compiler
    import pycuda.driver

    try:
        return pycuda.compiler.compile(
            text,
            options=list(OPTIONS),
            no_extern_c=True,
            arch=architecture,
            cache_dir=False,
            include_dirs=[str(PACKAGE)],
        )
    except pycuda.driver.CompileError as error:
        raise CompileError(f"{name} does not compile:\n{error.stderr}") from error
    except OSError as error:
        raise RuntimeError(NO_COMPILER.format(name=name, reason=f"{reason}; {error}")) from error
