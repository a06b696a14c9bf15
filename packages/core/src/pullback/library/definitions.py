"""What defines operators: ``custom_op``, ``Library`` and the functions that register rules."""

from __future__ import annotations

import contextlib
import functools
import re
from typing import Any

from pullback.library.operators import OpOverload, caller, define_operator, find, forget_operator
from pullback.library.schema import infer_schema, parse_schema

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "get_ctx",
    "impl",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_vmap",
]

_DEFINED: dict[str, str] = {"aten": "pullback"}  # where the Library of a namespace was made


def _check_name(qualname: str) -> str:
    owner, _colons, name = qualname.partition("::")
    if not owner or not name or "::" in name:
        raise ValueError(
            f'Expected `qualname` to be of the form "namespace::name", but got {qualname}. The '
            f"qualname passed to the pullback.library APIs must consist of a namespace and a name, "
            f"e.g. aten::sin"
        )
    return qualname


def _operator(op: Any) -> OpOverload:
    """Return the operator of a name, an overload, or a CustomOpDef."""
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, OpOverload):
        return op
    if not isinstance(op, str):
        raise ValueError(f"expected the name of an operator, or an operator, got {type(op)}")
    found = find(_check_name(op))
    if found is None:
        raise RuntimeError(f"operator {op} does not exist")
    return found


def _keys(device_types: Any) -> list[str]:
    if device_types is None or device_types == "default":
        return ["CompositeExplicitAutograd"]
    names = [device_types] if isinstance(device_types, str) else list(device_types)
    return [name.upper() for name in names]


# ---- custom_op -----------------------------------------------------------------------------------


class CustomOpDef:
    """An operator that ``custom_op`` made of a function; calling it calls the operator.

    >>> import pullback
    >>> @pullback.library.custom_op("shop::double", mutates_args=())
    ... def double(x: pullback.Tensor) -> pullback.Tensor:
    ...     return 2 * x
    >>> double
    <CustomOpDef(shop::double)>
    """

    def __deepcopy__(self, memo: Any) -> Any:
        return self  # as functions are

    def __init__(self, qualname: str, schema: str, function: Any, device_types: Any):
        self._qualname = qualname
        owner, _colons, name = qualname.partition("::")
        parsed, old = parse_schema(owner, name + schema), find(qualname)
        if old is not None:
            forget_operator(old)
        self._opoverload = define_operator(parsed)
        self._opoverload.checks_aliases = True
        self._opoverload.label = getattr(function, "__module__", "")
        self._init_fn = function
        functools.update_wrapper(self, function, updated=())
        self.register_kernel(device_types, function)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def register_kernel(self, device_types, fn=None, /):
        """Register a kernel for a device type, several, or None for all; also a decorator."""
        return register_kernel(self, device_types, fn)

    def register_fake(self, fn, /):
        """Register the function that makes the results for meta tensors; also a decorator."""
        return register_fake(self, fn)

    def register_autograd(self, backward, /, *, setup_context=None):
        """Register the derivative: see ``pullback.library.register_autograd``."""
        register_autograd(self, backward, setup_context=setup_context)

    def register_vmap(self, func=None):
        """Register the rule for batches: see ``pullback.library.register_vmap``."""
        return register_vmap(self, func)

    @contextlib.contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True):
        """Return a context manager that turns the kernel of a device type off or on."""
        disabled = self._opoverload.disabled
        before = device_type in disabled
        (disabled.discard if enabled else disabled.add)(device_type)
        try:
            yield
        finally:
            (disabled.add if before else disabled.discard)(device_type)


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """Make an operator of a function; without ``fn`` return a decorator.

    ``name`` is ``"namespace::name"``. The schema is inferred from annotations (see
    ``infer_schema``). The function may write only the arguments that ``mutates_args`` names, and
    returns new tensors. ``device_types`` limits it to some types of devices.

    Raises: ValueError for a name without a namespace, or annotations that are missing.

    >>> import pullback
    >>> @pullback.library.custom_op("shop::scale", mutates_args=())
    ... def scale(x: pullback.Tensor, by: float) -> pullback.Tensor:
    ...     return x * by
    >>> scale.register_autograd(
    ...     lambda ctx, grad: (grad * ctx.by, None),
    ...     setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]))
    >>> x = pullback.ones(2, requires_grad=True)
    >>> pullback.ops.shop.scale(x, 3.0).sum().backward()
    >>> x.grad
    tensor([3., 3.])
    """
    _check_name(name)

    def decorate(function):
        text = schema
        if text is None:
            text = infer_schema(function, mutates_args=mutates_args)
        made = CustomOpDef(name, text, function, device_types)
        made._opoverload.tags = tuple(tags or ())
        return made

    return decorate if fn is None else decorate(fn)


# ---- rules ---------------------------------------------------------------------------------------


def register_kernel(op, device_types, func=None, /, *, lib=None):
    """Register a kernel of an operator for a device type, several, or None for all.

    Raises: RuntimeError when there is no such operator.

    >>> import pullback
    >>> pullback.library.define("shop::third", "(Tensor x) -> Tensor")
    >>> @pullback.library.register_kernel("shop::third", None)
    ... def third(x):
    ...     return x / 3
    >>> pullback.ops.shop.third(pullback.ones(1))
    tensor([0.3333])
    """
    operator = _operator(op)

    def register(function):
        for key in _keys(device_types):
            operator.kernels[key] = function
        return function

    return register if func is None else register(func)


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1, allow_override=False):
    """Register the function that makes the results of an operator for meta tensors.

    Raises: RuntimeError when there is no such operator.

    >>> import pullback
    >>> pullback.library.define("shop::sorted", "(Tensor x) -> Tensor")
    >>> _ = pullback.library.register_fake("shop::sorted", lambda x: pullback.empty_like(x))
    >>> pullback.ops.shop.sorted(pullback.ones(2, device="meta")).numel()
    2
    """
    operator = _operator(op)

    def register(function):
        operator.fake = function
        return function

    return register if func is None else register(func)


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    """Register the derivative of an operator.

    ``backward(ctx, *grads)`` returns a gradient, or None, for each argument; a list for a list of
    tensors. ``setup_context(ctx, inputs, output)`` stores what it needs.

    Raises: RuntimeError for an operator that writes an argument.

    >>> import pullback
    >>> pullback.library.define("shop::twice", "(Tensor x) -> Tensor")
    >>> _ = pullback.library.impl("shop::twice", "default", lambda x: 2 * x)
    >>> pullback.library.register_autograd("shop::twice", lambda ctx, grad: 2 * grad)
    >>> x = pullback.ones(1, requires_grad=True)
    >>> pullback.ops.shop.twice(x).backward()
    >>> x.grad
    tensor([2.])
    """
    operator = _operator(op)
    if operator._schema.is_mutable:
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {operator} with schema "
            f"{operator._schema}. Please create a functional operator and register an autograd "
            f"formula for that."
        )
    operator.backward, operator.setup_context = backward, setup_context


def register_vmap(op, func=None, /, *, lib=None):
    """Register the rule of an operator for batches; without one it runs on each element.

    ``func(info, in_dims, *args)`` gets the dim of the batch of each argument, or None, and returns
    the results and their ``out_dims``; ``info`` has ``batch_size`` and ``randomness``.

    >>> import pullback
    >>> pullback.library.define("shop::half", "(Tensor x) -> Tensor")
    >>> _ = pullback.library.impl("shop::half", "default", lambda x: x / 2)
    >>> @pullback.library.register_vmap("shop::half")
    ... def batched(info, in_dims, x):
    ...     return pullback.ops.shop.half(x), in_dims[0]
    >>> pullback.vmap(pullback.ops.shop.half)(pullback.ones(2, 1)).tolist()
    [[0.5], [0.5]]
    """
    operator = _operator(op)

    def register(function):
        operator.batching = function
        return function

    return register if func is None else register(func)


class FakeContext:
    """What ``get_ctx`` returns; sizes that depend on data are not known to meta tensors."""

    def new_dynamic_size(self, *, min=0, max=None):
        """Raise NotImplementedError: there are no symbolic sizes."""
        raise NotImplementedError("there are no symbolic sizes: a fake kernel needs known ones")

    create_unbacked_symint = new_dynamic_size


def get_ctx() -> FakeContext:
    """Return the context of a fake kernel that runs.

    >>> import pullback
    >>> type(pullback.library.get_ctx()).__name__
    'FakeContext'
    """
    return FakeContext()


# ---- Library -------------------------------------------------------------------------------------


class Library:
    """A namespace of operators, by torch's lower-level interface.

    ``kind`` is ``"DEF"`` for a new namespace, ``"FRAGMENT"`` for one that may have more, and
    ``"IMPL"`` to add kernels.

    Raises: ValueError for another kind; RuntimeError for a second ``"DEF"`` of a namespace.

    >>> import pullback
    >>> library = pullback.library.Library("store", "DEF")
    >>> library.define("add_n(Tensor x, int n=1) -> Tensor")
    'add_n'
    >>> library.impl("add_n", lambda x, n=1: x + n, "CompositeExplicitAutograd")
    >>> pullback.ops.store.add_n(pullback.zeros(1), n=2)
    tensor([2.])
    """

    def __init__(self, ns, kind, dispatch_key=""):
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if kind == "DEF":
            if ns in _DEFINED:
                raise RuntimeError(
                    f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; "
                    f"please put all of your definitions in a single TORCH_LIBRARY block. "
                    f"Previous registration: {_DEFINED[ns]}"
                )
            _DEFINED[ns] = caller(1)
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        self._made: list[OpOverload] = []

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema, alias_analysis="", *, tags=()):
        """Define an operator by its schema; returns its name.

        Raises: RuntimeError for a schema that is defined already, or cannot be read.
        """
        made = parse_schema(self.ns, schema)
        name = f"{made.name}.{made.overload_name}" if made.overload_name else made.name
        if find(name) is not None:
            raise RuntimeError(
                f"Tried to register an operator ({made}) with the same name and overload name "
                f"multiple times. Each overload's schema should only be registered with a single "
                f"call to def()."
            )
        operator = define_operator(made)
        operator.tags = tuple(tags) if isinstance(tags, (tuple, list)) else (tags,)
        self._made.append(operator)
        return name.partition("::")[2].partition(".")[0]

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False, allow_override=False):
        """Register a kernel for a dispatch key such as ``"CPU"``, ``"Meta"`` or ``"Autograd"``.

        Raises: TypeError when ``fn`` cannot be called; RuntimeError without a dispatch key.
        """
        if not callable(fn):
            raise TypeError(
                f"Input function is required to be a callable but found type {type(fn)}"
            )
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        name = op_name.name() if isinstance(op_name, OpOverload) else str(op_name)
        name = name if "::" in name else f"{self.ns}::{name}"
        if name.partition("::")[0] != self.ns:
            raise RuntimeError(f"the library of {self.ns} has no operator {name}")
        _operator(name).kernels["Autograd" if key.startswith("Autograd") else key] = fn

    def _destroy(self):
        """Remove the operators that the library defined."""
        for operator in self._made:
            forget_operator(operator)
        if self.kind == "DEF":
            _DEFINED.pop(self.ns, None)
        self._made = []


def define(qualname, schema, *, lib=None, tags=()):
    """Define an operator ``"namespace::name"`` by its schema, ``"(Tensor x) -> Tensor"``.

    Raises: ValueError for a name without a namespace, or a schema of another form; RuntimeError
    for one with unknown types or defaults that do not fit, or an operator that is there already.

    >>> import pullback
    >>> pullback.library.define("shop::keep", "(Tensor x) -> Tensor")
    >>> pullback.ops.shop.keep
    <OpOverloadPacket(op='shop.keep')>
    """
    if not isinstance(qualname, str):
        raise ValueError(
            f"define(qualname, schema): expected qualname to be instance of str, got "
            f"{type(qualname)}"
        )
    owner, _colons, name = _check_name(qualname).partition("::")
    if not re.match(r"\s*\(.*\)\s*->", schema, re.S):
        raise ValueError(
            f'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> '
            f'Tensor" but got "{schema}"'
        )
    library = Library(owner, "FRAGMENT") if lib is None else lib
    library.define(name + schema, tags=tags)


def impl(qualname, types, func=None, *, lib=None):
    """Register a kernel of an operator for device types, or for a dispatch key; also a decorator.

    Raises: RuntimeError when there is no such operator.

    >>> import pullback
    >>> pullback.library.define("shop::next", "(Tensor x) -> Tensor")
    >>> @pullback.library.impl("shop::next", "default")
    ... def following(x):
    ...     return x + 1
    >>> pullback.ops.shop.next(pullback.ones(1))
    tensor([2.])
    """
    keys = [types] if isinstance(types, str) else list(types)

    def register(function):
        operator = _operator(qualname)
        for key in keys:
            if key == "default":
                key = "CompositeExplicitAutograd"
            operator.kernels[key.upper() if key.islower() else key] = function
        return function

    return register if func is None else register(func)
