# build: small
"""Makes runtime ops of the op table's entries; `_bind.py` calls it for each."""

from cpython.object cimport PyObject
from libc.stdint cimport uint32_t

from pullback._c.graph.op cimport (
    ARG_ANY, ARG_OPERAND, ARG_OPTIONAL_OPERAND, ARG_OPTIONAL_TENSOR, ARG_TENSOR, ARG_TENSORS,
    JVP_AS_VIEW, JVP_LINEAR, JVP_MULTILINEAR, JVP_POINTWISE, JVP_TRANSPOSE, MAX_ARGS, MAX_SAVED,
    MAX_TENSOR_ARGS,
    NUMBER_ANY, NUMBER_BOOL, NUMBER_DEVICE, NUMBER_DTYPE, NUMBER_FLOAT, NUMBER_FORMAT, NUMBER_INT,
    NUMBER_LAYOUT, NUMBER_LIST,
    NUMBER_OPTIONAL,
    NUMBER_SCALAR, OP_ALPHA, OP_AUTOCAST,
    OP_COMPOSITE, OP_DIFFERENTIABLE, OP_DIRECT, OP_EXACT, OP_HAS_OUT,
    OP_INDEXED, OP_INPLACE, OP_KERNEL, OP_LISTS, OP_OVERLAP, OP_RANDOM, OP_SHARES, OP_VARARGS,
    OP_VIEW, PROMOTE_BOOL_OUT, PROMOTE_DEFAULT, PROMOTE_FLOAT, PROMOTE_REAL_OUT, PROMOTE_WHERE,
    SOURCE_ARG, SOURCE_EXTRA, SOURCE_OUT, Op, forward_named, missing)
from pullback._c.dispatch.call cimport forward_python
from pullback._c.ops.arithmetic cimport forward_sub
from pullback._c.ops.elementwise cimport forward_elementwise
from pullback._c.dispatch.launch cimport primitive_id
from pullback._c.transforms.autocast cimport policy_code
# These register forward passes, and transform dispatch.
from pullback._c.dispatch import optional_dtypes, structured  # no-cython-lint
from pullback._c.engine import copy_slices  # no-cython-lint
from pullback._c.ops import clone, create, dtype_views  # no-cython-lint
from pullback._c.ops import elementwise, indexing_sorting, inplace_metadata  # no-cython-lint
from pullback._c.ops import matmul, optim, reduce, ternary, views  # no-cython-lint
from pullback._c.transforms import transform_dispatch  # no-cython-lint
from pullback._c.dispatch.call import enable
from pullback._c.engine.formula import trace_operators
from pullback._c.graph.op import register
from pullback.ops.table.primitives import PRIMITIVES, Decomposition
from pullback.ops.table.schema import camel

PROMOTIONS = {"default": PROMOTE_DEFAULT, "float": PROMOTE_FLOAT, "bool": PROMOTE_BOOL_OUT,
              "real": PROMOTE_REAL_OUT, "where": PROMOTE_WHERE}
RULES = {None: JVP_TRANSPOSE, "pointwise": JVP_POINTWISE, "linear": JVP_LINEAR,
         "multilinear": JVP_MULTILINEAR, "as_view": JVP_AS_VIEW}
KINDS = {"Tensor": ARG_TENSOR, "Tensor?": ARG_OPTIONAL_TENSOR, "Operand": ARG_OPERAND,
         "Operand?": ARG_OPTIONAL_OPERAND,
         "Tensor[]": ARG_TENSORS}
NUMBERS = {"int": NUMBER_INT, "int?": NUMBER_INT | NUMBER_OPTIONAL,
           "bool": NUMBER_BOOL, "bool?": NUMBER_BOOL | NUMBER_OPTIONAL,
           "int[]": NUMBER_LIST, "int[]?": NUMBER_LIST | NUMBER_OPTIONAL,
           "float": NUMBER_FLOAT, "float?": NUMBER_FLOAT | NUMBER_OPTIONAL,
           "dtype": NUMBER_DTYPE, "dtype?": NUMBER_DTYPE | NUMBER_OPTIONAL, "any": NUMBER_ANY,
           "layout?": NUMBER_LAYOUT | NUMBER_OPTIONAL,
           "device?": NUMBER_DEVICE | NUMBER_OPTIONAL,
           "memory_format?": NUMBER_FORMAT | NUMBER_OPTIONAL,
           "Scalar": NUMBER_SCALAR, "Scalar?": NUMBER_SCALAR | NUMBER_OPTIONAL}


cdef object forward_view_python(Op op, PyObject **args, PyObject *target):
    """Run a view's Python forward pass in the current grad mode, which views store."""
    cdef int i
    return op.python(*[<object>args[i] for i in range(op.nargs)])


cdef int fill_arguments(Op op, tuple arguments) except -1:
    cdef int i
    op.nargs = <int>len(arguments)
    if op.nargs > MAX_ARGS:
        raise ValueError(f"{op.name}: more than {MAX_ARGS} arguments")
    op.npositional = op.nargs
    op.list_arg = -1
    op.ntensors = 0
    op.written = 0
    for i, argument in enumerate(arguments):
        op.arg_kinds[i] = KINDS.get(argument.type, ARG_ANY)
        op.numbers[i] = NUMBERS.get(argument.type, 0)
        if argument.keyword_only and op.npositional > i:
            op.npositional = i
        if op.arg_kinds[i] != ARG_ANY:
            if op.ntensors == MAX_TENSOR_ARGS:
                raise ValueError(f"{op.name}: more than {MAX_TENSOR_ARGS} tensor arguments")
            op.tensor_args[op.ntensors] = i
            op.ntensors += 1
        if op.arg_kinds[i] == ARG_TENSORS:
            op.list_arg = i
        if argument.written:
            op.written |= <uint32_t>1 << i
    op.arg_names = tuple([argument.name for argument in arguments])
    op.defaults = tuple([missing if argument.required else argument.default
                         for argument in arguments])
    return 0


cdef int fill_saved(Op op, entry) except -1:
    """Fill the saved values: those that formulas name, with the formulas that need each."""
    cdef int i, target
    names = []
    needed = {}
    for targets, function in op.formulas.items():
        code = function.__code__
        mask = 0
        for target in range(op.ntensors):
            if op.arg_names[op.tensor_args[target]] in targets:
                mask |= 1 << target
        for name in code.co_varnames[:code.co_argcount]:
            if name in ("g", "gs"):
                continue
            if name not in names:
                names.append(name)
            needed[name] = needed.get(name, 0) | mask
    if op.namer is not None:
        code = op.namer.__code__
        for name in code.co_varnames[:code.co_argcount]:
            if name not in names:
                names.append(name)
            needed[name] = (1 << op.ntensors) - 1
        op.namer_indices = tuple([names.index(name)
                                  for name in code.co_varnames[:code.co_argcount]])
    if len(names) > MAX_SAVED:
        raise ValueError(f"{op.name}: formulas name more than {MAX_SAVED} values")
    op.nsaved = <int>len(names)
    op.saved_names = tuple(names)
    for i, name in enumerate(names):
        op.saved[i].needed_by = needed[name]
        op.saved[i].shape_only = 0
        if op.save and name in op.save:
            op.saved[i].source = SOURCE_EXTRA
            op.saved[i].number = 0
            continue
        base = name
        for suffix in ("_shape", "_like"):
            if name.endswith(suffix) and name not in op.arg_names:
                base = name[:-len(suffix)]
                op.saved[i].shape_only = 1
        if base == "out" or (base.startswith("out") and base[3:].isdecimal()):
            op.saved[i].source = SOURCE_OUT
            op.saved[i].number = int(base[3:] or 0)
        elif base in op.arg_names:
            op.saved[i].source = SOURCE_ARG
            op.saved[i].number = op.arg_names.index(base)
        else:
            raise ValueError(f"{op.name}: a formula names {name!r}, which is no argument")
    return 0


def make_op(entry, str name, node_name, int flags, Op functional=None):
    """Return the runtime op of a table entry: the function, or its in-place form."""
    cdef Op op = Op.__new__(Op)
    cdef int i
    op.name = name
    base, _dot, overload = name.partition(".")
    shown = base + "_" if overload.endswith("_") else base      # as torch, without the overload
    op.encoded_name = shown.encode()
    op.name_bytes = op.encoded_name
    op.namer = node_name if callable(node_name) else None
    op.node_name = camel(entry.name) if callable(node_name) else node_name
    op.entry = entry
    if "functional" in entry.namespaces and isinstance(entry.function, str):
        shown = entry.function
    op.__name__ = shown
    op.__qualname__ = shown
    op.__module__ = "pullback"
    op.functional = functional
    op.flags = flags
    op.kind = OP_COMPOSITE if entry.composite is not None else OP_KERNEL
    fill_arguments(op, entry.arguments)
    op.formulas = {(names,) if isinstance(names, str) else tuple(names): function
                   for names, function in entry.vjp.items()}
    op.save = entry.save
    op.reads_out = entry.reads_out
    fill_saved(op, entry)
    if entry.autocast != (None, None) and not op.flags & OP_INPLACE:
        op.flags |= OP_AUTOCAST
        for i in range(2):
            op.autocast[i] = policy_code(entry.autocast[i])
    if op.formulas:
        op.flags |= OP_DIFFERENTIABLE
    if entry.overload is not None:
        op.overload = entry.overload + ("_" if functional is not None else "")
    op.jvp = RULES[entry.jvp]
    op.dtypes = entry.dtypes
    op.promote = PROMOTIONS[entry.promote]
    op.primitive = -1 if entry.kernel is None else primitive_id(entry.kernel)
    if op.primitive >= 0 and op.kind != OP_COMPOSITE and PRIMITIVES[entry.kernel].decomposed:
        op.decompose = Decomposition(entry.kernel)
    if isinstance(entry.composite, str):
        op.forward = forward_named(entry.composite)
    elif entry.composite is not None:
        op.python = entry.composite
    elif callable(entry.forward):
        op.python = entry.forward
        op.forward = forward_view_python if op.flags & OP_VIEW else forward_python
    else:
        op.forward = forward_named(entry.forward)
    if entry.compiled is not None:
        op.forward = forward_named(entry.compiled)
    if op.forward == forward_elementwise or op.forward == forward_sub:
        op.flags |= OP_DIRECT
    enable(op)
    register(op)
    if functional is None:
        trace_operators(name, entry.operators)
    return op


FLAGS = {"inplace": OP_INPLACE, "out": OP_HAS_OUT}


def flags_of(entry):
    """Return the flags that an entry's fields and arguments give its op."""
    cdef int flags = 0
    for argument in entry.arguments:
        if argument.written:
            flags |= OP_LISTS
        if argument.name == "indices":
            flags |= OP_INDEXED
        elif argument.name == "generator":
            flags |= OP_RANDOM
        elif argument.name == "alpha" and entry.arguments[1].type == "Operand":
            flags |= OP_ALPHA
    if entry.view:
        flags |= OP_VIEW
    if entry.overlap:
        flags |= OP_OVERLAP
    if entry.out:
        flags |= OP_HAS_OUT
    if entry.varargs:
        flags |= OP_VARARGS
    if entry.out_overlap:
        flags |= OP_SHARES
    if entry.out_dtype != "cast":
        flags |= OP_EXACT
    return flags


def set_composite(Op op not None, function):
    """Give an in-place composite its own Python function."""
    op.python = function
    op.forward = NULL
    op.kind = OP_COMPOSITE
