"""Gradients of each sample of a batch, from one forward and one backward pass."""

from __future__ import annotations

from collections.abc import Mapping

from pullback._c.engine import engine
from pullback._c.graph.tensor import Tensor
from pullback._c.python import node_methods, tensor_methods
from pullback.autograd.diagnostics import batch_rules
from pullback.autograd.diagnostics.batch_rules import NoRule, SamplesMix
from pullback.autograd.diagnostics.walk import node_title, nodes_from, unobserved
from pullback.autograd.grad_mode import no_grad
from pullback.func import vmap
from pullback.ops import ops

__all__ = ["per_sample_gradients"]

_VECTOR = "pass the vector of the samples' losses"
_APART = (
    "a term of parameters alone, such as one that regularizes, has none: add its gradient apart, "
    f"or {_VECTOR}"
)


@unobserved
def per_sample_gradients(loss, parameters, *, batch_dim=0, reduction="sum"):
    """Return the gradient of each sample's loss by each parameter, of shape (batch, *shape).

    ``loss`` is a vector of the samples' losses, or one number: their sum, or with
    ``reduction='mean'`` their sum divided by their number; then ``batch_dim`` is the dim of the
    samples in what was reduced to that number. ``parameters`` is a tensor, a sequence, or a dict
    of them; the result is a tuple, or a dict with the same keys. The graph is kept, and no
    ``.grad`` changes.

    Of a vector, row i of the result is the derivative of element i (the Jacobian), whether or not
    samples mix on the way; only batch_norm in training is refused, where no loss is of one sample.
    A number must be made of what was reduced by sums, views, casts and factors that do not require
    grad. With a single sample it is that sample's loss, however it was made.

    One backward pass gives what each node received; where a parameter was used, its gradient is
    split by samples. That is known of products of matrices, convolutions, embeddings,
    normalizations and elementwise ops, between ops that do not mix samples. What was made of
    parameters alone is differentiated for all samples at once. If there is no rule for a node, the
    gradients of a vector come from one pass over a batch of gradients, by ``vmap``, instead; where
    that fails (as in a custom backward that calls ``.numpy()``), from a pass for each sample.

    Hooks of parameters, and of what was made of parameters alone, receive each sample's gradient,
    under ``vmap``. Hooks elsewhere may receive the gradients of the whole batch: those that treat
    each sample apart have the effect that they have in a pass for each sample.

    Raises: TypeError for a loss or parameters that are no tensors, ValueError for another
    ``reduction``, IndexError for a ``batch_dim`` that what was reduced does not have; RuntimeError
    for a loss that does not require grad or has more dims, for a parameter that does not, and for
    a graph with batch_norm in training or reentrant checkpoints. Of one number also RuntimeError
    that names the node where samples mix or that has no rule; if a parameter reaches it without
    samples, as in a term that regularizes; and if it is a mean of weighted or ignored targets.

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
    found = _found(loss, listed, batch_dim, reduction) if listed else []
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


def _error(text):
    return RuntimeError(f"per_sample_gradients(): {text}")


def _found(loss, parameters, batch_dim, reduction):
    """Return the gradients of the parameters, and leave the ``.grad`` of retain_grad() alone."""
    path = _FastPath(loss, parameters)
    retained = [tensor for node in path.nodes for tensor in node_methods.node_retained(node)]
    before = [tensor.grad for tensor in retained]
    try:
        with no_grad():
            found = _totals(path, batch_dim, reduction == "mean")
    finally:
        for tensor, grad in zip(retained, before):
            tensor.grad = grad
    return [
        found[target] if target in found else p.new_zeros(path.batch, *p.shape)
        for target, p in zip(path.targets, parameters)
    ]


def _totals(path, batch_dim, mean):
    """Return the gradients at the edges of parameters, by the simplest way that gives them."""
    for node in path.nodes:
        if getattr(getattr(node, "_forward_cls", None), "hides_graph", False):
            raise _error(
                f"the weights that the function of {node_title(node)} uses are not in the graph; "
                f"pass use_reentrant=False to checkpoint()"
            )
    if path.loss.dim() == 0:
        path.find_reductions(batch_dim, mean)
    if path.batch == 0 or path.root[0] not in path.needed:
        return {}
    if path.batch == 1:
        return _batched(path.loss, path.root, path.targets)
    for node in path.needed:
        if batch_rules.takes_batch_statistics(node):
            raise _error(f"samples mix in {node_title(node)}")
    try:
        return path.run(mean and path.loss.dim() == 0)
    except (NoRule, SamplesMix) as error:
        if path.loss.dim() == 0:
            what = "samples mix in" if isinstance(error, SamplesMix) else "there is no rule for"
            raise _error(str(error) or f"{what} {node_title(path.node)}; {_VECTOR}") from None
    return _batched(path.loss, path.root, path.targets)


def _batched(loss, root, targets):
    """Return the gradients by a pass for each sample, each from a unit vector."""
    count = loss.numel()
    units = loss.new_zeros(count, count).fill_diagonal_(1)
    return _passes({root: units.reshape(count, *loss.shape)}, targets)


def _passes(grads, targets):
    """Run a pass for each sample; return the gradients at the targets that are reached.

    ``grads`` has the gradients of all samples, (batch, ...), by the edges where passes begin.
    """
    below = set(nodes_from([node for node, _ in grads]))
    reached = list(dict.fromkeys(target for target in targets if target[0] in below))
    metas = [node._input_metadata[nr] for node, nr in reached]
    parts = list(grads.values())

    def run(*parts):
        found = _gradients(list(grads), parts, reached)
        return tuple(
            parts[0].new_zeros(meta.shape, dtype=meta.dtype)
            if grad is None
            else grad.to_dense()
            if grad.is_sparse
            else grad
            for meta, grad in zip(metas, found)
        )

    if not reached:
        return {}
    if len(parts[0]) > 1:
        try:
            return dict(zip(reached, vmap(run)(*parts)))
        except Exception:  # some backward or hook needs the numbers of one pass
            pass
    rows = [run(*row) for row in zip(*parts)]
    return {target: ops.stack(column) for target, column in zip(reached, zip(*rows))}


def _gradients(roots, grads, ends):
    """Return the gradients at edges (node, output number); the graph is kept."""
    return engine.run_backward(list(roots), list(grads), True, False, list(ends), False)


class _FastPath:
    """The walk over one graph for rules to apply; ``node`` is the one that it looks at."""

    def __init__(self, loss, parameters):
        self.loss = loss
        self.batch = loss.shape[0] if loss.dim() else None
        self.root = self.edge_of(loss)
        self.targets = [self.edge_of(p) for p in parameters]
        self.node = self.root[0]
        self.nodes = list(nodes_from([self.node]))
        self.needed = self.find_needed()
        self.starts = [(self.node, (0, 1))]  # nodes whose outputs have samples, with their axes
        self.refusal: tuple | None = None  # (node, error) where a number is no sum over samples
        self.axes: dict = {}  # node -> batch axis of its output
        self.uses: list = []  # (node, edge) whose input has no samples

    @staticmethod
    def edge_of(tensor):
        return tensor_methods.gradient_edge(tensor)[:2]

    def find_needed(self):
        """Return the nodes that lead to a parameter, as a dict in the order of the walk."""
        above: dict = {}
        for node in self.nodes:
            for below, _ in node.next_functions:
                if below is not None:
                    above.setdefault(below, []).append(node)
        needed, waiting = set(), [node for node, _ in self.targets]
        while waiting:
            node = waiting.pop()
            if node not in needed:
                needed.add(node)
                waiting.extend(above.get(node, ()))
        return {node: None for node in self.nodes if node in needed}

    def run(self, mean):
        """Return the gradients of the parameters."""
        if self.refusal is not None:
            self.node, error = self.refusal
            raise error
        self.find_axes()
        grads = self.run_backward()
        if mean:
            grads = {key: value * self.batch for key, value in grads.items()}
        return self.finish(grads)

    def find_reductions(self, batch_dim, mean):
        """Find what was reduced to a loss of one number, and the number of samples in it."""
        used = self.needed if self.root[0] in self.needed else self.nodes
        sizes: dict = {}
        self.starts, seen = [], set()
        ends = {node for node, _ in self.targets}
        waiting = {self.root[0]: None}
        while waiting:
            node, _ = waiting.popitem()
            seen.add(node)
            shapes = batch_rules.sizes_of(node)
            shapes = [
                size if below in used else None
                for size, (below, _) in zip(shapes, node.next_functions)
            ]
            error = batch_rules.error_of_total(node, shapes, batch_dim, mean)
            if node in ends:
                error = NoRule(f"a parameter reaches the loss without samples; {_APART}")
            if self.refusal is None and error is not None:
                self.refusal = node, error
            for size, (below, _) in zip(shapes, node.next_functions):
                if size == () and below not in seen:
                    waiting[below] = None
                elif size and -len(size) <= batch_dim < len(size):
                    sizes[size[batch_dim]] = None
                    self.starts.append((below, (batch_dim % len(size), 1)))
        if len(sizes) != 1:
            found = " and ".join(map(str, sizes)) or "no"
            raise _error(f"the loss is made of reductions over {found} samples; {_APART}")
        (self.batch,) = sizes

    def find_axes(self):
        """Follow the samples from the loss to where parameters are used."""
        waiting = list(self.starts)
        ends = {node for node, _ in self.targets}
        while waiting:
            self.node, axis = waiting.pop()
            if self.node in self.axes:
                if self.axes[self.node] != axis:
                    raise NoRule
                continue
            if self.node in ends:
                raise NoRule(f"a parameter reaches the loss without samples; {_APART}")
            self.axes[self.node] = axis
            found = batch_rules.axes_of_inputs(self.node, axis, self.batch)
            for edge, (below, _) in enumerate(self.node.next_functions):
                if below not in self.needed:
                    continue
                if found[edge] is None:
                    self.uses.append((self.node, edge))
                else:
                    waiting.append((below, found[edge]))
        for node in nodes_from([node.next_functions[edge][0] for node, edge in self.uses]):
            if node in self.axes:
                self.node = node
                raise SamplesMix

    def run_backward(self):
        """Return for each edge to what has no samples its gradients, (batch, *shape)."""
        outputs = []
        for node in dict.fromkeys(node for node, _ in self.uses):
            if any(node_methods.node_hook_table(node, before) for before in (True, False)):
                raise NoRule(
                    f"hooks of {node_title(node)} would receive the whole batch; {_VECTOR}"
                )
            outputs += [(node, nr) for nr in range(node_methods.node_output_count(node))]
        seeds = [self.loss.new_ones(self.loss.shape)]
        received = dict(zip(outputs, _gradients([self.root], seeds, outputs))) if outputs else {}
        found: dict = {}
        for node, edge in self.uses:
            self.node = node
            others = range(1, node_methods.node_output_count(node))
            if any(received[node, nr] is not None for nr in others):
                raise NoRule
            grad = received[node, 0]
            if grad is None:
                continue
            part = batch_rules.weight_gradient(node, edge, grad, self.axes[node], self.batch)
            end = node.next_functions[edge]
            found[end] = found[end] + part if end in found else part
        return found

    def finish(self, grads):
        """Return the gradients of the parameters, from those of what was made of them."""
        found = {end: grad for end, grad in grads.items() if _is_plain_leaf(end[0])}
        further = {end: grad for end, grad in grads.items() if end not in found}
        for target, grad in _passes(further, self.targets).items():
            found[target] = found[target] + grad if target in found else grad
        return found


def _is_plain_leaf(node):
    return node.name().endswith("AccumulateGrad") and not node.variable._backward_hooks
