"""A program with loaders that ends in the way that its argument names."""

import os
import signal
import sys
import time

import pullback as pb
from pullback.utils.data import DataLoader, Dataset

how = sys.argv[1]
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it


class Samples(Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, index):
        if how == "interrupt" and index == 5:
            os.killpg(os.getpgrp(), signal.SIGINT)  # what Ctrl-C does
        while how == "interrupt" and index > 5:
            time.sleep(0.1)
        return pb.full((5000,), index)


def interrupted():
    try:
        list(DataLoader(Samples(), 2, num_workers=2))
    except KeyboardInterrupt:
        print("interrupted")
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("no children")


if how == "interrupt":
    interrupted()
else:
    loaders = [
        DataLoader(Samples(), 2, num_workers=2),
        DataLoader(Samples(), 2, num_workers=2, persistent_workers=True),
        DataLoader(Samples(), 2, num_workers=2, multiprocessing_context="thread"),
    ]
    iterators = [iter(loader) for loader in loaders]  # they live until the end, half read
    batches = [next(iterator) for iterator in iterators]
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    print("read")
