"""Custom functions: the class Function, its ctx, and how ``apply`` runs it under transforms.

The node and recording are compiled, in `_c/engine/custom_function.pyx`.
"""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from typing import TYPE_CHECKING, Any

from pullback._c.base import state
from pullback._c.engine import custom_function as _function
from pullback._c.graph import levels
from pullback._c.graph.tensor import Tensor
from pullback._c.transforms import batching, tangents
from pullback._help import explain_members
from pullback.autograd import _vmapped as vmapped
from pullback.ops import ops

if TYPE_CHECKING:
    from pullback import Tensor as _Tensor

__all__ = [
    "BackwardCFunction",
    "Function",
    "FunctionCtx",
    "FunctionMeta",
    "InplaceFunction",
    "NestedIOFunction",
    "once_differentiable",
]


class FunctionCtx(_function.FunctionNode):
    """The ctx of a custom Function, which stores values for backward; it becomes the node.

    Besides tensors (``save_for_backward``) it has any attribute that forward sets.

    >>> import pullback
    >>> class Scale(pullback.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x, factor):
    ...         ctx.factor = factor
    ...         return x * factor
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return grad * ctx.factor, None
    >>> y = Scale.apply(pullback.ones(1, requires_grad=True), 3.0)
    >>> isinstance(y.grad_fn, pullback.autograd.function.FunctionCtx), y.grad_fn.factor
    (True, 3.0)
    """

    if TYPE_CHECKING:
        needs_input_grad: tuple[bool, ...]

        @property
        def saved_tensors(self) -> tuple[_Tensor, ...]: ...
        def save_for_backward(self, *tensors: _Tensor | None) -> None: ...
        def mark_dirty(self, *tensors: _Tensor) -> None: ...
        def mark_non_differentiable(self, *tensors: _Tensor) -> None: ...
        def set_materialize_grads(self, value: bool) -> None: ...
        def __getattr__(self, name: str) -> Any: ...

    def mark_shared_storage(self, *pairs):
        """Deprecated; does nothing."""
        warnings.warn(
            "mark_shared_storage is deprecated. Tensors with shared storages are "
            "automatically tracked. Note that calls to `set_()` are not tracked",
            FutureWarning,
            stacklevel=2,
        )

    def save_for_forward(self, *tensors):
        """Save tensors for ``jvp``.

        Raises: AssertionError when something is neither a Tensor nor None.
        """
        for tensor in tensors:
            assert isinstance(tensor, Tensor) or tensor is None, (
                "save_for_forward expects all arguments to be tensors; you should save "
                "non-tensors as attributes on ctx."
            )
        self.saved_for_forward = tensors


class BackwardCFunction(FunctionCtx):
    """The node of a custom Function: its ctx, with the user's backward.

    >>> import pullback
    >>> class Same(pullback.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x.clone()
    >>> y = Same.apply(pullback.ones(1, requires_grad=True))
    >>> isinstance(y.grad_fn, pullback.autograd.function.BackwardCFunction), y.grad_fn.name()
    (True, 'SameBackward')
    """

    def apply(self, *args):
        """Run the user's backward (or vjp)."""
        cls = self._forward_cls
        if cls.backward is not Function.backward and cls.vjp is not Function.vjp:
            raise RuntimeError(
                "Implementing both 'backward' and 'vjp' for a custom Function is "
                "not allowed. You should only implement one of them."
            )
        return (cls.vjp if cls.vjp is not Function.vjp else cls.backward)(self, *args)

    def name(self):
        """Return the name of the node."""
        return type(self).__name__


explain_members(
    functools.partial(setattr, BackwardCFunction), "torch.autograd.function.BackwardCFunction"
)


class FunctionMeta(type):
    """Metaclass of Function: makes the class of a Function's nodes, named <Name>Backward.

    >>> import pullback
    >>> class Same(pullback.autograd.Function):
    ...     pass
    >>> type(Same).__name__, Same._backward_cls.__name__
    ('FunctionMeta', 'SameBackward')
    """

    def __init__(cls, name, bases, attributes):
        super().__init__(name, bases, attributes)
        cls._backward_cls = type(
            name + "Backward",
            (BackwardCFunction,),
            {"_forward_cls": cls, "__module__": cls.__module__},
        )


class Function(metaclass=FunctionMeta):
    """Base class of custom functions: override ``forward`` and ``backward``, call ``apply``.

    ``forward(ctx, *args)`` computes, with recording off. ``backward(ctx, *grad_outputs)`` returns
    one gradient per argument of forward, None for arguments other than tensors. Alternatively
    ``forward(*args)`` without ctx, and ``setup_context(ctx, inputs, output)``.

    Raises, in backward: RuntimeError when ``backward`` returns another number of gradients, or one
    that does not fit its argument; NotImplementedError when there is none.

    >>> import pullback
    >>> class Double(pullback.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return grad * 2
    >>> x = pullback.ones(1, requires_grad=True)
    >>> Double.apply(x).backward()
    >>> x.grad
    tensor([2.])
    """

    generate_vmap_rule = False
    clear_saved_tensors_on_access = False
    boxed_grads_call = False

    def __init__(self, *args, **kwargs):
        warnings.warn(
            f"{self.__class__} should not be instantiated. Methods on autograd functions "
            f"are all static, so you should invoke them on the class itself. "
            f"Instantiating an autograd function will raise an error in a future version "
            f"of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args, **kwargs):
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. "
            "Please use new-style autograd function with static forward method."
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; override it."""
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> Any:
        """Save values for backward; override it to write ``forward`` without ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any, **_: Any) -> Any:
        """Return the gradients of forward's arguments; override it (or ``vjp``)."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your "
            "custom autograd.Function to use it with backward mode AD."
        )

    @staticmethod
    def vjp(ctx: Any, *grad_outputs: Any, **_: Any) -> Any:
        """Another name of ``backward``."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your "
            "custom autograd.Function to use it with backward mode AD."
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any, **_: Any) -> Any:
        """Return the tangents of the outputs; override it for forward mode."""
        raise NotImplementedError(
            "You must implement the jvp function for custom "
            "autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any, **_: Any) -> Any:
        """Return (outputs, out_dims) for batched arguments; override it for vmap.

        ``info`` has ``batch_size`` and ``randomness``. ``in_dims`` has the batch dim of each
        argument, or None; ``out_dims`` that of each output.
        """
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override "
            "the vmap static method or set generate_vmap_rule=True."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` and record one node for it; returns forward's outputs.

        Raises: RuntimeError for a misuse of ``ctx``, and under ``vmap`` without a rule for it;
        NotImplementedError without ``forward``, or in forward mode without ``jvp``.
        """
        apart = cls.setup_context is not Function.setup_context
        if apart:
            args = _bound(cls.forward, args, kwargs)
        elif kwargs:
            args = _bound(cls.forward, (None, *args), kwargs)[1:]
        return _function.run(cls, args, apart, run_function)


def run_function(cls, args):
    """Run a Function on all its arguments, with levels and observers; returns its outputs."""
    if batching.are_batched(args):
        return vmapped.run_batched(cls, args)
    ctx, outputs = _run(cls, args)
    ctx.forget()
    return outputs


def _run(cls, args):
    """Run forward and record it, with tangents where arguments have them."""
    level = tangents.innermost_level(args)
    if level:
        return _run_with_tangents(cls, args, level)
    ctx = cls._backward_cls()
    _function.begin(ctx, cls, args)
    if not _function.is_observed():
        return ctx, _run_forward(cls, ctx, args)
    try:
        _function.notify_begin(ctx, cls.__name__, args)
        return ctx, _run_forward(cls, ctx, args)
    finally:
        _function.notify_end(ctx)


forward_runner = threading.local()  # `run` of it, where set, is called instead of run_unwatched


def _run_forward(cls, ctx, args):
    """Run forward, by what watches this thread's Functions where something does."""
    return getattr(forward_runner, "run", run_unwatched)(cls, ctx, args)


def run_unwatched(cls, ctx, args):
    """Run forward without recording and with all levels disabled, and attach the node."""
    before = state.is_grad_enabled()  # an interrupt may lose the result of a swap
    disabled = None
    try:
        state.swap_grad_enabled(False)
        disabled = levels.disable_all_levels()
        if cls.setup_context is not Function.setup_context:
            outputs = cls.forward(*args)
            cls.setup_context(ctx, args, outputs)
        else:
            outputs = cls.forward(ctx, *args)
    finally:
        try:
            if disabled is not None:
                levels.restore_levels(disabled)
        finally:
            state.swap_grad_enabled(before)
    return _function.finish(ctx, args, outputs)


def _run_with_tangents(cls, args, level):
    """Run forward with a level disabled, then set the outputs' tangents by ``jvp``."""
    disabled = levels.disable_one_level(level)
    try:
        given = [
            tangents.get_tangent(arg, level) if isinstance(arg, Tensor) else None for arg in args
        ]
        ctx, outputs = _run(cls, args)
        if ctx.materialize_grads:
            given = [
                ops.zeros_like(arg) if tangent is None and isinstance(arg, Tensor) else tangent
                for arg, tangent in zip(args, given)
            ]
        found = cls.jvp(ctx, *given)
        _attach_tangents(ctx, args, given, outputs, found, level)
    finally:
        levels.restore_levels(disabled)
    return ctx, outputs


def _attach_tangents(ctx, args, given, outputs, found, level):
    """Check the results of ``jvp`` against the outputs, and set them as their tangents."""
    outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
    found = found if isinstance(found, tuple | list) else (found,)
    if len(found) != len(outputs):
        raise RuntimeError(
            f"Function's jvp returned an invalid number of forward gradients "
            f"(expected {len(outputs)} but got {len(found)})"
        )
    for i, (output, tangent) in enumerate(zip(outputs, found)):
        if tangent is None:
            continue
        if not isinstance(tangent, Tensor):
            raise RuntimeError(
                f"expected Variable or None (got {type(tangent).__name__}) for grad output {i}."
            )
        marked = any(output is other for other in ctx.non_differentiable or ())
        if marked or not isinstance(output, Tensor) or not _differentiable(output):
            raise RuntimeError(
                f"Function's jvp returned a gradient at position {i}, but the "
                f"corresponding forward output is not a differentiable Tensor. You "
                f"should return None at that position instead."
            )
        _check_memory(args, given, output, tangent)
        tangents.put_tangent(output, tangent, level)


def _differentiable(tensor):
    return tensor.is_floating_point() or tensor.is_complex()


def _check_memory(args, given, output, tangent):
    """Check that the tangent of an output that is an input, or a view of one, is so too."""
    for arg, direction in zip(args, given):
        if output is arg and tangent is not direction:
            raise RuntimeError(
                "An inplace custom Function is not modifying the forward mode "
                "gradients inplace. If the forward is modifying an input inplace, "
                "then the jvp function must modify the corresponding gradient "
                "inplace."
            )
        if (
            isinstance(arg, Tensor)
            and direction is not None
            and output._is_view()
            and tangents.share_memory(arg, output)
            and not tangents.share_memory(direction, tangent)
        ):
            raise RuntimeError(
                "A custom Function's forward is returning a view (or an input "
                "as-is) but the jvp is not returning a view."
            )


def _bound(forward, args, kwargs):
    """Return all arguments of forward by position, defaults included."""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError("keyword-only arguments of a custom Function's forward are not supported")
    return bound.args


def once_differentiable(fn: Any) -> Any:
    """Mark a backward that cannot be differentiated: its body runs without recording.

    Its results have no history. Raises: RuntimeError when they are differentiated although one of
    its gradients has a history.

    >>> import pullback
    >>> class Double(pullback.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @pullback.autograd.function.once_differentiable
    ...     def backward(ctx, grad):
    ...         return grad * 2
    >>> x = pullback.ones(1, requires_grad=True)
    >>> first, = pullback.autograd.grad(Double.apply(x) ** 2, x, create_graph=True)
    >>> pullback.autograd.grad(first, x)
    Traceback (most recent call last):
    RuntimeError: trying to differentiate twice a function that was marked with @once_differentiable
    """

    @functools.wraps(fn)
    def wrapper(ctx, *args):
        recording = state.is_grad_enabled()
        try:
            state.swap_grad_enabled(False)
            outputs = fn(ctx, *args)
        finally:
            state.swap_grad_enabled(recording)
        if not recording:
            return outputs
        sources = [arg for arg in args if isinstance(arg, Tensor) and arg.requires_grad]
        if not sources:
            return outputs
        single = not isinstance(outputs, tuple)
        found = [outputs] if single else list(outputs)
        fresh = [None if t is None else t.detach() for t in found]
        _function.attach_error(
            [t for t in fresh if t is not None],
            sources,
            "DelayedError",
            "trying to differentiate twice a function that was marked with @once_differentiable",
        )
        return fresh[0] if single else tuple(fresh)

    return wrapper


class InplaceFunction(Function):
    """Legacy base class of functions with an in-place variant; it adds nothing to Function.

    >>> from pullback.autograd import Function
    >>> from pullback.autograd.function import InplaceFunction
    >>> issubclass(InplaceFunction, Function)
    True
    """

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace


class NestedIOFunction(Function):
    """Legacy base class of functions of nested tensors; it adds nothing to Function.

    >>> from pullback.autograd import Function, NestedIOFunction
    >>> issubclass(NestedIOFunction, Function)
    True
    """
