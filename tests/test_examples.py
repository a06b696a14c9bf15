"""Every example trains to the quality that it states, and its exit code says so."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NAMES = sorted(path.parent.name for path in ROOT.glob("examples/*/train.py"))
PARTED = ("pipeline", "tensor_parallel")  # char_transformer on several processes
LAST_LINE = re.compile(r"[a-z ]+ (-?[\d.]+)(?: nat)? \(required: at (most|least) (-?[\d.]+)\)")


def run_example(name, output, *arguments):
    command = [sys.executable, str(ROOT / "examples" / name / "train.py"), "--output", str(output)]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=600)


def check_example(result, output, code):
    """Check exit code, the result on the last line against what is required, and the picture."""
    assert result.returncode == code, result.stdout + result.stderr
    assert result.stderr == ""
    match = LAST_LINE.fullmatch(result.stdout.splitlines()[-1])
    assert match, result.stdout
    value, bound = float(match[1]), float(match[3])
    assert (value <= bound if match[2] == "most" else value >= bound) == (code == 0)
    [picture] = output.glob("*.png")
    assert picture.read_bytes().startswith(b"\x89PNG\r\n")
    assert picture.stat().st_size > 10_000


def test_examples_are_listed_with_their_pages():
    listed = (ROOT / "examples/README.md").read_text()
    assert len(NAMES) >= 8
    for name in NAMES:
        assert f"[`{name}/`]({name}/README.md)" in listed
        page = (ROOT / "examples" / name / "README.md").read_text()
        assert f"python examples/{name}/train.py" in page
        assert re.search(r"!\[.+\]\(\w+\.png\)", page)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in PARTED])
def test_example_reaches_its_quality_in_the_quick_form(name, tmp_path):
    check_example(run_example(name, tmp_path, "--quick"), tmp_path, 0)


@pytest.mark.parametrize("name", NAMES)
def test_example_fails_with_too_little_training(name, tmp_path):
    option = "--epochs" if name == "digits" else "--steps"
    check_example(run_example(name, tmp_path, "--quick", option, "1"), tmp_path, 1)


@pytest.mark.parametrize(("name", "count"), [("tensor_parallel", 4), ("pipeline", 2)])
def test_examples_of_several_processes_give_what_one_gives(name, count, tmp_path):
    mpiexec = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("no mpiexec")
    script = str(ROOT / "examples" / name / "train.py")
    command = [sys.executable, script, "--output", str(tmp_path), "--quick", "--steps", "10"]
    alone = subprocess.run(command, capture_output=True, text=True, timeout=120)
    command = [mpiexec, "-n", str(count), *command]
    together = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert together.stdout.startswith(f"{count} processes"), together.stdout + together.stderr
    last = (LAST_LINE.fullmatch(done.stdout.splitlines()[-1]) for done in (alone, together))
    assert abs(float.__sub__(*(float(match[1]) for match in last))) < 0.002


@pytest.mark.pullback_share
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_example_reaches_its_quality(name, tmp_path):
    check_example(run_example(name, tmp_path), tmp_path, 0)


def test_digits_say_where_time_goes(tmp_path):
    result = run_example("digits", tmp_path, "--quick")
    shares = re.findall(r"\b(data|forward|backward|update) (\d+)%", result.stdout)
    assert [name for name, _ in shares] == ["data", "forward", "backward", "update"]
    assert 98 <= sum(int(share) for _, share in shares) <= 102
    assert "pullback::convolution_backward_weight" in result.stdout
    assert re.search(r"a step takes \d+\.\d\d ms, compiled \d+\.\d\d ms", result.stdout)
    assert {path.name for path in tmp_path.iterdir()} == {"curves.png", "report.html", "trace.json"}


def test_digits_refuse_no_epochs(tmp_path):
    result = run_example("digits", tmp_path, "--epochs", "0")
    assert result.returncode == 2
    assert "--epochs must be at least 1" in result.stderr
