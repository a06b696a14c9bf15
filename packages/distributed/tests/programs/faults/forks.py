"""Forks in a process with a group are refused; other ways to start processes are not."""

import multiprocessing
import os
import subprocess
import sys

import pullback as pb
import pullback_distributed as dist
from pullback.utils.data import DataLoader, TensorDataset


def double(x):
    return 2 * x


def refused(function):
    try:
        function()
    except RuntimeError as error:
        assert "multiprocessing_context='spawn'" in str(error), error
    else:
        raise AssertionError("a fork was not refused")


def main():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    dist.init_process_group()
    data = TensorDataset(pb.arange(4))
    refused(os.fork)
    refused(os.forkpty)
    refused(multiprocessing.get_context("fork").Process(target=double, args=(1,)).start)
    refused(lambda: list(DataLoader(data, 2, num_workers=1, multiprocessing_context="fork")))
    refused(lambda: list(DataLoader(data, 2, num_workers=1)))
    said = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True)
    assert said.stdout == "1\n"
    assert os.system("true") == 0
    if dist.get_rank() == 0:
        for way in ("spawn", "thread"):
            loader = DataLoader(data, 2, num_workers=1, multiprocessing_context=way)
            assert [x.tolist() for (x,) in loader] == [[0, 1], [2, 3]]
    dist.barrier()
    dist.destroy_process_group()
    child = os.fork()  # there is no group any more
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
