"""Run a Python program on the fake CUDA driver, with the kernels built for the CPU.

    python tests/on_fake.py -m pullback.testing --device cuda --op add
    python tests/on_fake.py -m pytest --pyargs pullback.testing.suite --pullback-device cuda

What ``fake_driver/run_with_fake.py`` says of environment variables holds here too. With
``--sanitize`` as the first argument every access of a kernel is checked by the address sanitizer.
"""

import hashlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ON_DEVICE = os.environ.get("PULLBACK_TEST_GPU") == "required"  # no fake: tests run on a device
VARIABLE = "PULLBACK_CUDA_KERNELS"


def emulation():
    """Return the module that builds kernels for the CPU."""
    path = HERE / "emulation" / "build.py"
    specification = importlib.util.spec_from_file_location("emulation_build", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def compiler() -> str | None:
    """Return the C++ compiler, or None where there is none."""
    return shutil.which(emulation().compiler())


def build_images(sanitize: bool = False) -> Path:
    """Build every family of kernels for the CPU; return the folder with their images."""
    build = emulation()
    sources = sorted(build.KERNELS.rglob("*.cu"), key=lambda path: path.stem)
    images = build.images(sources, sanitize)
    digest = hashlib.sha256(" ".join(path.stem for path in images).encode()).hexdigest()
    folder = build.cache_folder() / f"images-{digest[:16]}"
    folder.mkdir(exist_ok=True)
    for source, image in zip(sources, images, strict=True):
        link = folder / f"{source.stem}.fatbin"
        if not link.is_symlink():
            temporary = folder / f"{source.stem}.{os.getpid()}"
            temporary.symlink_to(image)
            temporary.replace(link)
    return folder


def main(arguments: list[str]) -> None:
    """Build the kernels, then hand over to the fake driver's own program."""
    sanitize = arguments[:1] == ["--sanitize"]
    if sanitize:
        del arguments[0]
        environment = emulation().sanitizer_environment()
        if os.environ.get("LD_PRELOAD") != environment["LD_PRELOAD"]:
            again = [sys.executable, str(HERE / "on_fake.py"), "--sanitize", *arguments]
            os.execve(sys.executable, again, environment)
        # What is compiled here needs no sanitizer; only what is loaded does.
        preloaded = os.environ.pop("LD_PRELOAD")
    os.environ.setdefault(VARIABLE, str(build_images(sanitize)))
    if sanitize:
        os.environ["LD_PRELOAD"] = preloaded
    sys.path.insert(0, str(HERE / "fake_driver"))
    try:
        import run_with_fake
    finally:
        del sys.path[0]
    run_with_fake.main(arguments)


if __name__ == "__main__":
    del sys.path[0]
    main(sys.argv[1:])
