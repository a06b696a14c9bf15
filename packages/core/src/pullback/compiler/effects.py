"""Whether code of the program may do more than compute: code that a capture must not run once more.

A backward pass is captured before the program asks for it. What runs in it then, hooks and custom
functions, runs without the program having called ``backward``, so it must change nothing. That is
looked up in its code: whatever is not known to change nothing counts as an effect.
"""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Iterator
from typing import Any

from pullback._c.capture.spec import is_plain
from pullback._c.graph.op import Op
from pullback._c.graph.tensor import Tensor
from pullback._c.python.overridable import Overridable
from pullback.compiler.numbers import Count, NumberArgument
from pullback.compiler.sizes import SizeArgument
from pullback.func._tree import items
from pullback.nn import Parameter
from pullback.utils.hooks import BackwardHook

__all__ = ["may_have_effects"]

_STORES = {  # instructions that change what is outside of a function
    *("STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_GLOBAL", "STORE_NAME"),
    *("DELETE_ATTR", "DELETE_SUBSCR", "DELETE_GLOBAL", "DELETE_NAME"),
    *("IMPORT_NAME", "YIELD_VALUE", "YIELD_FROM", "SEND", "SETUP_ANNOTATIONS"),
}
_NUMBERS = (Tensor, Parameter, NumberArgument, Count, SizeArgument)
_HARMLESS: tuple[Any, ...] = (
    *(abs, all, any, bool, complex, dict, enumerate, float, hasattr, int, isinstance, len, list),
    *(max, min, range, reversed, round, slice, sorted, str, sum, tuple, type, zip),
)
_SETTERS = {
    *("manual_seed", "seed", "save", "backward", "register_hook", "retain_grad", "share_memory"),
    *("set_default_dtype", "set_default_device", "set_grad_enabled", "set_num_threads"),
    *("data", "grad"),  # what others may write
}
_CONTEXT = {"saved_tensors", "needs_input_grad", "dirty_tensors", "non_differentiable"}


def may_have_effects(code: Any) -> bool:
    """Return True for a hook, or the node of a custom function, that may do more than compute."""
    kind = getattr(type(code), "_forward_cls", None)
    if kind is None:
        return not _computes(code, _CONTEXT, set())
    values = vars(code)
    backward = getattr(kind, "backward", None)
    return not (
        isinstance(backward, types.FunctionType)
        and all(_is_value(one) for one in values.values())
        and _computes(backward, _CONTEXT | set(values), set())
    )


def _is_value(value: Any) -> bool:
    """Return True for numbers, texts and tensors, and tuples and dicts of them."""
    if isinstance(value, tuple) or type(value) is dict:
        return all(_is_value(one) for one in items(value))
    return is_plain(value) or type(value) in _NUMBERS


def _all_instructions(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _all_instructions(constant)


def _computes(value: Any, attributes: set[str], seen: set[int]) -> bool:
    """Return True if a value can be used, and called, without an effect."""
    if is_plain(value) or type(value) in _NUMBERS or id(value) in seen:
        return True
    seen.add(id(value))
    if isinstance(value, (staticmethod, classmethod)):
        return _computes(value.__func__, attributes, seen)
    if isinstance(value, tuple):
        return all(_computes(one, attributes, seen) for one in value)
    if isinstance(value, BackwardHook):
        hooks = [*value.user_hooks, *value.user_pre_hooks]
        return all(_computes(one, attributes, seen) for one in hooks)
    if isinstance(value, types.ModuleType):
        return _is_ours(value.__name__) or value.__name__ == "math"
    if isinstance(value, type):
        return issubclass(value, Exception) or value in (int, float, bool, tuple, slice)
    if isinstance(value, (Op, Overridable)):
        return True
    if not isinstance(value, types.FunctionType):
        return isinstance(value, types.BuiltinFunctionType) and _is_ours(value.__module__)
    cells = value.__closure__ or ()
    try:
        inside = [cell.cell_contents for cell in cells]
    except ValueError:  # not assigned yet
        return False
    if _is_ours(value.__globals__.get("__name__")):
        return all(_computes(one, attributes, seen) for one in inside)
    inside += [value.__defaults__ or (), *(value.__kwdefaults__ or {}).values()]
    return (
        not _passes_out(value.__code__)
        and all(_computes(one, attributes, seen) for one in inside)
        and all(
            _is_harmless(op, value, attributes, seen) for op in _all_instructions(value.__code__)
        )
    )


def _passes_out(code: types.CodeType) -> bool:
    """Return True for code that calls something with the keyword ``out``."""
    names = (one for one in code.co_consts if isinstance(one, (tuple, types.CodeType)))
    return any(
        _passes_out(one) if isinstance(one, types.CodeType) else "out" in one for one in names
    )


def _is_harmless(
    op: dis.Instruction, function: types.FunctionType, attributes: set[str], seen: set[int]
) -> bool:
    """Return True for an instruction that changes nothing outside of its function."""
    if op.opname in _STORES or op.opname.startswith("INPLACE_"):
        return False
    if op.opname == "BINARY_OP":
        return not op.argrepr.endswith("=")
    if op.opname in ("STORE_DEREF", "DELETE_DEREF"):
        return op.argval not in function.__code__.co_freevars
    if op.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
        if op.argval in function.__globals__:
            return _computes(function.__globals__[op.argval], attributes, seen)
        kind = getattr(builtins, op.argval, None)
        return kind in _HARMLESS or (isinstance(kind, type) and issubclass(kind, Exception))
    if op.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
        name = str(op.argval)
        return name in attributes or not (
            name in _SETTERS or name[0] == "_" or name[-1] == "_" or not _is_known(name)
        )
    return True


def _is_known(name: str) -> bool:
    """Return True for a name of tensors, or of this package; but not of ops with statistics."""
    import math

    import pullback

    spaces = (Tensor, pullback, pullback.nn.functional, pullback.linalg, pullback.special, math)
    found = [getattr(one, name) for one in (*spaces, pullback.fft) if hasattr(one, name)]
    ops = (one for one in found if isinstance(one, Op))
    return bool(found) and not any("running_mean" in one.arg_names for one in ops)


def _is_ours(module: Any) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == "pullback"
