"""``python -m pullback.profiler``: run a program under the profiler and show where its time goes.

The program runs as ``__main__``, as without the profiler. When it ends, the averages are printed,
and the files written that were asked for. The averages go to standard error instead of standard
output if the program ended with an exception, below its traceback. The exit code stays the
program's. Processes that the program forks have no results.

Under ``mpiexec`` each process writes its own files: ``{rank}`` in a name is its number.
``python -m pullback.profiler merge trace.json trace-*.json`` makes one trace of several, and
``python -m pullback.profiler diff before.json after.json`` compares two.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import math
import os
import pkgutil
import runpy
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TextIO

from pullback_profiler.autograd_profiler import profile
from pullback_profiler.events.event_list import EventList
from pullback_profiler.events.stacks import device_neutral
from pullback_profiler.events.table import SORT_KEYS, layout

PROGRAM = "python -m pullback.profiler"
USAGE = f"{PROGRAM} [options] (script.py | -m module) [arguments]"


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program that the command line names under the profiler.

    Raises: the exception that ends the program; SystemExit with code 2, after one line about it,
    for errors that can be found before the program runs; with code 1 if a file cannot be written.

    >>> main(["--limit", "5"])
    Traceback (most recent call last):
    SystemExit: 2
    """
    parser = make_parser()
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["merge"]:
        merge(given[1:])
        return
    if given[:1] == ["diff"]:
        diff(given[1:])
        return
    own, program, is_module = split(given, parser)
    options = parser.parse_args(own)
    for name in ("html", "trace", "stacks"):
        setattr(options, name, of_this_rank(getattr(options, name)))
    if not program:
        parser.error(f"expected a script or -m and a module: {USAGE}")
    run = prepare_module(program, parser) if is_module else prepare_script(program, parser)
    for path in (options.html, options.trace, options.stacks):
        if path is not None:
            check_writable(path, parser)
    profiled = make_profile(options, parser)
    folder = os.getcwd()  # the program may go to another
    ending: BaseException | None = None
    process = os.getpid()
    with profiled:
        try:
            run()
        except BaseException as error:
            ending = error
    failed = ending is not None and not isinstance(ending, SystemExit)
    if failed:
        show_first(ending)
    written = True
    if os.getpid() == process:  # not one that the program forked, which has no results
        stream = sys.stderr if failed else sys.stdout
        written = finish(profiled, options, " ".join(program), folder, stream)
    if ending is not None:
        raise ending
    if not written:
        sys.exit(1)


# ---- the command line ------------------------------------------------------------------------


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the options before the program.

    >>> make_parser().parse_args(["--limit", "5"]).limit
    5
    """
    parser = _Parser(
        prog=PROGRAM,
        usage=USAGE,
        description="Run a program under the profiler and show where its time goes.",
        allow_abbrev=False,
    )
    parser.add_argument("--html", metavar="FILE", help="write a report for browsers")
    parser.add_argument("--trace", metavar="FILE", help="write a trace for Perfetto")
    parser.add_argument(
        "--stacks", metavar="FILE", help="write lines for flame graphs; implies --stack"
    )
    parser.add_argument(
        "--sort",
        metavar="KEY",
        type=sort_key,
        default="self_cpu_time_total",
        help="what the table is sorted by: %(default)s, " + ", ".join(SORT_KEYS),
    )
    parser.add_argument(
        "--limit", metavar="N", type=int, default=20, help="rows of the table, -1 for all (20)"
    )
    parser.add_argument("--shapes", action="store_true", help="a row for each shape of inputs")
    parser.add_argument("--memory", action="store_true", help="follow memory of tensors")
    parser.add_argument("--stack", action="store_true", help="a row for each line of the program")
    parser.add_argument("--flops", action="store_true", help="estimate floating-point operations")
    parser.add_argument("--device", metavar="KIND", help="time kernels of a device, such as cuda")
    parser.add_argument("--all-threads", action="store_true", help="record every thread")
    return parser


def of_this_rank(path: str | None) -> str | None:
    """Return a path with this process's number under mpiexec, or 0, in the place of ``{rank}``.

    >>> of_this_rank("trace.json")
    'trace.json'
    """
    if path is None:
        return None
    rank = (
        os.environ.get("PMI_RANK")  # MPICH and its relatives
        or os.environ.get("OMPI_COMM_WORLD_RANK")
        or os.environ.get("PMIX_RANK")
        or os.environ.get("SLURM_PROCID")
    )
    return path.replace("{rank}", rank or "0")


def merge(arguments: list[str]) -> None:
    """Make one trace of those of several processes: ``merge TARGET SOURCE...``.

    Raises: SystemExit with code 2, after one line, for a file that cannot be read or written.

    >>> merge(["trace.json"])
    Traceback (most recent call last):
    SystemExit: 2
    """
    parser = _Parser(prog=f"{PROGRAM} merge", description="Make one trace of several.")
    parser.add_argument("target", help="the file to write; .gz at the end compresses")
    parser.add_argument("sources", nargs="+", help="traces of processes")
    options = parser.parse_args(arguments)
    from pullback_profiler.export.merged_trace import write_merged

    try:
        write_merged(options.target, options.sources)
    except OSError as error:
        parser.error(f"cannot open {error.filename!r}: {error.strerror}")
    except ValueError as error:
        parser.error(str(error))
    print(f"wrote {options.target}")


def diff(arguments: list[str]) -> None:
    """Print how one profile differs from another: ``diff BEFORE AFTER``.

    Raises: SystemExit with code 1 if time grew by more than ``--fail-above``; with code 2, after
    one line, for files that are no profiles and cannot be read.

    >>> diff(["before.json"])
    Traceback (most recent call last):
    SystemExit: 2
    """
    from pullback_profiler.export.trace_diff import SORT_KEYS as KEYS
    from pullback_profiler.export.trace_diff import diff_traces

    parser = _Parser(prog=f"{PROGRAM} diff", description="Compare two profiles, by name.")
    parser.add_argument("before", help="a trace, as --trace writes it")
    parser.add_argument("after", help="another one")
    parser.add_argument("--sort", choices=KEYS, default="time", help="what is largest first")
    parser.add_argument("--limit", metavar="N", type=int, default=20, help="rows, -1 for all (20)")
    parser.add_argument(
        "--fail-above", metavar="PERCENT", type=percent, help="exit with 1 if time grew more"
    )
    options = parser.parse_args(arguments)
    try:
        changes = diff_traces(options.before, options.after)
    except OSError as error:
        parser.error(f"cannot open {error.filename!r}: {error.strerror}")
    except ValueError as error:
        parser.error(str(error))
    text = changes.table(options.sort, options.limit)
    failed = options.fail_above is not None and changes.growth() > options.fail_above
    if failed:
        text += f"time grew by {changes.growth():.2f}%, more than {options.fail_above:g}%\n"
    with_stream(sys.stdout, lambda stream: stream.write(printable(text, stream)))
    if failed:
        sys.exit(1)


def percent(text: str) -> float:
    """Return a number of percent, which ``%`` may follow.

    >>> percent("10%"), percent("2.5")
    (10.0, 2.5)
    """
    try:
        number = float(text.removesuffix("%"))
        if math.isnan(number):  # which nothing is above
            raise ValueError
        return number
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected percent such as 10%, got {text!r}") from None


def sort_key(text: str) -> str:
    """Return what a table can be sorted by.

    >>> sort_key("count")
    'count'
    """
    if text not in SORT_KEYS and text not in map(device_neutral, SORT_KEYS):
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(SORT_KEYS)}; got {text!r}")
    return text


def split(
    arguments: Sequence[str], parser: argparse.ArgumentParser
) -> tuple[list[str], list[str], bool]:
    """Return our own options, the program with its arguments, and whether it is a module.

    >>> split(["--limit", "5", "train.py", "--limit", "9"], make_parser())
    (['--limit', '5'], ['train.py', '--limit', '9'], False)
    """
    with_value = {
        name for action in parser._actions if action.nargs is None for name in action.option_strings
    }
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] in ("-m", "--"):
            return list(arguments[:at]), list(arguments[at + 1 :]), arguments[at] == "-m"
        at += 2 if arguments[at] in with_value else 1
    return list(arguments[:at]), list(arguments[at:]), False


def check_writable(path: str, parser: argparse.ArgumentParser) -> None:
    """End with a message if a file cannot be written; make none that does not exist yet."""
    existed = os.path.exists(path)
    if existed and not os.path.isfile(path) and not os.path.isdir(path):
        return  # a device or a pipe, where opening may wait
    try:
        open(path, "ab").close()
        if not existed:
            os.unlink(path)
    except OSError as error:
        parser.error(f"cannot write {path!r}: {error.strerror}")


def make_profile(options: argparse.Namespace, parser: argparse.ArgumentParser) -> profile:
    """Return the profiler that the options ask for."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a device that cannot be used
        try:
            return profile(
                use_device=options.device,
                record_shapes=options.shapes,
                with_flops=options.flops,
                profile_memory=options.memory,
                with_stack=options.stack or options.stacks is not None,
                all_threads=options.all_threads,
            )
        except UserWarning as warning:
            parser.error(str(warning))


# ---- the program -----------------------------------------------------------------------------


def prepare_script(program: list[str], parser: argparse.ArgumentParser) -> Callable[[], Any]:
    """Set the interpreter up for a script, or a folder or archive with ``__main__.py``."""
    script = program[0]
    try:
        with open(script, "rb"):
            pass
    except IsADirectoryError:
        pass
    except OSError as error:
        parser.error(f"cannot open {script!r}: {error.strerror}")
    sys.argv = program
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        if pkgutil.get_importer(script) is None:
            sys.path[0] = os.path.dirname(os.path.realpath(script))
        else:
            del sys.path[0]  # runpy puts the folder or archive there
    return lambda: runpy.run_path(script, run_name="__main__")


def prepare_module(program: list[str], parser: argparse.ArgumentParser) -> Callable[[], Any]:
    """Set the interpreter up for a module, or for a package's ``__main__``."""
    module = program[0]
    try:
        found = importlib.util.find_spec(module)
        if found is not None and found.submodule_search_locations is not None:
            found = importlib.util.find_spec(f"{module}.__main__")
    except (ImportError, ValueError) as error:
        parser.error(f"cannot run {module!r}: {error}")
    if found is None:
        parser.error(f"cannot run {module!r}: no module of that name that can be run")
    sys.argv = program  # runpy replaces the first by the module's file
    return lambda: runpy.run_module(module, run_name="__main__", alter_sys=True)


def show_first(ending: BaseException | None) -> None:
    """Show the program's exception now, above the table, and not again when Python reports it."""
    assert ending is not None
    ending.__traceback__ = of_program(ending.__traceback__)
    sys.excepthook(type(ending), ending, ending.__traceback__)
    sys.excepthook = lambda *_: None


def of_program(traceback: types.TracebackType | None) -> types.TracebackType | None:
    """Return a traceback without the frames around the program: those of this file and of runpy."""
    at = traceback
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if file not in (__file__, runpy.__file__, "<frozen runpy>"):
            return at
        at = at.tb_next
    return None


# ---- results ---------------------------------------------------------------------------------


def finish(
    profiled: profile, options: argparse.Namespace, title: str, folder: str, stream: TextIO | None
) -> bool:
    """Write the files, then print the averages; False, after a line, if one cannot be written."""
    averages = profiled.key_averages(
        group_by_input_shape=options.shapes, group_by_stack_n=1 if profiled.with_stack else 0
    )
    written, failures = [], []
    for path, write in (
        (options.html, lambda path: profiled.export_html(path, title)),
        (options.trace, profiled.export_chrome_trace),
        (options.stacks, profiled.export_stacks),
    ):
        if path is None:
            continue
        try:
            write(os.path.join(folder, path))
            written.append(f"wrote {path}\n")
        except OSError as error:
            failures.append(f"{PROGRAM}: cannot write {path!r}: {error.strerror}\n")

    def show(stream: TextIO) -> None:
        if not averages:
            stream.write("the profiler recorded no event\n")
        elif not print_rich(averages, options, stream):
            stream.write(printable(averages.table(options.sort, options.limit), stream))
        stream.write(printable("".join(written), stream))

    with_stream(stream, show)
    if failures:
        with_stream(sys.stderr, lambda stream: stream.write(printable("".join(failures), stream)))
    return not failures


def with_stream(stream: TextIO | None, show: Callable[[TextIO], object]) -> None:
    """Let ``show`` print, unless the stream is closed or its reader is gone."""
    try:
        if stream is None:
            return
        stream.flush()
    except (OSError, ValueError):  # a broken pipe, a closed file
        return
    try:
        show(stream)
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):  # otherwise Python fails to flush the rest when it ends
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


def printable(text: str, stream: TextIO) -> str:
    """Return a text with escapes for what the stream cannot encode.

    >>> printable("a\\udc80.py", sys.stdout) == "a\\\\udc80.py"
    True
    """
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def print_rich(averages: EventList, options: argparse.Namespace, stream: TextIO) -> bool:
    """Print the averages with rich, as wide as the terminal; False where that cannot be."""
    if not stream.isatty():
        return False
    try:
        from rich import box, console, table, text
    except ImportError:
        return False
    made = layout(averages, **averages._options(), sort_by=options.sort, row_limit=options.limit)
    shown = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    rows = [[str(column.cell(event)) for column in made.columns] for event in made.rows]
    needed = 0
    for at, column in enumerate(made.columns):
        width = max(map(len, [*column.header.split(), *(row[at] for row in rows)]))
        if column.header in ("Name", "Input Shapes", "Source Location"):  # these give way
            least = min(width, 16)
            shown.add_column(column.header, min_width=least)
            needed += least + 3
        else:
            shown.add_column(column.header, justify="right", width=width)
            needed += width + 3
    for row in rows:  # as Text: a name may look like rich's markup
        cells = (printable(cell, stream) for cell in row)
        shown.add_row(*(text.Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
    terminal = console.Console(file=stream)
    terminal.width = max(terminal.width, needed)  # long lines are better than cut numbers
    terminal.print(shown)
    for line in made.totals:
        terminal.print(text.Text(line))
    return True
