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
    if annotation is None:
        return "()"
    if typing.get_origin(annotation) is tuple:
        found = [_type_of(item) for item in typing.get_args(annotation)]
    else:
        found = [_type_of(annotation)]
    if not all(kind in _RETURNS for kind in found):
        raise failure(
            f"Return has unsupported type {annotation}. The valid types are: "
            f"{', '.join(sorted(_RETURNS))}."
        )
    if typing.get_origin(annotation) is tuple and len(found) > 1:
        return f"({', '.join(map(str, found))})"
    return str(found[0])


# ---- from text -----------------------------------------------------------------------------------

_SCHEMA = re.compile(r"^\s*([\w:]+)?(?:\.(\w+))?\s*\((.*)\)\s*->\s*(.*?)\s*$", re.S)
_ARGUMENT = re.compile(
    r"^(?P<base>\w+)(?:\((?P<alias>[^)]*)\))?(?P<rest>(?:\[\d*\]|\?)*)\s+(?P<name>\w+)"
    r"(?:\s*=\s*(?P<default>.+))?$"
)
_CONSTANTS = {"None": None, "True": True, "False": False}


def _split(text: str) -> list[str]:
    """Return the parts between commas that are outside brackets."""
    parts, depth, start = [], 0, 0
    for k, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append(text[start:k].strip())
            start = k + 1
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


def parse_schema(namespace: str, text: str) -> Schema:
    """Return the schema of an operator of a namespace.

    Raises: RuntimeError for text that is no schema.
    """
    match = _SCHEMA.match(text)
    if match is None or not match[1]:
        raise RuntimeError(f"{text!r} is no schema of the form 'name(Type argument) -> Type'")
    name, arguments, keywords = match[1].rpartition("::")[2], [], False
    for part in _split(match[3]):
        if part == "*":
            keywords = True
            continue
        found = _ARGUMENT.match(part)
        if found is None:
            raise RuntimeError(f"schema {text!r}: cannot read the argument {part!r}")
        default = found["default"]
        arguments.append(
            Argument(
                found["name"],
                found["base"] + re.sub(r"\d", "", found["rest"]),
                None if default is None else _default_of(default),
                default is not None,
                keywords,
                "!" in (found["alias"] or ""),
            )
        )
    returns = match[4].strip()
    inner = returns[1:-1] if returns.startswith("(") else returns
    kinds = tuple(re.sub(r"\([^)]*\)", "", part).split(" ")[0] for part in _split(inner))
    overload = match[2] or ""
    shown = f"{namespace}::{name}{'.' + overload if overload else ''}({match[3]}) -> {returns}"
    return Schema(f"{namespace}::{name}", overload, tuple(arguments), kinds, shown)


# ---- calls ---------------------------------------------------------------------------------------

_CLASSES = {
    "Tensor": (pb.Tensor,),
    "int": (int,),
    "SymInt": (int,),
    "float": (float, int),
    "bool": (bool,),
    "str": (str,),
    "ScalarType": (pb.dtype,),
    "Device": (pb.device, str),
    "Scalar": (int, float, bool, complex),
    "number": (int, float, bool, complex),
}


def _fits(value: Any, kind: str) -> bool:
    if kind.endswith("?"):
        return value is None or _fits(value, kind[:-1])
    if kind.endswith("[]"):
        return isinstance(value, (list, tuple)) and all(_fits(v, kind[:-2]) for v in value)
    classes = _CLASSES.get(kind)
    if classes is None:
        return True
    if isinstance(value, bool) and bool not in classes:
        return False
    return isinstance(value, classes)


def _shown(kind: str) -> str:
    if kind.endswith("?"):
        return f"Optional[{_shown(kind[:-1])}]"
    if kind.endswith("[]"):
        return f"List[{_shown(kind[:-2])}]"
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
        if not _fits(value, argument.type):
            raise RuntimeError(
                f"{called} Expected a value of type '{_shown(argument.type)}' for argument "
                f"'{argument.name}' but instead found type '{type(value).__name__}'.\n"
                f"Position: {k}\nValue: {value}\nDeclaration: {schema}\n"
                f"Cast error details: Unable to cast {value} to {_shown(argument.type)}"
            )
        values.append(value)
    if left:
        raise RuntimeError(
            f"Unknown keyword argument '{next(iter(left))}' for operator '{schema.name}'. "
            f"Schema: {schema}"
        )
    return values
