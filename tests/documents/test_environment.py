"""The page of environment variables names those that the sources read, and no others."""

import ast
import re

import pytest

PAGE = "docs/reference/environment.md"
KINDS = {".py", ".pyx", ".pxd", ".in", ".h", ".c", ".cu", ".cuh"}
READ_BY_TESTS = re.compile(r"\bPULLBACK_(?:TEST|EMULATION)_[A-Z]{2,}\b")  # not _H of a header

# `os.environ.get(X`, `os.environ[X]`, `os.getenv(X` and C's `getenv(X`.
READ = re.compile(r"\b(?:environ\.get\(|environ\[|getenv\(|environ\.pop\()\s*([^,)\]]+)")
CONSTANT = re.compile(r"^([A-Z_]+) = (\"[A-Z_]+\")$", re.M)
FUNCTION = re.compile(r"^(?:c?p?def|async def)\b[^\n]*?(\w+)\(([^)]*)\)[^\n]*:", re.M)


def variables_read(text):
    """Return the names of the environment variables that a source file reads.

    A name is written out, a constant of the file, or a parameter of a function that the file calls
    with one of these.

    Raises: ValueError for a name that is none of them.
    """
    constants = dict(CONSTANT.findall(text))
    found = set()
    for match in READ.finditer(text):
        name = match.group(1).strip()
        functions = [f for f in FUNCTION.finditer(text) if f.start() < match.start()]
        if functions and re.search(rf"\b{name}\b", functions[-1].group(2)):
            calls = re.findall(rf"(?<!def ){functions[-1].group(1)}\(([^)]*)\)", text)
            names = [call for call in calls if call != functions[-1].group(2)]
        else:
            names = [name]
        for each in names:
            value = constants.get(each, each)
            if not re.fullmatch(r"([\"'])[A-Z_]+\1", value):
                raise ValueError(f"which environment variable is {each!r}?")
            found.add(ast.literal_eval(value))
    return found


def tables(root):
    """Return the first column of the page's two tables."""
    text = (root / PAGE).read_text()
    parts = text.split("## Variables of the tests")
    return [re.findall(r"^\| `(\w+)` \|", part, re.M) for part in parts]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('os.environ.get("A_B", "")', {"A_B"}),
        ("environ['A_B']", {"A_B"}),
        ('char *s = getenv("A_B");', {"A_B"}),
        ('NAME = "A_B"\nx = os.environ[NAME]', {"A_B"}),
        ('def f(v):\n    return os.environ.get(v)\n\nf("A_B")\nf("C_D")\n', {"A_B", "C_D"}),
        ("{**os.environ}", set()),
    ],
)
def test_the_reader_sees_every_form(text, names):
    """The check below is worth what this reader is worth."""
    assert variables_read(text) == names


def test_the_reader_refuses_what_it_cannot_follow():
    with pytest.raises(ValueError, match="which environment variable is 'name'"):
        variables_read("for name in names:\n    print(os.environ.get(name))\n")


def test_page_has_every_variable_that_the_packages_read(root):
    read = set()
    for path in root.glob("packages/*/src/**/*"):
        if path.suffix in KINDS and path.is_file():
            read |= variables_read(path.read_text())
    named = tables(root)[0]
    assert len(read) >= 6
    assert sorted(named) == sorted(read)


def test_page_has_every_variable_that_the_tests_read(root):
    files = [root / "tox.ini", root / "noxfile.py"]
    for folder in ("tests", "tools", "packages/*/tests"):
        files += [path for path in root.glob(f"{folder}/**/*") if path.suffix in KINDS]
    read = {name for path in files for name in READ_BY_TESTS.findall(path.read_text())}
    assert len(read) >= 10
    assert sorted(tables(root)[1]) == sorted(read)
