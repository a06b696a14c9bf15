"""Grad modes, as context managers, decorators and functions. All are thread-local."""

from __future__ import annotations

import functools
import inspect
import warnings

from pullback._c.base import state
from pullback._c.base.errors import require_bool
from pullback._c.graph import grad_modes

__all__ = [
    "enable_grad",
    "enforce_grad_layout_policy",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


class Mode:
    """A context manager that is also a decorator of functions, generators and coroutines."""

    __slots__ = ()

    def clone(self):
        """Return a new context manager of the same mode, one per call."""
        return self.__class__()

    def __call__(self, function):
        if inspect.isclass(function):
            warnings.warn(
                "Decorating classes is deprecated and will be disabled in future "
                "versions. You should only decorate functions or methods. To preserve "
                "the current behavior of class decoration, you can directly decorate the "
                "`__init__` method and nothing else.",
                FutureWarning,
                stacklevel=2,
            )
            function.__init__ = self(function.__init__)  # type: ignore[method-assign]
            return function
        if inspect.isgeneratorfunction(function):
            return _wrap_generator(self, function)
        if inspect.iscoroutinefunction(function):
            return _wrap_coroutine(self, function)

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with self.clone():
                return function(*args, **kwargs)

        return wrapped


def _wrap_generator(mode, function):
    """Wrap a generator: the mode is on while its body runs, not while its caller does."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        generator = function(*args, **kwargs)
        try:
            with mode.clone():
                response = generator.send(None)
            while True:
                try:
                    request = yield response
                except GeneratorExit:
                    with mode.clone():
                        generator.close()
                    raise
                except BaseException as error:
                    with mode.clone():
                        response = generator.throw(error)
                else:
                    with mode.clone():
                        response = generator.send(request)
        except StopIteration as stop:
            return stop.value

    return wrapped


class _Stepped:
    """Runs each step of a coroutine inside the mode."""

    def __init__(self, mode, coroutine):
        self.mode = mode
        self.coroutine = coroutine

    def __await__(self):
        return _steps(self.mode, self.coroutine)


def _steps(mode, coroutine):
    send, value = coroutine.send, None
    while True:
        try:
            with mode.clone():
                waiting = send(value)
        except StopIteration as stop:
            return stop.value
        try:
            send, value = coroutine.send, (yield waiting)
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            send, value = coroutine.throw, error


def _wrap_coroutine(mode, function):
    @functools.wraps(function)
    async def wrapped(*args, **kwargs):
        return await _Stepped(mode, function(*args, **kwargs))

    return wrapped


def _signature(*names):
    """Set torch's signatures, which C types do not have."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind, default=None) for name in names])


class no_grad(grad_modes.GradOff, Mode):
    """Record nothing: results do not require grad.

    A context manager and a decorator, of generators and coroutines too: the mode is on while their
    bodies run.

    >>> import pullback
    >>> x = pullback.ones(1, requires_grad=True)
    >>> with pullback.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    __slots__ = ()
    __signature__ = _signature()


class enable_grad(grad_modes.GradOn, Mode):
    """Record again inside ``no_grad``; a context manager and a decorator.

    >>> import pullback
    >>> x = pullback.ones(1, requires_grad=True)
    >>> with pullback.no_grad():
    ...     with pullback.enable_grad():
    ...         (x * 2).requires_grad
    True
    """

    __slots__ = ()
    __signature__ = _signature("orig_func")


class set_grad_enabled(Mode):
    """Switch recording on or off when called; as a context manager, restore it at the end.

    As a decorator it acts inside the calls only. Raises: TypeError when ``mode`` is not a bool.

    >>> import pullback
    >>> with pullback.set_grad_enabled(False):
    ...     pullback.is_grad_enabled()
    False
    """

    def __init__(self, mode):
        require_bool("set_grad_enabled", "mode", mode)
        self.before = [state.swap_grad_enabled(mode)]
        self.mode = mode
        self.entered = False

    def __call__(self, function):
        state.swap_grad_enabled(self.before[0])
        return super().__call__(function)

    def __enter__(self):
        if self.entered:
            self.before.append(state.swap_grad_enabled(self.mode))
        else:
            state.swap_grad_enabled(self.mode)
        self.entered = True

    def __exit__(self, kind, value, traceback):
        state.swap_grad_enabled(self.before.pop() if len(self.before) > 1 else self.before[0])

    def clone(self):
        return _Fixed(self.mode)

    def __repr__(self):
        return f"{type(self).__qualname__}(mode={self.mode})"


class _Fixed(Mode):
    """The context manager of a decorated function, which acts only inside the call."""

    def __init__(self, mode):
        self.mode = mode

    def __enter__(self):
        self.before = state.swap_grad_enabled(self.mode)

    def __exit__(self, kind, value, traceback):
        state.swap_grad_enabled(self.before)


class inference_mode(grad_modes.Inference, Mode):
    """Record nothing; results can never be part of a graph.

    Results are inference tensors: they have no version counter and cannot be saved for backward;
    ``clone()`` outside gives a normal tensor. ``inference_mode(False)`` inside ends the mode.

    Raises: TypeError when ``mode`` is neither a bool nor a function to decorate.

    >>> import pullback
    >>> x = pullback.ones(2, requires_grad=True)
    >>> with pullback.inference_mode():
    ...     y = x * 2
    >>> y.requires_grad, y.is_inference()
    (False, True)
    """

    def __new__(cls, mode=True):
        if isinstance(mode, bool):
            return super().__new__(cls)
        if callable(mode):
            return cls()(mode)
        return require_bool("inference_mode", "mode", mode)

    def clone(self):
        return self.__class__(self.mode)


class set_multithreading_enabled(Mode):
    """Set the flag that ``is_multithreading_enabled`` returns.

    It is torch's and has no effect: backward passes run in the calling thread. As a context
    manager, restore it at the end. Thread-local.

    >>> import pullback
    >>> with pullback.autograd.set_multithreading_enabled(False):
    ...     pullback.autograd.is_multithreading_enabled()
    False
    """

    def __init__(self, mode):
        self.before = state.swap_multithreading(bool(mode))
        self.mode = bool(mode)

    def __call__(self, function):
        state.swap_multithreading(self.before)
        return super().__call__(function)

    def __enter__(self):
        pass

    def __exit__(self, kind, value, traceback):
        state.swap_multithreading(self.before)

    def clone(self):
        return set_multithreading_enabled(self.mode)


class enforce_grad_layout_policy:
    """Choose whether a new ``.grad`` always gets its leaf's strides, which is the default.

    If not, a gradient that can be stored without a copy keeps its strides. Acts when called; as a
    context manager it is restored at the end, as a decorator it acts inside the calls.
    Thread-local.

    >>> import pullback
    >>> x = pullback.ones(2, 3, requires_grad=True)
    >>> with pullback.autograd.enforce_grad_layout_policy(False):
    ...     (x * pullback.ones(3, 2).t()).sum().backward()
    >>> x.grad.shape
    pullback.Size([2, 3])
    """

    def __init__(self, enable=True):
        self.before = state.swap_layout_policy(bool(enable))
        self.enable = bool(enable)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        state.swap_layout_policy(self.before)

    def __call__(self, function):
        state.swap_layout_policy(self.before)

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with enforce_grad_layout_policy(self.enable):
                return function(*args, **kwargs)

        return wrapped
