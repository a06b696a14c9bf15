"""Rank 1 fails, in a way that the first argument names; rank 0 waits for it."""

import sys
import threading
import time

import pullback as pb
import pullback_distributed as dist
from pullback_distributed.faults import watch


def shorten():
    """Look more often than every second, and wait less, so that the test is short."""
    watch.INTERVAL, watch.PATIENCE, watch.PATIENCE_OF_MESSAGES = 0.05, 0.3, 0.6


def former_hook(kind, error, trace):
    print(f"the former hook: {error}", file=sys.stderr, flush=True)


def fails(how):
    if how == "exit":
        sys.exit(3)
    if how == "builtin exit":
        exit(4)
    if how == "raised exit":
        raise SystemExit(5)
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "thread":  # of the program's own: nothing is ended
        thread = threading.Thread(target=fails, args=("",))
        thread.start()
        thread.join()
        return
    raise ValueError(f"rank {dist.get_rank()} does not like this")


def main(how):
    shorten()
    if how == "former hook":
        sys.excepthook = former_hook
    dist.init_process_group()
    x = pb.ones(2)
    if how == "callback":
        work = dist.all_reduce(x, async_op=True)
        work.get_future().add_done_callback(lambda done: dist.get_rank() == 1 and fails(how))
        work.wait()
        dist.all_reduce(x, async_op=True).wait()
    elif dist.get_rank() == 1:
        print("the last line of rank 1")  # not flushed
        fails(how)
    elif how == "busy":
        time.sleep(60)
    dist.all_reduce(x)
    dist.destroy_process_group()
    if how == "thread":
        assert sys.excepthook is sys.__excepthook__
        assert threading.excepthook is threading.__excepthook__
        assert not any("pullback" in thread.name for thread in threading.enumerate())


main(sys.argv[1])
