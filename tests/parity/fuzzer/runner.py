"""The outer process: starts inner ones, survives their deaths and sums up what they found."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

SILENCE = 60  # seconds without a line after which an inner process counts as hanging


@dataclass
class Report:
    """What came of many programs."""

    programs: int = 0
    statements: int = 0
    errors: int = 0
    accepted: dict = field(default_factory=dict)  # reason -> seeds
    torch_died: list = field(default_factory=list)
    died: list = field(default_factory=list)
    differences: dict = field(default_factory=dict)  # key -> [(seed, text)]

    def failed(self):
        """Return True if anything is wrong with Pullback."""
        return bool(self.died or self.differences)

    def add(self, line):
        """Count one program that ended."""
        self.programs += 1
        self.statements += line["statements"]
        self.errors += line["errors"]
        if "accepted" in line:
            self.accepted.setdefault(line["accepted"], []).append(line["end"])
        if "difference" in line:
            self.differences.setdefault(line["key"], []).append((line["end"], line["difference"]))

    def text(self, most=40):
        """Return the report as text."""
        count = sum(map(len, self.differences.values()))
        lines = [
            f"{self.programs} programs, {self.statements} statements ({self.errors} raised)",
            f"{count} programs differ",
            f"{len(self.died)} killed Pullback's interpreter, {len(self.torch_died)} torch's",
        ]
        for why, seeds in sorted(self.accepted.items(), key=lambda kind: -len(kind[1])):
            shown = " ".join(map(str, seeds[:3]))
            lines.append(f"{len(seeds):6} as documented: {why} (seeds {shown})")
        lines += [f"died: {how}, seed {seed}" for seed, how in self.died]
        kinds = sorted(self.differences.items(), key=lambda kind: -len(kind[1]))
        for key, found in kinds[:most]:
            seeds = " ".join(str(seed) for seed, _ in found[:8])
            lines += ["", f"{len(found)} x {key}", f"seeds {seeds}", found[0][1][:1500]]
        return "\n".join(lines)


def run_chunks(first, count, size=500, groups=()):
    """Run `count` programs from seed `first` on, in inner processes of `size` programs."""
    report = Report()
    end = first + count
    while first < end:
        first = run_chunk(first, min(first + size, end), groups, report)
    return report


def run_chunk(first, last, groups, report):
    """Run programs in one inner process; return the seed to go on with."""
    command = [sys.executable, "-m", "fuzzer.chunk", str(first), str(last)]
    command += [f"--group={group}" for group in groups]
    folder = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, [folder, os.environ.get("PYTHONPATH")]))
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": path}, bufsize=0
    )
    running = None
    how = None
    for line in lines_of(process):
        if line is None:
            process.kill()
            how = f"hung for {SILENCE} s"
            break
        found = json.loads(line)
        if "end" in found:
            report.add(found)
            running = None
        else:
            running = found
    status = process.wait()
    process.stdout.close()
    if status == 0:
        return last
    if running is None:
        raise RuntimeError(f"the inner process failed with status {status} between programs")
    how = how or f"status {status}"
    if running["on"] == "torch" and status > 0:
        raise RuntimeError(f"seed {running['begin']} cannot be written: see above")
    group = report.torch_died if running["on"] == "torch" else report.died
    group.append((running["begin"], how))
    return running["begin"] + 1


def lines_of(process):
    """Yield a process's lines; None when it is silent for too long."""
    rest = b""
    descriptor = process.stdout.fileno()
    while True:
        ready, _, _ = select.select([descriptor], [], [], SILENCE)
        if not ready:
            yield None
            return
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
