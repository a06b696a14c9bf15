"""What ``help`` and ``inspect.signature`` show of an op, made from its entry when they ask."""

from __future__ import annotations

import functools
import inspect
import json
import textwrap
from pathlib import Path
from typing import Any

from pullback._help.arguments import meaning_of

TYPES = {
    "Tensor": "Tensor",
    "Tensor[]": "Sequence[Tensor]",
    "Operand": "Tensor | Number",
    "Scalar": "Number",
    "int": "int",
    "int[]": "int | Sequence[int]",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "dtype": "dtype",
    "device": "device | str",
    "memory_format": "memory_format",
    "layout": "layout",
    "any": "Any",
}
RESULTS = {"Tensor[]": "tuple[Tensor, ...]", "any": "Any"}
PRIVATE = ("_stacklevel", "_random_samples")


class Annotation(str):
    """The text of an annotation, which a signature shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def shown_type(kind: str) -> str:
    """Return a type of the table's signatures as Python writes it.

    >>> shown_type("int[]?")
    'int | Sequence[int] | None'
    """
    if kind.endswith("?") and kind != "any?":
        return f"{shown_type(kind[:-1])} | None"
    return TYPES[kind.removesuffix("?")]


def signature_of(entry: Any, *, inplace: bool = False) -> inspect.Signature:
    """Return the signature of an op, or of its in-place form, with annotations as text.

    >>> import inspect, pullback
    >>> inspect.signature(pullback.flip)
    <Signature (input: Tensor, *dims: int | Sequence[int]) -> Tensor>
    """
    positional = [argument for argument in entry.arguments if not argument.keyword_only]
    parameters = []
    for argument in entry.arguments:
        if argument.name in PRIVATE:
            continue
        kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
        if argument.keyword_only:
            kind = inspect.Parameter.KEYWORD_ONLY
        elif entry.varargs and argument is positional[-1]:
            kind = inspect.Parameter.VAR_POSITIONAL
        empty = argument.required or kind == inspect.Parameter.VAR_POSITIONAL
        parameters.append(
            inspect.Parameter(
                "input" if argument.name == "self" else argument.name,
                kind,
                default=inspect.Parameter.empty if empty else argument.default,
                annotation=Annotation(shown_type(argument.type)),
            )
        )
    if entry.out and not inplace:
        keyword = inspect.Parameter.KEYWORD_ONLY
        annotation = Annotation("Tensor | None")
        parameters.append(inspect.Parameter("out", keyword, default=None, annotation=annotation))
    result = Annotation(RESULTS.get(entry.returns, entry.returns))
    return inspect.Signature(parameters, return_annotation=result)


@functools.cache
def examples() -> dict[str, str]:
    """Return the examples of the ops, by name; tools/examplegen.py writes them."""
    file = Path(__file__).with_name("examples.json")
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


def documentation_of(entry: Any, *, inplace: bool = False) -> str:
    """Return the text of ``help``: what the op does, its arguments and an example.

    >>> import pullback
    >>> "  keepdim (bool): whether reduced dims stay" in pullback.sum.__doc__
    True
    """
    text = entry.doc
    if inplace:
        text += "\n\nThe result is written into the tensor, which is returned."
    lines = []
    for parameter in signature_of(entry, inplace=inplace).parameters.values():
        declared = next((a for a in entry.arguments if a.name == parameter.name), None)
        meaning = meaning_of(entry.name, parameter.name, declared.type if declared else "")
        default = parameter.default
        shown = "" if default in (inspect.Parameter.empty, None) else f"; default {default!r}"
        line = f"{parameter.name} ({parameter.annotation}): {meaning}{shown}"
        lines.append(textwrap.fill(line, 90, initial_indent="  ", subsequent_indent="      "))
    if lines:
        text += "\n\nArguments:\n" + "\n".join(lines)
    example = None if inplace else examples().get(entry.name)
    if example:
        text += "\n\nExample:\n" + textwrap.indent(example, "  ")
    return text
