"""The fake driver and its libraries, in a process of their own: they meddle with every device."""

import os
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "fake_driver"
ROOT = FOLDER.parents[3]


def test_fake_driver_does_what_cuda_does(fake_cuda):
    files = sorted(map(str, FOLDER.glob("check_*.py")))
    assert len(files) == 5
    command = [
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *("-c", str(ROOT / "pyproject.toml"), "-o", "python_files=check_*.py", *files),
    ]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-1000:]
    assert int(passed[1]) > 100
