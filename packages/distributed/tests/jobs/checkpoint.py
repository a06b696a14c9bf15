"""Save or load one checkpoint, under mpiexec or alone: checkpoint.py save|load FOLDER NUMBER.

``save`` takes two more arguments, a point and a rank: there the rank ends itself by SIGKILL.
``crashes`` ends a process alone at every change of the file system that a save makes.
"""

import os
import signal
import sys
from pathlib import Path

import pullback as pb
import pullback_distributed as dist
from pullback_distributed import checkpoint as dcp
from pullback_distributed.checkpoint import folders, saving

ROWS, COLUMNS = 7, 5


def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)


def after(function, count):
    """Return a function that ends the process after some calls."""
    calls = []

    def call(*arguments):
        result = function(*arguments)
        calls.append(arguments)
        if len(calls) == count:
            die()
        return result

    return call


def arm(point):
    if point == "before the file":
        saving.write_file = die
    elif point == "after the file":
        saving.write_file = after(saving.write_file, 1)
    elif point == "before the renames":
        folders.publish = die
    elif point == "between the renames":
        os.rename = after(os.rename, 1)
    elif point == "after the renames":
        os.rename = after(os.rename, 2)
    else:
        raise ValueError(point)


def whole(number):
    return {
        "w": pb.arange(ROWS * COLUMNS).view(ROWS, COLUMNS).float() + number,
        "r": [pb.full((3,), float(number)), {"step": number}],
    }


def save(folder, number, rank=0, size=1):
    """Save rows: uneven, none for a rank of more than 7."""
    state = whole(number)
    start, stop = ROWS * rank // size, ROWS * (rank + 1) // size
    state["w"] = dcp.Shard.along(state["w"][start:stop].clone(), (ROWS, COLUMNS), 0, start)
    dcp.save(state, checkpoint_id=folder)


def load(folder, rank=0, size=1):
    """Load columns; return the number, and check that all is of the save with that number."""
    start, stop = COLUMNS * rank // size, COLUMNS * (rank + 1) // size
    shard = dcp.Shard.along(pb.zeros(ROWS, stop - start), (ROWS, COLUMNS), 1, start)
    state = {"w": shard, "r": [pb.zeros(3), {"step": -1}]}
    dcp.load(state, checkpoint_id=folder)
    number = state["r"][1]["step"]
    expected = whole(number)
    assert state["r"][0].tolist() == expected["r"][0].tolist()
    assert shard.tensor.tolist() == expected["w"][:, start:stop].tolist()
    return number


def crashes(parent):
    """Save in children that end at the first, second, ... change; print how many there are."""
    folder = Path(parent) / "step"
    number, point, done = 0, 0, False
    save(folder, number)
    notes = folder / "notes.txt"
    notes.write_text("mine")
    while not done:
        point += 1
        child = os.fork()
        if not child:
            left = [point]

            def counted(function, left=left):
                def call(*arguments, **options):
                    left[0] -= 1
                    if not left[0]:
                        die()
                    return function(*arguments, **options)

                return call

            for name in ("rename", "unlink", "rmdir", "mkdir", "chmod", "fsync", "open"):
                setattr(os, name, counted(getattr(os, name)))
            save(folder, number + 1)
            os._exit(0)
        done = os.waitpid(child, 0)[1] == 0
        found = load(folder)
        assert found in (number, number + 1) if not done else found == number + 1, (point, found)
        if point % 2 or done:  # else the next child meets what is left
            number += 2
            save(folder, number)
            assert load(folder) == number
            assert [each.name for each in folder.parent.iterdir()] == ["step"]
            assert notes.read_text() == "mine"
        else:
            number = found
    print(point)


def main():
    what, folder, *rest = sys.argv[1:]
    if what == "crashes":
        crashes(folder)
        return
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    if what == "load":
        assert load(folder, rank, size) == int(rest[0])
    else:
        if len(rest) > 1 and rank == int(rest[2]):
            arm(rest[1])
        save(folder, int(rest[0]), rank, size)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
