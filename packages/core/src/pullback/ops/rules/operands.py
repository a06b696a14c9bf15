"""Tensor operands: their memory, and whether they have values."""


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
