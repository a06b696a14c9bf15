"""Checks of an operator: ``opcheck``."""

from __future__ import annotations

from typing import Any

import pullback as pb
from pullback.library.definitions import _operator
from pullback.library.operators import tensors_of
from pullback.library.schema import bind

__all__ = ["opcheck"]

_TESTS = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_dynamic",
)


class OpCheckError(Exception):
    """A check of ``opcheck`` failed."""


def opcheck(
    op,
    args,
    kwargs=None,
    *,
    test_utils=_TESTS,
    raise_exception=True,
    atol=None,
    rtol=None,
) -> dict[str, Any]:
    """Check an operator on sample arguments; returns ``"SUCCESS"`` or an exception for each test.

    ``test_schema``: only the arguments that the schema marks are written. ``test_faketensor``: the
    fake kernel gives the sizes and dtypes of the real one. ``test_autograd_registration``: results
    of arguments that require grad require it. ``test_aot_dispatch_dynamic``: a backward pass runs,
    and running again gives the same.

    Raises: OpCheckError for a failed check, unless ``raise_exception`` is False; ValueError for
    another test.

    >>> import pullback
    >>> @pullback.library.custom_op("shop::negated", mutates_args=())
    ... def negated(x: pullback.Tensor) -> pullback.Tensor:
    ...     return -x
    >>> _ = negated.register_fake(lambda x: pullback.empty_like(x))
    >>> pullback.library.opcheck(negated, (pullback.ones(2),))["test_faketensor"]
    'SUCCESS'
    """
    operator = _operator(op)
    names = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    unknown = set(names) - set(_TESTS)
    if unknown:
        raise ValueError(f"opcheck: invalid test_utils {unknown}, expected some of {_TESTS}")
    checks = dict(zip(_TESTS, (_schema, _autograd, _fake, _again)))
    found: dict[str, Any] = {}
    for name in names:
        try:
            checks[name](operator, tuple(args), dict(kwargs or {}))
            found[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(
                    f"opcheck(op, ...): {name} failed with {error} (scroll up for stack trace)"
                ) from error
            found[name] = error
    return found


def _copies(args, kwargs):
    def copy(value):
        if isinstance(value, pb.Tensor):
            return value.detach().clone().requires_grad_(value.requires_grad)
        if isinstance(value, (list, tuple)):
            return type(value)(copy(item) for item in value)
        return value

    return tuple(map(copy, args)), {name: copy(value) for name, value in kwargs.items()}


def _results(result):
    return tensors_of(list(result) if isinstance(result, (list, tuple)) else [result])


def _same(a, b):
    """Tell whether tensors are equal, where a NaN equals a NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return pb.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


def _schema(operator, args, kwargs):
    args, kwargs = _copies(args, kwargs)
    values = bind(operator._schema, args, kwargs)
    before = [[t.detach().clone() for t in tensors_of([value])] for value in values]
    operator(*args, **kwargs)
    for argument, value, old in zip(operator._schema.arguments, values, before):
        same = all(_same(a.detach(), b) for a, b in zip(tensors_of([value]), old, strict=True))
        if not same and not argument.is_write:
            raise RuntimeError(
                f"Argument {argument.name} is not defined as mutable but was mutated"
            )


def _autograd(operator, args, kwargs):
    args, kwargs = _copies(args, kwargs)
    needs = any(t.requires_grad for t in tensors_of([*args, *kwargs.values()]))
    if needs and not operator._schema.is_mutable:
        results = [t for t in _results(operator(*args, **kwargs)) if t.is_floating_point()]
        if results and not any(t.requires_grad for t in results):
            raise AssertionError(f"{operator}: results of inputs that require grad do not")


def _fake(operator, args, kwargs):
    args, kwargs = _copies(args, kwargs)

    def meta(value):
        if isinstance(value, pb.Tensor):
            return value.detach().to("meta")
        return type(value)(map(meta, value)) if isinstance(value, (list, tuple)) else value

    fake_args, fake_kwargs = (
        tuple(map(meta, args)),
        {name: meta(value) for name, value in kwargs.items()},
    )
    with pb.no_grad():
        real = _results(operator(*args, **kwargs))
        fake = _results(operator(*fake_args, **fake_kwargs))
    shapes = [[(tuple(t.shape), t.dtype) for t in tensors] for tensors in (real, fake)]
    if shapes[0] != shapes[1]:
        raise AssertionError(f"the fake kernel gives {shapes[1]}, the kernel {shapes[0]}")


def _again(operator, args, kwargs):
    outcomes = []
    for _ in range(2):
        given, named = _copies(args, kwargs)
        leaves = [t for t in tensors_of([*given, *named.values()]) if t.requires_grad]
        results = _results(operator(*given, **named))
        recorded = [t.sum() for t in results if t.requires_grad]
        grads = pb.autograd.grad(recorded, leaves, allow_unused=True) if recorded else ()
        outcomes.append([*(t.detach() for t in results), *(g for g in grads if g is not None)])
    for first, second in zip(*outcomes):
        if not pb.allclose(first, second, equal_nan=True):
            raise AssertionError(f"{operator} gives other values when it runs again")
