"""The hostile calls, with functions among them that do what no op may do."""

import os
import sys
import warnings

import numpy

import pullback as pb
from pullback.testing.hostile import calls, run

warnings.simplefilter("ignore")


def crash(value):
    os.abort()


def hang(value):
    while True:
        pass


def break_the_rules(value):
    raise SystemError("error return without exception set")


def leave_a_mode(value):
    pb.set_grad_enabled(False)


def spoil(value):
    calls.INDEX[:] = [1, 1]


def grow(value):
    kept = []
    while True:
        kept.append(numpy.empty(1 << 26, numpy.uint8))  # whose pages are not touched


for function in (crash, hang, break_the_rules, leave_a_mode, spoil, grow):
    calls.OTHERS[function.__name__] = (function, ("any",))
calls.targets.cache_clear()
run.SECONDS = 1.0
run.COMMAND = (sys.executable, __file__)
sys.exit(run.main(sys.argv[1:]))
