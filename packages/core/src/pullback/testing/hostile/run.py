"""Make hostile calls in processes of their own, and watch them."""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import gc
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pullback as pb
from pullback.testing.hostile.calls import SECONDS, attempt, check_world, draw_call, targets
from pullback.testing.requirements import exit_without

__all__ = ["Failure", "main", "run_calls"]

CHUNK = 4000  # calls of one process
EVERY = 100  # calls between two looks at what is known
HEADROOM = 1 << 30  # bytes of address space that a process may take beyond its start
COMMAND = (sys.executable, "-m", "pullback.testing", "hostile")
INDEX = struct.Struct("q")
POLL = 0.05


@dataclasses.dataclass
class Failure:
    """A call, or a range of calls, that went wrong."""

    what: str
    first: int
    count: int = 1

    def shown(self, options: str) -> str:
        """Return what went wrong and the line that repeats it."""
        part = f"--call {self.first}"
        if self.count > 1:
            part = f"--first {self.first} --count {self.count}"
        return f"python -m pullback.testing hostile {options} {part}\n    {self.what}"


# ---- the process that makes the calls ------------------------------------------------------------


def work(given: argparse.Namespace) -> int:
    """Make the calls of a range; print failures as JSON lines, note each index in a file."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    gc.freeze()  # what is here already needs no look
    check_world(given.device)
    limit_memory()
    with Path(given.worker).open("r+b", buffering=0) as progress:
        for index in range(given.first, given.first + given.count):
            os.pwrite(progress.fileno(), INDEX.pack(index), 0)
            wrong = make(given, index)
            if wrong is None and index % EVERY == EVERY - 1:
                wrong = look(given.device)
            if wrong is not None:
                print(json.dumps([index, wrong]), flush=True)
    wrong = look(given.device)
    if wrong is not None:
        print(json.dumps([given.first + given.count - 1, wrong]), flush=True)
    return 0


def make(given: argparse.Namespace, index: int) -> str | None:
    """Draw a call and make it."""
    pb.manual_seed(index)
    call = draw_call(given.seed, index, given.device, given.op)
    text = str(call)
    if given.call is not None:
        print(text, file=sys.stderr, flush=True)
    wrong = attempt(call)
    return None if wrong is None else f"{text}: {wrong}"


def look(device: str) -> str | None:
    """Return what is wrong with results that are known."""
    try:
        gc.collect()
        check_world(device)
    except BaseException as error:
        return f"after these calls {type(error).__name__}: {error}"
    return None


def limit_memory() -> None:
    """Bound the address space; does nothing where the system cannot."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + HEADROOM
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (ImportError, OSError, ValueError):
        pass


# ---- the process that watches --------------------------------------------------------------------


def run_calls(
    device: str, calls: int, seed: int = 0, first: int = 0, ops: list[str] | None = None
) -> Iterator[Failure]:
    """Make calls on a device, each range in a process of its own; yields what goes wrong."""
    end = first + calls
    while first < end:
        count = min(CHUNK, end - first)
        found, reached = run_process(device, count, seed, first, ops)
        for failure in found:
            if failure.count > 1 and failure.first < reached:
                # Does it need the calls before it?
                alone, _ = run_process(device, 1, seed, reached - 1, ops)
                failure = alone[0] if alone else failure
            yield failure
        first = reached


def run_process(
    device: str, count: int, seed: int, first: int, ops: list[str] | None
) -> tuple[list[Failure], int]:
    """Run a range in a process; returns what went wrong, and the first call that was not made."""
    with tempfile.TemporaryDirectory() as folder:
        progress, errors = Path(folder, "progress"), Path(folder, "errors")
        progress.write_bytes(INDEX.pack(-1))
        command = [
            *COMMAND,
            "--device",
            device,
            "--seed",
            str(seed),
            "--first",
            str(first),
            "--count",
            str(count),
            "--worker",
            str(progress),
            *(["--op", *ops] if ops else []),
        ]
        output = Path(folder, "output")
        with output.open("wb") as out, errors.open("wb") as err:
            child = subprocess.Popen(command, stdout=out, stderr=err, cwd=folder)
            hung = watch(child, progress)
        at = INDEX.unpack(progress.read_bytes())[0]
        found = [
            Failure(wrong, index)
            if not wrong.startswith("after ")
            else Failure(wrong, first, index - first + 1)
            for index, wrong in map(json.loads, output.read_text().splitlines())
        ]
        if child.returncode == 0:
            return found, first + count
        report = errors.read_text(errors="replace").partition("\nExtension modules")[0][-1500:]
        if at < 0:
            raise RuntimeError(f"hostile: the process fails before it makes a call\n{report}")
        what = "hung" if hung else f"ended with {child.returncode}"
        found.append(Failure(f"{what}\n{report}", first, at - first + 1))
        return found, at + 1


def watch(child: subprocess.Popen[Any], progress: Path) -> bool:
    """Wait for a process; kill it when one call takes too long. Returns whether it was killed."""
    at, since, start = None, 0.0, time.monotonic()
    while child.poll() is None:
        time.sleep(POLL)
        now, used = INDEX.unpack(progress.read_bytes())[0], processor_time(child.pid)
        if now != at:
            at, since, start = now, used, time.monotonic()
        elif used - since > 2 * SECONDS or time.monotonic() - start > 60 * SECONDS:
            child.send_signal(6 if os.name == "posix" else 15)  # faulthandler shows where it is
            child.wait()
            return True
    return False


def processor_time(pid: int) -> float:
    """Return the seconds that a process has computed; the time on the wall where no one knows."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.monotonic()


def main(arguments: list[str]) -> int:
    """Run the command line; returns 1 if a call went wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m pullback.testing hostile",
        description="Call every op with hostile arguments, in processes that are watched.",
    )
    parser.add_argument("--device", help="where to run; the default device otherwise")
    parser.add_argument("--count", type=int, default=20_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first call")
    parser.add_argument("--op", nargs="+", metavar="NAME", help="only these ops")
    parser.add_argument("--call", type=int, metavar="N", help="make one call, in this process")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    given.device = given.device or str(pb.get_default_device())
    exit_without(parser, given.device)
    unknown = sorted(set(given.op or ()) - set(targets()))
    if unknown:
        parser.error(f"no public op is named {unknown[0]!r}")
    if given.worker:
        return work(given)
    if given.call is not None:
        wrong = make(given, given.call) or look(given.device)
        print(wrong or "nothing is wrong")
        return 1 if wrong else 0
    start = time.perf_counter()
    options = f"--device {given.device} --seed {given.seed}"
    options += f" --op {' '.join(given.op)}" if given.op else ""
    count = 0
    for failure in run_calls(given.device, given.count, given.seed, given.first, given.op):
        count += 1
        print(failure.shown(options), flush=True)
    taken = time.perf_counter() - start
    print(f"{given.count} calls on {given.device}: {count} failures, {taken:.0f} s")
    return 1 if count else 0
