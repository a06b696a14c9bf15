"""``python -m pullback.profiler``: the program runs as it would without, and then come results."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from page_tools import read_page

PROGRAM = """
import sys
import pullback as pb
from pullback.autograd.profiler import record_function

def step():
    with record_function("a step"):
        weight = pb.ones(3, 3, requires_grad=True)
        (weight @ weight).sum().backward()

step()
"""
COMMAND = [sys.executable, "-m", "pullback.profiler"]


@pytest.fixture
def run(tmp_path):
    """Return a function that writes a program and profiles it, in a folder of its own."""

    def run_program(*arguments, program=PROGRAM, name="program.py", **options):
        (tmp_path / name).write_text(program)
        return subprocess.run(
            [*COMMAND, *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=120,
            **options,
        )

    return run_program


def rows(text):
    """Return the names in a table, and the number of calls beside each."""
    lines = [line.split("  ") for line in text.splitlines() if re.search(r"\d%", line)]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return {line[0]: line for line in cells}


def test_a_script_is_followed_by_its_averages(run):
    done = run("program.py")
    assert (done.returncode, done.stderr) == (0, "")
    found = rows(done.stdout)
    assert {"a step", "pullback::mm", "MmBackward0"} <= set(found)
    assert found["pullback::mm"][-1] == "3"
    assert done.stdout.splitlines()[-1].startswith("Self CPU time total: ")


def test_a_module_runs_as_main(run, tmp_path):
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool/__init__.py").touch()
    program = (
        "import sys; print(__name__, __package__, sys.argv[1:]); import pullback as pb; pb.ones(2)"
    )
    done = run(
        "--limit", 3, "-m", "tool", "--limit", "-m", program=program, name="tool/__main__.py"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("__main__ tool ['--limit', '-m']\n")
    assert "pullback::ones" in done.stdout


SHOW = """
import json, os, sys
print(json.dumps([__name__, sys.argv, sys.path[0], sys.modules["__main__"].__dict__ is globals()]))
"""


@pytest.mark.parametrize("own", [[], ["--limit", "2", "--memory"], ["--limit=2", "--"]])
def test_the_program_sees_what_it_would_see(run, tmp_path, own):
    (tmp_path / "inner").mkdir()
    done = run(*own, "inner/show.py", "--html", "x", program=SHOW, name="inner/show.py")
    seen = json.loads(done.stdout.splitlines()[0])
    plain = subprocess.run(
        [sys.executable, "inner/show.py", "--html", "x"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert seen == json.loads(plain.stdout)
    assert done.stdout.splitlines()[1:] == ["the profiler recorded no event"]


def test_a_folder_with_a_main_runs(run, tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app/beside.py").write_text("value = 5\n")
    done = run("app", program="import beside; print(beside.value)", name="app/__main__.py")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "5"), done.stderr


@pytest.mark.parametrize(
    ("ending", "code", "message"),
    [("sys.exit(0)", 0, ""), ("sys.exit(3)", 3, ""), ("sys.exit('no data')", 1, "no data\n")],
)
def test_exit_codes_are_the_programs(run, ending, code, message):
    done = run("program.py", program=PROGRAM + ending)
    assert (done.returncode, done.stderr) == (code, message)
    assert "a step" in rows(done.stdout)


def test_an_exception_shows_its_own_traceback_above_the_table(run):
    done = run("program.py", program=PROGRAM + "raise LookupError('gone')\n")
    assert (done.returncode, done.stdout) == (1, "")
    head, table = done.stderr.split("LookupError: gone\n")
    assert head.splitlines()[0] == "Traceback (most recent call last):"
    assert re.findall(r'File "(.*?)", line (\d+), in (.*)', head) == [
        ("program.py", "12", "<module>")
    ]
    assert "a step" in rows(table)


def test_a_syntax_error_is_the_programs(run):
    done = run("program.py", program="x = = 1\n")
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr and "runpy" not in done.stderr
    assert "Traceback" not in done.stderr


def test_the_programs_own_hook_shows_its_exception(run):
    hook = "sys.excepthook = lambda kind, error, trace: print('mine:', kind.__name__)\n"
    done = run("program.py", program=PROGRAM + hook + "1 / 0\n")
    assert (done.returncode, done.stdout) == (1, "mine: ZeroDivisionError\n")


@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_an_interrupt_ends_as_without_the_profiler(run):
    done = run("program.py", program=PROGRAM + "raise KeyboardInterrupt\n")
    assert done.returncode == -signal.SIGINT
    head, table = done.stderr.split("\nKeyboardInterrupt\n")
    assert "command.py" not in head and "runpy" not in head
    assert "a step" in rows(table)


def test_files_are_written(run, tmp_path):
    done = run(
        *("--html", "a.html", "--trace", "b.json", "--stacks", "c.txt", "--memory"),
        *("program.py", "first", "second"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-3:] == ["wrote a.html", "wrote b.json", "wrote c.txt"]
    data = read_page(tmp_path / "a.html").data
    assert data["title"] == "program.py first second"
    assert data["recorded"]["memory"] and data["memory"][0]["peak"] > 0
    names = {
        entry["name"] for entry in json.loads((tmp_path / "b.json").read_text())["traceEvents"]
    }
    assert {"a step", "pullback::mm"} <= names
    frames = {line.rpartition(" ")[0] for line in (tmp_path / "c.txt").read_text().splitlines()}
    assert frames
    assert all(frame.startswith("program.py(11):_<module>;program.py(") for frame in frames)


def test_files_lie_where_the_command_was_given(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    program = PROGRAM + "import os; os.chdir('elsewhere')\n"
    assert run("--trace", "trace.json", "program.py", program=program).returncode == 0
    assert (tmp_path / "trace.json").exists()


def test_options_add_columns(run):
    done = run("--shapes", "--memory", "--flops", "--stack", "program.py")
    head = done.stdout.splitlines()[1]
    for column in ("CPU Mem", "Input Shapes", "Source Location", "FLOPs"):
        assert column in head
    assert "[[3, 3], [3, 3]]" in done.stdout and "program.py(9): step" in done.stdout


def test_the_table_is_sorted_and_cut(run):
    done = run("--sort", "count", "--limit", "1", "program.py")
    assert list(rows(done.stdout)) == ["pullback::mm"]


def test_all_threads_are_recorded_on_demand(run):
    threaded = PROGRAM + (
        "import threading\n"
        "thread = threading.Thread(target=lambda: pb.full((2,), 1.0))\n"
        "thread.start(); thread.join()\n"
    )
    assert "pullback::full" not in run("program.py", program=threaded).stdout
    done = run("--all-threads", "--limit", -1, "program.py", program=threaded)
    assert "pullback::full" in rows(done.stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected a script or -m and a module"),
        (["-m"], "expected a script or -m and a module"),
        (["missing.py"], "cannot open 'missing.py': No such file or directory"),
        (["-m", "no_such_module"], "cannot run 'no_such_module': no module of that name"),
        (["-m", "no_such.part"], "cannot run 'no_such.part': No module named 'no_such'"),
        (["-m", "json"], "cannot run 'json': no module of that name that can be run"),
        (["--html", "no/folder.html", "program.py"], "cannot write 'no/folder.html': No such"),
        (["--trace", ".", "program.py"], "cannot write '.': Is a directory"),
        (["--stacks", "program.py/x", "program.py"], "cannot write 'program.py/x': Not a dir"),
        (["--sort", "speed", "program.py"], "argument --sort: expected one of cpu_time, "),
        (["--limit", "few", "program.py"], "argument --limit: invalid int value: 'few'"),
        (["--device", "nothing", "program.py"], "'nothing' is not a valid device option"),
        (["--htm", "a.html", "program.py"], "unrecognized arguments: --htm"),
    ],
)
def test_mistakes_are_one_line_and_nothing_runs(run, tmp_path, arguments, message):
    done = run(*arguments, program="open('ran', 'w')")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("python -m pullback.profiler: ") and message in line
    assert [path.name for path in tmp_path.iterdir()] == ["program.py"]


def test_a_file_that_fails_to_be_written_changes_the_exit_code(run):
    spoil = "import os; os.mkdir('later.html')\n"
    done = run("--html", "later.html", "program.py", program=PROGRAM + spoil)
    assert done.returncode == 1
    assert done.stderr == (
        "python -m pullback.profiler: cannot write 'later.html': Is a directory\n"
    )
    done = run(
        "--html",
        "later2.html",
        "program.py",
        program=PROGRAM + "import os; os.mkdir('later2.html'); sys.exit(7)",
    )
    assert done.returncode == 7


def test_help_names_every_option(run):
    text = run("--help").stdout
    for option in (
        *("--html", "--trace", "--stacks", "--sort", "--limit", "--shapes", "--memory"),
        *("--stack", "--flops", "--device", "--all-threads"),
    ):
        assert option in text


def in_terminal(folder, columns, *arguments):
    """Return what the command prints into a terminal of so many columns."""
    import pty

    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.environ.update(COLUMNS=str(columns), TERM="dumb", NO_COLOR="1")
        os.execv(sys.executable, [*COMMAND, *arguments])
    printed = b""
    try:
        while piece := os.read(terminal, 65536):
            printed += piece
    except OSError:  # Linux says so when the other end is closed
        pass
    assert os.waitpid(process, 0)[1] == 0
    return re.sub(r"\x1b\[[\d;]*m", "", printed.decode()).replace("\r\n", "\n")


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudoterminal")
@pytest.mark.parametrize("columns", [60, 100, 200])
def test_a_terminal_gets_a_table_of_its_width(tmp_path, columns):
    pytest.importorskip("rich", reason="without rich, terminals get the plain table")
    (tmp_path / "program.py").write_text(PROGRAM.replace('"a step"', '"[red]a step"'))
    text = in_terminal(tmp_path, columns, "program.py")
    assert "─" in text and "---" not in text
    (line,) = (line for line in text.splitlines() if "[red]a step" in line)
    assert re.findall(r"\d+\.\d{2,3}(?:%|us|ms)", line)[0].endswith("%")
    assert line.rstrip().endswith(" 1")  # the last column is there, however narrow it is
    if columns >= 100:
        assert max(map(len, text.splitlines())) <= columns


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudoterminal")
def test_a_terminal_without_rich_gets_the_plain_table(tmp_path):
    (tmp_path / "program.py").write_text("import sys; sys.modules['rich'] = None\n" + PROGRAM)
    text = in_terminal(tmp_path, 200, "program.py")
    assert "-----" in text and "a step" in rows(text)


@pytest.mark.skipif(os.name == "nt", reason="pipes break otherwise")
@pytest.mark.parametrize(("ending", "code"), [("", 0), ("sys.exit(3)", 3)])
def test_files_are_written_and_the_code_kept_where_nobody_reads(tmp_path, ending, code):
    (tmp_path / "program.py").write_text(PROGRAM + ending)
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "--stacks", "s", "--html", "h", "program.py"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, timeout=99)
    os.close(writing)
    assert (done.returncode, done.stderr) == (code, b"")
    assert (tmp_path / "s").stat().st_size and (tmp_path / "h").stat().st_size


@pytest.mark.parametrize("ending", ["sys.stdout.close()", "sys.stdout = None"])
def test_a_program_may_close_its_output(run, tmp_path, ending):
    done = run("--trace", "t", "program.py", program=PROGRAM + ending)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads((tmp_path / "t").read_text())["traceEvents"]


def test_names_that_the_output_cannot_encode_are_escaped(run):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run("program.py", program=PROGRAM.replace("a step", "\\u00e9"), env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\xe9" in rows(done.stdout)


FORK = """
import os
child = os.fork()
if child == 0:
    print("child")
    sys.exit(5)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be forked")
def test_forked_processes_show_nothing(run):
    done = run("--stacks", "s", "program.py", program=PROGRAM + FORK)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("child\n5\n")
    assert done.stdout.count("Self CPU time total") == done.stdout.count("wrote s") == 1
