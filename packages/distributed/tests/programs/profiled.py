"""A profile has the collectives of this thread and those that it has started, with their bytes."""

import pullback as pb
import pullback_distributed as dist
from pullback.nn.parallel import DistributedDataParallel
from pullback.profiler import profile


def names_in(function):
    with profile() as profiled:
        function()
    return [event.name for event in profiled.events() if event.name.startswith("dist::")]


def main():
    dist.init_process_group()
    x = pb.ones(1000)
    assert names_in(lambda: dist.all_reduce(x)) == ["dist::all_reduce"]
    assert names_in(lambda: dist.broadcast(x, 0, async_op=True).wait()) == ["dist::broadcast"]
    model = DistributedDataParallel(pb.nn.Linear(4, 2))
    model(pb.ones(3, 4)).sum().backward()  # agrees on the order of buckets
    found = names_in(lambda: model(pb.ones(3, 4)).sum().backward())
    assert found == ["dist::all_reduce"], found
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
