"""tools/wheels.py builds what changed and nothing else."""

import importlib.util
import sys

import pytest


@pytest.fixture
def tool(root, tmp_path, monkeypatch):
    """The tool on a made-up repository, with builds replaced by a counter."""
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
    module.options = []

    def run_build(package, target, work, environment, progress):
        name = package.folder
        module.calls.append(name)
        module.options.extend(package.options)
        if name in module.failing:
            raise module.BuildError("[3/9] Compiling C object a.c.o\nno such variable")
        work.mkdir(parents=True, exist_ok=True)
        target.mkdir()
        (target / f"pullback_{name}-0-py3-none-any.whl").write_text(str(len(module.calls)))

    module.failing = set()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "PACKAGES", packages)
    monkeypatch.setattr(module, "run_build", run_build)
    monkeypatch.setattr(module, "build_environment", lambda folder, dist: {})
    monkeypatch.setattr("sys.argv", ["wheels.py", "--dist", str(tmp_path / "dist")])
    return module


def test_wheels_are_built_once(tool):
    tool.main()
    tool.main()
    assert sorted(tool.calls) == ["core", "cpu"]


def test_changed_source_is_built_again(tool):
    tool.main()
    (tool.ROOT / "core/src/a.py").write_text("2")
    tool.main()
    assert tool.calls[2:] == ["core"]


def test_changed_header_rebuilds_what_uses_it(tool):
    tool.main()
    (tool.ROOT / "core/include/a.h").write_text("2")
    tool.main()
    assert sorted(tool.calls[2:]) == ["core", "cpu"]


def test_renamed_source_is_built_again(tool):
    tool.main()
    (tool.ROOT / "cpu/src/b.py").rename(tool.ROOT / "cpu/src/c.py")
    tool.main()
    assert tool.calls[2:] == ["cpu"]


def test_tests_and_caches_do_not_count(tool):
    tool.main()
    for name in ("core/tests/test_a.py", "core/src/__pycache__/a.pyc", "core/build/x.c"):
        (tool.ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (tool.ROOT / name).write_text("")
    tool.main()
    assert sorted(tool.calls) == ["core", "cpu"]


def test_removed_wheel_or_broken_stamp_is_built_again(tool):
    tool.main()
    (tool.ROOT / "dist/pullback_core-0-py3-none-any.whl").unlink()
    tool.main()
    for stamp in (tool.ROOT / "dist/.stamps").glob("pullback-cpu*.json"):
        stamp.write_text("{")
    tool.main()
    assert sorted(tool.calls[2:]) == ["core", "cpu"]


def test_other_architectures_are_built_again(tool, monkeypatch):
    tool.PACKAGES["cuda"] = tool.Package("pullback-cuda", "cpu", True, (), ("architectures=",))
    tool.main()
    monkeypatch.setattr("sys.argv", [*sys.argv, "cuda", "--architectures", "sm_90"])
    tool.main()
    tool.main()
    assert len(tool.calls) == 4
    assert tool.options == ["architectures=", "architectures=sm_90"]


def test_unknown_package_is_refused(tool, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["wheels.py", "gpu"])
    with pytest.raises(SystemExit):
        tool.main()
    assert "unknown package gpu" in capsys.readouterr().err


def test_a_path_with_spaces_stays_one_link(tool, tmp_path):
    links = tool.pip_environment(tmp_path / "a b")["PIP_FIND_LINKS"].split()
    assert links[0].startswith("file://") and links[0].endswith("a%20b")


def test_a_backend_alone_needs_the_core_too(tool, monkeypatch):
    monkeypatch.setattr("sys.argv", [*sys.argv, "cpu"])
    tool.main()
    assert sorted(tool.calls) == ["core", "cpu"]


def test_a_failed_build_shows_its_output_and_is_tried_again(tool, capsys):
    tool.failing = {"cpu"}
    with pytest.raises(SystemExit, match="no such variable"):
        tool.main()
    assert "pullback-cpu was not built" in capsys.readouterr().out
    tool.failing = set()
    tool.main()
    assert tool.calls[2:] == ["cpu"]  # the core's wheel was kept


def test_a_build_folder_that_cannot_be_configured_is_made_anew(tool, monkeypatch):
    tool.main()
    (tool.ROOT / "cpu/src/b.py").write_text("2")
    build, refused = tool.run_build, []

    def run_build(package, target, work, *rest):
        if work.exists():
            refused.append(work)
            raise tool.BuildError("meson.build:1: ERROR: an older version was here")
        build(package, target, work, *rest)

    monkeypatch.setattr(tool, "run_build", run_build)
    tool.main()
    assert tool.calls[2:] == ["cpu"] and len(refused) == 1


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            "[9/21] Compiling C object scan_avx2.cpython-311.so.p/meson-generated_.._scan.c.o",
            "scan_avx2",
        ),
        ("[9/21] Linking target src/a/recorder.cpython-311-x86_64-linux-gnu.so", "recorder"),
        ("[9/21] Generating src/pullback/_c.ops with a custom command", "_c.ops"),
    ],
)
def test_progress_names_what_is_built(tool, capsys, line, shown):
    progress = tool.Progress(interval=0)
    progress.report("pullback", "[1/10] Compiling C object first.c.o")
    progress.report("pullback_cpu", line)
    progress.report("pullback_cpu", "The Meson build system")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"[10/31] pullback_cpu {shown}"


def test_a_terminal_has_one_line_of_progress(tool, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    progress = tool.Progress()
    for number in range(1, 4):
        progress.report("pullback", f"[{number}/3] Compiling C object first.c.o")
    progress.show("built", end=True)
    text = capsys.readouterr().out
    assert text.count("\n") == 1 and text.endswith("\rbuilt\n") and "[2/3] pullback first" in text
