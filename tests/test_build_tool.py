"""tools/wheels.py builds what changed and nothing else."""

import importlib.util

import pytest


@pytest.fixture
def tool(root, tmp_path, monkeypatch):
    """The tool on a made-up repository, with pip replaced by a counter."""
    spec = importlib.util.spec_from_file_location("wheels_tool", root / "tools/wheels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, text in {"core/src/a.py": "1", "core/include/a.h": "1", "cpu/src/b.py": "1"}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    packages = {
        "core": module.Package("pullback", "core", False),
        "cpu": module.Package("pullback-cpu", "cpu", True, ("core/include",)),
    }
    module.calls = []

    def run_pip(arguments, dist):
        if arguments[0] == "wheel":
            folder = module.Path(arguments[arguments.index("-w") + 1])
            folder.mkdir()
            name = module.Path(arguments[-1]).name
            module.calls.append(name)
            (folder / f"pullback_{name}-0-py3-none-any.whl").write_text(str(len(module.calls)))

    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PACKAGES", packages)
    monkeypatch.setattr(module, "run_pip", run_pip)
    monkeypatch.setattr("sys.argv", ["wheels.py", "--dist", str(tmp_path / "dist")])
    return module


def test_wheels_are_built_once(tool):
    tool.main()
    tool.main()
    assert tool.calls == ["core", "cpu"]


def test_changed_source_is_built_again(tool):
    tool.main()
    (tool.ROOT / "core/src/a.py").write_text("2")
    tool.main()
    assert tool.calls == ["core", "cpu", "core"]


def test_changed_header_rebuilds_what_uses_it(tool):
    tool.main()
    (tool.ROOT / "core/include/a.h").write_text("2")
    tool.main()
    assert tool.calls == ["core", "cpu", "core", "cpu"]


def test_renamed_source_is_built_again(tool):
    tool.main()
    (tool.ROOT / "cpu/src/b.py").rename(tool.ROOT / "cpu/src/c.py")
    tool.main()
    assert tool.calls == ["core", "cpu", "cpu"]


def test_tests_and_caches_do_not_count(tool):
    tool.main()
    for name in ("core/tests/test_a.py", "core/src/__pycache__/a.pyc", "core/build/x.c"):
        (tool.ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (tool.ROOT / name).write_text("")
    tool.main()
    assert tool.calls == ["core", "cpu"]


def test_removed_wheel_or_broken_stamp_is_built_again(tool):
    tool.main()
    (tool.ROOT / "dist/pullback_core-0-py3-none-any.whl").unlink()
    tool.main()
    for stamp in (tool.ROOT / "dist/.stamps").glob("pullback-cpu*.json"):
        stamp.write_text("{")
    tool.main()
    assert tool.calls == ["core", "cpu", "core", "cpu"]


def test_unknown_package_is_refused(tool, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["wheels.py", "gpu"])
    with pytest.raises(SystemExit):
        tool.main()
    assert "unknown package gpu" in capsys.readouterr().err


def test_a_path_with_spaces_stays_one_link(tool, tmp_path):
    links = tool.pip_environment(tmp_path / "a b")["PIP_FIND_LINKS"].split()
    assert links[0].startswith("file://") and links[0].endswith("a%20b")
