# build: small
"""Options of optimizers that fused steps take as they are: programs read them in each run."""

from pullback.abi cimport PB_PARAM_FLOAT
from pullback._c.capture.launches cimport Launch

from pullback.ops.table.primitives import PRIMITIVES

__all__ = ["Option"]

cdef list param_names = [[text.partition(":")[0] for text in primitive.params]
                         for primitive in PRIMITIVES.values()]


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
        return found if self.item < 0 else found[self.item]

    cdef bint holds(self) except -1:
        found = self.group.get(self.key)
        if self.item >= 0:
            if type(found) is not tuple or len(<tuple>found) <= self.item:
                return False
            found = (<tuple>found)[self.item]
        return (type(found) is float or type(found) is int) and sign_of(found) == self.sign


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
        if launch.call.param[number].kind == PB_PARAM_FLOAT and type(value) in (float, int) and (
                launch.call.param[number].d == value):
            found.append((number, Option(group, key, item)))
    return found if any(option.key == "lr" for _, option in found) else None
