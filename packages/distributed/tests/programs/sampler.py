"""``DistributedSampler`` with the rank and the size of the group."""

import pullback_distributed as dist
from pullback.utils.data import DataLoader, DistributedSampler


def main():
    dist.init_process_group()
    rank, size = dist.get_rank(), dist.get_world_size()
    for length in (1, size - 1, size, size + 1, 12, 13, 25):
        for shuffle in (False, True):
            for drop_last in (False, True):
                sampler = DistributedSampler(range(length), shuffle=shuffle, drop_last=drop_last)
                assert (sampler.rank, sampler.num_replicas) == (rank, size)
                orders = []
                for epoch in range(2):
                    sampler.set_epoch(epoch)
                    own = list(sampler)
                    assert len(own) == len(sampler)
                    parts = [None] * size
                    dist.all_gather_object(parts, own)
                    together = [index for part in parts for index in part]
                    assert len({len(part) for part in parts}) == 1, parts
                    if drop_last:
                        assert len(together) == len(set(together)) == length // size * size
                        assert set(together) <= set(range(length))
                    else:
                        assert set(together) == set(range(length)), (length, parts)
                        assert len(together) == -(-length // size) * size
                    orders.append(parts)
                if length >= 12:
                    assert (orders[0] != orders[1]) is shuffle
    loader = DataLoader(list(range(10)), batch_size=2, sampler=DistributedSampler(range(10)))
    seen = [None] * size
    dist.all_gather_object(seen, [x for batch in loader for x in batch.tolist()])
    assert {x for part in seen for x in part} == set(range(10))
    dist.destroy_process_group()


main()
