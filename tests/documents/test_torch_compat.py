"""The page that compares public names with torch's, and its sources."""

import importlib
import inspect
import json
import re
import subprocess
import sys

import pytest

PAGE = "docs/reference/torch-compat.md"
REFERENCE = "docs/reference"


@pytest.fixture(scope="module")
def data(compatgen):
    return json.loads(compatgen.NAMES.read_text())


@pytest.fixture(scope="module")
def notes(compatgen):
    return compatgen.read_notes()


def made_of(path, names):
    """Return data of one section."""
    return {"torch": "2.13.0", "sections": {path: {"names": names}}}


def test_page_is_current(root, compatgen, data, notes):
    page = compatgen.make_page(data, compatgen.compare(data, notes))
    assert (root / PAGE).read_text() == page, "run `python -m nox -s gen`"


def test_every_name_left_out_has_a_reason_and_is_missing(compatgen, data, notes):
    rows = [row for section in compatgen.compare(data, notes).values() for row in section]
    assert len(rows) > 200
    assert all(row.note for row in rows if row.status != "present")
    assert all(row.note.count("\n") == 0 for row in rows)


@pytest.mark.parametrize("path", ["torch.autograd.graph", "torch.func", "torch.utils.hooks"])
def test_name_without_a_reason_is_noticed(compatgen, path):
    with pytest.raises(ValueError, match="nonsense is missing, without a reason"):
        compatgen.compare(made_of(path, ["nonsense"]), {})


def test_reason_for_what_is_there_is_noticed(compatgen):
    notes = {"torch.func": {"vmap": compatgen.Row("vmap", "left out", "too hard")}}
    with pytest.raises(ValueError, match="vmap is there"):
        compatgen.compare(made_of("torch.func", ["vmap"]), notes)


@pytest.mark.parametrize("names", [["grad"], []])
def test_name_of_ours_must_be_here_and_not_in_torch(compatgen, names):
    notes = {"torch.func": {"grad": compatgen.Row("grad", "ours", "so they say")}}
    if names:
        with pytest.raises(ValueError, match="torch has it"):
            compatgen.compare(made_of("torch.func", names), notes)
    else:
        assert compatgen.compare(made_of("torch.func", names), notes) == {
            "torch.func": [notes["torch.func"]["grad"]]
        }


def test_note_without_a_known_kind_is_refused(compatgen, tmp_path):
    (tmp_path / "notes.ini").write_text("[torch.func]\nvmap = maybe: who knows\n")
    with pytest.raises(ValueError, match="begin with one of"):
        compatgen.read_notes(tmp_path / "notes.ini")


def test_modules_can_be_imported_by_their_path(compatgen, data):
    """``from pullback.a.b import c`` works wherever ``a.b`` is a module, also in a new process."""
    paths = []
    for path, lists in data["sections"].items():
        ours = path.replace("torch", "pullback", 1)
        home = compatgen.find(ours)
        if inspect.ismodule(home):
            names = (name for found in lists.values() for name in found)
            paths += [f"{ours}.{n}" for n in names if inspect.ismodule(getattr(home, n, None))]
    assert len(paths) > 20
    program = "import importlib, sys; [importlib.import_module(path) for path in sys.argv[1:]]"
    subprocess.run([sys.executable, "-c", program, *paths, "pullback.utils._pytree"], check=True)


def test_all_is_torch_s_without_what_is_left_out_and_with_what_is_ours(compatgen, data, notes):
    """What torch has outside of its own __all__ may be in ours, or not."""
    checked = 0
    sections = compatgen.compare(data, notes)
    for path, lists in data["sections"].items():
        module = compatgen.find(path.replace("torch", "pullback", 1))
        if not hasattr(module, "__all__") or "not in __all__" not in lists:
            continue
        checked += 1
        left_out = {row.name for row in sections[path] if row.status == "left out"}
        ours = {row.name for row in sections[path] if row.status == "ours"}
        expected = set(lists["names"]) - left_out | ours
        assert set(module.__all__) - set(lists["not in __all__"]) == expected, path
        assert len(module.__all__) == len(set(module.__all__)), path
    assert checked > 10


@pytest.mark.parametrize(
    "module",
    [
        *("autograd", "autograd.forward_ad", "autograd.function", "autograd.functional"),
        *("autograd.gradcheck", "autograd.graph", "autograd.grad_mode", "autograd.anomaly_mode"),
        *("autograd.variable", "backend", "func", "testing", "utils.checkpoint", "utils.hooks"),
        *("nn.init", "nn.utils", "nn.utils.rnn", "nn.utils.parametrize", "optim", "overrides"),
        *("optim.lr_scheduler", "optim.swa_utils", "utils.data", "serialization"),
        *("amp", "amp.autocast_mode", "amp.grad_scaler", "cpu.amp", "cuda.amp"),
    ],
)
def test_reference_has_a_page_for_every_public_name(root, module):
    loaded = importlib.import_module(f"pullback.{module}")
    pages = "\n".join(path.read_text() for path in (root / REFERENCE).glob("*.md"))
    whole = set(re.findall(r"automodule:: (\S+)\n   :members:\n", pages))
    if f"pullback.{module}" in whole:
        return
    elsewhere = importlib.import_module("pullback.autograd")  # documented as a whole
    missing = [
        name
        for name in loaded.__all__
        if name not in elsewhere.__all__
        and getattr(getattr(loaded, name), "__module__", None) not in whole
        and not re.search(rf":: (pullback\.{re.escape(module)}\.)?{name}\n", pages)
        and not re.search(rf":members:.*\b{name}\b", pages)
    ]
    assert missing == []


def test_errors_say_why_a_name_is_left_out(compatgen):
    import pullback as pb

    data = json.loads(compatgen.NAMES.read_text())
    rows = compatgen.compare(data, compatgen.read_notes())
    assert json.loads(compatgen.REASONS.read_text()) == compatgen.reasons_of(rows)
    with pytest.raises(AttributeError, match=r"torch\.export is left out .*compat\.md"):
        pb.export
    with pytest.raises(AttributeError, match=r"'pullback\.nn' has no attribute 'Foo'$"):
        pb.nn.Foo
