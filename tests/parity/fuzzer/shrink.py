"""Makes a failing program short: deletes statements as long as it fails in the same way.

python -m fuzzer.shrink SEED            print a script that shows the difference
python -m fuzzer.shrink SEED --crash    the same for a program that kills the interpreter
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

SCRIPT = '''\
"""Found from seed {seed}: {title}"""

from fuzzer.replay import show

show(
    """
{program}
""",
    observed={observed!r},
)
'''


def deletions(statements, fails):
    """Return a shortest program in which no single statement can be deleted."""
    size = max(len(statements) // 2, 1)
    while True:
        position = len(statements) - size
        smaller = False
        while position > -size:
            left = statements[: max(position, 0)] + statements[position + size :]
            if left != statements and fails(left):
                statements = left
                smaller = True
            position -= size
        if size == 1 and not smaller:
            return statements
        size = max(size // 2, 1)


def shrink_difference(statements, observed):
    """Return a short program whose first difference is of the same kind, and the difference."""
    from .chunk import first_of_both, reset

    def difference(program):
        found = first_of_both(program, observed)
        reset()
        return found

    first = difference(statements)
    if first is None:
        return statements, None
    key = first.key()

    def fails(program):
        found = difference(program)
        return found is not None and found.key() == key

    short = deletions(statements[: first.step + 1], fails)
    return short, difference(short)


def crashes(statements, observed):
    """Return True if the program kills an interpreter that runs it on Pullback."""
    command = [
        sys.executable,
        "-m",
        "fuzzer.replay",
        "--only",
        "pullback",
        "--observed",
        observed,
        "-",
    ]
    done = subprocess.run(command, input=json.dumps(statements), text=True, capture_output=True)
    return done.returncode < 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--crash", action="store_true")
    parser.add_argument("--group", action="append", default=[])
    options = parser.parse_args()
    import torch

    from .draft import write_program

    draft = write_program(torch, options.seed, options.group)
    observed = draft.world.observed
    torch.set_grad_enabled(True)
    if options.crash:
        short = deletions(draft.statements, lambda program: crashes(program, observed))
        title = "kills the interpreter"
    else:
        short, found = shrink_difference(draft.statements, observed)
        title = str(found).replace("\\", "\\\\")
    program = "\n".join(short).replace("\\", "\\\\")
    print(SCRIPT.format(seed=options.seed, title=title, program=program, observed=observed))


if __name__ == "__main__":
    main()
