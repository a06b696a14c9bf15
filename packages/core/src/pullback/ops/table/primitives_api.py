"""For forward passes in Python, below autograd: kernels by primitive, new memory, copies."""

from pullback.ops.table.compiled import compiled
from pullback.ops.table.schema import ops


def run_primitive(primitive, outs, ins, *params):
    """Run a primitive on tensors."""
    compiled("dispatch.launch", "run_primitive")(primitive, outs, ins, *params)


# Elements up to which two compiled ops are quicker than one kernel called from here.
FEW = 4096


def reduce_by(primitive, self, dims, keepdim, dtype=None):
    """Return what a reduction primitive makes of a tensor over checked dims."""
    full = tuple(1 if d in dims else n for d, n in enumerate(self.shape))
    out = new_empty(self, full, dtype)
    if out.numel():
        run_primitive(primitive, (out,), (self,))
    if keepdim:
        return out
    return out.reshape(tuple(n for d, n in enumerate(self.shape) if d not in dims))


def new_empty(like, shape, dtype=None):
    """Return an uninitialised tensor on the device of another."""
    return compiled("ops.create", "empty_tensor")(tuple(shape), dtype or like.dtype, like.device)


def new_filled(like, shape, value=0, dtype=None):
    """Return a tensor of one value on the device of another."""
    return compiled("ops.create", "fill_tensor")(new_empty(like, shape, dtype), value)


def put(target, source):
    """Copy the elements of a tensor into another of its shape."""
    if source.numel():
        compiled("ops.create", "copy_raw")(target, source)
    return target


# Dtypes in output specs, which describe the outputs of entries with forward="structured" (see
# _c/dispatch/structured.pyx): that of the first tensor, and int64 as abi.h numbers it.
OWN_DTYPE, INT64_DTYPE = -1, 5


# -- under vmap, where a tensor may stand for one element of a batch -------------------------------


def whole_batch(tensor):
    """Return the batch that a tensor stands for, to look at values; others as they are."""
    return compiled("graph.levels", "whole")(tensor)


def is_batched(tensor):
    """Return True for a tensor that stands for a batch of vmap."""
    return compiled("transforms.batching", "are_batched")((tensor,))


def is_plain(g):
    """Return True if a gradient is not recorded and no transform is open: it may be sparse."""
    return not (g.requires_grad or compiled("graph.levels", "level_count")())


def beside(tensor, *others):
    """Return a new tensor, batched where others are, so that these can be written into it."""
    for other in others:
        if is_batched(other):
            tensor = ops.clone_beside(tensor, other)
    return tensor


def writable(self, *others):
    """Return a copy to write others into."""
    return beside(compiled("ops.clone", "clone_to_write")(self), *others)
