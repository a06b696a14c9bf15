"""Reentrant checkpointing (``use_reentrant=True``): backward within backward."""

from __future__ import annotations

import warnings

from pullback._c.engine import engine
from pullback._c.graph.tensor import Tensor
from pullback.autograd._entry import backward
from pullback.autograd.function import Function
from pullback.autograd.grad_mode import enable_grad, no_grad
from pullback.utils.checkpoint._replay import Surroundings


def detach_variable(inputs):
    """Return a tuple with a leaf over the memory of each tensor, with its requires_grad.

    Raises: RuntimeError for anything but a tuple.
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(
            f"Only tuple of tensors is supported. Got Unsupported input type: "
            f"{type(inputs).__name__}"
        )
    return tuple(
        value.detach().requires_grad_(value.requires_grad) if isinstance(value, Tensor) else value
        for value in inputs
    )


def check_backward_validity(inputs):
    """Warn if no input tensor requires grad: then no gradient is computed."""
    if not any(isinstance(value, Tensor) and value.requires_grad for value in inputs):
        warnings.warn(
            "None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2
        )


class CheckpointFunction(Function):
    """Runs a function without recording it, and in backward once more with recording."""

    hides_graph = True  # its function runs without one: what that uses is nobody's input

    @staticmethod
    def forward(ctx, run_function, preserve_rng_state, *args):
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = Surroundings(preserve_rng_state)
        ctx.args = [None if isinstance(arg, Tensor) else arg for arg in args]
        ctx.positions = [k for k, arg in enumerate(args) if isinstance(arg, Tensor)]
        ctx.save_for_backward(*(args[k] for k in ctx.positions))
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx, *grads):
        if engine.is_restricted():
            raise RuntimeError(
                "When use_reentrant=True, pullback.utils.checkpoint is incompatible "
                "with .grad() or passing an `inputs` parameter to .backward(). To "
                "resolve this error, you can either set use_reentrant=False, or "
                "call .backward() without passing the `inputs` argument."
            )
        args = list(ctx.args)
        for position, tensor in zip(ctx.positions, ctx.saved_tensors):
            args[position] = tensor
        leaves = detach_variable(tuple(args))
        with ctx.surroundings.restored(), enable_grad():
            outputs = ctx.run_function(*leaves)
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        pairs = [
            (output, grad)
            for output, grad in zip(outputs, grads)
            if isinstance(output, Tensor) and output.requires_grad
        ]
        if not pairs:
            raise RuntimeError(
                "none of output has requires_grad=True, this checkpoint() is not necessary"
            )
        reached, seeds = zip(*pairs)
        backward(reached, seeds)
        return None, None, *(leaf.grad if isinstance(leaf, Tensor) else None for leaf in leaves)
