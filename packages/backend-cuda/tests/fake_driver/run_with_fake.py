"""Run a Python program on the fake CUDA driver: ``python run_with_fake.py PROGRAM ARGUMENTS``.

``-c TEXT`` and ``-m MODULE`` work as they do for python. These environment variables set what the
program cannot set itself before it starts: FAKE_CUDA_DEVICES (2), FAKE_CUDA_MEMORY (bytes of each),
FAKE_CUDA_DEFERRED (0, 1 or 2), FAKE_CUDA_CACHE (the folder for what is built).
"""

import runpy
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Load the fake, then run what the arguments name as ``__main__``."""
    here = str(Path(__file__).resolve().parent)
    if sys.path and sys.path[0] == here:
        del sys.path[0]
    sys.path.insert(0, str(Path(here).parent))
    import fake_driver

    del sys.path[0]
    fake_driver.load()
    if not arguments:
        raise SystemExit(__doc__)
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    elif arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, "")
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
