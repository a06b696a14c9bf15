"""Run a program as if one call of MPI took few elements: ``small_calls.py PROGRAM``."""

import runpy
import sys

from pullback_distributed.collectives import memory, reductions

MOST = 3


def main(program):
    memory.largest_count = reductions.largest_count = lambda: MOST
    runpy.run_path(program, run_name="__main__")


main(sys.argv[1])
