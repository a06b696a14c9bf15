"""Primitives that plugins define: composed of ops on every device, with kernels on some."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from pullback._c.device.py_allocator import memories

__all__ = ["Operand", "add_kernel", "define_primitive"]

_defined: dict[str, Callable[..., Any]] = {}  # decompositions by name


class Operand(NamedTuple):
    """An operand of a kernel of a defined primitive, with the attributes that others have."""

    base: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: int
    host: bool = False
    value: Any = None


def define_primitive(name: str, schema: str, decomposition: Callable[..., Any]) -> Any:
    """Define an operation that devices may have kernels for, and return it.

    ``name`` is ``"namespace::name"``, ``schema`` its arguments and results, such as ``"(Tensor x,
    float eps) -> Tensor"``. ``decomposition`` takes these arguments and computes with pullback's
    functions: it runs where the device has no kernel for the dtype of the first tensor, tells
    shapes and dtypes of results, and gives the derivatives. A plugin registers a kernel with
    ``table.add(name, mask, kernel)``: it is called with the outputs, the tensors in order and the
    other arguments by name, and returns its result or fills ``out``. The operation is
    ``pullback.ops.namespace.name``, too.

    Raises: ValueError for a name without a namespace or a schema with arguments behind ``*``;
    RuntimeError for one that is defined already, or a schema that cannot be read.

    >>> import pullback
    >>> from pullback.backend import define_primitive
    >>> def scaled(x, weight, eps):
    ...     return x * weight * (x.square().mean(-1, True) + eps).rsqrt()
    >>> rms_norm = define_primitive(
    ...     "docs::rms_norm", "(Tensor x, Tensor weight, float eps) -> Tensor", scaled
    ... )
    >>> x = pullback.tensor([3.0, 4.0], requires_grad=True)
    >>> rms_norm(x, pullback.ones(2), 0.0)
    tensor([0.8485, 1.1314], grad_fn=<GeneratedBackwardFor_docs_rms_norm_defaultBackward>)
    """
    if name.count("::") != 1:
        raise ValueError(f"define_primitive(): expected a name such as 'mine::norm', got {name!r}")
    if "*" in schema:
        raise ValueError("define_primitive(): the schema has arguments behind '*'")
    library = import_module("pullback.library")
    library.define(name, schema)
    library.register_kernel(name, None, decomposition)
    library.register_autograd(name, _backward(decomposition), setup_context=_save)
    _defined[name] = decomposition
    space, _, short = name.partition("::")
    return getattr(getattr(import_module("pullback").ops, space), short)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep the arguments for backward."""
    pb = import_module("pullback")
    ctx.others = [None if isinstance(value, pb.Tensor) else value for value in inputs]
    ctx.positions = [n for n, value in enumerate(inputs) if isinstance(value, pb.Tensor)]
    ctx.save_for_backward(*(inputs[n] for n in ctx.positions))


def _backward(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Return a backward pass that composes the operation again and differentiates that."""

    def backward(ctx: Any, *grads: Any) -> Any:
        pb = import_module("pullback")
        saved = ctx.saved_tensors
        wanted = [n for n, at in enumerate(ctx.positions) if ctx.needs_input_grad[at]]

        def function(*values: Any) -> Any:
            arguments, given = list(ctx.others), list(saved)
            for n, value in zip(wanted, values):
                given[n] = value
            for position, tensor in zip(ctx.positions, given):
                arguments[position] = tensor
            return decomposition(*arguments)

        _, pull = pb.func.vjp(function, *(saved[n] for n in wanted))
        found: list[Any] = [None] * len(ctx.others)
        for n, grad in zip(wanted, pull(grads if len(grads) > 1 else grads[0])):
            found[ctx.positions[n]] = grad
        return tuple(found)

    return backward


def add_kernel(device: str, name: str, mask: int, kernel: Callable[..., Any]) -> None:
    """Register a kernel of a defined primitive: what ``table.add`` does for a name with ``::``.

    Raises: ValueError for a primitive that is not defined; TypeError for what cannot be called.
    """
    if name not in _defined:
        raise ValueError(
            f"backend {device!r}: no primitive {name!r} is defined: call define_primitive() first"
        )
    if not callable(kernel):
        raise TypeError(
            f"backend {device!r}: the kernel of {name!r} must be callable, got "
            f"{type(kernel).__name__}"
        )
    library, decomposition = import_module("pullback.library"), _defined[name]
    operator = import_module("pullback.library.operators").find(name)
    names = [argument.name for argument in operator._schema.arguments]

    def run(*values: Any) -> Any:
        pb = import_module("pullback")
        tensors = [value for value in values if isinstance(value, pb.Tensor)]
        if not tensors or not mask >> tensors[0].dtype.code & 1:
            return decomposition(*values)
        shadows = decomposition(*(v.to("meta") if isinstance(v, pb.Tensor) else v for v in values))
        many = isinstance(shadows, (tuple, list))
        outs = tuple(
            pb.empty(shadow.shape, dtype=shadow.dtype, device=tensors[0].device)
            for shadow in (shadows if many else [shadows])
        )
        outputs = tuple(map(_operand, outs))
        ins = [_operand(tensor.resolve_conj().resolve_neg()) for tensor in tensors]
        params = {n: v for n, v in zip(names, values) if not isinstance(v, pb.Tensor)}
        result = kernel(outputs if many else outputs[0], *ins, **params)
        if result is not None:
            _store(device, name, outputs, result if many else [result])
        return outs if many else outs[0]

    library.register_kernel(name, device, run)


def _operand(tensor: Any) -> Any:
    """Return a tensor as a kernel gets it: an array of host memory, or the description."""
    if tensor.device.type not in memories:
        with contextlib.suppress(TypeError):  # of a compiled backend whose memory is its own
            return tensor.detach().numpy()
    base = tensor.untyped_storage().data_ptr() if tensor.numel() else 0
    return Operand(
        base,
        tensor.storage_offset(),
        tuple(tensor.shape),
        tuple(tensor.stride()),
        tensor.dtype.name,
        tensor.device.index or 0,
    )


def _store(device: str, name: str, outputs: tuple[Any, ...], results: Any) -> None:
    """Write what a kernel returned into its outputs."""
    store = getattr(memories.get(device), "store", None)
    for output, result in zip(outputs, results):
        if tuple(result.shape) != tuple(output.shape):
            raise RuntimeError(
                f"the kernel {name!r} of the backend {device!r} returned shape "
                f"{tuple(result.shape)} for an output of shape {tuple(output.shape)}"
            )
        if not isinstance(output, Operand):
            output[...] = result
        elif store is None:
            raise RuntimeError(
                f"the kernel {name!r} of the backend {device!r} returned an array, and its memory "
                "has no method store(out, value)"
            )
        else:
            store(output, result)
