"""``backward`` and ``grad``: they check and convert their arguments, then run a backward pass."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from pullback._c.base.errors import require_bool
from pullback._c.engine import engine
from pullback._c.graph import levels
from pullback._c.graph.tensor import Tensor
from pullback._c.ops import create
from pullback._c.python import node_methods, tensor_methods
from pullback._c.transforms import batching
from pullback.autograd.graph import GradientEdge

if TYPE_CHECKING:
    from pullback import Tensor as _Tensor

    _Ends: TypeAlias = _Tensor | GradientEdge | Sequence[_Tensor | GradientEdge]
    _Seeds: TypeAlias = _Tensor | Sequence[_Tensor | None] | None

__all__ = ["backward", "execute_backward", "grad"]

_warned_cycle = False


def _flag(function, name, value):
    """Return a flag as a bool; numbers are taken, as by torch."""
    return bool(value) if isinstance(value, int) else require_bool(function, name, value)


def _as_sequence(value, name):
    """Return a tensor, an edge or a sequence of them as a tuple."""
    if isinstance(value, (Tensor, GradientEdge)):
        return (value,)
    try:
        items = iter(value)
    except TypeError:
        raise TypeError(
            f"{name} must be a Tensor, a GradientEdge or a sequence of them, but "
            f"got {type(value).__name__}"
        ) from None
    found: list[Tensor | GradientEdge] = []
    for item in items:  # may be an endless iterator
        if not isinstance(item, (Tensor, GradientEdge)):
            error = RuntimeError if name == "inputs" else TypeError
            raise error(
                f"all {name} have to be Tensors or GradientEdges, but got "
                f"{type(item).__name__} at position {len(found)}"
            )
        found.append(item)
    return tuple(found)


def _seeds(value, count, name):
    """Return one gradient or None per root."""
    if value is None:
        return (None,) * count
    if isinstance(value, Tensor):
        return (value,)
    if not isinstance(value, (list, tuple)):
        raise TypeError(
            f"{name} must be a Tensor, None or a sequence of them, but got {type(value).__name__}"
        )
    return tuple(value)


def _described(root):
    """Return shape and dtype of a root."""
    if isinstance(root, GradientEdge):
        return node_methods.seed_description(root.node, root.output_nr)[:2]
    return root.shape, root.dtype


def _engine_items(items):
    """Return tensors as they are and edges as (node, output number)."""
    return [item if isinstance(item, Tensor) else (item.node, item.output_nr) for item in items]


def _check_seed(position, seed, shape, dtype, batched):
    """Return a seed in the root's dtype.

    Raises: RuntimeError when its shape or complexness does not fit.
    """
    expected = tuple(seed.shape[1:]) if batched else tuple(seed.shape)
    if (batched and seed.ndim == 0) or expected != tuple(shape):
        if batched:
            raise RuntimeError(
                f"If `is_grads_batched=True`, we interpret the first dimension of "
                f"each grad_output as the batch dimension. The sizes of the "
                f"remaining dimensions are expected to match the shape of "
                f"corresponding output, but a mismatch was detected: "
                f"grad_output[{position}] has a shape of {seed.shape} and "
                f"output[{position}] has a shape of {list(shape)}."
            )
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{position}] has a shape of "
            f"{seed.shape} and output[{position}] has a shape of {list(shape)}."
        )
    if seed.dtype.is_complex != dtype.is_complex:
        raise RuntimeError(
            f"For complex Tensors, both grad_output and output are required to have "
            f"the same dtype. Mismatch in dtype: grad_output[{position}] has a "
            f"dtype of {seed.dtype} and output[{position}] has a dtype of {dtype}."
        )
    return seed if seed.dtype == dtype else seed.to(dtype)


def _prepare(roots, seeds, batched=False):
    """Return the roots and their gradients in the form of the engine."""
    if len(seeds) != len(roots):
        raise RuntimeError(f"got {len(roots)} tensors and {len(seeds)} gradients")
    grads = []
    for position, (root, seed) in enumerate(zip(roots, seeds)):
        if seed is not None:
            if not isinstance(seed, Tensor):
                raise TypeError(
                    f"gradients can be either Tensors or None, but got "
                    f"{type(seed).__name__} at position {position}"
                )
            shape, dtype = _described(root)
            seed = _check_seed(position, seed, shape, dtype, batched)
        grads.append(seed)
    return _engine_items(roots), grads


def backward(
    tensors: _Ends,
    grad_tensors: _Seeds = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: _Seeds = None,
    inputs: _Ends | None = None,
) -> None:
    """Add the gradients of ``tensors`` to the ``.grad`` of the leaves they depend on.

    ``grad_tensors``: one gradient per tensor, of its shape; None stands for 1 where the tensor has
    one element. ``retain_graph`` keeps saved values for another pass (default: as
    ``create_graph``); ``create_graph`` records the pass itself; ``inputs`` restricts it.

    Raises: RuntimeError when a tensor does not require grad, a gradient does not fit, or saved
    values were freed or modified; TypeError for arguments of a wrong type.

    >>> import pullback
    >>> x = pullback.tensor(3., requires_grad=True)
    >>> pullback.autograd.backward(x * x)
    >>> x.grad
    tensor(6.)
    """
    if grad_variables is not None:
        warnings.warn(
            "`grad_variables` is deprecated. Use `grad_tensors` instead.",
            FutureWarning,
            stacklevel=2,
        )
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both "
                "passed to `backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    if inputs is not None:
        inputs = _as_sequence(inputs, "inputs")
        if not inputs:
            raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    roots = _as_sequence(tensors, "tensors")
    seeds = _seeds(grad_tensors, len(roots), "grad_tensors")
    create_graph = _flag("backward", "create_graph", create_graph)
    if retain_graph is None:
        retain_graph = create_graph
    retain_graph = _flag("backward", "retain_graph", retain_graph)
    if create_graph:
        _warn_cycle()
    edges, grads = _prepare(roots, seeds)
    del seeds, grad_tensors
    if inputs is None:
        engine.run_backward(edges, grads, retain_graph, create_graph, None, True)
        return
    _backward_to(edges, grads, retain_graph, create_graph, inputs)


def _warn_cycle():
    global _warned_cycle
    if not _warned_cycle:
        _warned_cycle = True
        warnings.warn(
            "Using backward() with create_graph=True will create a reference cycle "
            "between the parameter and its gradient which can cause a memory leak. We "
            "recommend using autograd.grad when creating the graph to avoid this. If you "
            "have to use this function, make sure to reset the .grad fields of your "
            "parameters to None after use to break the cycle and avoid the leak.",
            UserWarning,
            stacklevel=3,
        )


def _backward_to(edges, grads, retain_graph, create_graph, inputs):
    """Accumulate into ``inputs`` only: leaves by their accumulators, others by captures."""
    found = engine.run_backward(
        edges, grads, retain_graph, create_graph, _engine_items(inputs), True
    )
    seen = set()
    for item, gradient in zip(inputs, found):
        if (
            isinstance(item, Tensor)
            and gradient is not None
            and not item.retains_grad
            and (not item.is_leaf and id(item) not in seen)
        ):
            seen.add(id(item))
            tensor_methods.accumulate_in_place_of(item, gradient)


@overload
def grad(
    outputs: _Ends,
    inputs: _Ends,
    grad_outputs: _Seeds = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[_Tensor, ...]: ...


@overload
def grad(
    outputs: _Ends,
    inputs: Mapping[Any, _Tensor],
    grad_outputs: _Seeds = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> dict[Any, _Tensor]: ...


def grad(
    outputs,
    inputs,
    grad_outputs=None,
    retain_graph=None,
    create_graph=False,
    only_inputs=True,
    allow_unused=None,
    is_grads_batched=False,
    materialize_grads=False,
):
    """Return the sum of the gradients of ``outputs`` with respect to each of ``inputs``.

    Nothing is added to ``.grad``. ``inputs`` is a tensor, an edge, a sequence or a dict of
    tensors; a dict gives a dict. ``allow_unused`` gives None for inputs that the outputs do not
    depend on; ``materialize_grads`` gives zeros for them. With ``is_grads_batched`` the first dim
    of every ``grad_outputs`` is a batch dim, and so is that of the results.

    Raises: RuntimeError when an input was not used, an output does not require grad or a gradient
    does not fit; ValueError for contradicting flags; TypeError for arguments of a wrong type.

    >>> import pullback
    >>> x = pullback.tensor(3., requires_grad=True)
    >>> pullback.autograd.grad(x * x, x)
    (tensor(6.),)
    """
    if type(create_graph) is not bool:
        create_graph = _flag("grad", "create_graph", create_graph)
    if retain_graph is None:
        retain_graph = create_graph
    elif type(retain_graph) is not bool:
        retain_graph = _flag("grad", "retain_graph", retain_graph)
    if (
        grad_outputs is None
        and allow_unused is None
        and not (is_grads_batched or materialize_grads)
        and only_inputs
    ):
        found = engine.grad_of(outputs, inputs, retain_graph, create_graph)
        if found is not None:  # the common call; a list means that an input was unused
            return (
                found
                if type(found) is tuple
                else _finish(found, inputs, None, False, False, create_graph)
            )
    materialize_grads = _flag("grad", "materialize_grads", materialize_grads)
    is_grads_batched = _flag("grad", "is_grads_batched", is_grads_batched)
    if allow_unused is not None:
        allow_unused = _flag("grad", "allow_unused", allow_unused)
    keys = None
    if isinstance(inputs, Mapping):
        if type(inputs) is not dict:
            raise TypeError(
                f"inputs must be a dict, a Tensor, a GradientEdge or a sequence, but "
                f"got {type(inputs).__name__}"
            )
        keys, inputs = list(inputs), list(inputs.values())
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when "
            "materialize_grads=True, but got: allow_unused=False."
        )
    if allow_unused is None:
        allow_unused = materialize_grads
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). "
            "To accumulate gradient for other parts of the graph, please use "
            "pullback.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    roots = _as_sequence(outputs, "outputs")
    inputs = _as_sequence(inputs, "inputs")
    if not inputs:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    _check_no_edges(roots, inputs, is_grads_batched)
    seeds = _seeds(grad_outputs, len(roots), "grad_outputs")
    if batching.are_batched((*roots, *inputs)):
        found = batching.gradients_of(
            list(roots), list(seeds), list(inputs), retain_graph, create_graph
        )
    elif is_grads_batched:
        found = _grad_batched(roots, inputs, seeds, retain_graph, create_graph, allow_unused)
    else:
        edges, grads = _prepare(roots, seeds)
        del seeds, grad_outputs
        found = engine.run_backward(
            edges, grads, retain_graph, create_graph, _engine_items(inputs), False
        )
    return _finish(found, inputs, keys, allow_unused, materialize_grads, create_graph)


def _check_no_edges(roots, inputs, batched):
    if batched and any(isinstance(item, GradientEdge) for item in (*roots, *inputs)):
        raise RuntimeError("`is_grads_batched=True` does not support GradientEdge: pass Tensors")


def _finish(found, inputs, keys, allow_unused, materialize, create_graph):
    """Raise for unused inputs or fill in zeros, and restore the structure of ``inputs``."""
    result = []
    for position, (gradient, item) in enumerate(zip(found, inputs)):
        if gradient is None:
            if not allow_unused:
                where = f"with the key {keys[position]!r}" if keys else f"at index {position}"
                raise RuntimeError(
                    f"The differentiated Tensor {where} appears to not have been "
                    f"used in the graph. Set allow_unused=True if this is the "
                    f"desired behavior. (A copy or view made after the computation "
                    f"is another tensor.)"
                )
            if materialize:
                if isinstance(item, GradientEdge):
                    raise RuntimeError(
                        "materialize_grads cannot be used when the given input is a GradientEdge"
                    )
                gradient = create.fill_tensor(
                    create.empty_tensor(item.shape, item.dtype, item.device), 0
                )
                if create_graph:
                    gradient.requires_grad_()
        result.append(gradient)
    return dict(zip(keys, result)) if keys is not None else tuple(result)


def _grad_batched(roots, inputs, seeds, retain_graph, create_graph, allow_unused):
    """Run one backward pass with batched gradients."""
    sizes = {seed.shape[0] for seed in seeds if seed is not None and seed.ndim}
    if any(seed is None for seed in seeds) or len(sizes) != 1:
        raise RuntimeError(
            "If `is_grads_batched=True`, every grad_output must be given, with one "
            "batch size as its first dimension"
        )
    _prepare(roots, seeds, batched=True)
    size = sizes.pop()
    level = levels.enter_level(size, "error")
    try:
        edges, grads = _prepare(roots, [batching.make_batched(seed, level) for seed in seeds])
        found = engine.run_backward(
            edges, grads, retain_graph, create_graph, _engine_items(inputs), False
        )
        return [
            None if gradient is None else _batch_of(gradient, size, level) for gradient in found
        ]
    finally:
        levels.exit_level(level)


def _batch_of(gradient, size, level):
    value = batching.get_batch(gradient, level)
    return gradient.expand((size, *gradient.shape)) if value is None else value


def execute_backward(root, grad, retain_graph=False):
    """Run backward from one root with an explicit gradient: ``backward([root], [grad], ...)``.

    Raises: as ``backward`` does.

    >>> import pullback
    >>> x = pullback.ones(2, requires_grad=True)
    >>> pullback.autograd.execute_backward(x * 2, pullback.ones(2))
    >>> x.grad
    tensor([2., 2.])
    """
    backward([root], [grad], retain_graph)


def tensor_backward(self, gradient, retain_graph, create_graph, inputs):
    """Run ``Tensor.backward`` with more arguments than ``retain_graph``."""
    if gradient is not None and not isinstance(gradient, Tensor):
        raise TypeError(
            f"backward(): argument 'gradient' must be Tensor or None, not {type(gradient).__name__}"
        )
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)
