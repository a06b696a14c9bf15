"""Custom Functions under vmap, by their rule ``vmap`` or one generated from forward; hooks."""

from __future__ import annotations

from typing import Any, NamedTuple

from pullback._c.graph import levels
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms import batching


class VmapInfo(NamedTuple):
    """The ``info`` argument of a Function's ``vmap``: the batch size and randomness."""

    batch_size: int
    randomness: str


def run_batched(cls: Any, args: tuple[Any, ...]) -> Any:
    """Run a Function on arguments some of which are batched.

    Raises: RuntimeError when the class has no rule for it.
    """
    from pullback.autograd.function import Function, run_function

    own = cls.vmap is not Function.vmap
    if cls.setup_context is Function.setup_context:
        raise RuntimeError(
            f"In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, "
            f"jacrev, ...), it must override the setup_context staticmethod: {cls.__name__} does "
            f"not."
        )
    if own and cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and "
            f"an overriden vmap staticmethod. Please set generate_vmap_rule=False or delete the "
            f"overriden vmap staticmethod to avoid ambiguity."
        )
    if not own and not cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please "
            f"override and implement the vmap staticmethod or set generate_vmap_rule=True."
        )
    level = max(described[0] for described in map(_described, args) if described)
    info = VmapInfo(batching.batch_size(level), batching.batch_randomness(level))
    values = [batching.get_batch(arg, level) if isinstance(arg, Tensor) else None for arg in args]
    in_dims = tuple(None if value is None else 0 for value in values)
    given = tuple(arg if value is None else value for arg, value in zip(args, values))
    disabled = levels.disable_one_level(level)
    try:
        if own:
            outputs, out_dims = cls.vmap(info, in_dims, *given)
        else:
            outputs, out_dims = run_function(_made_of(cls, info, in_dims), given), 0
    finally:
        levels.restore_levels(disabled)
    return _wrapped(outputs, out_dims, level)


def _described(value: Any) -> tuple[int, Tensor] | None:
    return batching.describe(value) if isinstance(value, Tensor) else None


def _wrapped(outputs: Any, out_dims: Any, level: int) -> Any:
    single = not isinstance(outputs, (tuple, list))
    found = [outputs] if single else list(outputs)
    dims = list(out_dims) if isinstance(out_dims, (tuple, list)) else [out_dims] * len(found)
    if len(dims) != len(found):
        raise ValueError(
            f"vmap staticmethod: out_dims has {len(dims)} entries for {len(found)} outputs"
        )
    made = [
        value
        if dim is None or not isinstance(value, Tensor)
        else batching.make_batched(value.movedim(dim, 0), level)
        for value, dim in zip(found, dims)
    ]
    return made[0] if single else tuple(made)


def hook_of_batch(hook: Any, tensor: Tensor) -> tuple[Any, Tensor]:
    """Return a hook of the batch that a tensor is an element of, and the batch.

    The hook is called for an element, while the same levels of vmap are open.
    """
    numbers = []  # the innermost first
    while (found := _described(tensor)) is not None:
        numbers.append(found[0])
        tensor = found[1]

    def run(grad: Any) -> Any:
        for number in reversed(numbers if grad is not None else ()):
            try:
                grad = batching.make_batched(grad, number)
            except RuntimeError:
                raise RuntimeError("a hook of a tensor of vmap ran when that had ended") from None
        result = hook(grad)
        for number in numbers if isinstance(result, Tensor) else ():
            value = batching.get_batch(result, number)
            if value is None:  # the same for all elements
                value = result.expand((batching.batch_size(number), *result.shape))
            result = value
        return result

    return (run if numbers else hook), tensor


# -- generated rules -------------------------------------------------------------------------------


class _Context:
    """The ctx of a Function whose methods run on batched tensors."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self.materialize_grads = True
        self.not_differentiable: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.not_differentiable = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        raise RuntimeError("vmap: mark_dirty is not supported with generate_vmap_rule=True")


def _made_of(cls: Any, info: VmapInfo, in_dims: tuple[Any, ...]) -> Any:
    """Return a Function of batches that runs the methods of `cls` on their elements."""
    from pullback.autograd.function import Function

    class Inside:
        """A level of vmap, with the conversion of its arguments and results."""

        def __enter__(self) -> Inside:
            self.level = levels.enter_level(*info)
            return self

        def __exit__(self, *error: Any) -> None:
            levels.exit_level(self.level)

        def wrap(self, value: Any, on: bool) -> Any:
            return batching.make_batched(value, self.level) if on and value is not None else value

        def unwrap(self, value: Any) -> tuple[Any, bool]:
            found = batching.get_batch(value, self.level) if isinstance(value, Tensor) else None
            return (value, False) if found is None else (found, True)

        def spread(self, value: Any) -> Any:
            found, on = self.unwrap(value)
            if on or not isinstance(value, Tensor):
                return found
            return value.expand((info.batch_size, *value.shape))

    mapped = tuple(dim is not None for dim in in_dims)

    class Vmapped(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(*args: Any) -> Any:
            with Inside() as inside:
                outputs = cls.forward(*map(inside.wrap, args, mapped))
                if isinstance(outputs, (tuple, list)):
                    return tuple(map(inside.spread, outputs))
                return inside.spread(outputs)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            many = isinstance(output, (tuple, list))
            own = _Context(ctx.needs_input_grad)
            with Inside() as inside:
                wrapped = [
                    inside.wrap(value, isinstance(value, Tensor))
                    for value in (output if many else (output,))
                ]
                cls.setup_context(
                    own,
                    tuple(map(inside.wrap, inputs, mapped)),
                    tuple(wrapped) if many else wrapped[0],
                )
                pairs = [inside.unwrap(value) for value in own.saved_tensors]
                marked = [
                    value
                    for value, part in zip(output if many else (output,), wrapped)
                    if any(part is other for other in own.not_differentiable)
                ]
            own.saved_tensors = own.not_differentiable = ()
            ctx.own, ctx.saved_mapped = own, tuple(on for _, on in pairs)
            ctx.set_materialize_grads(own.materialize_grads)
            ctx.save_for_backward(*[value for value, _ in pairs])
            ctx.save_for_forward(*[value for value, _ in pairs])
            if marked:
                ctx.mark_non_differentiable(*marked)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            with Inside() as inside:
                own = Vmapped.context(ctx, inside)
                formula = cls.vjp if cls.vjp is not Function.vjp else cls.backward
                found = formula(own, *[inside.wrap(grad, grad is not None) for grad in grads])
                found = found if isinstance(found, (tuple, list)) else (found,)
                results = [None if value is None else inside.spread(value) for value in found]
            return tuple(
                [
                    value if on or value is None else value.sum(0)
                    for value, on in zip(results, mapped)
                ]
            )

        @staticmethod
        def jvp(ctx: Any, *given: Any) -> Any:
            with Inside() as inside:
                found = cls.jvp(Vmapped.context(ctx, inside), *map(inside.wrap, given, mapped))
                if isinstance(found, (tuple, list)):
                    return tuple(map(inside.spread, found))
                return inside.spread(found)

        @staticmethod
        def context(ctx: Any, inside: Inside) -> _Context:
            made = _Context(ctx.needs_input_grad)
            made.__dict__.update(ctx.own.__dict__)
            made.saved_tensors = tuple(map(inside.wrap, ctx.saved_tensors, ctx.saved_mapped))
            return made

    Vmapped.__name__ = Vmapped.__qualname__ = f"Vmapped{cls.__name__}"
    return Vmapped
