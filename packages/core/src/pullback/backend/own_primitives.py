"""Primitives that plugins define: composed of ops on every device, with kernels on some."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from pullback._c.device.device import install_kernel
from pullback._c.dispatch.structured import launch_numbered
from pullback.ops.table.numbered import number_primitive

__all__ = ["add_kernel", "define_primitive", "explain_operator"]

_defined: dict[str, Callable[..., Any]] = {}  # decompositions by name
_masks: dict[tuple[str, str], int] = {}  # by device and name: dtypes that have a kernel
_examples: dict[str, tuple[Any, ...]] = {}  # of arguments, by name


def define_primitive(
    name: str,
    schema: str,
    decomposition: Callable[..., Any],
    *,
    example: tuple[Any, ...] | None = None,
) -> Any:
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

    With an ``example`` of arguments, a compiled function that runs the ops of the decomposition, in
    the same order of operands, runs the device's kernel in their place, if it needs nothing of what
    lies between. Sizes of the example are above 1 and differ from each other, its numbers from
    those in the decomposition; the schema has tensors and one result, but no lists of tensors.

    Raises: ValueError for a name without a namespace, or a schema of another form, with arguments
    behind ``*``, arguments that are written, two of one name, or results other than tensors;
    TypeError for a decomposition that cannot be called; RuntimeError for a name that is defined
    already, or a schema that cannot be read, and when the decomposition writes an argument.

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
    if not isinstance(schema, str) or not schema.lstrip().startswith("("):
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
    elif len({argument.name for argument in made.arguments}) < len(made.arguments):
        problem = "has two arguments of one name"
    elif made.returns != ("Tensor[]",) and {*made.returns} != {"Tensor"}:
        problem = "has results other than tensors"
    if problem is not None:
        raise ValueError(f"define_primitive(): the schema of {name!r} {problem}")
    if example is not None:
        example = _checked_example(name, made, example)
    library.define(name, schema)
    if example is not None:
        _examples[name] = example
    decomposition = _without_writes(name, decomposition)
    library.register_kernel(name, None, decomposition)
    library.register_autograd(name, _backward(decomposition), setup_context=_save)
    operator = getattr(import_module("pullback.library.operators").namespace(space), short).default
    operator.tangents = _tangents(decomposition)
    operator.surroundings = _Surroundings
    _defined[name] = decomposition
    return getattr(getattr(import_module("pullback").ops, space), short)


def _checked_example(name: str, schema: Any, example: Any) -> tuple[Any, ...]:
    """Return an example of arguments; raises TypeError or ValueError for another."""
    if not isinstance(example, tuple):
        kind = type(example).__name__
        raise TypeError(f"define_primitive(): the example of {name!r} must be a tuple, not {kind}")
    if len(example) != len(schema.arguments) or schema.returns != ("Tensor",):
        raise ValueError(
            f"define_primitive(): the example of {name!r} must have {len(schema.arguments)} "
            f"arguments, and its schema one result; got {len(example)}, and {schema.returns}"
        )
    tensor = import_module("pullback").Tensor
    for argument, value in zip(schema.arguments, example):
        if argument.type.startswith("Tensor") != isinstance(value, tensor):
            raise ValueError(
                f"define_primitive(): in the example of {name!r}, argument {argument.name!r} of "
                f"type {argument.type} is {value!r}; tensors can be neither lists nor left out"
            )
    sizes = [size for one in example if isinstance(one, tensor) for size in one.shape]
    if not sizes or min(sizes) < 2:
        raise ValueError(f"define_primitive(): the example of {name!r} needs sizes above 1")
    return example


def _without_writes(name: str, decomposition: Callable[..., Any]) -> Callable[..., Any]:
    """Return a decomposition that raises RuntimeError when it has written an argument."""
    tensor = import_module("pullback").Tensor

    @functools.wraps(decomposition)
    def run(*args: Any) -> Any:
        listed = [arg if isinstance(arg, list) else [arg] for arg in args]
        given = [one for some in listed for one in some if isinstance(one, tensor)]
        counted = [one for one in given if not one.is_inference()]
        versions = [one._version for one in counted]
        found = decomposition(*args)
        if versions != [one._version for one in counted]:
            raise RuntimeError(
                f"{name}: the decomposition wrote one of its arguments in place, of which nothing "
                f"is recorded; it must write to a clone()"
            )
        return found

    return run


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
                generator.go_back(*self.position)
            try:
                yield
            finally:
                if self.drew:
                    generator.go_back(*before)


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


class Form(NamedTuple):
    """What a kernel's arguments are made of, besides operands and numbers."""

    lists: tuple[int | None, ...]  # of each tensor argument: LONE, None, or a list's length
    names: tuple[str, ...]  # of the numbers
    others: dict[str, Any]
    many: bool  # results are a tuple or a list


LONE = -1
NUMBERS = 7  # of a call, at most; a launch has eight parameters
MOST_OPERANDS = 68  # PB_MAX_OPERANDS of abi.h
_forms: list[Form] = []
_form_numbers: dict[Any, int] = {}
_forming = threading.Lock()


def _number_form(form: Form) -> int:
    """Return the number of a form: a parameter of the launch, by which its kernel finds it."""
    key = form.lists, form.names, repr(form.others), form.many
    with _forming:
        number = _form_numbers.setdefault(key, len(_forms))
        if number == len(_forms):
            _forms.append(form)
    return number


def _is_number(value: Any) -> bool:
    """Return whether a launch can have a value as its parameter."""
    if isinstance(value, list):
        return len(value) <= 8 and all(map(_is_number, value)) and float not in map(type, value)
    return type(value) is float or (type(value) is int and -(2**63) <= value < 2**63)


def _parameters(arguments: Any, values: tuple[Any, ...], many: bool) -> tuple[Any, ...]:
    """Return the parameters of a launch: the number of its form, and numbers."""
    lists: list[int | None] = []
    numbers: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for argument, value in zip(arguments, values):
        if argument.type.startswith("Tensor"):
            is_list = isinstance(value, list)
            lists.append(None if value is None else len(value) if is_list else LONE)
        elif _is_number(value) and len(numbers) < NUMBERS:
            numbers[argument.name] = tuple(value) if isinstance(value, list) else value
        else:
            others[argument.name] = value
    return _number_form(Form(tuple(lists), tuple(numbers), others, many)), *numbers.values()


def _arranged(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel that a launch calls: it calls the plugin's with what the form says."""

    def run(outs: Any, *ins: Any, form: int, **numbers: Any) -> Any:
        lists, names, others, many = _forms[form]
        given = iter(ins)
        operands: list[Any] = []
        for count in lists:
            if count is None:
                operands.append(None)
            else:
                taken = [next(given) for _ in range(abs(count))]
                operands.append(taken[0] if count == LONE else taken)
        single = many and not isinstance(outs, tuple)
        for name, number in zip(names, numbers.values()):
            others = {**others, name: list(number) if isinstance(number, tuple) else number}
        result = kernel((outs,) if single else outs, *operands, **others)
        if single and isinstance(result, (tuple, list)) and len(result) == 1:
            return result[0]
        return result

    return run


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
    number = number_primitive(name, ["form", *(f"number{n}" for n in range(NUMBERS))])
    install_kernel(device, number, mask, _arranged(kernel))
    served = _masks[device, name] = _masks.get((device, name), 0) | mask
    operators, decomposition = import_module("pullback.library.operators"), _defined[name]
    arguments = operators.find(name)._schema.arguments

    def run(*values: Any) -> Any:
        pb = import_module("pullback")
        tensors = operators.tensors_of(values)
        if (
            not tensors
            or not served >> tensors[0].dtype.code & 1
            or any(tensor.device != tensors[0].device for tensor in tensors)
        ):
            return decomposition(*values)
        shadows = decomposition(*(_mapped(_shadow, value) for value in values))
        many = isinstance(shadows, (tuple, list))
        outs = tuple(
            pb.empty(shadow.shape, dtype=shadow.dtype, device=tensors[0].device)
            for shadow in (shadows if many else [shadows])
        )
        if len(outs) + len(tensors) > MOST_OPERANDS:
            return decomposition(*values)
        ins = tuple(tensor.resolve_conj().resolve_neg() for tensor in tensors)
        launch_numbered(
            number, tensors[0].dtype.code, outs, ins, _parameters(arguments, values, many)
        )
        return outs if many else outs[0]

    import_module("pullback.library").register_kernel(name, device, run)
    if name in _examples:
        patterns = import_module("pullback.compiler.patterns")
        made = patterns.Pattern(
            name,
            decomposition,
            _examples[name],
            served,
            number,
            lambda values: _parameters(arguments, values, False),
        )
        patterns.search_for(device, made)


def _mapped(function: Callable[..., Any], value: Any) -> Any:
    """Call a function on a tensor, or on each of a list; return other values as they are."""
    if isinstance(value, list):
        return [_mapped(function, item) for item in value]
    return function(value) if isinstance(value, import_module("pullback").Tensor) else value


def _shadow(tensor: Any) -> Any:
    """Return a tensor without elements of its own, of the same shape and dtype."""
    return import_module("pullback").empty_like(tensor, device="meta")


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
    mask = _masks.get((device, name), 0)
    served = ", ".join(dtype.name for dtype in pb._dtypes() if mask >> dtype.code & 1)
    how = f"kernel for {served}; its decomposition for others" if served else "its decomposition"
    return f"{name} on {device}: {how}"
