"""Makes ops, Tensor methods and namespaces of the op table, once, at import."""

from __future__ import annotations

from pullback._c.base.state import is_grad_enabled
from pullback._c.dispatch.call import OpMethod
from pullback._c.dispatch.outputs import check_overlaps
from pullback._c.engine.custom_function import FunctionNode
from pullback._c.graph.tensor import Tensor, bind_attribute
from pullback._c.ops import clone, dtype_views, indexing
from pullback._c.python import bind, instance_dicts, node_methods, operators, tensor_methods
from pullback._c.python.module_base import ModuleBase
from pullback.ops import ENTRIES, ops, uncollected

OPERANDS = ("Tensor", "Tensor?", "Operand", "Operand?")
RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}  # of dtype kinds, in the order of promotion


def _nothing(g):
    return ops.zeros_like(g)


def _inplace(entry, functional, flags):
    """Make the in-place op ``name_``, which writes its first argument."""
    name = entry.name + "_"
    flags = (flags | bind.FLAGS["inplace"]) & ~bind.FLAGS["out"]
    if not entry.vjp and entry.composite is None:
        # Without a derivative the result has no history, also not that of the overwritten values.
        operands = tuple(a.name for a in entry.arguments if a.type in OPERANDS)
        entry = entry._replace(vjp=dict.fromkeys(operands, _nothing))
    made = bind.make_op(entry, name, entry.inplace_node or entry.node, flags, functional)
    if entry.composite is not None:

        def run(self, *args):
            check_overlaps(self, *args)
            # the parts save a copy, since the write changes the original
            source = self.clone() if self.requires_grad and is_grad_enabled() else self
            result = functional(source, *args)
            if RANKS[result.dtype.kind] > RANKS[self.dtype.kind]:
                raise RuntimeError(
                    f"result type {result.dtype.name} can't be cast to the desired "
                    f"output type {self.dtype.name}"
                )
            return ops.copy_(self, result)

        bind.set_composite(made, run)
    return made


@uncollected()
def bind_table(namespaces: dict[str, dict]) -> None:
    """Make every entry's op and add it to its namespaces.

    ``namespaces`` maps the names that entries use ('' is the package itself) to module dicts.
    """
    for entry in ENTRIES.values():
        flags = bind.flags_of(entry)
        made = bind.make_op(
            entry,
            entry.name,
            entry.node,
            flags | (bind.FLAGS["inplace"] if entry.inplace == "only" else 0),
        )
        variants = {entry.name: made, **dict.fromkeys(entry.aliases, made)}
        if entry.inplace is True:
            variants[entry.name + "_"] = inplace = _inplace(entry, made, flags)
            variants.update({alias + "_": inplace for alias in entry.aliases})
        for name, op in variants.items():
            setattr(ops, name, op)
            if entry.method:
                method = entry.method if isinstance(entry.method, str) else name
                bind_attribute(method, OpMethod(op))
            if op is not made and not entry.inplace_function:
                continue
            public = entry.function if isinstance(entry.function, str) else name
            for namespace in entry.namespaces if entry.function else ():
                namespaces[namespace][public] = op
        for name in entry.elsewhere:
            namespace, _, public = name.partition(".")
            namespaces[namespace][public] = variants.get(public, made)
    operators.install()
    clone.install()
    dtype_views.install()
    indexing.install()
    node_methods.install()
    tensor_methods.install()
    instance_dicts.install(Tensor, FunctionNode, ModuleBase)
