"""backend/translate.py writes C for the builds, and only what has changed."""

import subprocess
import sys

import pytest

pytest.importorskip("Cython")

SOURCE = "from .b cimport half\n\ndef third(int x):\n    return half(x) // 3\n"


@pytest.fixture
def translate(root, tmp_path):
    """A package of two modules, and a function that translates it; it returns what was run."""
    script = root / "packages/core/src/pullback/backend/translate.py"
    package = tmp_path / "src/room"
    package.mkdir(parents=True)
    (tmp_path / "out").mkdir()
    files = {
        "__init__.py": "",
        "a.pyx": SOURCE,
        "b.pxd": "cdef inline int half(int x):\n    return x // 2\n",
        "c.pyx": "def one():\n    return 1\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)

    def run(*options, sources=("a.pyx", "c.pyx")):
        command = [sys.executable, "-W", "ignore", str(script), "--root", str(tmp_path / "src")]
        command += ["--depfile", str(tmp_path / "dep"), "--output-folder", str(tmp_path / "out")]
        paths = [str(package / name) for name in sources]
        return subprocess.run(
            [*command, *options, *paths], capture_output=True, text=True, cwd=tmp_path
        )

    run.package, run.out, run.depfile = package, tmp_path / "out", tmp_path / "dep"
    return run


def times(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.c")}


def test_modules_are_named_by_their_path(translate):
    done = translate()
    assert done.returncode == 0, done.stderr
    assert sorted(times(translate.out)) == ["a.c", "c.c"]
    assert "room.a" in (translate.out / "a.c").read_text()
    used = translate.depfile.read_text()
    assert all(name in used for name in ("a.pyx", "b.pxd", "c.pyx", "translate.py"))


def test_what_did_not_change_keeps_its_time(translate):
    translate()
    before = times(translate.out)
    (translate.package / "c.pyx").write_text("def one():\n    return 2\n")
    translate()
    after = times(translate.out)
    assert after["a.c"] == before["a.c"] and after["c.c"] != before["c.c"]


def test_a_declaration_renews_what_imports_it(translate):
    translate()
    before = times(translate.out)
    (translate.package / "b.pxd").write_text("cdef inline int half(int x):\n    return x // 4\n")
    translate()
    after = times(translate.out)
    assert after["a.c"] != before["a.c"] and after["c.c"] == before["c.c"]


def test_a_comment_beside_a_declaration_compiles_nothing(translate):
    (translate.package / "e.pxd").write_text("ctypedef int number\n")
    (translate.package / "f.pyx").write_text("from .e cimport number\n\ncdef number x = 1\n")
    translate(sources=["f.pyx"])
    before = times(translate.out)
    (translate.package / "e.pxd").write_text("ctypedef int number  # nothing new\n")
    translate(sources=["f.pyx"])
    assert times(translate.out) == before


def test_other_directives_renew_all(translate):
    translate()
    before = times(translate.out)
    translate("-X", "cdivision=False")
    assert times(translate.out)["a.c"] != before["a.c"]


def test_an_error_is_shown_and_found_again(translate):
    (translate.package / "c.pyx").write_text("cdef int x = missing\n")
    for _ in range(2):
        done = translate()
        assert done.returncode == 1 and "undeclared name not builtin: missing" in done.stderr
    (translate.package / "c.pyx").write_text("cdef int x = 1\n")
    assert translate().returncode == 0


def test_a_template_is_rendered_and_remembered(translate, tmp_path):
    (tmp_path / "facts.py").write_text("NUMBER = 7\n")
    renderer = tmp_path / "render.py"
    renderer.write_text(
        "import facts\n\ndef render_module(path, used):\n"
        "    used += [path, __file__]\n"
        "    return path.read_text().replace('NUMBER', str(facts.NUMBER))\n"
    )
    (translate.package / "d.pyx.in").write_text("def seven():\n    return NUMBER\n")
    assert "--renderer" in translate(sources=["d.pyx.in"]).stderr
    done = translate("--renderer", str(renderer), sources=["d.pyx.in"])
    assert done.returncode == 0, done.stderr
    assert "return 7" in (translate.out / "d.pyx").read_text()
    assert '"room.d"' in (translate.out / "d.c").read_text()  # not "d", as its own place says
    assert "d.pyx.in" in translate.depfile.read_text()
