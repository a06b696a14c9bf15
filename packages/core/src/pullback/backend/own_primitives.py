"""Primitives that plugins define: composed of ops on every device, with kernels on some."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from pullback._c.device.py_allocator import memories
from pullback._c.device.py_kernel import DEFECTS
from pullback.backend.results import misfit

__all__ = ["Operand", "add_kernel", "define_primitive", "explain_operator"]

_defined: dict[str, Callable[..., Any]] = {}  # decompositions by name
_kernels: dict[tuple[str, str], list[tuple[int, Any]]] = {}  # by device and name: masks, kernels


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
    shapes and dtypes of results, and gives the derivatives, in both modes. For these it runs again,
    with the random numbers, the default device and the autocast of the call.

    A plugin registers a kernel with ``table.add(name, mask, kernel)``: it is called with the
    outputs, the tensors in order (a list of them for ``Tensor[]``, None for one that is left out)
    and the other arguments by name, and returns its result or fills ``out``. The operation is
    ``pullback.ops.namespace.name``, too.

    Raises: ValueError for a name without a namespace, or a schema of another form, with arguments
    behind ``*``, arguments that are written, or results other than tensors; TypeError for a
    decomposition that cannot be called; RuntimeError for a name that is defined already, or a
    schema that cannot be read.

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
    if not isinstance(name, str) or name.count("::") != 1:
        raise ValueError(f"define_primitive(): expected a name such as 'mine::norm', got {name!r}")
    if not callable(decomposition):
        raise TypeError(
            f"define_primitive(): the decomposition of {name!r} must be callable, got "
            f"{type(decomposition).__name__}"
        )
    if not schema.lstrip().startswith("("):
        raise ValueError(
            f"define_primitive(): expected a schema such as '(Tensor x) -> Tensor', got {schema!r}"
        )
    library = import_module("pullback.library")
    space, _, short = name.partition("::")
    made = import_module("pullback.library.schema").parse_schema(space, short + schema)
    problem = None
    if any(argument.kwarg_only for argument in made.arguments):
        problem = "has arguments behind '*'"
    elif made.is_mutable:
        problem = "has arguments that are written"
    elif made.returns != ("Tensor[]",) and {*made.returns} != {"Tensor"}:
        problem = "has results other than tensors"
    if problem is not None:
        raise ValueError(f"define_primitive(): the schema of {name!r} {problem}")
    library.define(name, schema)
    library.register_kernel(name, None, decomposition)
    library.register_autograd(name, _backward(decomposition), setup_context=_save)
    operator = getattr(import_module("pullback.library.operators").namespace(space), short).default
    operator.tangents = _tangents(decomposition)
    operator.surroundings = _Surroundings
    _defined[name] = decomposition
    return getattr(getattr(import_module("pullback").ops, space), short)


# ---- derivatives ---------------------------------------------------------------------------------


class _Surroundings:
    """What a derivative restores to run the decomposition again: checkpoints do so, too."""

    def __init__(self) -> None:
        self.others = import_module("pullback.utils.checkpoint._replay").Surroundings(False)
        self.position, self.drew = _position(), False

    @contextlib.contextmanager
    def restored(self) -> Any:
        generator, before = import_module("pullback").random.default_generator, _position()
        with self.others.restored():
            if self.drew:
                generator.set_position(*self.position)
            try:
                yield
            finally:
                if self.drew:
                    generator.set_position(*before)


def _position() -> tuple[int, int]:
    generator = import_module("pullback").random.default_generator
    return generator.initial_seed(), generator.get_offset()


def _save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep the arguments for the derivatives: those in lists one by one."""
    tensor = import_module("pullback").Tensor
    flat = ctx._structure.flat(inputs)
    ctx.others = [None if isinstance(value, tensor) else value for value in flat]
    ctx.positions = [n for n, value in enumerate(flat) if isinstance(value, tensor)]
    ctx._structure.surroundings.drew = ctx._structure.surroundings.position != _position()
    tensors = [flat[n] for n in ctx.positions]
    ctx.save_for_backward(*tensors)
    ctx.save_for_forward(*tensors)


def _function(ctx: Any, wanted: list[int], decomposition: Callable[..., Any]) -> tuple[Any, Any]:
    """Return the decomposition as a function of some of the saved tensors, and these."""
    saved = ctx.saved_tensors

    def function(*values: Any) -> Any:
        flat, given = list(ctx.others), list(saved)
        for n, value in zip(wanted, values):
            given[n] = value
        for position, tensor in zip(ctx.positions, given):
            flat[position] = tensor
        found = decomposition(*ctx._structure.nested(flat))
        return tuple(found) if isinstance(found, list) else found

    return function, tuple(saved[n] for n in wanted)


def _backward(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Return a backward pass that composes the operation again and differentiates that."""

    def backward(ctx: Any, *grads: Any) -> Any:
        pb = import_module("pullback")
        wanted = [n for n, at in enumerate(ctx.positions) if ctx.needs_input_grad[at]]
        function, given = _function(ctx, wanted, decomposition)
        if len(grads) == 1 and isinstance(grads[0], list):  # of a list of results
            grads = tuple(grads[0])
        recording = pb.is_grad_enabled()
        given = [_leaf(value, recording) for value in given]
        with ctx._structure.surroundings.restored(), pb.enable_grad():
            out = function(*given)
            pairs = zip(out if isinstance(out, tuple) else (out,), grads)
            kept = [(one, grad) for one, grad in pairs if one.requires_grad and grad is not None]
            found = pb.autograd.grad(
                [one for one, _ in kept],
                given,
                [grad for _, grad in kept],
                create_graph=recording,
                allow_unused=True,
            )
        flat: list[Any] = [None] * len(ctx.others)
        for n, grad in zip(wanted, found):
            flat[ctx.positions[n]] = grad
        return tuple(ctx._structure.nested(flat))

    return backward


def _leaf(value: Any, recording: bool) -> Any:
    """Return an alias to differentiate by, with the history that another derivative needs."""
    if recording and value.requires_grad:
        return value.view_as(value)
    with import_module("pullback").no_grad():
        made = import_module("pullback.ops").ops.same_memory(value)  # with its tangents
    import_module("pullback._c.graph.levels").whole(made).requires_grad_()
    return made


def _tangents(decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Return the rule of forward mode, which composes the operation again with tangents."""

    def tangents(ctx: Any, *directions: Any) -> Any:
        pb = import_module("pullback")
        moved = [directions[at] for at in ctx.positions]
        wanted = [n for n, one in enumerate(moved) if one is not None and _is_inexact(one)]
        function, given = _function(ctx, wanted, decomposition)
        with ctx._structure.surroundings.restored():
            _, found = pb.func.jvp(function, given, tuple(moved[n] for n in wanted))
        if isinstance(found, tuple):
            return tuple(one if _is_inexact(one) else None for one in found)
        return found if _is_inexact(found) else None

    return tangents


def _is_inexact(tensor: Any) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


# ---- kernels -------------------------------------------------------------------------------------


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
    _kernels.setdefault((device, name), []).insert(0, (mask, kernel))
    operators, decomposition = import_module("pullback.library.operators"), _defined[name]
    arguments = operators.find(name)._schema.arguments

    def run(*values: Any) -> Any:
        pb = import_module("pullback")
        tensors = operators.tensors_of(values)
        code = tensors[0].dtype.code if tensors else 0
        found = next((one for mask, one in _kernels[device, name] if mask >> code & 1), None)
        if found is None or any(tensor.device != tensors[0].device for tensor in tensors):
            return decomposition(*values)
        shadows = decomposition(*(_mapped(lambda t: t.to("meta"), value) for value in values))
        many = isinstance(shadows, (tuple, list))
        outs = [
            pb.empty(shadow.shape, dtype=shadow.dtype, device=tensors[0].device)
            for shadow in (shadows if many else [shadows])
        ]
        ins, params = [], {}
        for argument, value in zip(arguments, values):
            if argument.type.startswith("Tensor"):
                ins.append(_mapped(lambda t: _operand(t.resolve_conj().resolve_neg()), value))
            else:
                params[argument.name] = value
        outputs = tuple(map(_operand, outs))
        place = f"the kernel {name!r} of the backend {device!r}"
        try:
            with import_module("numpy").errstate(all="ignore"):
                result = found(outputs if many else outputs[0], *ins, **params)
                if result is not None:
                    _store(device, outputs, result, many)
        except (*DEFECTS, StopIteration) as error:  # the core names its own primitives so, too
            raise RuntimeError(f"{place} failed: {type(error).__name__}: {error}") from error
        except (ValueError, NotImplementedError) as error:
            _add_note(error, f"in {place}, for {tensors[0].dtype.name}")
            raise
        return tuple(outs) if many else outs[0]

    import_module("pullback.library").register_kernel(name, device, run)


def _mapped(function: Callable[..., Any], value: Any) -> Any:
    """Call a function on a tensor, or on each of a list; return other values as they are."""
    if isinstance(value, list):
        return [_mapped(function, item) for item in value]
    return function(value) if isinstance(value, import_module("pullback").Tensor) else value


def _add_note(error: Exception, note: str) -> None:
    """Say where a kernel raised an exception that goes to the user."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif len(error.args) == 1 and isinstance(error.args[0], str):  # before Python 3.11
        error.args = (f"{error.args[0]} ({note})",)


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


def _store(device: str, outputs: tuple[Any, ...], result: Any, many: bool) -> None:
    """Write what a kernel returned into its outputs; raise TypeError if it does not fit them."""
    results = result if many else [result]
    if not isinstance(results, (tuple, list)) or len(results) != len(outputs):
        count = f" of {len(result)}" if isinstance(result, (tuple, list)) else ""
        raise TypeError(
            f"it returned {type(result).__name__}{count}: a kernel with {len(outputs)} outputs "
            f"fills them, or returns a tuple of as many arrays"
        )
    store = getattr(memories.get(device), "store", None)
    for output, one in zip(outputs, results):
        wrong = misfit(one, output.shape, output.dtype)
        if wrong is not None:
            raise TypeError(wrong)
        if not isinstance(output, Operand):
            output[...] = one
        elif store is None:
            raise TypeError("it returned an array, and its memory has no method store(out, value)")
        else:
            store(output, one)


def explain_operator(name: str, device: str) -> str | None:
    """Return how an operator that a program defined runs on a device; None if there is none."""
    pb = import_module("pullback")
    operator = import_module("pullback.library.operators").find(name)
    if operator is None:
        return None
    if name not in _defined:
        keys = ", ".join(sorted(operator.kernels)) or "nothing"
        return f"{name} on {device}: an operator of pullback.library, with kernels for {keys}"
    pb.ones(0, device=device)  # loads the plugin, which registers its kernels
    mask = 0
    for one, _ in _kernels.get((device, name), ()):
        mask |= one
    served = ", ".join(dtype.name for dtype in pb._dtypes() if mask >> dtype.code & 1)
    how = f"kernel for {served}; its decomposition for others" if served else "its decomposition"
    return f"{name} on {device}: {how}"
