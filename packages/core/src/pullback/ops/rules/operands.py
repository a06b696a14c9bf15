"""Tensor operands: their memory, whether they have values, and decisions that values make."""

from pullback.ops.table.primitives_api import compiled, whole_batch
from pullback.ops.table.schema import ops


def as_vector(self):
    """Return a 0-d tensor as a vector of one element, others as they are."""
    return self if self.ndim else self.reshape(1)


def kept_apart(self, source):
    """Return an operand of a write to self that the write does not change.

    Raises: RuntimeError if both are contiguous and share elements, as torch refuses it.
    """
    from pullback._c.dispatch.operands import may_overlap

    if is_meta(self, source) or not may_overlap(self, source):
        return source
    if self.is_contiguous() and source.is_contiguous():
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the "
            "written-to tensor refer to a single memory location. Please clone() "
            "the tensor before performing the operation."
        )
    return source.clone()


def is_meta(*tensors):
    """Return whether one of the tensors has no values, because it is on meta."""
    return any(t is not None and t.device.type == "meta" for t in tensors)


def all_hold(condition, error=None):
    """Return whether a condition holds for every element; True on meta.

    What comes next may depend on it, in a program of ``compile`` too: it runs for this outcome
    alone. With an error, which the caller raises where one does not hold, it raises that; with a
    class, the function runs again to raise one.
    """
    if is_meta(condition):
        return True
    return compiled("ops.create", "decide")(ops.all(whole_batch(condition)), error)


def any_holds(condition):
    """Return whether a condition holds for some element, as ``all_hold``; False on meta."""
    if is_meta(condition):
        return False
    return compiled("ops.create", "decide")(ops.any(whole_batch(condition)))


def check_all(condition, error):
    """Raise an error unless a condition holds for every element."""
    if not all_hold(condition, error):
        raise error
