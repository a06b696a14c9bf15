"""Derivative formulas: Python callables, traced once into a short list of op calls.

A formula is written once, in differentiable ops, as a function of named values: `g` (gradient of
the only output) or `gs` (of all outputs), `out`, the op's arguments, `<argument>_shape` and
`<argument>_like`, and names that the entry's `save` computes. At first use it is called with
tracers. The ops it applies to them become a traced formula: a list of ops and registers that runs
without a Python frame. A formula that depends on values or shapes cannot be traced and is called
each time. Both give the same results; `create_graph` runs the same list with recording on.
"""

cimport cython
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int16_t, uint32_t, uint64_t

from pullback._c.engine.accumulate cimport add_product, add_target, is_sparse
from pullback._c.dispatch.call cimport op_apply
from pullback._c.base.dtype cimport CATEGORY_COMPLEX, dtype_category
from pullback._c.graph.op cimport (
    ARG_OPERAND, ARG_OPTIONAL_OPERAND, ARG_OPTIONAL_TENSOR, ARG_TENSOR, MAX_ARGS,
    MAX_TENSOR_ARGS, Op, SOURCE_ARG, SOURCE_EXTRA, missing, op_named)
from pullback._c.dispatch.launch cimport fill_with
from pullback._c.base.layout cimport (
    layout_contiguous, layout_retain, layout_shape, layout_shape_tuple)
from pullback._c.graph.saved cimport Like, node_check_alive, saved_unpack
from pullback._c.graph.tensor cimport Tensor, is_tensor, tensor_new
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.base.types cimport (
    LAYOUT_DENSE, NODE_FREED, SAVED_TENSOR, node_edges, node_meta, node_saved, pb_edge, pb_meta,
    pb_node, pb_saved)

from pullback._c.dispatch.call import swap_tracer

__all__ = ["set_compiled"]

cdef extern from "Python.h":
    PyObject *PyTuple_GET_ITEM(object items, Py_ssize_t i)
    Py_ssize_t PyTuple_GET_SIZE(object items)

cdef enum:
    MAX_REGISTERS = 96

cdef bint compiled_enabled = True


def set_compiled(bint enabled):
    """Run traced formulas (the default) or call the Python ones; returns the previous setting.

    Both must give equal results; tests compare them.
    """
    global compiled_enabled
    before = compiled_enabled
    compiled_enabled = enabled
    return before


# ---- tracing -------------------------------------------------------------------------------------

class Untraceable(Exception):
    """The formula cannot be traced; it is called instead."""


class Trace:
    """A tracer: represents one value of a formula while it is traced."""

    __slots__ = ("builder", "register")

    def __init__(self, builder, register):
        self.builder = builder
        self.register = register

    def __getattr__(self, name):
        try:
            op = op_named(name)
        except AttributeError:
            raise Untraceable(name) from None

        def emit(*args, **kwargs):
            return self.builder.emit(op, (self, *args), kwargs)

        return emit

    def __bool__(self):
        raise Untraceable("a truth value")

    def __iter__(self):
        raise Untraceable("iteration")

    def __len__(self):
        raise Untraceable("a length")

    def __getitem__(self, key):
        raise Untraceable("indexing")


def trace_operator(name):
    """Return a method of Trace that records a call of the op `name`."""

    @cython.binding(True)
    def method(self, *others):
        return self.builder.emit(op_named(name), (self, *others), {})

    return method


class MaybeTrace(Trace):
    """Tracer of an optional argument: it may be None, so it can only be an argument of ops."""

    __slots__ = ()

    def __getattr__(self, name):
        raise Untraceable("a use of what may be None")


def trace_operators(name, operators):
    """Let formulas write an op as Python's operators: ``("__add__", "__radd__")``."""
    for operator in operators:
        setattr(Trace, operator, trace_operator(name))


Trace.__hash__ = object.__hash__


class Builder:
    """Collects the steps of a traced formula."""

    def __init__(self, inputs):
        self.count = inputs
        self.steps = []
        self.constants = []

    def reference(self, value):
        """Return a register number, or ~index of a constant."""
        if isinstance(value, Trace):
            return value.register
        if isinstance(value, (tuple, list)) and any(isinstance(v, Trace) for v in value):
            raise Untraceable("a sequence of values")
        self.constants.append(value)
        return ~(len(self.constants) - 1)

    def emit(self, op, args, kwargs):
        """Add the call of an op and return the tracer of its result."""
        names = op.arg_names
        placed = list((<Op?>op).defaults)
        if len(args) > len(names):
            raise Untraceable("spread arguments")
        for position, value in enumerate(args):
            placed[position] = value
        for name, value in kwargs.items():
            if name not in names:
                raise Untraceable(name)
            placed[names.index(name)] = value
        if missing in [v for v in placed if v is missing]:
            raise TypeError(f"a formula calls {op.name}() without all its arguments")
        for position, value in enumerate(placed):
            if isinstance(value, MaybeTrace) and (<Op>op).arg_kinds[position] in (
                    ARG_TENSOR, ARG_OPERAND):
                raise Untraceable("a use of what may be None")
        self.steps.append((op, [self.reference(value) for value in placed]))
        self.count += 1
        if self.count > MAX_REGISTERS:
            raise Untraceable("too long")
        return Trace(self, self.count - 1)


cdef class TracedFormula:
    """The steps of one formula: ops, with registers and constants as arguments."""
    cdef int ninputs
    cdef int nsteps
    cdef tuple ops
    cdef tuple constants
    cdef int16_t arguments[MAX_REGISTERS][MAX_ARGS]
    cdef bint conjugates[MAX_REGISTERS]     # the step is conj, which is skipped for real numbers
    cdef bint ends_in_product               # the last step is a product, the only gradient
    cdef int16_t outputs[MAX_TENSOR_ARGS]   # register numbers; -1: no gradient

    @staticmethod
    def make(builder, ninputs, outputs):
        """Return the traced formula of a builder."""
        cdef TracedFormula traced = TracedFormula.__new__(TracedFormula)
        cdef int i, k
        traced.ninputs = ninputs
        traced.nsteps = len(builder.steps)
        traced.ops = tuple([step[0] for step in builder.steps])
        traced.constants = tuple(builder.constants)
        products = op_named("mul"), op_named("scaled")
        conj = op_named("conj")
        for i, register in enumerate(outputs):
            traced.outputs[i] = -1 if register is None else register
        traced.ends_in_product = (
            len(outputs) == 1 and traced.nsteps > 0
            and traced.ops[traced.nsteps - 1] in products
            and traced.outputs[0] == ninputs + traced.nsteps - 1)
        for i in range(traced.nsteps):
            traced.conjugates[i] = traced.ops[i] is conj
            for k, reference in enumerate(builder.steps[i][1]):
                traced.arguments[i][k] = reference
        return traced


cdef inline bint is_real(object value) noexcept:
    return is_tensor(value) and dtype_category[(<Tensor>value).dtype] != CATEGORY_COMPLEX


cdef inline PyObject *traced_argument(TracedFormula traced, PyObject **registers, int step,
                                      int k) noexcept:
    """Return the k-th argument of a step (borrowed)."""
    cdef int reference = traced.arguments[step][k]
    if reference >= 0:
        return registers[reference]
    return PyTuple_GET_ITEM(traced.constants, ~reference)


cdef int run_traced(TracedFormula traced, PyObject **registers, int start, int stop) except -1:
    """Run some steps; the caller owns the registers after the inputs afterwards."""
    cdef PyObject *args[MAX_ARGS]
    cdef int i, k
    cdef Op op
    cdef object value
    for i in range(start, stop):
        op = <Op>PyTuple_GET_ITEM(traced.ops, i)
        for k in range(op.nargs):
            args[k] = traced_argument(traced, registers, i, k)
        if traced.conjugates[i] and is_real(<object>args[0]):
            value = <object>args[0]
        else:
            value = op_apply(op, args)
        Py_INCREF(value)
        registers[traced.ninputs + i] = <PyObject *>value
    return 0


# ---- the formulas of an op -----------------------------------------------------------------------

cdef enum source_kind:
    FROM_GRAD = 0
    FROM_ALL_GRADS = 1
    FROM_SAVED = 2
    FROM_SHAPE = 3


cdef class Formula:
    cdef object function
    cdef tuple names
    cdef int ntargets
    cdef int targets[MAX_TENSOR_ARGS]   # numbers of tensor arguments
    cdef int nsources
    cdef int kinds[MAX_ARGS]
    cdef int indices[MAX_ARGS]
    cdef TracedFormula traced
    cdef bint tried


cdef class Backward:
    cdef tuple formulas


cdef Formula make_formula(Op op, object names, object function):
    cdef Formula formula = Formula.__new__(Formula)
    formula.function = function
    formula.ntargets = <int>len(names)
    for i, name in enumerate(names):
        formula.targets[i] = target_number(op, name)
    code = function.__code__
    formula.names = code.co_varnames[:code.co_argcount]
    formula.nsources = len(formula.names)
    for i, name in enumerate(formula.names):
        formula.indices[i] = 0
        if name == "g":
            formula.kinds[i] = FROM_GRAD
        elif name == "gs":
            formula.kinds[i] = FROM_ALL_GRADS
        else:
            formula.kinds[i] = FROM_SHAPE if name.endswith("_shape") else FROM_SAVED
            formula.indices[i] = op.saved_names.index(name)
    return formula


cdef int target_number(Op op, str name) except -1:
    cdef int i
    for i in range(op.ntensors):
        if op.arg_names[op.tensor_args[i]] == name:
            return i
    raise ValueError(f"{op.name}: the table has a derivative for {name!r}, which is no tensor "
                     f"argument")


def formula_steps(Op op not None, names):
    """Return the ops of the traced formula for these arguments, and whether it ends in a product.

    None where the formula cannot be traced. ``names`` is a key of ``op.formulas``.
    """
    cdef Formula formula
    cdef int position = list(op.formulas).index(names)
    formula = <Formula>backward_of(op).formulas[position]
    if not formula.tried:
        compile_formula(op, formula)
    return None if formula.traced is None else (formula.traced.ops, formula.traced.ends_in_product)


def trace_call(op, args, kwargs):
    """Record an op call if an argument is a Trace, else return NotImplemented."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Trace):
            return value.builder.emit(op, args, kwargs)
    return NotImplemented


cdef bint is_optional(Op op, str name) except -1:
    """True if a name of a formula is an optional argument, or its shape."""
    base = name.removesuffix("_shape").removesuffix("_like")
    name = name if name in op.arg_names else base
    if name not in op.arg_names:
        return False
    return op.arg_kinds[<int>op.arg_names.index(name)] in (
        ARG_OPTIONAL_TENSOR, ARG_OPTIONAL_OPERAND)


cdef int compile_formula(Op op, Formula formula) except -1:
    formula.tried = True
    builder = Builder(formula.nsources)
    before = swap_tracer(trace_call)
    try:
        found = formula.function(*[
            (MaybeTrace if is_optional(op, name) else Trace)(builder, i)
            for i, name in enumerate(formula.names)])
    except (Untraceable, TypeError, AttributeError):
        return 0
    finally:
        swap_tracer(before)
    if formula.ntargets == 1 and isinstance(found, Trace):
        found = (found,)
    if not isinstance(found, (tuple, list)) or len(found) != formula.ntargets:
        return 0
    if not all([item is None or isinstance(item, Trace) for item in found]):
        return 0
    formula.traced = TracedFormula.make(builder, formula.nsources,
                                        tuple([None if v is None else v.register for v in found]))
    return 0


cdef Backward backward_of(Op op):
    cdef Backward backward
    if op.backward is None:
        backward = Backward.__new__(Backward)
        backward.formulas = tuple([make_formula(op, names, function)
                                   for names, function in op.formulas.items()])
        op.backward = backward
    return <Backward>op.backward


# ---- running -------------------------------------------------------------------------------------

cdef object zeros_for(pb_node *node, int number):
    """Return zeros in the shape of a forward output, dense in memory where that is a view."""
    cdef pb_meta *meta = node_meta(node) + number
    cdef Tensor out
    if meta.layout.flags & LAYOUT_DENSE:
        out = tensor_new(layout_retain(meta.layout), meta.dtype, meta.device_type,
                         meta.device_index)
    else:
        out = tensor_new(layout_contiguous(meta.layout.ndim, layout_shape(meta.layout)), meta.dtype,
                         meta.device_type, meta.device_index)
    fill_with(out, 0)
    return out


cdef int edge_of(Op op, pb_node *node, int target) except -1:
    """Return the first edge of a tensor argument."""
    cdef int i, edge = 0
    for i in range(target):
        if op.tensor_args[i] == op.list_arg:
            edge += node.nedges - (op.ntensors - 1)
        else:
            edge += 1
    return edge


cdef bint wanted(Op op, pb_node *node, int target) except -1:
    cdef int edge = edge_of(op, node, target), count = 1, i
    if op.tensor_args[target] == op.list_arg:
        count = node.nedges - (op.ntensors - 1)
    for i in range(count):
        if node_edges(node)[edge + i].node != NULL:
            return True
    return False


cdef int put(Op op, pb_node *node, int target, object value, PyObject **results) except -1:
    """Store a formula's result as the gradient of its edge or edges."""
    cdef int edge = edge_of(op, node, target), i
    if op.tensor_args[target] == op.list_arg:
        if value is None:
            return 0
        for i, item in enumerate(value):
            if item is not None and node_edges(node)[edge + i].node != NULL:
                Py_INCREF(item)
                results[edge + i] = <PyObject *>item
        return 0
    if value is not None:
        if not is_tensor(value):
            raise TypeError(f"the derivative of {op.name}() returned {type(value).__name__}, "
                            f"expected a Tensor")
        Py_INCREF(value)
        results[edge] = <PyObject *>value
    return 0


cdef object source_value(Formula formula, int i, pb_node *node, PyObject **grads, dict unpacked):
    cdef int k
    cdef pb_saved *saved = node_saved(node) + formula.indices[i]
    if (formula.kinds[i] == FROM_SAVED and formula.indices[i] < node.nsaved
            and saved.kind == SAVED_TENSOR
            and (<Tensor>saved.object).storage.version == saved.version
            and (<Tensor>saved.object).node == saved.node):
        return <object>saved.object         # the common case of saved_unpack, inline
    if formula.kinds[i] == FROM_GRAD:
        if grads[0] == NULL:
            return zeros_for(node, 0)
        return <object>grads[0]
    if formula.kinds[i] == FROM_ALL_GRADS:
        return tuple([None if grads[k] == NULL else <object>grads[k]
                      for k in range(<int>node.noutputs)])
    if unpacked is None:
        value = saved_unpack(node, formula.indices[i], formula.names[i])
    elif formula.indices[i] in unpacked:
        value = unpacked[formula.indices[i]]
    else:
        value = saved_unpack(node, formula.indices[i], formula.names[i])
        unpacked[formula.indices[i]] = value
    if formula.kinds[i] == FROM_SHAPE and isinstance(value, Like):
        return (<Like>value).shape
    return value


cdef int call_formula(Op op, Formula formula, pb_node *node, PyObject **grads,
                      PyObject **results, dict unpacked) except -1:
    """Run a formula that cannot be traced."""
    cdef int i
    found = formula.function(*[source_value(formula, i, node, grads, unpacked)
                               for i in range(formula.nsources)])
    if formula.ntargets == 1:
        return put(op, node, formula.targets[0], found, results)
    for i in range(formula.ntargets):
        put(op, node, formula.targets[i], found[i], results)
    return 0


cdef int run_formula(Op op, Formula formula, pb_node *node, PyObject **grads,
                     PyObject **results, dict unpacked, add_target *add_targets) except -1:
    cdef PyObject *registers[MAX_REGISTERS]
    cdef PyObject *found
    cdef int i, count, last
    cdef object value
    cdef TracedFormula traced = formula.traced
    if traced is None or not compiled_enabled:
        return call_formula(op, formula, node, grads, results, unpacked)
    count = traced.ninputs + traced.nsteps
    for i in range(count):
        registers[i] = NULL
    try:
        for i in range(traced.ninputs):
            if formula.kinds[i] == FROM_GRAD and grads[0] != NULL:
                registers[i] = grads[0]
                Py_INCREF(<object>grads[0])
                continue
            value = source_value(formula, i, node, grads, unpacked)
            Py_INCREF(value)
            registers[i] = <PyObject *>value
        if (add_targets != NULL and traced.ends_in_product and op.list_arg < 0
                and add_targets[formula.targets[0]].total != NULL):
            last = traced.nsteps - 1
            run_traced(traced, registers, 0, last)
            if add_product(&add_targets[formula.targets[0]],
                           traced_argument(traced, registers, last, 0),
                           traced_argument(traced, registers, last, 1)):
                return 0
            run_traced(traced, registers, last, traced.nsteps)
        else:
            run_traced(traced, registers, 0, traced.nsteps)
        for i in range(formula.ntargets):
            if traced.outputs[i] < 0:
                continue
            found = registers[traced.outputs[i]]
            if formula.ntargets == 1 and op.list_arg < 0 and is_tensor(<object>found):
                results[formula.targets[0]] = found
                registers[traced.outputs[i]] = NULL
            else:
                put(op, node, formula.targets[i], <object>found, results)
    finally:
        for i in range(count):
            Py_XDECREF(registers[i])
    return 0


cdef object value_at(Op op, Formula formula, int i, PyObject **args, object result,
                     tuple cotangents):
    """Return the value of a name of a formula, at given arguments instead of a node's."""
    cdef int index = formula.indices[i]
    if formula.kinds[i] == FROM_GRAD:
        return cotangents[0]
    if formula.kinds[i] == FROM_ALL_GRADS:
        return cotangents
    if op.saved[index].source == SOURCE_EXTRA:
        return op.save[op.saved_names[index]](*[<object>args[k] for k in range(op.nargs)])
    if op.saved[index].source == SOURCE_ARG:
        value = <object>args[op.saved[index].number]
    else:
        value = result if is_tensor(result) else result[op.saved[index].number]
    if formula.kinds[i] == FROM_SHAPE and is_tensor(value):
        return layout_shape_tuple((<Tensor>value).layout)
    return tuple(value) if isinstance(value, list) else value


cdef list vjp_at(Op op, PyObject **args, object result, tuple cotangents, uint64_t wanted):
    """Return the vector-Jacobian product by each tensor argument in `wanted`; None for the rest.

    The formulas run at these arguments and results instead of the saved values of a node.
    """
    cdef Formula formula
    cdef int i
    cdef list found = [None] * op.ntensors
    for formula in backward_of(op).formulas:
        needed = False
        for i in range(formula.ntargets):
            needed = needed or wanted >> formula.targets[i] & 1
        if not needed:
            continue
        values = formula.function(*[value_at(op, formula, i, args, result, cotangents)
                                    for i in range(formula.nsources)])
        if formula.ntargets == 1:
            values = (values,)
        for i in range(formula.ntargets):
            if wanted >> formula.targets[i] & 1:
                found[formula.targets[i]] = values[i]
    return found


cdef int op_backward(pb_node *node, PyObject **grads, PyObject **results,
                     uint64_t skipped, add_target *add_targets) except -1:
    """Run the formulas of an op's node; `results` gets one owned gradient per wanted edge.

    For an op without a list of tensors, formulas for edges whose bits are set in `skipped` do not
    run. ``add_targets``, if it is not NULL, has the tensor that each edge's gradient will be added
    to: a product of factors of one size is added there directly, and is not in `results`.
    """
    cdef Op op = <Op>node.op
    cdef Backward backward = <Backward>op.backward if op.backward is not None else backward_of(op)
    cdef Formula formula
    cdef pb_edge *edges = node_edges(node)
    cdef unsigned int k
    cdef int i
    cdef bint needed = False, sparse = False
    cdef dict unpacked = None
    cdef pb_state *state = thread_state()
    cdef int before = state.overrides_off
    cdef uint32_t autocast = state.autocast
    for k in range(node.noutputs):
        if grads[k] != NULL:
            needed = True
            sparse = sparse or is_sparse(grads[k])
    if not needed:
        return 0
    if node.extra != NULL and node.extra.saved_hooks != NULL:
        unpacked = {}                   # formulas share the results of unpack hooks
    if node.flags & NODE_FREED:
        node_check_alive(node)
    for k in range(<unsigned int>PyTuple_GET_SIZE(backward.formulas)):
        formula = <Formula>PyTuple_GET_ITEM(backward.formulas, k)
        for i in range(formula.ntargets):
            if op.list_arg < 0:
                needed = (edges[formula.targets[i]].node != NULL
                          and not (skipped >> formula.targets[i]) & 1)
            else:
                needed = wanted(op, node, formula.targets[i])
            if needed:
                if not formula.tried:
                    compile_formula(op, formula)
                # 2: a saved leaf may be of a subclass; 0: the class of the gradient computes
                state.overrides_off = 0 if sparse else 2
                state.autocast = 0          # saved values are cast already
                try:
                    if sparse:
                        call_formula(op, formula, node, grads, results, unpacked)
                        break
                    run_formula(op, formula, node, grads, results, unpacked, add_targets)
                finally:
                    state.overrides_off = before
                    state.autocast = autocast
                break
    return 0
