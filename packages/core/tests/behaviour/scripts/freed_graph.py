"""Print what a graph of many nodes took and what is left of it once it is freed, in MB."""

import gc
import os
import sys

import pullback as pb


def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


x = pb.ones(8, requires_grad=True)
(x * x).backward(pb.ones(8))
gc.collect()
before = resident()
y = x
for _ in range(int(sys.argv[1])):
    y = y * x
built = resident() - before
y.backward(pb.ones(8), retain_graph=True)
del y
gc.collect()
pb.empty_cache()
print(built, resident() - before)
