"""The examples do what they say."""

import subprocess
import sys

import pytest


def run_digits(root, output, *arguments):
    command = [sys.executable, str(root / "examples/digits/train.py"), "--output", str(output)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_digits_reach_the_required_accuracy(root, tmp_path):
    result = run_digits(root, tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    last = result.stdout.strip().splitlines()[-1]
    assert last.startswith("test accuracy ")
    assert float(last.split()[2]) >= 0.97
    for phase in ("data", "forward", "backward", "update"):
        assert phase in result.stdout
    picture = (tmp_path / "curves.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n") and len(picture) > 5_000


def test_digits_fail_below_the_required_accuracy(root, tmp_path):
    result = run_digits(root, tmp_path, "--epochs", "1")
    assert result.returncode == 1, result.stdout + result.stderr
    assert (tmp_path / "curves.png").exists()


def test_digits_refuse_no_epochs(root, tmp_path):
    result = run_digits(root, tmp_path, "--epochs", "0")
    assert result.returncode == 2
    assert "--epochs must be at least 1" in result.stderr
