"""Rows of a table as calls of torch, of NumPy, and of JAX compiled by ``jit``."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks.numpy_api import Creator
from benchmarks.workloads.registry import Operands, Size, Table, Workload

Calls = Callable[[int], None]


class Dialect(NamedTuple):
    """How a module is used: its expressions, how operands are made, names in expressions."""

    name: str
    creator: Any
    names: dict[str, Any]
    convert: Callable[[Any], Any]


def dialect_of(module: ModuleType) -> Dialect:
    """Return the dialect of NumPy, JAX, or a module with torch's API."""
    if module.__name__ == "numpy":
        names = {"np": module, "special": find_module("scipy.special")}
        return Dialect("numpy", Creator(), names, lambda value: value)
    if module.__name__ == "jax":
        module.config.update("jax_enable_x64", True)  # else integers and float64 have 32 bits
        numpy = importlib.import_module("jax.numpy")
        special = importlib.import_module("jax.scipy.special")
        creator = Creator(bfloat16=numpy.bfloat16)
        names = {"np": numpy, "jax": module, "special": special}
        return Dialect("jax", creator, names, numpy.asarray)
    functional = importlib.import_module(f"{module.__name__}.nn.functional")
    return Dialect("torch", module, {"m": module, "F": functional}, lambda value: value)


def find_module(name: str) -> ModuleType | None:
    """Import a module if it is installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


class Expressions:
    """Makes calls of rows; it keeps the operands of the last table, as rows come by table."""

    def __init__(self, module: ModuleType, size: Size) -> None:
        self.dialect = dialect_of(module)
        self.size = size
        self.table: Table | None = None
        self.operands: Operands = {}

    def operands_of(self, table: Table) -> Operands:
        """Return the operands of a table, the same in every round."""
        if table is not self.table:
            self.operands = {}  # frees the last ones first
            self.dialect.creator.manual_seed(0)
            made = table.setup(self.dialect.creator, self.size)
            self.operands = {
                name: self.dialect.convert(value) if hasattr(value, "shape") else value
                for name, value in made.items()
            }
            self.table = table
        return self.operands

    def calls_of(self, workload: Workload) -> tuple[Calls, dict[str, float]]:
        """Return a function that evaluates a row n times, and the bytes and flops of one time."""
        assert workload.table is not None and workload.entry is not None
        expression = workload.written_for(self.dialect.name)
        operands = self.operands_of(workload.table)
        used = compile(expression, workload.key, "eval").co_names
        mine = {name: value for name, value in operands.items() if name in used}
        names = {**self.dialect.names, **mine}
        work: dict[str, float] = {}
        if workload.table.bandwidth:
            arrays = [value for value in mine.values() if hasattr(value, "shape")]
            work["bytes"] = sum(map(bytes_of, [*arrays, eval(expression, dict(names))]))
        if workload.entry.flops is not None:
            work["flops"] = workload.entry.flops(operands)
        if self.dialect.name == "jax":
            return jitted_calls(expression, names, mine, workload.table.backward), work
        statements = [expression]
        if workload.table.backward:
            leaves = [name for name, value in mine.items() if getattr(value, "requires_grad", 0)]
            statements = [f"({expression}).backward()", *(f"{x}.grad = None" for x in leaves)]
        return plain_calls(statements, names), work


def plain_calls(statements: list[str], names: dict[str, Any]) -> Calls:
    """Compile statements into a loop; their names are its locals, as in a function by hand."""
    body = "".join(f"\n            {statement}" for statement in statements)
    source = (
        f"def make({', '.join(names)}):\n"
        f"    def calls(_times):\n        for _ in range(_times):{body}\n    return calls\n"
    )
    space: dict[str, Any] = {}
    exec(compile(source, "<row>", "exec"), space)
    return space["make"](**names)


def jitted_calls(
    expression: str, names: dict[str, Any], operands: Operands, backward: bool
) -> Calls:
    """Compile an expression with JAX as a function of its arrays; wait for each result."""
    jax, numpy = names["jax"], names["np"]
    arrays = {name: value for name, value in operands.items() if hasattr(value, "shape")}
    function = eval(f"lambda {', '.join(arrays)}: {expression}", dict(names))
    if backward:
        floats = [numpy.issubdtype(array.dtype, numpy.floating) for array in arrays.values()]
        function = jax.grad(function, [i for i, is_float in enumerate(floats) if is_float])
    compiled, values = jax.jit(function), tuple(arrays.values())

    def calls(n: int) -> None:
        for _ in range(n):
            jax.block_until_ready(compiled(*values))

    return calls


def bytes_of(value: Any) -> float:
    """Return the size of the elements of a tensor, an array or several."""
    if isinstance(value, (tuple, list)):
        return sum(map(bytes_of, value))
    if not hasattr(value, "shape"):
        return 0
    elements = 1
    for extent in value.shape:
        elements *= extent
    itemsize = getattr(value, "itemsize", None)
    return elements * (itemsize if isinstance(itemsize, int) else value.dtype.itemsize)
