# build: small
"""Forward mode: the Jacobian-vector product of each op.

It is derived from the vjp. A linear op maps tangents as it maps values; a pointwise op has a
diagonal Jacobian, by which the vjp multiplies too; any other vjp is transposed: it is linear in the
cotangent, so its own vjp is the jvp (Radul et al., "You Only Linearize Once"). Tangents of single
tensors are in `tangents.pyx`.
"""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint64_t

from pullback._c.dispatch.call cimport op_apply, op_apply_inplace, op_call1, op_call2
from pullback._c.base.dtype cimport (
    CATEGORY_COMPLEX, dtype_category, dtype_differentiable, dtype_object)
from pullback._c.graph.op cimport (
    JVP_AS_VIEW, JVP_LINEAR, JVP_MULTILINEAR, JVP_POINTWISE, MAX_ARGS, OP_DIFFERENTIABLE,
    OP_INPLACE, OP_VIEW,
    Op, op_named)
from pullback._c.engine.formula cimport vjp_at
from pullback._c.base.layout cimport layout_same_shape, layout_shape_tuple
from pullback._c.graph.levels cimport disable_level, whole
from pullback._c.graph.record cimport SliceWrite, needs_grad, tensor_needs_grad
from pullback._c.graph.saved cimport PACKED_OUTPUT, copy_wrapper_state, give_packed_wrapper_state
from pullback._c.base.state cimport pb_state, thread_state
from pullback._c.transforms.tangents cimport (
    in_layout, set_tangent, tangent_again, tangent_of, view_like, zeros_for_tangent)
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, TENSOR_IS_VIEW, TENSOR_IS_WRAPPED, TENSOR_REQUIRES_GRAD, Tensor, is_tensor,
    tensor_requires_grad)
from pullback._c.base.types cimport (
    LAYOUT_OVERLAPPING, NODE_COPY_SLICES, NODE_OP, SAVED_OUTPUT, SAVED_PACKED,
    node_saved, pb_node, pb_saved)
from pullback._c.transforms.batching import gradients_of


# ---- running an op with tangents -----------------------------------------------------------------

cdef list tangents_of_call(Op op, PyObject **args, int level):
    """Return the tangent of each tensor argument: a Tensor, None, or a list of them."""
    cdef int i
    cdef object value
    cdef list found = []
    for i in range(op.ntensors):
        value = <object>args[op.tensor_args[i]]
        if is_tensor(value):
            found.append(tangent_of(<Tensor>value, level))
        elif op.tensor_args[i] == op.list_arg:
            parts = [tangent_of(<Tensor?>item, level) for item in value]
            found.append(None if all([part is None for part in parts]) else parts)
        else:
            found.append(None)
    return found


cdef object run_with_tangents(Op op, PyObject **args, int level):
    """Run an op on operands some of which have tangents at a level, the innermost enabled one."""
    cdef pb_state *state = thread_state()
    cdef uint64_t disabled = state.disabled_levels, op_levels = state.op_levels
    cdef object result
    disable_level(level)
    try:
        tangents = tangents_of_call(op, args, level)
        state.op_levels |= <uint64_t>1 << level
        result = op_apply(op, args)
        state.op_levels = op_levels
        if not op.flags & OP_DIFFERENTIABLE or <PyObject *>result == args[0]:
            return result               # an op may return its input itself
        if op.jvp == JVP_AS_VIEW and tangents[0] is not None:
            found = [view_like(<Tensor>result, <Tensor>args[0], <Tensor>tangents[0])]
        else:
            found = push_forward(op, args, result, tangents)
        if not op.flags & OP_VIEW:
            found = [private(tangent, tangents) for tangent in found]
        attach_tangents(result, found, level)
    finally:
        state.op_levels = op_levels
        state.disabled_levels = disabled
    return result


cdef object private(object tangent, list tangents):
    """Return a result's tangent, copied where it shares memory that an in-place op may write."""
    if tangent is None:
        return None
    if whole(<Tensor>tangent).layout.flags & LAYOUT_OVERLAPPING:
        return op_call1(op_named("clone"), tangent)
    for item in tangents:
        for other in item if isinstance(item, list) else (item,):
            if other is not None and in_one_memory(<Tensor>other, <Tensor>tangent):
                return op_call1(op_named("clone"), tangent)
    return tangent


cdef inline bint in_one_memory(Tensor one, Tensor other) except -1:
    """True if two tensors, or their batches, share a storage."""
    return whole(one).storage == whole(other).storage


cdef int attach_tangents(object result, list found, int level) except -1:
    outputs = (result,) if is_tensor(result) else result
    for output, tangent in zip(outputs, found):
        if tangent is not None and dtype_differentiable((<Tensor>output).dtype):
            tangent = shaped(<Tensor>output, <Tensor>tangent)
            set_tangent(<Tensor>output, level, in_layout(<Tensor>output, <Tensor>tangent))
            save_tangent(whole(<Tensor>output), whole(<Tensor>output).node)
    return 0


cdef pb_node *writer_of(Tensor target) noexcept:
    """Return the node of the op that made or last wrote a tensor, or NULL."""
    cdef pb_node *node = target.node
    if target.flags & TENSOR_IS_VIEW:
        node = (<Tensor>target.extra.base).node
        if node != NULL and node.kind == NODE_COPY_SLICES:
            return (<SliceWrite>node.op).inner
    return node


cdef int save_tangent(Tensor output, pb_node *node) except -1:
    """Save an output's tangents in its own node, if that saves the output."""
    cdef pb_saved *saved
    cdef PyObject *before
    cdef int i
    if node == NULL or node.kind != NODE_OP or not output.flags & TENSOR_IS_WRAPPED:
        return 0
    for i in range(node.nsaved):
        saved = node_saved(node) + i
        if saved.kind == SAVED_OUTPUT and saved.output_nr == output.output_nr:
            before = saved.object
            Py_INCREF(<object>output.extra.wrapper_state)
            saved.object = output.extra.wrapper_state
            Py_XDECREF(before)
        elif saved.kind == SAVED_PACKED and saved.flags == PACKED_OUTPUT and (
                saved.output_nr == output.output_nr):
            give_packed_wrapper_state(node, i, copy_wrapper_state(output))
    return 0


cdef Tensor shaped(Tensor primal, Tensor tangent):
    """Return a tangent in its primal's shape and dtype."""
    if not layout_same_shape(primal.layout, tangent.layout):
        tangent = <Tensor>op_call2(op_named("expand"), tangent, layout_shape_tuple(primal.layout))
    return of_dtype(tangent, primal.dtype)


cdef Tensor of_dtype(Tensor tensor, int dtype):
    if tensor.dtype == dtype:
        return tensor
    if (dtype_category[tensor.dtype] == CATEGORY_COMPLEX
            and dtype_category[dtype] != CATEGORY_COMPLEX):
        tensor = <Tensor>op_call1(op_named("real"), tensor)
    return <Tensor>op_call2(op_named("to"), tensor, dtype_object(dtype))


cdef object run_inplace_with_tangents(Op op, PyObject **args, int level):
    """Run an in-place op; the target's tangent is written like the target."""
    cdef pb_state *state = thread_state()
    cdef PyObject *before[MAX_ARGS]
    cdef int i
    cdef uint64_t disabled = state.disabled_levels, op_levels = state.op_levels
    cdef Tensor target = <Tensor>args[0]
    cdef list kept = []
    cdef object value
    cdef bint written
    disable_level(level)
    try:
        tangents = tangents_of_call(op, args, level)
        written = op.flags & OP_DIFFERENTIABLE and dtype_differentiable(target.dtype)
        if written:
            if is_recorded(op, args, tangents):
                tangents = apart(tangents, tangent_of(target, level))
        for i in range(op.nargs):
            before[i] = args[i]
            value = <object>args[i]
            if written and is_tensor(value) and in_one_memory(<Tensor>value, target):
                value = op_call1(op_named("clone"), value)      # the op is going to overwrite it
                kept.append(value)
                before[i] = <PyObject *>value
        state.op_levels |= <uint64_t>1 << level
        op_apply_inplace(op, args)
        state.op_levels = op_levels
        if written:
            write_tangent(target, level, push_forward(op, before, target, tangents)[0])
            save_tangent(target, writer_of(target))
    finally:
        state.op_levels = op_levels
        state.disabled_levels = disabled
    return target


cdef bint is_recorded(Op op, PyObject **args, list tangents) except -1:
    """True if an op on some operands and tangents is recorded."""
    if not thread_state().grad_enabled or thread_state().inference:
        return False
    if needs_grad(op, args):
        return True
    for item in tangents:
        for tangent in item if isinstance(item, list) else (item,):
            if tangent is not None and tensor_needs_grad(whole(<Tensor>tangent)):
                return True
    return False


cdef list apart(list tangents, Tensor current):
    """Return tangents, with copies of those that share memory with `current`, to be overwritten."""
    cdef list found = []
    if current is None:
        return tangents
    for item in tangents:
        if isinstance(item, list):
            found.append(apart(<list>item, current))
        elif item is not None and in_one_memory(<Tensor>item, current):
            found.append(op_call1(op_named("clone"), item))
        else:
            found.append(item)
    return found


cdef int write_tangent(Tensor target, int level, object tangent) except -1:
    """Write a target's new tangent, None for zeros, so that views of the target have it too."""
    cdef Tensor current = tangent_of(target, level), base
    cdef bint moves             # the current tangent cannot be written to
    cdef object origin
    if current is None and tangent is None:
        return 0
    if tangent is None:
        tangent = op_call1(op_named("zeros_like"), target)
    tangent = shaped(target, <Tensor>tangent)
    moves = current is None or is_leaf(current) or (
        (<Tensor>tangent).flags & TENSOR_IS_BATCHED != 0
        and not current.flags & TENSOR_IS_BATCHED)
    if not moves:
        op_call2(op_named("copy_"), current, tangent)
        return 0
    if not target.flags & TENSOR_IS_VIEW:
        tangent = private(tangent, [current])
        return set_tangent(target, level, in_layout(target, <Tensor>tangent))
    base = <Tensor>target.extra.base
    origin = tangent_of(base, level)
    if origin is None:
        origin = zeros_for_tangent(base)
    if current is not None or (<Tensor>tangent).flags & TENSOR_IS_BATCHED:
        origin = op_call2(op_named("clone_beside"), origin, tangent)
    set_tangent(base, level, <Tensor>origin)
    op_call2(op_named("copy_"), tangent_again(target, level), tangent)
    return 0


cdef bint is_leaf(Tensor tensor) noexcept:
    """True if a tensor, or the base of a view, is a leaf that requires grad."""
    if tensor.flags & TENSOR_IS_VIEW:
        tensor = <Tensor>tensor.extra.base
    return tensor.node == NULL and tensor.flags & TENSOR_REQUIRES_GRAD != 0


# ---- the rules -----------------------------------------------------------------------------------

cdef list push_forward(Op op, PyObject **args, object result, list tangents):
    """Return the tangent of each result, or None."""
    cdef Op function = op
    if op.flags & OP_INPLACE and op.functional is not None:
        function = op.functional
    if op.jvp == JVP_LINEAR or op.jvp == JVP_AS_VIEW:
        return as_list(linear(function, args, tangents))
    if op.jvp == JVP_MULTILINEAR and (function is not op or not op.flags & OP_INPLACE):
        return as_list(multilinear(function, args, tangents))
    if op.jvp == JVP_POINTWISE and is_real_call(op, args, result):
        return [pointwise(op, args, <Tensor>result, tangents)]
    return transposed(op, args, result, tangents)


cdef list as_list(object result):
    return [result] if is_tensor(result) else list(result)


cdef bint is_real_call(Op op, PyObject **args, object result) except -1:
    """True if no operand or result is complex."""
    cdef int i
    if not is_tensor(result) or dtype_category[(<Tensor>result).dtype] == CATEGORY_COMPLEX:
        return False
    for i in range(op.ntensors):
        value = <object>args[op.tensor_args[i]]
        if isinstance(value, complex) or (
                is_tensor(value) and dtype_category[(<Tensor>value).dtype] == CATEGORY_COMPLEX):
            return False
    return True


cdef bint derives(Op op, int target) except -1:
    """True if the op has a formula for its tensor argument number `target`."""
    name = op.arg_names[op.tensor_args[target]]
    for names in op.formulas:
        if name in names:
            return True
    return False


cdef object zero_of(object value):
    return op_call1(op_named("zeros_like"), value) if is_tensor(value) else 0


cdef object linear(Op op, PyObject **args, list tangents):
    """Apply the op to the tangents, with zeros for missing ones.

    Where several elements are written to one index, the tangent is that of the last one, too.
    """
    cdef PyObject *moved[MAX_ARGS]
    cdef int i, at
    cdef list kept = []
    for i in range(op.nargs):
        moved[i] = args[i]
    for i in range(op.ntensors):
        at = op.tensor_args[i]
        value = <object>args[at]
        if value is None or not derives(op, i):
            continue
        if at == op.list_arg:
            parts = tangents[i] or [None] * len(value)
            value = tuple([zero_of(item) if part is None else part
                           for part, item in zip(parts, value)])
        else:
            value = zero_of(value) if tangents[i] is None else tangents[i]
        kept.append(value)
        moved[at] = <PyObject *>value
    if op is op_named("view"):      # the tangent's strides may not allow a view of this shape
        return op_apply(op_named("reshape"), moved)
    if op.flags & OP_INPLACE:
        target = target_for(op, moved)
        moved[0] = <PyObject *>target
        return op_apply_inplace(op, moved)
    return op_apply(op, moved)


cdef object target_for(Op op, PyObject **args):
    """Return a copy of the first argument, batched if one of the other tensors is."""
    from pullback.ops.table.primitives_api import writable
    operands = []
    for i in range(op.nargs):
        value = <object>args[i]
        operands += value if isinstance(value, (tuple, list)) else [value]
    return writable(*[value for value in operands if is_tensor(value)])


cdef object multilinear(Op op, PyObject **args, list tangents):
    """Return the sum of the op applied once for each tangent, in place of its argument."""
    cdef PyObject *moved[MAX_ARGS]
    cdef int i
    cdef object total = None
    for i in range(op.ntensors):
        if tangents[i] is None:
            continue
        for k in range(op.nargs):
            moved[k] = args[k]
        tangent = tangents[i]
        moved[op.tensor_args[i]] = <PyObject *>tangent
        term = op_apply(op, moved)
        total = term if total is None else op_call2(op_named("add"), total, term)
    return total


cdef Tensor pointwise(Op op, PyObject **args, Tensor result, list tangents):
    """Multiply by the diagonal Jacobian: for real numbers the vjp."""
    cdef int i
    cdef object total = None
    for i in range(op.ntensors):
        if tangents[i] is None:
            continue
        tangent = shaped(result, <Tensor>tangents[i])
        term = vjp_at(op, args, result, (tangent,), <uint64_t>1 << i)[i]
        if term is not None:
            total = term if total is None else op_call2(op_named("add"), total, term)
    return None if total is None else shaped(result, <Tensor>total)


cdef list transposed(Op op, PyObject **args, object result, list tangents):
    """Transpose the vjp: it is linear in the cotangents, so its vjp at any of them is the jvp."""
    cdef pb_state *state = thread_state()
    cdef PyObject *hooks = state.saved_hooks
    cdef bint recorded = state.grad_enabled
    cdef uint64_t wanted = 0
    cdef int i
    outputs = (result,) if is_tensor(result) else result
    cotangents = [cotangent_for(<Tensor>output) for output in outputs]
    for i in range(op.ntensors):
        if tangents[i] is not None:
            wanted |= <uint64_t>1 << i
    products = []
    directions = []
    state.grad_enabled = 1
    state.saved_hooks = NULL
    try:
        found = vjp_at(op, args, result, tuple(cotangents), wanted)
        for i in range(op.ntensors):
            if tangents[i] is None or found[i] is None:
                continue
            value = <object>args[op.tensor_args[i]]
            if is_tensor(value):
                add_product(products, directions, <Tensor>value, found[i], tangents[i])
                continue
            for item, part, direction in zip(value, found[i], tangents[i]):
                if part is not None and direction is not None:
                    add_product(products, directions, <Tensor>item, part, direction)
        leaves = [cotangent for cotangent in cotangents if cotangent is not None]
        gradients = [None] * len(leaves)
        if products:
            gradients = gradients_of(products, directions, leaves, False, recorded)
    finally:
        state.grad_enabled = recorded
        state.saved_hooks = hooks
    gradients.reverse()
    pushed = []
    for output, cotangent in zip(outputs, cotangents):
        if cotangent is None:
            pushed.append(None)
            continue
        tangent = gradients.pop()
        pushed.append(op_call1(op_named("zeros_like"), output) if tangent is None else tangent)
    return pushed


cdef object cotangent_for(Tensor output):
    """Return zeros that require grad, in the shape of an output; None without derivatives."""
    cdef Tensor zeros, leaf
    if not dtype_differentiable(output.dtype):
        return None
    zeros = <Tensor>op_call1(op_named("zeros_like"), output)
    leaf = whole(zeros)
    leaf.flags |= TENSOR_REQUIRES_GRAD
    return zeros


cdef int add_product(list products, list directions, Tensor primal, object product,
                     object direction) except -1:
    """Append one product, in its primal's shape, if it depends on a cotangent."""
    cdef Tensor fit = <Tensor?>product
    if not layout_same_shape(fit.layout, primal.layout):
        fit = <Tensor>op_call2(op_named("sum_to_size"), fit, layout_shape_tuple(primal.layout))
    fit = of_dtype(fit, primal.dtype)
    if tensor_requires_grad(whole(fit)):
        products.append(fit)
        directions.append(direction)
    return 0
