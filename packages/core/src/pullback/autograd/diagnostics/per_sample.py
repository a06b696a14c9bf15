"""Gradients of each sample of a batch, from one forward and one backward pass."""

from __future__ import annotations

from collections.abc import Mapping

from pullback._c.engine import engine
from pullback._c.graph.tensor import Tensor
from pullback._c.python import tensor_methods
from pullback.autograd.diagnostics import batch_rules
from pullback.autograd.diagnostics.batch_rules import Mixes, NotUnderstood
from pullback.autograd.diagnostics.walk import node_title, nodes_from, unobserved
from pullback.autograd.grad_mode import no_grad
from pullback.func import vmap

__all__ = ["per_sample_gradients"]


@unobserved
def per_sample_gradients(loss, parameters, *, batch_dim=0, reduction="sum"):
    """Return the gradient of each sample's loss by each parameter, of shape (batch, *shape).

    ``loss`` is a vector of the samples' losses, or one number: their sum, or with
    ``reduction='mean'`` their mean; then ``batch_dim`` is the dim of the samples in what was
    reduced to that number. ``parameters`` is a tensor, a sequence, or a dict of them; the result is
    a tuple, or a dict with the same keys. The graph is kept, ``.grad`` does not change, and hooks
    run as in any pass.

    One backward pass gives what each node received; where a weight was used, its gradient is split
    by samples. That is known of products of matrices, convolutions, embeddings, normalizations and
    elementwise ops, between ops that do not mix samples. What was made of parameters alone is
    differentiated for all samples at once. If any other node is on the way to a parameter, the
    gradients of a vector come from one pass over a batch of gradients instead.

    Raises: TypeError for a loss or parameters that are no tensors, and ValueError for another
    ``reduction``; RuntimeError that names the node where samples mix (batch_norm in training), or,
    for a loss of one number, where a node is not understood; RuntimeError for a loss that does not
    require grad or has more dims, and for a parameter that does not.

    >>> import pullback
    >>> x, w = pullback.tensor([[1., 2.], [3., 4.]]), pullback.ones(2, 1, requires_grad=True)
    >>> losses = (x @ w).squeeze(1).square()
    >>> pullback.autograd.graph.per_sample_gradients(losses, {"w": w})["w"].squeeze(2)
    tensor([[ 6., 12.],
            [42., 56.]])
    """
    keys = list(parameters) if isinstance(parameters, Mapping) else None
    if keys is not None:
        listed = list(parameters.values())
    else:
        listed = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    _check(loss, listed, batch_dim, reduction)
    if loss.dim() and not len(loss):
        found = [p.new_zeros(0, *p.shape) for p in listed]
        return tuple(found) if keys is None else dict(zip(keys, found))
    attempt = _Attempt(loss, listed, batch_dim)
    try:
        with no_grad():
            found = attempt.run(reduction)
    except Mixes:
        raise RuntimeError(
            f"per_sample_gradients(): samples mix in {node_title(attempt.node)}"
        ) from None
    except NotUnderstood:
        if loss.dim() == 0:
            raise RuntimeError(
                f"per_sample_gradients(): {node_title(attempt.node)} is not understood; "
                f"pass the vector of the samples' losses"
            ) from None
        found = _batched(loss, listed)
    return tuple(found) if keys is None else dict(zip(keys, found))


def _check(loss, parameters, batch_dim, reduction):
    name = "per_sample_gradients()"
    for item in (loss, *parameters):
        if not isinstance(item, Tensor):
            raise TypeError(f"{name}: expected Tensors, not {type(item).__name__}")
        if not item.requires_grad:
            what = "the loss" if item is loss else "a parameter"
            raise RuntimeError(f"{name}: {what} does not require grad")
    if isinstance(batch_dim, bool) or not isinstance(batch_dim, int):
        raise TypeError(f"{name}: argument 'batch_dim' must be int, not {type(batch_dim).__name__}")
    if reduction not in ("sum", "mean"):
        raise ValueError(f"{name}: reduction must be 'sum' or 'mean', not {reduction!r}")
    if loss.dim() > 1:
        raise RuntimeError(
            f"{name}: the loss must be a vector or a number, not of shape {list(loss.shape)}"
        )


def _batched(loss, parameters):
    """Return the gradients by a pass over a batch: one unit vector for each sample."""
    units = loss.new_zeros(loss.shape[0], loss.shape[0]).fill_diagonal_(1)
    root = tensor_methods.gradient_edge(loss)
    below = set(nodes_from([root[0]]))
    targets = [tensor_methods.gradient_edge(p)[:2] for p in parameters]
    reached = [target for target in targets if target[0] in below]
    parts = vmap(lambda unit: _gradients([root[:2]], [unit], reached))(units) if reached else ()
    found = dict(zip(reached, parts))
    return [
        found[target] if target in found else p.new_zeros(loss.shape[0], *p.shape)
        for target, p in zip(targets, parameters)
    ]


def _gradients(roots, grads, ends):
    """Return the gradients at edges (node, output number); the graph is kept."""
    return engine.run_backward(list(roots), list(grads), True, False, list(ends), False)


class _Attempt:
    """The walk over one graph; ``node`` is the one that it looks at."""

    def __init__(self, loss, parameters, batch_dim):
        self.loss = loss
        self.parameters = parameters
        self.dim = batch_dim
        self.batch = loss.shape[0] if loss.dim() else None
        self.axes: dict = {}  # node -> batch axis of its output
        self.uses: list = []  # (node, edge) whose input has no samples
        edges = [tensor_methods.gradient_edge(p) for p in parameters]
        self.targets = [(edge[0], edge[1]) for edge in edges]
        self.node = self.root = tensor_methods.gradient_edge(loss)[0]

    def run(self, reduction):
        """Return the gradients of the parameters."""
        self.needed = self.find_needed()
        self.find_axes()
        grads = self.run_backward()
        if reduction == "mean" and self.loss.dim() == 0:
            grads = {key: value * self.batch for key, value in grads.items()}
        return self.finish(grads)

    def find_needed(self):
        """Return the nodes that lead to a parameter."""
        above: dict = {}
        for node in nodes_from([self.root]):
            for below, _ in node.next_functions:
                if below is not None:
                    above.setdefault(below, []).append(node)
        needed, waiting = set(), [node for node, _ in self.targets]
        while waiting:
            node = waiting.pop()
            if node not in needed:
                needed.add(node)
                waiting.extend(above.get(node, ()))
        return needed

    def find_axes(self):
        """Follow the samples from the loss to where parameters are used."""
        first = batch_rules.SCALAR if self.loss.dim() == 0 else (0, 1)
        waiting = [(self.root, first)]
        ends = {node for node, _ in self.targets}
        while waiting:
            self.node, axis = waiting.pop()
            if self.node in self.axes:
                if self.axes[self.node] != axis:
                    raise NotUnderstood
                continue
            if self.node in ends:
                raise NotUnderstood  # a parameter that would have samples
            self.axes[self.node] = axis
            if axis == batch_rules.SCALAR:
                found = batch_rules.axes_below_scalar(self.node, self.dim)
            else:
                found = batch_rules.axes_of_inputs(self.node, axis, self.batch)
            for edge, (below, nr) in enumerate(self.node.next_functions):
                if below not in self.needed:
                    continue
                if axis == batch_rules.SCALAR and found[edge] not in (None, batch_rules.SCALAR):
                    size = below._input_metadata[nr].shape[found[edge][0]]
                    if self.batch not in (None, size):
                        raise NotUnderstood
                    self.batch = size
                    if not size:
                        raise NotUnderstood
                if found[edge] is None:
                    self.uses.append((self.node, edge))
                else:
                    waiting.append((below, found[edge]))
        for node in nodes_from([node.next_functions[edge][0] for node, edge in self.uses]):
            if node in self.axes:
                self.node = node
                raise Mixes

    def run_backward(self):
        """Return for each edge to what has no samples its gradients, (batch, *shape)."""
        received: dict = {}
        nodes = list(dict.fromkeys(node for node, _ in self.uses))
        handles = [
            node.register_prehook(lambda grads, node=node: received.__setitem__(node, grads))
            for node in nodes
        ]
        ends = list(dict.fromkeys(node.next_functions[edge] for node, edge in self.uses))
        try:
            if ends:
                _gradients([self.loss], [self.loss.new_ones(self.loss.shape)], ends)
        finally:
            for handle in handles:
                handle.remove()
        found: dict = {}
        for node, edge in self.uses:
            self.node = node
            grads = received.get(node)
            if grads is None or grads[0] is None:
                continue
            if len(grads) > 1 and any(grad is not None for grad in grads[1:]):
                raise NotUnderstood
            part = batch_rules.weight_gradient(node, edge, grads[0], self.axes[node], self.batch)
            end = node.next_functions[edge]
            found[end] = found[end] + part if end in found else part
        return found

    def finish(self, grads):
        """Return the gradients of the parameters, from those of what was made of them."""
        totals = [grads.get(target) for target in self.targets]
        ends = [end for end in grads if end not in self.targets]
        if ends:
            below = set(nodes_from([node for node, _ in ends]))
            reached = [k for k, (node, _) in enumerate(self.targets) if node in below]
            inputs = [self.targets[k] for k in reached]
            further = vmap(lambda *parts: _gradients(ends, parts, inputs))(
                *[grads[end] for end in ends]
            )
            for k, part in zip(reached, further):
                totals[k] = part if totals[k] is None else totals[k] + part
        return [
            p.new_zeros(self.batch, *p.shape) if total is None else total
            for p, total in zip(self.parameters, totals)
        ]
