"""Documents: commands exist, links resolve, snippets run."""

import ast
import configparser
import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What `nox -s docs` writes; git ignores it.
GENERATED = {"docs/reference/ops.md", "docs/reference/ops-by-module.md"}
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/*/*.md",
        "packages/*/README.md",
        "examples/**/*.md",
        "changes/*.md",
    )
    for path in ROOT.glob(pattern)
    if path.relative_to(ROOT).as_posix() not in GENERATED
)
# The CUDA backend's own tests run these, where there is a device or a fake one.
ON_A_DEVICE = ("docs/howto/use-cuda.md", "packages/backend-cuda/README.md")
SNIPPETS = [
    name for name in DOCUMENTS if ">>> " in (ROOT / name).read_text() and name not in ON_A_DEVICE
]


def nox_sessions(root):
    """Return the names of noxfile.py's sessions, read without running it."""
    tree = ast.parse((root / "noxfile.py").read_text())
    return {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("nox.session" in ast.unparse(decorator) for decorator in node.decorator_list)
    }


def test_verbs_of_the_developer_exist(root):
    verbs = {
        "demo",
        "dev",
        "gen",
        "lint",
        "test",
        "conform",
        "certify",
        "fuzz",
        "bench",
        "docs",
        "wheels",
        "gpu",
        "parity",
    }
    assert verbs <= nox_sessions(root)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_nox_sessions_in_documents_exist(root, name):
    named = set(re.findall(r"nox -s (\w+)", (root / name).read_text()))
    assert named <= nox_sessions(root)


def test_workflows_run_sessions_that_exist(root):
    text = (root / ".github/workflows/test.yml").read_text()
    [verbs] = re.findall(r"^        verb: \[(.*)\]$", text, re.M)
    named = {*verbs.split(", "), *re.findall(r"nox -s (\w+)", text)}
    assert {"docs", "parity", "coverage", "bounds", "sanitize", "bench", "demo", "lint"} <= named
    assert named <= nox_sessions(root)


def test_readme_gives_the_two_commands(root):
    text = (root / "README.md").read_text()
    assert "python -m pip install nox && python -m nox -s demo" in text
    assert "python -m pip install tox && python -m tox" in text


def test_tox_runs_every_package_on_every_python(root):
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(root / "tox.ini")
    line = parser["tox"]["env_list"]
    assert line == "py{310,311,312,313}-{core,cpu,cuda,profiler,distributed,integration,example}"
    for folder in ("core", "backend-cpu", "backend-cuda", "profiler", "distributed"):
        assert f"packages/{folder}/tests" in parser["testenv"]["commands"]


def test_workflow_has_the_same_pythons_as_tox(root):
    text = (root / ".github/workflows/test.yml").read_text()
    assert 'python: ["3.10", "3.11", "3.12", "3.13"]' in text
    release = (root / ".github/workflows/release.yml").read_text()
    assert 'CIBW_BUILD: "cp310-* cp311-* cp312-* cp313-*"' in release


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_to_files_resolve(root, name):
    text = re.sub(r"```.*?```", "", (root / name).read_text(), flags=re.S)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    local = [target for target in targets if "://" not in target]
    paths = [((root / name).parent / target).resolve() for target in local]
    missing = [path.relative_to(root).as_posix() for path in paths if not path.exists()]
    assert set(missing) <= GENERATED


def test_pages_that_sources_name_exist(root):
    """In comments, docstrings and messages a page is a path from the repository's root."""
    written = {"docs/gpu/REPORT.md", *GENERATED}  # by tools, some on another machine
    kinds = {".py", ".pyx", ".pxd", ".in", ".h", ".c", ".cu", ".cuh", ".md", ".txt"}
    folders = ("packages", "examples", "benchmarks", "tests", "tools", "docs", "changes")
    files = [path for folder in folders for path in (root / folder).rglob("*")]
    missing = []
    for path in [*files, *root.glob("*.md"), *root.glob("*.py")]:
        if path.suffix in kinds and path.is_file() and "build" not in path.parts:
            pages = set(re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text())) - written
            missing += [
                f"{path.relative_to(root)} names {page}"
                for page in sorted(pages)
                if not (root / page).exists()
            ]
    assert missing == []


def paths_in(text):
    """Return the paths that a page names in backticks, outside of code blocks."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    ends = r"\.(?:pyx|pxd|py|pyx\.in|cuh?|h|ini|md|toml|build|yml)"
    return set(re.findall(rf"`([\w./<>*-]+(?:/|{ends}))`", text))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_in_documents_exist(root, name):
    """A path begins at the root, at a package's source folder, or beside the page."""
    made = {"docs/gpu/REPORT.md", "dist/", "demo-output/", "<issue>.<type>.md"}
    folder = (root / name).parent
    core = root / "packages/core/src/pullback"
    bases = [root, folder, folder / "src", core / "include", core]
    bases += [*root.glob("packages/*/src"), *root.glob("packages/*/src/*")]
    sources = [root / "packages", root / "tests", root / "benchmarks", root / "examples"]
    missing = []
    for path in sorted(paths_in((root / name).read_text()) - made):
        pattern = re.sub(r"<\w+>", "*", path)
        found = (match for base in bases for match in base.glob(pattern))
        if next(found, None) is None:
            anywhere = (match for source in sources for match in source.rglob(pattern))
            if "/" in path or next(anywhere, None) is None:  # a file's name may stand alone
                missing.append(path)
    assert missing == []


def test_architecture_page_has_every_folder(root):
    text = (root / "docs/develop/architecture.md").read_text()
    missing = []
    for package in root.glob("packages/*/src/*"):
        for folder in filter(Path.is_dir, package.rglob("*")):
            path = folder.relative_to(package.parent).as_posix().removeprefix("pullback/")
            if any(file.is_file() for file in folder.iterdir()) and "__pycache__" not in path:
                missing += [path] if f"`{path}/`" not in text else []
    assert sorted(missing) == []


def test_page_on_ops_has_every_field_of_an_entry(root):
    tree = ast.parse((root / "packages/core/src/pullback/ops/table/schema.py").read_text())
    [op] = [part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == "op"]
    fields = {argument.arg for argument in (*op.args.args, *op.args.kwonlyargs)}
    text = (root / "docs/howto/add-an-op.md").read_text()
    text = text[text.index("## The fields of an entry") : text.index("## Formulas")]
    rows = re.findall(r"^\| `(\w+)` \|", text, re.M)
    assert sorted(rows) == sorted(fields)


def test_functions_of_the_architecture_page_are_where_it_says(root):
    text = (root / "docs/develop/architecture.md").read_text()
    sources = [root / "packages/core/src/pullback", *root.glob("packages/*/src"), root]
    named = re.findall(r"`(\w+)` in\s+`([\w./]+)`", text)
    missing = []
    for name, path in named:
        [found, *_] = [source / path for source in sources if (source / path).exists()]
        if not re.search(rf"^(?:def|cpdef|cdef|class)\b.*\b{name}\(", found.read_text(), re.M):
            missing.append(f"{name} in {path}")
    assert missing == []
    assert len(named) > 10


def test_names_of_the_glossary_are_in_the_sources(root):
    rows = re.findall(r"^\|.*\| `(\w+)` \|$", (root / "docs/develop/glossary.md").read_text(), re.M)
    sources = "\n".join(
        path.read_text()
        for path in root.glob("packages/*/src/**/*")
        if path.suffix in {".py", ".pyx", ".pxd", ".h"}
    )
    assert [name for name in rows if not re.search(rf"\b{name}\b", sources)] == []
    assert len(rows) > 40


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippets_give_what_they_show(root, name):
    flags = doctest.NORMALIZE_WHITESPACE
    results = doctest.testfile(str(root / name), module_relative=False, optionflags=flags)
    assert results.attempted > 0
    assert results.failed == 0


def test_change_fragments_have_a_known_type(root):
    known = {"feature", "fix", "perf", "removal", "docs"}
    for path in (root / "changes").glob("*.md"):
        if path.name != "README.md":
            assert path.name.split(".")[-2] in known, path.name
            assert path.read_text().strip()
