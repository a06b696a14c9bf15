# build: small
"""Values that a program reads at the start of each run: random numbers, options of optimizers.

A run takes as many random numbers of its generators as the recorded call did. A draw is a number of
counter blocks of a generator; random kernels are told where theirs begin. Options are those that
fused steps take as they are.
"""

from libc.stdint cimport int64_t

from pullback.abi cimport PB_F64, PB_PARAM_FLOAT, pb_param
from pullback._c.base.layout cimport layout_contiguous
from pullback._c.device.device cimport DEVICE_CPU, DEVICE_REF, device_types
from pullback._c.dispatch.operands cimport has_number, number_of
from pullback._c.graph.tensor cimport TENSOR_IS_NUMBER, tensor_data, tensor_new
from pullback._c.program.launches cimport Launch

from pullback.ops.table.numbered import PARAMS

__all__ = ["Option"]

cdef list param_names = PARAMS


# ---- random numbers ------------------------------------------------------------------------------

# Of random kernels: the numbers of the parameters that say where the random numbers begin.
cdef dict random_params = {
    number: (names.index("seed"), names.index("offset"))
    for number, names in enumerate(param_names) if "seed" in names}


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
        if blocks < 0:              # the generator went back
            continue
        if seed == taken and first <= offset < first + blocks:
            launch.draw = i
            launch.seed = seed_at
            launch.offset = offset_at
            launch.draw_shift = offset - first
            return True
    return False


cdef list joined_draws(list draws, list launches, list before):
    """Return the draws of a program; a generator that went back has one, which begins at first.

    ``before`` are the draws of the pass whose backward pass this is: where generators go back to
    one of those, the draw begins where that pass began. None if one goes back behind that, or where
    a backward pass does not go on from where it began.
    """
    cdef list found = [], moved = []
    cdef dict firsts = {}, places = {}, ends = {}
    cdef set going_back = {id(generator) for generator, _, _, blocks in draws if blocks == -1}
    cdef Launch launch
    for generator, seed, first, blocks in before:
        firsts.setdefault(id(generator), (seed, first))
        if blocks is None:
            return None
        ends[id(generator)] = first + max(blocks, 0)
    for generator, seed, first, blocks in draws:
        if id(generator) not in going_back:
            moved.append((len(found), 0))
            found.append((generator, blocks))
            continue
        seed_there, begin = firsts.setdefault(id(generator), (seed, first))
        if seed != seed_there or first < begin:
            return None
        place = places.setdefault(id(generator), len(found))
        if place == len(found):
            found.append(None)
        found[place] = generator, first + max(blocks, 0) - begin
        moved.append((place, first - begin))
    for key, end in ends.items():
        if key in places and found[places[key]][1] != end - firsts[key][1]:
            return None
    for launch in launches:
        if launch.draw >= 0:
            launch.draw, shift = moved[launch.draw]
            launch.draw_shift += shift
    return found


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


# ---- options ------------------------------------------------------------------------------------

cdef int sign_of(double value) noexcept:
    return 2 if value != value else (value > 0) - (value < 0)


cdef class Option:
    """An option of an optimizer's parameter group that a fused step takes as it is.

    Programs read it in each run. Whether it is 0 decides which states there are, so that must stay.
    """

    def __init__(self, dict group not None, str key, int item):
        self.group = group
        self.key = key
        self.item = item
        self.sign = sign_of(self.value())

    cdef double value(self) except? -1:
        found = self.group[self.key]
        return number_of(found if self.item < 0 else found[self.item])

    cdef int store(self) except -1:
        """Write the value to the tensor."""
        (<double *>tensor_data(self.tensor))[0] = self.value()
        return 0

    cdef bint holds(self) except -1:
        found = self.group.get(self.key)
        if self.item >= 0:
            if type(found) is not tuple or len(<tuple>found) <= self.item:
                return False
            found = (<tuple>found)[self.item]
        return has_number(found) and sign_of(number_of(found)) == self.sign


cdef list options_of(Launch launch, object group):
    """Return which parameters of a fused step are options of a group: pairs with an Option.

    None if the learning rate is not one of them: then this is no step of the group.
    """
    cdef list found = []
    cdef int number = -1
    if type(group) is not dict:
        return None
    for name in param_names[launch.call.primitive]:
        number += 1
        key, item = ("betas", int(name[4:]) - 1) if name[:4] == "beta" else (name, -1)
        value = group.get(key)
        if item >= 0 and type(value) is tuple and len(value) == 2:
            value = value[item]
        if launch.call.param[number].kind == PB_PARAM_FLOAT and has_number(value) and (
                launch.call.param[number].d == number_of(value)):
            found.append((number, Option(group, key, item)))
    return found if any(option.key == "lr" for _, option in found) else None


cdef Option rate_of(object group, object value, dict known):
    """Return the learning rate of a group with a tensor for it; None if the value is another.

    The tensor is on the host, and promotes as a number. ``known`` has those that were made before.
    """
    cdef int type_id = DEVICE_CPU if device_types()[DEVICE_CPU].loaded else DEVICE_REF
    if type(group) is not dict or type(value) not in (float, int) or not has_number(
            group.get("lr")) or number_of(group["lr"]) != value:
        return None
    cdef Option before = <Option>known.get(id(group)), made = Option(group, "lr", -1)
    if before is not None:
        made.tensor = before.tensor
        made.store()
        return made
    known[id(group)] = made             # which keeps the group
    made.tensor = tensor_new(layout_contiguous(0, NULL), PB_F64, type_id, 0)
    made.tensor.flags |= TENSOR_IS_NUMBER
    made.store()
    return made
