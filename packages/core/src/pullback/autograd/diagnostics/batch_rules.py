"""The batch axis in the inputs of a node, and what each sample adds to a weight's gradient.

A batch axis (dim, inner) says that sample b has the elements of ``dim`` whose index i has
``i // inner % batch == b``: a view may merge the batch with other dims. A rule gets the axis of a
node's output, and returns one for each edge, or None where the input has no samples: that is a
parameter, or made of parameters alone.
"""

from __future__ import annotations

import math

from pullback._c.graph.op import Op
from pullback._c.python import node_methods
from pullback.func import vmap


class NoRule(Exception):
    """There is no rule for what a node does with samples."""


class SamplesMix(Exception):
    """A node computes what depends on several samples."""


def sizes_of(node):
    """Return the shape of each edge's input; None for an edge that leads nowhere."""
    return [
        None if below is None else tuple(below._input_metadata[nr].shape)
        for below, nr in node.next_functions
    ]


# ---- axes ----------------------------------------------------------------------------------------


def axes_of_inputs(node, axis, batch):
    """Return the batch axis of the input of each edge of a node."""
    op = node_methods.node_inside(node)
    shape = tuple(node._input_metadata[0].shape)
    sizes = sizes_of(node)
    if not isinstance(op, Op) or any(0 in (size or ()) for size in (shape, *sizes)):
        raise NoRule
    batching = (op.entry.batch or "").split()[:1]
    pointwise = op.entry.forward == "elementwise" or op.name == "_mse_loss"
    if pointwise or batching in (["pointwise"], ["expand"]):
        return [_pointwise(shape, axis, size) for size in sizes]
    if batching == ["unary"] and sizes == [shape] and not op.name.endswith("_batch"):
        return [axis]  # those of matrices end in _batch
    rule = _RULES.get(op.name) or _BATCHING.get(*batching or [None])
    if "mat2" in op.arg_names:
        rule = _product_of_matrices
    if rule is None:
        raise NoRule
    found = rule(node, shape, axis, sizes, batch)
    for size, own in zip(sizes, found):
        if None in (size, own) or rule is _viewed:
            continue
        if own[0] >= len(size) or size[own[0]] != shape[axis[0]]:
            raise NoRule  # as of gather, which takes some of the samples
    return found


def _pointwise(shape, axis, size):
    """Return the axis of an input that broadcasts; repeat() may do another thing."""
    lengths = zip(reversed(size or ()), reversed(shape))
    if len(size or ()) > len(shape) or any(mine not in (1, length) for mine, length in lengths):
        raise NoRule
    return _broadcast(shape, axis, size)


def _broadcast(shape, axis, size):
    if size is None:
        return None
    dim = axis[0] - (len(shape) - len(size))
    if dim < 0 or (size[dim] == 1 and shape[axis[0]] > 1):
        return None
    return dim, axis[1]


def _viewed(node, shape, axis, sizes, batch):
    stride = axis[1] * math.prod(shape[axis[0] + 1 :])
    for dim in reversed(range(len(sizes[0]))):
        after = math.prod(sizes[0][dim + 1 :])
        inner = stride // after
        if stride % after == 0 and inner and sizes[0][dim] % (inner * batch) == 0:
            return [(dim, inner)]
    raise NoRule


def _along(node, shape, axis, sizes, batch):
    """Return the axes for an op that acts along some dims, and on each index of others alike."""
    op = node_methods.node_inside(node)
    saved, words = op.saved_names, set(op.entry.batch.split())
    count = len(next(size for size in sizes if size is not None))
    if "dim0" in saved:
        swap = [node._saved_dim0 % count, node._saved_dim1 % count]
        dim = swap[1 - swap.index(axis[0])] if axis[0] in swap else axis[0]
        return [(dim, axis[1])]
    if "keepdim" in saved and "restores" not in words:
        return _reduced(node, axis, count, batch)
    if "new_dim" in words and len(sizes) == 1 and math.prod(shape) == math.prod(sizes[0]):
        return _viewed(node, shape, axis, sizes, batch)
    dim = node._saved_dim if "dim" in saved else None
    if not isinstance(dim, int) or words - {"along", "new_dim"}:
        raise NoRule
    dim %= max(count, len(shape))
    if count > len(shape):  # an index of the dim, or each
        return [(axis[0] + (axis[0] >= dim), axis[1])]
    if dim != axis[0] and (count == len(shape)) != ("new_dim" in words):
        return [(axis[0] - (axis[0] > dim and count < len(shape)), axis[1])] * len(sizes)
    if sizes == [shape]:
        raise SamplesMix
    raise NoRule


def _reduced(node, axis, count, batch):
    dims = node._saved_dim
    dims = () if dims is None else dims if isinstance(dims, (tuple, list)) else (dims,)
    dims = [dim % count for dim in dims] or list(range(count))
    dim = axis[0] if node._saved_keepdim else [d for d in range(count) if d not in dims][axis[0]]
    if dim in dims and batch > 1:
        raise SamplesMix
    return [(dim, axis[1])]


def _permuted(node, shape, axis, sizes, batch):
    return [(node._saved_dims[axis[0]] % len(shape), axis[1])]


def _product_of_matrices(node, shape, axis, sizes, batch):
    rows, columns = len(shape) - 2, len(shape) - 1
    own = [None if axis[0] == columns else axis, None if axis[0] == rows else axis]
    return own if len(sizes) == 2 else [_broadcast(shape, axis, sizes[0]), *own]


def _first(node, shape, axis, sizes, batch):
    if axis[0] != 0:
        raise NoRule
    return [axis, *[None] * (len(sizes) - 1)]


def _attention(node, shape, axis, sizes, batch):
    if axis[0] >= len(shape) - 2:
        raise NoRule
    return [axis] * 3 + [_broadcast((*shape[:-1], 0), axis, size) for size in sizes[3:]]


def _normalized(node, shape, axis, sizes, batch):
    kind = node._saved_kind
    rows = node._saved_out1.numel()
    if kind == "Layer":
        fits = math.prod(shape[: axis[0]]) < rows and math.prod(shape[: axis[0] + 1]) <= rows
    elif kind == "Batch":  # of instances if there is a mean for each sample
        fits = axis[0] == 0 and rows == math.prod(shape[:2])
    else:
        fits = axis[0] == 0
    if not fits:
        raise SamplesMix
    return [axis, *[None] * (len(sizes) - 1)]


def _embedded(node, shape, axis, sizes, batch):
    if axis[0] == len(shape) - 1 or node._saved_scale_grad_by_freq:
        raise NoRule
    return [None]


def _loss_of_class(node, shape, axis, sizes, batch):
    if len(sizes[0]) != len(shape) + 1:
        raise NoRule
    return [(axis[0] + (axis[0] > 0), axis[1])]


# By the first word of an entry's `batch`.
_BATCHING = {
    **dict.fromkeys(("view", "squeeze"), _viewed),
    "along": _along,
    "t": lambda node, shape, axis, sizes, batch: [(len(shape) - 1 - axis[0], axis[1])],
    "permute": _permuted,
    "convolution": _first,
    "embedding": _embedded,
}
# Ops that vmap runs for each sample.
_RULES = {
    **dict.fromkeys(("max_pool", "avg_pool", "batch_norm_eval"), _first),
    "attention": _attention,
    **dict.fromkeys(("standardized", "normalized"), _normalized),
    "nll_loss_forward": _loss_of_class,
}
# ---- losses of one number ------------------------------------------------------------------------

_REDUCTIONS = ("sum", "mean", "nll_loss_forward", "_mse_loss")
# Ops that are linear in one number, if the other factor or the divisor does not require grad.
_LINEAR = {"neg", "add", "sub", "rsub", "cast", "clone", "sum", "mean", "mul", "div"}
_LINEAR |= {"view", "squeeze", "expand", "permute"}


def error_of_total(node, sizes, dim, mean):
    """Return why a node makes no number of sums over samples, or None if it does.

    ``sizes`` has the shape of each edge's input, or None where no parameter leads to it; samples
    lie along ``dim`` of what is reduced. ``mean``: the number is to be a mean.
    """
    op = node_methods.node_inside(node)
    name = op.name if isinstance(op, Op) else ""
    if any(sizes):
        if name not in _REDUCTIONS:
            return NoRule()
        for size in filter(None, sizes):
            if not -len(size) <= dim < len(size):
                raise IndexError(
                    f"batch_dim: Dimension out of range (expected to be in range of "
                    f"[{-len(size)}, {len(size) - 1}], but got {dim})"
                )
            if name == "nll_loss_forward" and (len(size) == 1 or dim % len(size) == 1):
                return NoRule()  # classes, not samples
        if mean and name == "nll_loss_forward" and _is_weighted_mean(node):
            return NoRule(
                "the mean of weighted or ignored targets is not the sum of the losses divided by "
                "their number; pass the vector of the samples' losses, of reduction='none'"
            )
    if () in sizes:
        others = [below for below, _ in node.next_functions if below is not None]
        name = name.rstrip("_")
        if name not in _LINEAR or (name == "mul" and len(others) > 1):
            return SamplesMix()
        if name == "div" and node.next_functions[1][0] is not None:
            return SamplesMix()
    return None


def _is_weighted_mean(node):
    _, _, (ignored, reduction) = node._saved_spec
    if not reduction:
        return False
    return node._saved_weight is not None or bool((node._saved_target == ignored).any())


def takes_batch_statistics(node):
    """Return True for the node of a batch_norm in training."""
    op = node_methods.node_inside(node)
    normalized = isinstance(op, Op) and op.name == "normalized" and node._saved_kind == "Batch"
    return normalized and 0 in node._saved_dims


# ---- gradients of weights ------------------------------------------------------------------------


def samples(tensor, axis, batch):
    """Return a tensor with a new first dim for the samples; ``dim`` keeps what is not of them."""
    dim, inner = axis
    shape = tuple(tensor.shape)
    if dim >= len(shape) or shape[dim] % (batch * inner):
        raise NoRule
    outer = shape[dim] // (batch * inner)
    parts = tensor.reshape(*shape[:dim], outer, batch, inner, *shape[dim + 1 :])
    return parts.movedim(dim + 1, 0).reshape(batch, *shape[:dim], outer * inner, *shape[dim + 1 :])


def _sum_to(tensor, size):
    """Sum each sample of a tensor (batch, ...) to a shape that broadcasts to it."""
    extra = tensor.dim() - 1 - len(size)
    dims = list(range(1, 1 + extra))
    dims += [
        1 + extra + k
        for k, length in enumerate(size)
        if length == 1 and tensor.shape[1 + extra + k] != 1
    ]
    total = tensor.sum(dims) if dims else tensor
    return total.reshape(tensor.shape[0], *size)


def weight_gradient(node, edge, grad, axis, batch):
    """Return the gradient of an input without samples, for each sample: (batch, *shape)."""
    below, nr = node.next_functions[edge]
    meta = below._input_metadata[nr]
    found = _weight_gradient(node, edge, grad, axis, batch, tuple(meta.shape))
    return found.to(meta.dtype)  # of complex numbers the real part


def _weight_gradient(node, edge, grad, axis, batch, size):
    op = node_methods.node_inside(node)
    rule = _WEIGHTS.get(op.name) or _WEIGHTS_BY_BATCHING.get(op.entry.batch)
    if "mat2" in op.arg_names:
        rule = _of_product
    if rule is not None:
        return rule(node, edge, grad, axis, batch, size)
    full = grad
    if op.entry.batch.split()[:1] != ["expand"]:
        found = node(grad)
        found = found if isinstance(found, tuple) else (found,)
        if len(found) != len(node.next_functions):
            raise NoRule
        full = found[edge]
    if full.shape != grad.shape:
        raise NoRule
    return _sum_to(samples(full, axis, batch), size)


def _of_product(node, edge, grad, axis, batch, size):
    added = len(node.next_functions) == 3
    if added and edge == 0:
        return _sum_to(samples(grad, axis, batch), size) * _conjugate(node._saved_beta)
    parts = samples(grad, axis, batch)
    if axis[0] == grad.dim() - 2:
        other = node._saved_mat1 if added else node._saved_self
        found = samples(other, axis, batch).mH @ parts
    else:
        found = parts @ samples(node._saved_mat2, axis, batch).mH
    return found * _conjugate(node._saved_alpha) if added else found


def _conjugate(number):
    return number.conjugate() if isinstance(number, complex) else number


def _of_convolution(node, edge, grad, axis, batch, size):
    parts = samples(grad, axis, batch)
    if edge == 2:
        return parts.sum([1, *range(3, parts.dim())])
    (function,) = [
        one
        for names, one in node_methods.node_inside(node).formulas.items()
        if names == ("weight",)
    ]
    settings = [getattr(node, f"_saved_{name}") for name in ("stride", "padding", "dilation")]
    return vmap(lambda g, x: function(g, x, tuple(size), *settings, node._saved_groups))(
        parts, samples(node._saved_self, axis, batch)
    )


def _of_norm(node, edge, grad, axis, batch, size):
    if _name(node) == "standardized":
        _, _, (*_, eps, _), view, _, affine = node._saved_spec
    else:
        view, affine, eps = node._saved_view, node._saved_affine, node._saved_eps
    full = grad
    if edge == 1:
        found = node._saved_self.reshape(view) - node._saved_out1
        full = grad * (found * (node._saved_out2 + eps).rsqrt()).reshape(grad.shape)
    return _sum_to(samples(full, axis, batch), affine).reshape(batch, *size)


def _name(node):
    return node_methods.node_inside(node).name


def _of_running_norm(node, edge, grad, axis, batch, size):
    full = grad
    shape = node._saved_shape
    if edge == 1:
        spread = (node._saved_variance + node._saved_eps).rsqrt().view(shape)
        full = grad * (node._saved_self - node._saved_mean.view(shape)) * spread
    return _sum_to(samples(full, axis, batch), (*size, *[1] * (grad.dim() - 2))).reshape(
        batch, *size
    )


def _of_embedding(node, edge, grad, axis, batch, size):
    indices = node._saved_indices
    taken = samples(indices, axis, batch).reshape(batch, -1)
    parts = samples(grad, axis, batch).reshape(batch, -1, size[1])
    padding = node._saved_padding_idx
    if padding is not None and padding >= 0:
        parts = parts.masked_fill((taken == padding).unsqueeze(-1), 0)
    found = parts.new_zeros(batch, *size)
    return found.scatter_add(1, taken.unsqueeze(-1).expand(parts.shape), parts)


_WEIGHTS = {
    "standardized": _of_norm,
    "normalized": _of_norm,
    "batch_norm_eval": _of_running_norm,
}
_WEIGHTS_BY_BATCHING = {"convolution": _of_convolution, "embedding": _of_embedding}
