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

SCALAR = "scalar"  # instead of an axis: the value is the whole loss


class NotUnderstood(Exception):
    """No rule says what a node does with samples."""


class Mixes(Exception):
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
    if not isinstance(op, Op):
        raise NotUnderstood
    shape = tuple(node._input_metadata[0].shape)
    sizes = sizes_of(node)
    batching = (op.entry.batch or "").split()[:1]
    if op.entry.forward == "elementwise" or batching in (["pointwise"], ["expand"]):
        return [_broadcast(shape, axis, size) for size in sizes]
    if batching == ["unary"] and sizes == [shape] and not op.name.endswith("_batch"):
        return [axis]  # those of matrices end in _batch
    if "mat2" in op.arg_names:
        return _product_of_matrices(node, shape, axis, sizes, batch)
    rule = _RULES.get(op.name) or _BATCHING.get(*batching or [None])
    if rule is None:
        raise NotUnderstood
    return rule(node, shape, axis, sizes, batch)


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
    raise NotUnderstood


def _along(node, shape, axis, sizes, batch):
    """Return the axes for an op that acts along some dims, and on each index of others alike."""
    op = node_methods.node_inside(node)
    saved, words = op.saved_names, set(op.entry.batch.split())
    count = len(next(size for size in sizes if size is not None))
    if "dim0" in saved:
        swap = [node._saved_dim0 % count, node._saved_dim1 % count]
        dim = swap[1 - swap.index(axis[0])] if axis[0] in swap else axis[0]
        return [(dim, axis[1])]
    if "keepdim" in saved:
        return _reduced(node, axis, count, batch)
    if "new_dim" in words and len(sizes) == 1 and math.prod(shape) == math.prod(sizes[0]):
        return _viewed(node, shape, axis, sizes, batch)
    dim = node._saved_dim if "dim" in saved else None
    if not isinstance(dim, int) or words - {"along", "new_dim"}:
        raise NotUnderstood
    dim %= max(count, len(shape))
    if count > len(shape):  # an index of the dim, or each
        return [(axis[0] + (axis[0] >= dim), axis[1])]
    if dim != axis[0] and (count == len(shape)) != ("new_dim" in words):
        return [(axis[0] - (axis[0] > dim and count < len(shape)), axis[1])] * len(sizes)
    if sizes == [shape]:
        raise Mixes
    raise NotUnderstood


def _reduced(node, axis, count, batch):
    dims = node._saved_dim
    dims = () if dims is None else dims if isinstance(dims, (tuple, list)) else (dims,)
    dims = [dim % count for dim in dims] or list(range(count))
    dim = axis[0] if node._saved_keepdim else [d for d in range(count) if d not in dims][axis[0]]
    if dim in dims and batch > 1:
        raise Mixes
    return [(dim, axis[1])]


def _permuted(node, shape, axis, sizes, batch):
    return [(node._saved_dims[axis[0]] % len(shape), axis[1])]


def _product_of_matrices(node, shape, axis, sizes, batch):
    rows, columns = len(shape) - 2, len(shape) - 1
    own = [None if axis[0] == columns else axis, None if axis[0] == rows else axis]
    return own if len(sizes) == 2 else [_broadcast(shape, axis, sizes[0]), *own]


def _first(node, shape, axis, sizes, batch):
    if axis[0] != 0:
        raise NotUnderstood
    return [axis, *[None] * (len(sizes) - 1)]


def _attention(node, shape, axis, sizes, batch):
    if axis[0] >= len(shape) - 2:
        raise NotUnderstood
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
        raise Mixes
    return [axis, *[None] * (len(sizes) - 1)]


def _embedded(node, shape, axis, sizes, batch):
    if axis[0] == len(shape) - 1 or node._saved_scale_grad_by_freq:
        raise NotUnderstood
    return [None]


def _each_loss(node, shape, axis, sizes, batch):
    if len(sizes[0]) != len(shape) + 1 and sizes[0] != shape:
        raise NotUnderstood
    dim = axis[0] if sizes[0] == shape or axis[0] == 0 else axis[0] + 1
    return [(dim, axis[1]), *[_broadcast(shape, axis, size) for size in sizes[1:]]]


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
    **dict.fromkeys(("nll_loss_forward", "_mse_loss"), _each_loss),
}
_LOSSES = ("sum", "mean", "nll_loss_forward", "_mse_loss")


def axes_below_scalar(node, dim):
    """Return the batch axis of each edge's input of a node whose output is the whole loss."""
    op = node_methods.node_inside(node)
    found: list = []
    for size in sizes_of(node):
        if size is None:
            found.append(None)
        elif not size:
            found.append(SCALAR)
        elif getattr(op, "name", None) in _LOSSES and -len(size) <= dim < len(size):
            found.append((dim % len(size), 1))
        else:
            raise NotUnderstood
    return found


# ---- gradients of weights ------------------------------------------------------------------------


def samples(tensor, axis, batch):
    """Return a tensor with a new first dim for the samples; ``dim`` keeps what is not of them."""
    dim, inner = axis
    shape = tuple(tensor.shape)
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
    op = node_methods.node_inside(node)
    size = sizes_of(node)[edge]
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
            raise NotUnderstood
        full = found[edge]
    if full.shape != grad.shape:
        raise NotUnderstood
    return _sum_to(samples(full, axis, batch), size)


def _of_product(node, edge, grad, axis, batch, size):
    added = len(node.next_functions) == 3
    if added and edge == 0:
        return _sum_to(samples(grad, axis, batch), size) * node._saved_beta
    parts = samples(grad, axis, batch)
    if axis[0] == grad.dim() - 2:
        other = node._saved_mat1 if added else node._saved_self
        found = samples(other, axis, batch).mH @ parts
    else:
        found = parts @ samples(node._saved_mat2, axis, batch).mH
    return found * node._saved_alpha if added else found


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
