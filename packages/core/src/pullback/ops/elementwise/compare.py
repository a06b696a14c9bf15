"""Comparisons, and logic of truth values and bits."""

from pullback.ops.elementwise.binary import binary_op
from pullback.ops.table.samples import binary
from pullback.ops.table.schema import (
    ALL,
    BOOL,
    INTEGRAL,
    REAL,
    op,
    ops,
)

for _name, _doc, _kinds in (
    ("eq", "equal", ALL),
    ("ne", "different", ALL),
    ("lt", "self < other", REAL),
    ("le", "self <= other", REAL),
    ("gt", "self > other", REAL),
    ("ge", "self >= other", REAL),
):
    binary_op(
        _name,
        {},
        f"Return where the operands are: {_doc}.",
        promote="bool",
        dtypes=_kinds,
        operators=(f"__{_name}__",),
        aliases={
            "ne": ("not_equal",),
            "lt": ("less",),
            "le": ("less_equal",),
            "gt": ("greater",),
            "ge": ("greater_equal",),
        }.get(_name, ()),
        ref={
            "eq": "numpy.equal",
            "ne": "numpy.not_equal",
            "lt": "numpy.less",
            "le": "numpy.less_equal",
            "gt": "numpy.greater",
            "ge": "numpy.greater_equal",
        }[_name],
        samples=lambda: binary(ties=True),
    )

for _name in ("and", "or", "xor"):
    binary_op(
        f"bitwise_{_name}",
        {},
        f"Return the bitwise {_name} of integers or bools.",
        dtypes=BOOL | INTEGRAL,
        operators=(f"__{_name}__",),
        ref=f"numpy.bitwise_{_name}",
        samples=lambda: binary(special=None),
    )
binary_op(
    "bitwise_left_shift",
    {},
    "Return self with its bits moved left by other.",
    kernel="lshift",
    dtypes=INTEGRAL,
    ref="numpy.left_shift",
    samples=lambda: binary(second=(0, 6), special=None),
)
binary_op(
    "bitwise_right_shift",
    {},
    "Return self with its bits moved right by other.",
    kernel="rshift",
    dtypes=INTEGRAL,
    ref="numpy.right_shift",
    samples=lambda: binary(second=(0, 6), special=None),
)


for _name in ("and", "or", "xor"):
    op(
        f"logical_{_name}(self: Tensor, other: Tensor) -> Tensor",
        inplace=True,
        out=True,
        composite=lambda self, other, _name=_name: getattr(ops, f"bitwise_{_name}")(
            self != 0, other != 0
        ),
        ref=f"numpy.logical_{_name}",
        doc=f"Return the logical {_name} of two operands.",
        samples=lambda: binary(numbers=False),
    )
