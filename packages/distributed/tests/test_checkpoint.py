"""Checkpoints between jobs of different sizes, and what is there after a crash."""

import doctest
import errno
import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pullback
from pullback_distributed import checkpoint as dcp
from pullback_distributed.checkpoint import folders
from pullback_distributed.checkpoint.boxes import Box, flaw
from pullback_distributed.checkpoint.index import ValueEntry
from pullback_distributed.checkpoint.plan import Listed, TensorEntry, make_plan

JOB = Path(__file__).parent / "jobs" / "checkpoint.py"
ROWS, COLUMNS = 7, 5
POINTS = [
    ("before the file", 1, 1),
    ("after the file", 2, 1),
    ("before the renames", 0, 1),
    ("between the renames", 0, 1),
    ("after the renames", 0, 2),
]


def run_job(count, *arguments):
    """Run the job on some ranks, without mpiexec for None; return the finished process."""
    command = [sys.executable, str(JOB), *map(str, arguments)]
    if count is not None:
        found = shutil.which("mpiexec", path=Path(sys.executable).parent)
        mpiexec = found or shutil.which("mpiexec")
        if mpiexec is None:
            pytest.skip("no mpiexec")
        command = [mpiexec, "-n", str(count), *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def succeed(count, *arguments):
    done = run_job(count, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def number_in(folder):
    """Load in this process, without MPI; return the number that was saved."""
    state = {"w": pullback.zeros(ROWS, COLUMNS), "r": [pullback.zeros(3), {"step": -1}]}
    dcp.load(state, checkpoint_id=folder)
    number = state["r"][1]["step"]
    assert state["r"][0].tolist() == [number] * 3
    assert state["w"].flatten().tolist() == [number + k for k in range(ROWS * COLUMNS)]
    return number


def test_other_numbers_of_processes(tmp_path):
    succeed(3, "save", tmp_path / "a", 5)
    assert dcp.is_complete(tmp_path / "a")
    assert len(list((tmp_path / "a").glob("*.safetensors"))) == 3
    succeed(2, "load", tmp_path / "a", 5)
    assert number_in(tmp_path / "a") == 5


@pytest.mark.parametrize("point, rank, expected", POINTS)
def test_killed_rank_leaves_a_whole_checkpoint(tmp_path, point, rank, expected):
    folder = tmp_path / "a"
    state = {
        "w": pullback.arange(ROWS * COLUMNS).view(ROWS, COLUMNS).float() + 1,
        "r": [pullback.ones(3), {"step": 1}],
    }
    dcp.save(state, checkpoint_id=folder)
    done = run_job(3, "save", folder, 2, point, rank)
    assert done.returncode != 0
    assert number_in(folder) == expected
    assert dcp.is_complete(folder)
    succeed(3, "save", folder, 3)
    assert number_in(folder) == 3
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_crash_at_every_change_of_the_file_system(tmp_path):
    assert int(succeed(None, "crashes", tmp_path)) > 15


def test_full_disk(tmp_path):
    resource = pytest.importorskip("resource")
    folder = tmp_path / "a"
    dcp.save({"x": pullback.ones(2)}, checkpoint_id=folder)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, limits[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write .*rank-00000") as error:
            dcp.save({"x": pullback.zeros(1 << 14)}, checkpoint_id=folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.strerror(errno.EFBIG) in str(error.value)
    state = {}
    dcp.load(state, checkpoint_id=folder)
    assert state["x"].tolist() == [1, 1]
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_nothing_of_others_is_replaced(tmp_path):
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("mine")
    folder.mkdir()
    (folder / "mine").touch()
    for place in (file, folder):
        with pytest.raises(FileExistsError, match=place.name):
            dcp.save({}, checkpoint_id=place)
    assert file.read_text() == "mine"
    assert (folder / "mine").exists()
    empty = tmp_path / "empty"
    empty.mkdir(mode=0o750)
    dcp.save({"x": 1}, checkpoint_id=empty)
    assert empty.stat().st_mode & 0o777 == 0o750
    (empty / "rank-00000.safetensors").write_text("mine")
    with pytest.raises(FileExistsError, match="move it"):
        dcp.save({"x": pullback.ones(1)}, checkpoint_id=empty)
    (empty / "rank-00000.safetensors").rename(empty / "config")
    dcp.save({"x": pullback.ones(1)}, checkpoint_id=empty)
    assert (empty / "config").read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(empty)
    dcp.save({"x": 2}, checkpoint_id=link)
    state = {"x": None}
    dcp.load(state, checkpoint_id=empty)
    assert link.is_symlink()
    assert state == {"x": 2}


def test_old_checkpoint_stays_where_its_place_is_taken(tmp_path):
    folder = tmp_path / "a"
    dcp.save({"x": 1}, checkpoint_id=folder)
    folder.rename(tmp_path / ".a.old")  # as a crash between the renames leaves it
    folder.mkdir()
    state = {}
    dcp.load(state, checkpoint_id=folder)
    assert state == {"x": 1}
    (folder / "config").touch()
    with pytest.raises(FileExistsError, match="interrupted"):
        dcp.save({"x": 2}, checkpoint_id=folder)
    dcp.load(state, checkpoint_id=folder)
    assert state == {"x": 1}
    (folder / "config").unlink()
    dcp.save({"x": 2}, checkpoint_id=folder)
    dcp.load(state, checkpoint_id=folder)
    assert state == {"x": 2}
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_leftovers_of_another_name_stay(tmp_path):
    others = [".a.new-b.new-0123456789abcdef", ".a.new-notes", ".ab.new-0123456789abcdef"]
    for name in others:
        (tmp_path / name).mkdir()
    (tmp_path / ".a.new-0123456789abcdef").mkdir()
    folders.begin(str(tmp_path / "a"), [])
    assert {name for name in others if (tmp_path / name).exists()} == set(others)
    assert not (tmp_path / ".a.new-0123456789abcdef").exists()


def test_files_have_the_usual_mode(tmp_path):
    dcp.save({"x": pullback.ones(1)}, checkpoint_id=tmp_path / "a")
    (tmp_path / "plain").touch()
    modes = {path.stat().st_mode for path in (tmp_path / "a").iterdir()}
    assert modes == {(tmp_path / "plain").stat().st_mode}


def test_loading_into_what_is_needed_for_backward(tmp_path):
    dcp.save({"x": pullback.ones(2)}, checkpoint_id=tmp_path / "a")
    x = pullback.zeros(2, requires_grad=True)
    saved = x * x
    dcp.load({"x": x}, checkpoint_id=tmp_path / "a")
    assert x.is_leaf
    assert x.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


@pytest.mark.parametrize(
    "boxes, problem",
    [
        ([], "0 of the 6"),
        ([((0, 0), (2, 3))], None),
        ([((0, 0), (1, 3)), ((1, 0), (1, 3))], None),
        ([((0, 0), (1, 3)), ((0, 2), (2, 1))], "overlap"),
        ([((0, 0), (1, 3)), ((1, 0), (1, 2))], "5 of the 6"),
        ([((0, 0), (2, 4))], "does not lie"),
        ([((0,), (2,))], "does not lie"),
        ([((0, 0), (2, 1)), ((0, 1), (1, 2)), ((1, 1), (1, 1)), ((1, 2), (1, 1))], None),
    ],
)
def test_cover(boxes, problem):
    found = flaw((2, 3), [Box(*box) for box in boxes])
    assert (found is None) if problem is None else problem in found


def test_plan_writes_a_part_that_several_have_once():
    """As in hybrid sharding: two groups of two ranks, each with both halves."""
    halves = [Box((0,), (500,)), Box((500,), (500,))]
    listings = [
        {
            "w": Listed(TensorEntry(("w",), (1000,), "float32"), halves[rank % 2]),
            "n": Listed(ValueEntry(("n",), 1), None),
        }
        for rank in range(4)
    ]
    plan = make_plan(listings)
    written = [piece.box for pieces in plan.pieces for piece in pieces]
    assert sorted(written) == halves
    assert [len(pieces) for pieces in plan.pieces] == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "arguments, kind, text",
    [
        (([1.0], (1,), (0,)), TypeError, "tensor"),
        ((pullback.ones(2), (2,), 0), TypeError, "offsets"),
        ((pullback.ones(2), (2.0,), (0,)), TypeError, "shape"),
        ((pullback.ones(2), (2,), (1,)), ValueError, "does not lie"),
        ((pullback.ones(2), (2, 1), (0, 0)), ValueError, "does not lie"),
        ((pullback.ones(2), (4,), (-1,)), ValueError, "does not lie"),
    ],
)
def test_wrong_shards(arguments, kind, text):
    with pytest.raises(kind, match=text):
        dcp.Shard(*arguments)


@pytest.mark.parametrize(
    "arguments, kind, text",
    [
        ((4, 0, 0), TypeError, "shape"),
        (((4,), "0", 0), TypeError, "dim"),
        (((4,), 1, 0), IndexError, "no dim 1"),
        (((4,), -1, 0.5), TypeError, "offsets"),
        (((4,), 0, 3), ValueError, "does not lie"),
    ],
)
def test_wrong_shards_along_a_dim(arguments, kind, text):
    with pytest.raises(kind, match=text):
        dcp.Shard.along(pullback.ones(2), *arguments)


@pytest.mark.parametrize("path", ["", "/", 3, None])
def test_wrong_folders(path):
    for function in (dcp.save, dcp.load):
        with pytest.raises((TypeError, ValueError), match="checkpoint_id"):
            function({}, checkpoint_id=path)


@pytest.mark.parametrize("name", ["shards", "saving", "loading"])
def test_examples(name):
    module = importlib.import_module(f"pullback_distributed.checkpoint.{name}")
    found = doctest.testmod(module)
    assert found.attempted > 0 and found.failed == 0
