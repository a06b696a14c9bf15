"""Derivative formulas of the op table as text for the documentation: TeX where one reads well.

A formula that is one expression of arithmetic and of functions with a usual sign becomes TeX. Any
other one is shown as the Python that computes it.
"""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# Functions and methods of one operand, as TeX; {} is the operand.
NAMED = {
    name: f"\\{name} {{}}" for name in ("cos", "sin", "tan", "cosh", "sinh", "tanh", "log", "exp")
}
OPERATORS = {
    name: rf"\operatorname{{{name}}} {{}}"
    for name in (
        *("sgn", "sign", "sigmoid", "digamma", "real", "imag", "erf", "erfc", "sinc", "tril"),
        *("triu", "log1p", "expm1", "atan", "asin", "acos", "sum", "mean", "i0", "i1", "softmax"),
    )
}
ENCLOSING = {  # these need no parentheses around the operand
    "conj": r"\overline{{{}}}",
    "conj_physical": r"\overline{{{}}}",
    "sqrt": r"\sqrt{{{}}}",
    "rsqrt": r"\frac{{1}}{{\sqrt{{{}}}}}",
    "reciprocal": r"\frac{{1}}{{{}}}",
    "abs": r"\left|{}\right|",
}
TRANSPOSED = {"t": "T", "mT": "T", "mH": "H"}
RELATIONS = {
    ast.Eq: "=",
    ast.NotEq: r"\ne",
    ast.Lt: "<",
    ast.LtE: r"\le",
    ast.Gt: ">",
    ast.GtE: r"\ge",
}
SUM, NEGATIVE, PRODUCT, POWER, ATOM = range(5)  # how tightly a term binds
LONGEST = 160  # characters of TeX that still read better than code


class Formula(NamedTuple):
    """A derivative: of which arguments, as TeX or else as Python, and whether it reads the result.

    TeX of a formula that treats complex numbers in another way is that for real ones.
    """

    arguments: tuple[str, ...]
    tex: str | None
    code: str
    real: bool
    reads_result: bool


class Unreadable(Exception):
    """The formula has no TeX that reads better than its code."""


def formula_of(arguments: str | tuple[str, ...], function: Callable) -> Formula | None:
    """Return the formula that a function of the table computes; None where it has no source."""
    named = (arguments,) if isinstance(arguments, str) else arguments
    node = definition_of(function)
    if node is None:
        return None
    names = list(inspect.signature(function).parameters)
    tex, real = None, False
    if len(named) == 1:
        writer = Writer(function, {name: (symbol_of(name), ATOM) for name in names})
        try:
            tex, real = writer.result_of(node)[0], writer.real
        except Unreadable:
            pass
    if tex is not None and len(tex) > LONGEST:
        tex = None
    return Formula(named, tex, code_of(function, node), real, "out" in names)


@functools.cache
def definitions_in(path: str) -> dict[int, list[ast.Lambda | ast.FunctionDef]]:
    """Return the functions of a source file by their first line."""
    found: dict[int, list[ast.Lambda | ast.FunctionDef]] = {}
    for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Lambda | ast.FunctionDef):
            decorators = getattr(node, "decorator_list", [])
            found.setdefault(min([node.lineno, *(d.lineno for d in decorators)]), []).append(node)
    return found


def definition_of(function: Any) -> ast.Lambda | ast.FunctionDef | None:
    """Return the definition of a function of Python; None for others."""
    code = getattr(function, "__code__", None)
    if code is None or not Path(code.co_filename).exists():
        return None
    names = list(inspect.signature(function).parameters)
    for node in definitions_in(code.co_filename).get(code.co_firstlineno, []):
        given = node.args
        declared = [*given.posonlyargs, *given.args]
        declared += [argument for argument in (given.vararg, given.kwarg) if argument]
        if [argument.arg for argument in declared] == names:
            return node
    return None


def is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def code_of(function: Callable, node: ast.Lambda | ast.FunctionDef) -> str:
    """Return a function as Python writes it; where it only calls another one, that one."""
    body = node.body if isinstance(node, ast.Lambda) else None
    if isinstance(body, ast.Call) and isinstance(body.func, ast.Name):
        called = definition_of(function.__globals__.get(body.func.id))
        node = called or node
    if isinstance(node, ast.Lambda):
        return ast.unparse(node.body)
    kept = [line for line in node.body if not is_text(line)]
    lines = "\n".join(ast.unparse(line) for line in kept)
    return f"def {node.name}({ast.unparse(node.args)}):\n{textwrap.indent(lines, '    ')}"


def written_in_ops(name: str) -> Callable | None:
    """Return the Python function that an op, or its primitive, is written in; None for others."""
    from pullback.ops import ENTRIES
    from pullback.ops.table.primitives import decompositions

    entry = ENTRIES.get(name)
    if entry is None:
        return None
    if callable(entry.composite):
        return entry.composite
    return decompositions().get(entry.kernel) if entry.kernel is not None else None


class Writer:
    """Writes what a function returns as TeX; ``terms`` has the TeX of its names."""

    def __init__(self, function: Callable, terms: dict[str, tuple[str, int]]) -> None:
        self.globals = function.__globals__
        self.terms = dict(terms)
        self.real = False

    def result_of(self, node: ast.Lambda | ast.FunctionDef) -> tuple[str, int]:
        """Return the TeX of a function's result. Raises: Unreadable."""
        if isinstance(node, ast.Lambda):
            return self.term(node.body)
        for statement in node.body:
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self.term(value)
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.terms[name] = self.term(value)
                case ast.If(
                    test=ast.UnaryOp(op=ast.Not(), operand=test),
                    body=[ast.Return(value=ast.expr() as value)],
                ) if is_complex(test):
                    self.real = True
                    return self.term(value)
                case ast.If(test=test, body=[ast.Return()], orelse=[]) if is_complex(test):
                    self.real = True
                case ast.Expr(value=ast.Call(func=ast.Name(id="look_at"))):
                    pass  # it says that the formula cannot be traced
                case _ if not is_text(statement):
                    raise Unreadable
        raise Unreadable

    def expanded(self, function: Callable | None, operands: list[ast.expr]) -> tuple[str, int]:
        """Return the TeX of a call of a Python function: that of what it returns."""
        node = definition_of(function) if function is not None else None
        if node is None or function is None:
            raise Unreadable
        names = list(inspect.signature(function).parameters)
        if len(names) != len(operands):
            raise Unreadable
        terms = {name: self.term(value) for name, value in zip(names, operands)}
        inner = Writer(function, terms)
        found = inner.result_of(node)
        self.real |= inner.real
        if len(found[0]) > LONGEST:
            raise Unreadable
        return found

    def term(self, node: ast.expr) -> tuple[str, int]:
        """Return the TeX of an expression, and how tightly it binds."""
        write = getattr(self, type(node).__name__, None)
        if write is None:
            raise Unreadable
        return write(node)

    def inner(self, node: ast.expr, least: int) -> str:
        """Return an operand, in parentheses if it binds less tightly than ``least``."""
        tex, binds = self.term(node)
        return tex if binds >= least else rf"\left({tex}\right)"

    def Name(self, node: ast.Name) -> tuple[str, int]:
        if node.id.endswith(("_shape", "_like")):
            raise Unreadable
        if node.id in self.terms:
            return self.terms[node.id]
        return self.Constant(ast.Constant(self.globals.get(node.id)))

    def Constant(self, node: ast.Constant) -> tuple[str, int]:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise Unreadable
        return f"{node.value:.6g}", ATOM

    def UnaryOp(self, node: ast.UnaryOp) -> tuple[str, int]:
        if not isinstance(node.op, ast.USub):
            raise Unreadable
        return f"-{self.inner(node.operand, PRODUCT)}", NEGATIVE

    def BinOp(self, node: ast.BinOp) -> tuple[str, int]:
        match node.op:
            case ast.Add():
                return f"{self.inner(node.left, SUM)} + {self.inner(node.right, PRODUCT)}", SUM
            case ast.Sub():
                return f"{self.inner(node.left, SUM)} - {self.inner(node.right, PRODUCT)}", SUM
            case ast.Mult():
                left = self.inner(node.left, NEGATIVE)
                if self.term(node.left) == self.term(node.right):
                    return f"{self.inner(node.left, ATOM)}^2", POWER
                return rf"{left} \cdot {self.inner(node.right, PRODUCT)}", PRODUCT
            case ast.Div():
                return rf"\frac{{{self.term(node.left)[0]}}}{{{self.term(node.right)[0]}}}", PRODUCT
            case ast.Pow():
                return f"{self.inner(node.left, ATOM)}^{{{self.term(node.right)[0]}}}", POWER
            case ast.MatMult():
                return rf"{self.inner(node.left, PRODUCT)} \, {self.inner(node.right, POWER)}", (
                    PRODUCT
                )
        raise Unreadable

    def Compare(self, node: ast.Compare) -> tuple[str, int]:
        sign = RELATIONS.get(type(node.ops[0]))
        if sign is None or len(node.ops) > 1:
            raise Unreadable
        return f"{self.inner(node.left, SUM)} {sign} {self.inner(node.comparators[0], SUM)}", SUM

    def Attribute(self, node: ast.Attribute) -> tuple[str, int]:
        if ast.unparse(node) == "math.pi":
            return r"\pi", ATOM
        if node.attr in ("mT", "mH"):
            return f"{self.inner(node.value, ATOM)}^{{{TRANSPOSED[node.attr]}}}", POWER
        raise Unreadable

    def Call(self, node: ast.Call) -> tuple[str, int]:
        match node.func:
            case ast.Attribute(value=ast.Name(id="ops" | "math"), attr=name):
                operands = node.args
            case ast.Attribute(value=value, attr=name):
                operands = [value, *node.args]
            case ast.Name(id=name) if not node.keywords:
                return self.expanded(self.globals.get(name), node.args)
            case _:
                raise Unreadable
        if node.keywords:
            raise Unreadable
        return self.function(name, operands)

    def function(self, name: str, operands: list[ast.expr]) -> tuple[str, int]:
        """Return a call of an op."""
        match name, operands:
            case "where", [condition, first, second]:
                rows = (
                    rf"{self.term(first)[0]} & \text{{where }} {self.term(condition)[0]}",
                    rf"{self.term(second)[0]} & \text{{elsewhere}}",
                )
                return rf"\begin{{cases}} {rows[0]} \\ {rows[1]} \end{{cases}}", ATOM
            case "square", [operand]:
                return f"{self.inner(operand, ATOM)}^2", POWER
            case "exp", [operand]:
                return f"e^{{{self.term(operand)[0]}}}", POWER
            case "pow", [base, exponent]:
                return f"{self.inner(base, ATOM)}^{{{self.term(exponent)[0]}}}", POWER
            case "div", [left, right]:
                return self.BinOp(ast.BinOp(left, ast.Div(), right))
            case "mul" | "scaled", [left, right]:
                return self.BinOp(ast.BinOp(left, ast.Mult(), right))
            case (("mm" | "matmul" | "bmm" | "mv"), [left, right]):
                return self.BinOp(ast.BinOp(left, ast.MatMult(), right))
            case "t", [operand]:
                return f"{self.inner(operand, ATOM)}^T", POWER
            case _, [operand] if name in ENCLOSING:
                return ENCLOSING[name].format(self.term(operand)[0]), ATOM
            case _, [operand] if name in NAMED or name in OPERATORS:
                shown = (NAMED | OPERATORS)[name].removesuffix("{}")
                return rf"{shown}\left({self.term(operand)[0]}\right)", ATOM
        return self.expanded(written_in_ops(name), operands)


def is_complex(test: ast.expr) -> bool:
    """Return whether a condition is that an operand is complex."""
    return isinstance(test, ast.Call) and getattr(test.func, "attr", "") == "is_complex"


def symbol_of(name: str) -> str:
    """Return the sign of an argument: x for the tensor, y for the result, else its name."""
    short = {"self": "x", "out": "y"}.get(name, name)
    if len(short) == 1:
        return short
    return rf"\mathit{{{short}}}".replace("_", r"\_")
