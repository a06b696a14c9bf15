"""Schemas of operators: made from annotations, read from text, and the check of a call."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import operator
import re
import types
import typing
from typing import Any, NamedTuple

import numpy as np

import pullback as pb

__all__ = ["Argument", "Schema", "infer_schema", "parse_schema"]


class Argument(NamedTuple):
    """An argument of a schema."""

    name: str
    type: str
    default_value: Any
    has_default: bool
    kwarg_only: bool
    is_write: bool


class Schema(NamedTuple):
    """The schema of an operator; its text is that of torch."""

    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[str, ...]
    text: str

    @property
    def is_mutable(self) -> bool:
        return any(argument.is_write for argument in self.arguments)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text


# ---- from annotations ----------------------------------------------------------------------------

_NAMES = {
    pb.Tensor: "Tensor",
    int: "SymInt",
    float: "float",
    bool: "bool",
    str: "str",
    pb.dtype: "ScalarType",
    pb.device: "Device",
    int | float | bool: "Scalar",
}
_RETURNS = {"Tensor", "Tensor[]", "SymInt", "float", "bool", "Scalar"}
_SEQUENCES = (list, collections.abc.Sequence)


def _type_of(annotation: Any, nested: bool = False) -> str | None:
    """Return the type of a schema for an annotation; None if there is none."""
    for known, name in _NAMES.items():
        if annotation == known:
            return name
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in _SEQUENCES and len(args) == 1 and not nested:
        inner = _type_of(args[0], True)
        return (
            None if inner is None or (inner.endswith("?") and inner != "Tensor?") else f"{inner}[]"
        )
    if origin in (typing.Union, types.UnionType) and type(None) in args:
        rest: Any = functools.reduce(operator.or_, (a for a in args if a is not type(None)))
        inner = _type_of(rest, nested)
        return None if inner is None or inner == "Tensor?[]" else f"{inner}?"
    return None


def _default_text(value: Any, fail) -> str:
    if value is None or isinstance(value, (int, float, bool)):
        return str(value)
    if isinstance(value, (str, pb.device)):
        return f'"{value}"'
    if isinstance(value, pb.dtype):
        return value.name
    raise fail(
        f"has an unsupported default value type {type(value)}. "
        f"Please file an issue on GitHub so we can prioritize this."
    )


def infer_schema(prototype_function, /, *, mutates_args, op_name=None, tags=None) -> str:
    """Return the schema of a function with annotations.

    ``mutates_args`` has the names of the arguments that it writes, or is ``"unknown"``: all. A
    schema does not show ``tags``.

    Raises: ValueError for a parameter or a result whose type is missing or not supported.

    >>> import pullback
    >>> def scaled(x: pullback.Tensor, by: float = 2.0) -> pullback.Tensor:
    ...     return x * by
    >>> pullback.library.infer_schema(scaled, mutates_args=())
    '(Tensor x, float by=2.0) -> Tensor'
    """
    signature = inspect.signature(prototype_function, eval_str=True)

    def failure(text):
        return ValueError(f"infer_schema(func): {text} Got func with signature {signature})")

    unknown = set(mutates_args) - signature.parameters.keys() if mutates_args != "unknown" else ()
    parts, keywords = [], False
    for k, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise failure("We do not support positional-only args, varargs, or varkwargs.")
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            parts.append("*")
        if parameter.annotation is parameter.empty:
            raise failure(f"Parameter {name} must have a type annotation.")
        kind = _type_of(parameter.annotation)
        if kind is None:
            raise failure(
                f"Parameter {name} has unsupported type {parameter.annotation}. The valid types "
                f"are: {', '.join(_NAMES.values())}, and optional ones and sequences of them."
            )
        if mutates_args == "unknown" or name in mutates_args:
            if kind.startswith("Tensor"):
                kind = f"Tensor(a{k}!){kind.removeprefix('Tensor')}"
            elif mutates_args != "unknown":
                raise failure(
                    f"Parameter {name} is in mutable_args but only Tensors or collections of "
                    f"Tensors can be mutated"
                )
        text = f"{kind} {name}"
        if parameter.default is not parameter.empty:
            shown = _default_text(
                parameter.default, lambda text, name=name: failure(f"Parameter {name} {text}")
            )
            text += f"={shown}"
        parts.append(text)
    if unknown:
        raise failure(
            f"{unknown} in mutates_args were not found in the custom op's signature. mutates_args "
            f"should contain the names of all args that the custom op mutates, or just the string "
            f"'unknown' if you don't know."
        )
    return f"{op_name or ''}({', '.join(parts)}) -> {_returns_of(signature, failure)}"


def _returns_of(signature, failure) -> str:
    annotation = signature.return_annotation
    if annotation is signature.empty:
        raise failure("No return type annotation was provided. Please add one.")
    several = typing.get_origin(annotation) is tuple
    parts = [kind for kind in typing.get_args(annotation) if kind != ()]  # () before Python 3.11
    if annotation in (None, type(None)) or (several and not parts):
        return "()"
    found = list(map(_type_of, parts if several else [annotation]))
    if not all(kind in _RETURNS for kind in found):
        raise failure(
            f"Return has unsupported type {annotation}. The valid types are: "
            f"{', '.join(sorted(_RETURNS))}."
        )
    shown = f"({', '.join(map(str, found))})" if several else str(found[0])
    return f"({shown})" if several and len(found) == 1 else shown  # as torch shows it


# ---- from text -----------------------------------------------------------------------------------

_SCHEMA = re.compile(r"^\s*([\w:]+)?(?:\.(\w+))?\s*\((.*)\)\s*->\s*(.*?)\s*$", re.S)
_ARGUMENT = re.compile(
    r"^(?P<base>\w+)(?:\((?P<alias>[^)]*)\))?(?P<rest>(?:\[\d*\]|\?)*)\s+(?P<name>\w+)"
    r"(?:\s*=\s*(?P<default>.+))?$"
)
_CONSTANTS = {"None": None, "True": True, "False": False}


def _split(text: str) -> list[str]:
    """Return the parts between commas that are outside brackets and quotes."""
    parts, depth, start, quote = [], 0, 0, ""
    for k, character in enumerate(text):
        if quote or character in "'\"":
            quote = "" if character == quote else quote or character
            continue
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append(text[start:k].strip())
            start = k + 1
    if quote:
        raise RuntimeError(f"schema {text!r}: a {quote} is missing")
    return [part for part in (*parts, text[start:].strip()) if part]


def _default_of(text: str) -> Any:
    text = text.strip()
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] in "'\"":
        return text[1:-1]
    if text[0] == "[":
        return [_default_of(item) for item in _split(text[1:-1])]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return getattr(pb, text, text)


def _known(kind: str, text: str) -> str:
    """Return a type; raise RuntimeError if there is no such one."""
    if kind.strip("()[]?0123456789") not in _CLASSES:
        raise RuntimeError(
            f"schema {text!r}: unknown type specifier {kind!r}. Common valid schema types include "
            f"Tensor, SymInt, int, float, bool, Scalar"
        )
    return kind


def _argument(part: str, keyword: bool, text: str) -> Argument:
    """Return the argument of a part of a schema."""
    found = _ARGUMENT.match(part)
    if found is None:
        raise RuntimeError(f"schema {text!r}: cannot read the argument {part!r}")
    kind, default = _known(found["base"] + found["rest"], text), found["default"]
    value = None if default is None else _default_of(default)
    if value is not None:
        value = converted(value, kind)
        if value is UNFIT:
            raise RuntimeError(f"schema {text!r}: the default {default} is no {_shown(kind)}")
    writes = "!" in (found["alias"] or "")
    return Argument(found["name"], kind, value, default is not None, keyword, writes)


def parse_schema(namespace: str, text: str) -> Schema:
    """Return the schema of an operator of a namespace.

    Raises: RuntimeError for text that is no schema.
    """
    match = _SCHEMA.match(text)
    if match is None or not match[1]:
        raise RuntimeError(f"{text!r} is no schema of the form 'name(Type argument) -> Type'")
    if not re.fullmatch(r"[A-Za-z_]\w*", namespace):
        raise RuntimeError(f"{namespace!r} is no name of a namespace: use letters, digits and _")
    name, keywords = match[1].rpartition("::")[2], False
    arguments: list[Argument] = []
    for part in _split(match[3]):
        if part == "*":
            keywords = True
            continue
        argument = _argument(part, keywords, text)
        if not (keywords or argument.has_default) and arguments and arguments[-1].has_default:
            raise RuntimeError(
                f"schema {text!r}: Non-default positional argument follows default argument. "
                f"Parameter {argument.name}"
            )
        arguments.append(argument)
    returns = match[4].strip()
    inner = returns[1:-1] if returns.startswith("(") else returns
    kinds = tuple(
        _known(part if part[0] == "(" else re.sub(r"\([^)]*\)", "", part).split(" ")[0], text)
        for part in _split(inner)
    )
    overload = match[2] or ""
    shown = f"{namespace}::{name}{'.' + overload if overload else ''}({match[3]}) -> {returns}"
    return Schema(f"{namespace}::{name}", overload, tuple(arguments), kinds, shown)


# ---- calls ---------------------------------------------------------------------------------------

_CLASSES: dict[str, tuple[type, ...]] = {
    "Tensor": (pb.Tensor,),
    "str": (str,),
    "ScalarType": (pb.dtype,),
    "Scalar": (int, float, bool, complex),
    "number": (int, float, bool, complex),
    "complex": (int, float, bool, complex),
    **dict.fromkeys("Any Generator Layout MemoryFormat QScheme Storage Stream".split(), (object,)),
    **dict.fromkeys(("int", "SymInt", "float", "bool", "Device"), ()),  # see `converted`
}
_NUMBERS: dict[str, Any] = {"int": int, "SymInt": int, "float": float, "bool": bool}
UNFIT = object()  # what stands for a value of another type


def _number(value: Any, kind: str) -> Any:
    """Return a number of Python, NumPy or a tensor with one element, as the type has it."""
    if isinstance(value, pb.Tensor) and value.numel() == 1 and not value.is_sparse:
        value = value.detach().item()
    elif isinstance(value, (np.generic, np.ndarray)) and value.ndim == 0:
        value = value.item()
    whole = kind in ("int", "SymInt")
    if not isinstance(value, int if whole else (int, float)):
        return UNFIT
    return _NUMBERS[kind](value)


def converted(value: Any, kind: str) -> Any:
    """Return a value as an argument or result of a type has it; ``UNFIT`` if it does not fit."""
    if kind[-1] == "?":
        return None if value is None else converted(value, kind[:-1])
    if kind[-1] == "]":
        base, _, length = kind[:-1].rpartition("[")
        if length and isinstance(value, int):
            value = [value] * int(length)
        flat = isinstance(value, np.ndarray) and value.ndim == 1
        if not flat and not isinstance(value, (list, tuple, range)):
            return UNFIT
        items = [converted(item, base) for item in value]
        return UNFIT if any(item is UNFIT for item in items) else items
    if kind[0] == "(":
        return converted_results(value, tuple(_split(kind[1:-1])))
    if kind in _NUMBERS:
        return _number(value, kind)
    if kind == "Device":
        return pb.device(value) if isinstance(value, (str, pb.device)) else UNFIT
    return value if isinstance(value, _CLASSES[kind]) else UNFIT


def converted_results(value: Any, kinds: tuple[str, ...]) -> Any:
    """Return a tuple with a value of each type; ``UNFIT`` if one does not fit."""
    if not isinstance(value, (list, tuple)) or len(value) != len(kinds):
        return UNFIT
    items = tuple(map(converted, value, kinds))
    return UNFIT if any(item is UNFIT for item in items) else items


def check_result(schema: Schema, value: Any) -> Any:
    """Return what a kernel returned as the schema has it.

    Raises: RuntimeError for results of another number or type.
    """
    kinds = schema.returns
    if len(kinds) == 1:
        found = converted(value, kinds[0])
    elif kinds:
        found = converted_results(value, kinds)
    else:
        found = None if value is None else UNFIT
    if found is UNFIT:
        shown = type(value).__name__
        if isinstance(value, (list, tuple)):
            shown += f" of {', '.join(type(item).__name__ for item in value) or 'nothing'}"
        wanted = ", ".join(map(_shown, kinds)) or "None"
        raise RuntimeError(
            f"{schema.name}: the kernel returned {shown}, expected {wanted}. Declaration: {schema}"
        )
    return found


def _shown(kind: str) -> str:
    if kind.endswith("?"):
        return f"Optional[{_shown(kind[:-1])}]"
    if kind.endswith("]"):
        return f"List[{_shown(kind.rpartition('[')[0])}]"
    return {"SymInt": "int", "ScalarType": "int", "Scalar": "number"}.get(kind, kind)


def bind(schema: Schema, args: tuple, kwargs: dict) -> list[Any]:
    """Return a value for each argument of a call.

    Raises: RuntimeError for missing or unknown arguments, and for values of another type.
    """
    called = f"{schema.name}()"
    positional = [argument for argument in schema.arguments if not argument.kwarg_only]
    if len(args) > len(positional):
        raise RuntimeError(
            f"{called} expected at most {len(positional)} argument(s) but received {len(args)} "
            f"argument(s). Declaration: {schema}"
        )
    values, left = [], dict(kwargs)
    for k, argument in enumerate(schema.arguments):
        if k < len(args) and not argument.kwarg_only:
            value = args[k]
        elif argument.name in left:
            value = left.pop(argument.name)
        elif argument.has_default:
            value = argument.default_value
        else:
            raise RuntimeError(
                f"{called} is missing value for argument '{argument.name}'. Declaration: {schema}"
            )
        fitting = value
        if not (argument.has_default and value is argument.default_value):
            fitting = converted(value, argument.type)
        if fitting is UNFIT:
            raise RuntimeError(
                f"{called} Expected a value of type '{_shown(argument.type)}' for argument "
                f"'{argument.name}' but instead found type '{type(value).__name__}'.\n"
                f"Position: {k}\nValue: {value}\nDeclaration: {schema}\n"
                f"Cast error details: Unable to cast {value} to {_shown(argument.type)}"
            )
        values.append(fitting)
    if left:
        raise RuntimeError(
            f"Unknown keyword argument '{next(iter(left))}' for operator '{schema.name}'. "
            f"Schema: {schema}"
        )
    return values
