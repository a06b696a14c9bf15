"""tools/gpu.py: what it installs is found, and what it finds is written down."""

import importlib.metadata
import importlib.util
import json

import pytest

ABOUT = {
    "device": "GPU X",
    "memory": 80 * 2**30,
    "capability": "9.0",
    "multiprocessors": 132,
    "driver": 13000,
    "pycuda": "2026.1",
    "python": "3.12.1",
    "numpy": "2.2",
    "torch": "2.13",
    "cupy": None,
    "nvmath": "1.0",
}


@pytest.fixture
def tool(root, tmp_path, monkeypatch):
    """The tool, which writes to a folder of its own."""
    spec = importlib.util.spec_from_file_location("gpu_tool", root / "tools/gpu.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "BUILD", tmp_path)
    monkeypatch.setattr(module, "SITE", tmp_path / "site")
    module.SITE.mkdir()
    return module


def answer(monkeypatch, tool, *texts, code=0):
    """Let every program that is run print the next text."""
    left, commands = list(texts), []

    def run(command, **options):
        commands.append(command)
        return tool.subprocess.CompletedProcess(command, code, stdout=left.pop(0))

    monkeypatch.setattr(tool, "run", run)
    return commands


def test_what_is_installed_is_found_as_a_distribution(tool):
    for source, _ in tool.PACKAGES.values():
        tool.write_metadata(source)
    found = {
        made.metadata["Name"]: made
        for made in importlib.metadata.distributions(path=[str(tool.SITE)])
    }
    assert sorted(found) == ["pullback", "pullback-cpu", "pullback-cuda", "pullback-profiler"]
    (backend,) = found["pullback-cuda"].entry_points.select(group="pullback.backends")
    assert (backend.name, backend.value) == ("cuda", "pullback_cuda.plugin")
    assert found["pullback"].entry_points.select(group="pytest11")
    assert all(made.version.count(".") == 2 for made in found.values())


def test_report_has_all_parts(tool, tmp_path):
    parts = {
        "build": "60 s",
        "tests": "9 passed in 3s",
        "sanitizer": [["memcheck", "ERROR SUMMARY: 0 errors"]],
        "table": "| row |\n| --- |\n| elementwise/copy |\n",
    }
    tool.write_report(tmp_path / "REPORT.md", ABOUT, parts)
    text = (tmp_path / "REPORT.md").read_text()
    for line in (
        "| device | GPU X, compute capability 9.0, 132 multiprocessors, 80 GiB |",
        "| driver | 13000 |",
        "| torch | 2.13 |",
        "| cupy | not there |",
        "| build | 60 s |",
        "- compute-sanitizer, memcheck: ERROR SUMMARY: 0 errors",
        "| elementwise/copy |",
    ):
        assert f"\n{line}\n" in text
    assert "`PULLBACK_TEST_GPU=required`: 9 passed in 3s." in text


def test_report_says_what_was_not_run(tool, tmp_path):
    tool.write_report(tmp_path / "REPORT.md", ABOUT, {})
    text = (tmp_path / "REPORT.md").read_text()
    assert "| build | not run |" in text
    assert "`PULLBACK_TEST_GPU=required`: not run." in text
    assert text.rstrip().endswith("Not run.")


def test_tests_that_fail_are_reported(tool, monkeypatch):
    answer(monkeypatch, tool, "F.\n=== 1 failed, 1 passed in 2s ===\n", code=1)
    assert tool.test("-k", "add") == (1, "1 failed, 1 passed in 2s")


def test_sanitizer_tells_its_summary(tool, monkeypatch):
    monkeypatch.setattr(tool.shutil, "which", lambda name: f"/bin/{name}")
    commands = answer(
        monkeypatch,
        tool,
        "x\n========= ERROR SUMMARY: 2 errors\n",
        "========= RACECHECK SUMMARY: 0 hazards displayed\n",
    )
    assert tool.sanitize() == [
        ("memcheck", "ERROR SUMMARY: 2 errors"),
        ("racecheck", "RACECHECK SUMMARY: 0 hazards displayed"),
    ]
    assert commands[0][:3] == ["/bin/compute-sanitizer", "--tool", "memcheck"]
    monkeypatch.setattr(tool.shutil, "which", lambda name: None)
    assert tool.sanitize() == [("compute-sanitizer", "not found")]


def test_benchmarks_that_fail_are_reported(tool, monkeypatch):
    answer(monkeypatch, tool, "", code=3)
    assert tool.measure(quick=True) == ("The benchmarks failed with exit code 3.", {})


def test_steps_one_by_one_make_one_report(tool, monkeypatch, tmp_path):
    report = tmp_path / "report.md"
    (tmp_path / "figures.json").write_text("{}")
    for steps, texts in (
        (["test"], [json.dumps(ABOUT), "5 passed in 1s"]),
        (["measure"], [json.dumps(ABOUT), "| a table |"]),
    ):
        answer(monkeypatch, tool, *texts)
        monkeypatch.setattr(
            "sys.argv", ["gpu.py", "--report", str(report), "--steps", *steps, "--quick"]
        )
        with pytest.raises(SystemExit) as ended:
            tool.main()
        assert ended.value.code == 0
    assert "5 passed in 1s." in report.read_text()
    assert "| a table |" in report.read_text()
