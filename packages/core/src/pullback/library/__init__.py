"""Operators of one's own: ``custom_op`` and ``Library``, with the interface of torch.library.

An operator has a schema, kernels by device, a derivative, a rule for ``vmap`` and a kernel for meta
tensors. It is called as ``pullback.ops.NAMESPACE.NAME(...)``, runs in graphs, under ``vmap`` and
``pullback.func``, and its name is in profiles. `schema.py` has schemas, `operators.py` the calls,
`testing.py` the checks of ``opcheck``.
"""

from pullback._help import explain_names as _explain_names
from pullback.library.definitions import (
    CustomOpDef,
    Library,
    custom_op,
    define,
    get_ctx,
    impl,
    register_autograd,
    register_fake,
    register_kernel,
    register_vmap,
)
from pullback.library.schema import infer_schema
from pullback.library.testing import opcheck

__all__ = [
    "Library",
    "custom_op",
    "define",
    "get_ctx",
    "impl",
    "infer_schema",
    "opcheck",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_vmap",
]


_explain_names(globals())
