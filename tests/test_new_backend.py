"""``python -m pullback.backend``: the package that it writes installs and passes its tests."""

import os
import subprocess
import sys

import pytest


def command(*arguments, folder=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("library", [None, "numpy"])
def test_a_new_package_passes_its_own_tests(tmp_path, library):
    options = () if library is None else ("--array-api", library)
    made = command("pullback.backend", "new", "mine", *options, folder=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "python -m tox" in made.stdout
    folder, site = tmp_path / "pullback-mine", tmp_path / "site"
    pip = command("pip", "install", "--quiet", "--no-deps", "--target", site, folder)
    assert pip.returncode == 0, pip.stderr
    paths = [str(site), os.environ.get("PYTHONPATH", "")]
    tests = command("pytest", "-q", folder=folder, PYTHONPATH=os.pathsep.join(filter(None, paths)))
    assert tests.returncode == 0, tests.stdout
    assert "17 passed" in tests.stdout


def test_a_library_whose_name_is_no_module(tmp_path):
    made = command("pullback.backend", "new", "mine", "--array-api", "cu-py", folder=tmp_path)
    assert made.returncode == 1
    assert "'cu-py' is no name of a module" in made.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["Mine", "my-device", "1st", "cpu", "ref", "größe"])
def test_names_that_no_device_can_have(tmp_path, name):
    made = command("pullback.backend", "new", name, folder=tmp_path)
    assert made.returncode == 1
    assert repr(name) in made.stderr
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "pullback-mine").mkdir()
    (tmp_path / "pullback-mine" / "precious").write_text("mine")
    made = command("pullback.backend", "new", "mine", folder=tmp_path)
    assert made.returncode == 1
    assert "is not empty" in made.stderr


def test_explain(tmp_path):
    explained = command("pullback.backend", "explain", "add", "--device", "ref")
    assert explained.returncode == 0
    assert explained.stdout.startswith("add on ref: primitive 'add'")
    widened = command("pullback.backend", "explain", "sum", "--device", "ref")
    assert "cast to another dtype first for bool, uint8" in widened.stdout
    unknown = command("pullback.backend", "explain", "addd")
    assert unknown.returncode == 1
    assert "addd" in unknown.stderr
