# build: small
"""Random numbers of programs: each run takes as many of its generators as the recorded call did.

A draw is a number of counter blocks of a generator; random kernels are told where theirs begin.
"""

from libc.stdint cimport int64_t

from pullback.abi cimport pb_param
from pullback._c.capture.launches cimport Launch

from pullback.ops.table.primitives import PRIMITIVES

__all__ = []

# Of random kernels: the numbers of the parameters that say where the random numbers begin.
cdef dict random_params = {}
for number, primitive in enumerate(PRIMITIVES.values()):
    if "seed:int" in primitive.params:
        names = [text.partition(":")[0] for text in primitive.params]
        random_params[number] = names.index("seed"), names.index("offset")


cdef bint is_random(Launch launch):
    return launch.call.primitive in random_params


cdef bint find_draw(Launch launch, list draws):
    """Note the draw from which a random kernel has its numbers; False if there is none.

    ``draws`` are (generator, seed, first block, blocks), in order.
    """
    cdef int i
    seed_at, offset_at = random_params[launch.call.primitive]
    seed = launch.call.param[<int>seed_at].i & 0xFFFFFFFFFFFFFFFF
    offset = launch.call.param[<int>offset_at].i & 0xFFFFFFFFFFFFFFFF
    for i in range(len(draws) - 1, -1, -1):
        _, taken, first, blocks = draws[i]
        if blocks is None:
            return False
        if seed == taken and first <= offset < first + blocks:
            launch.draw = i
            launch.seed = seed_at
            launch.offset = offset_at
            launch.draw_shift = offset - first
            return True
    return False


cdef list take_draws(list draws, list launches):
    """Reserve random numbers, and tell their kernels where they begin; return where.

    ``draws`` are (generator, blocks); returned are a seed and the first block for each.
    """
    cdef list firsts = [generator.take(blocks) for generator, blocks in draws]
    cdef Launch launch
    for launch in launches:
        if launch.draw >= 0:
            seed, first = firsts[launch.draw]
            (<pb_param *>launch.call.param)[launch.seed].i = as_signed(seed)
            (<pb_param *>launch.call.param)[launch.offset].i = as_signed(first + launch.draw_shift)
    return firsts


cdef int give_back(list draws, list firsts, Py_ssize_t kept) except -1:
    """Let the generators give random numbers again, but those of the first draws."""
    cdef Py_ssize_t i
    for i in range(len(firsts) - 1, kept - 1, -1):
        draws[i][0].set_position(*firsts[i])
    return 0


cdef Py_ssize_t count_drawn(list launches):
    """Return how many draws some launches have used."""
    cdef Py_ssize_t count = 0
    cdef Launch launch
    for launch in launches:
        count = max(count, launch.draw + 1)
    return count


cdef int64_t as_signed(object number) except? -1:
    """Return the number of 64 bits with the same bits."""
    number &= 0xFFFFFFFFFFFFFFFF
    return number - (1 << 64) if number >> 63 else number
