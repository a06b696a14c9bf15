"""``where(..., nan_safe=True)``: 0 times infinity is 0 in the derivatives behind a ``where``.

Hooks on the nodes behind it turn NaN into 0 where the gradient that a node got is 0. They belong
to this ``where`` alone: in a pass that does not go through it they do nothing, so that a tensor
which other results use as well has their gradients unchanged.
"""

import weakref

from pullback._c.engine import engine
from pullback._c.graph.op import Op
from pullback._c.graph.tensor import Tensor
from pullback._c.python.node_methods import node_inside
from pullback._c.transforms import tangents
from pullback.ops import ops

# Keys of the metadata of nodes:
_BEHIND = "behind_nan_safe"  # the passes through each `where` that the node is behind
_WHERE = "nan_safe"  # the passes through the node itself, a `where`


class _Passes:
    """The backward passes that run through one ``where`` now, by number."""

    __slots__ = ("__weakref__", "running")

    def __init__(self):
        self.running = set()

    def begin(self, grads):
        """Note the pass that reached the ``where``, until its end."""
        number = engine.current_task_id()
        if number not in self.running:
            self.running.add(number)
            engine.queue_callback(lambda: self.running.discard(number), always=True)


def _hook_of(scopes):
    """Return a hook that gives a node's gradients with 0 for NaN where it got a gradient of 0."""

    def zero_where_zero_times_inf(grad_inputs, grad_outputs):
        grad = grad_outputs[0]
        number = engine.current_task_id()
        if grad is None or not any(number in passes.running for passes in scopes):
            return None
        return tuple(
            each
            if each is None or each.shape != grad.shape
            else ops.where(ops.isnan(each) & (grad == 0), 0, each, nan_safe=True)
            for each in grad_inputs
        )

    return zero_where_zero_times_inf


def _protect(tensor, passes):
    """Put hooks on the nodes behind an operand, up to the first that changes more than a view."""
    waiting = [] if tensor.grad_fn is None else [tensor.grad_fn]
    seen = set()
    while waiting:
        node = waiting.pop()
        outputs = node._input_metadata
        if node in seen or hasattr(node, "variable") or len(outputs) != 1:
            continue
        if _WHERE in node.metadata:  # what is behind it has its protection
            continue
        seen.add(node)
        op = node_inside(node)
        below = [edge for edge in node.next_functions if edge[0] is not None]
        if not (isinstance(op, Op) and op.is_view):
            shape = outputs[0].shape
            same = [edge for edge in below if edge[0]._input_metadata[edge[1]].shape == shape]
            if below and not same:
                continue
            if _BEHIND not in node.metadata:
                node.metadata[_BEHIND] = weakref.WeakSet()
                node.register_hook(_hook_of(node.metadata[_BEHIND]))
            node.metadata[_BEHIND].add(passes)
            below = same
        waiting.extend(node for node, _ in below)


def protect_operands(result, operands):
    """Protect what is behind the operands of a ``where``, and behind those of its tangents."""
    operands = [one for one in operands if isinstance(one, Tensor)]
    if result.grad_fn is not None:
        passes = result.grad_fn.metadata[_WHERE] = _Passes()
        result.grad_fn.register_prehook(passes.begin)
        for operand in operands:
            _protect(operand, passes)
    level = tangents.innermost_level([result])
    if level:  # of forward mode
        own, *others = (tangents.unpack_dual(one, level) for one in (result, *operands))
        protect_operands(own[1], [tangent for _, tangent in others])
