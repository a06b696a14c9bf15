# build: small
"""User hooks around the nodes of a backward pass: running them and checking their results."""

from cpython.dict cimport PyDict_Items
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport uint32_t

from pullback._c.engine.accumulate cimport (
    is_sole_owner, is_sparse, sparse_clone, sum_grads)
from pullback._c.base.dtype cimport dtype_object
from pullback._c.dispatch.operands cimport cast_tensor
from pullback._c.graph.op cimport op_named
from pullback._c.engine.grad_utils cimport fit_gradient
from pullback._c.base.layout cimport layout_same_shape, layout_shape_tuple
from pullback._c.graph.node cimport node_gradient_count
from pullback._c.graph.tensor cimport (
    TENSOR_IS_BATCHED, Tensor, is_tensor, tensor_device_index, tensor_device_type, tensor_extra,
    tensor_is_tracked)
from pullback._c.base.state cimport GRAD_ADDED, captured_change
from pullback._c.base.types cimport (
    NODE_ACCUMULATE, NODE_PYTHON, node_edges, pb_edge, pb_node)


cdef object hook_name(object hook):
    return getattr(hook, "__name__", None) or type(hook).__name__


cdef int replace(PyObject **buffer, object value) except -1:
    cdef PyObject *before = buffer[0]
    Py_INCREF(value)
    buffer[0] = <PyObject *>value
    Py_XDECREF(before)
    return 0


cdef int make_private(PyObject **buffer) except -1:
    """Copy a shared gradient: a hook may write to its argument."""
    if buffer[0] != NULL and not is_sole_owner(buffer[0]) and not tensor_is_tracked(
            <Tensor>buffer[0]):
        if is_sparse(buffer[0]):
            replace(buffer, sparse_clone(<object>buffer[0]))
            return 0
        replace(buffer, cast_tensor(<Tensor>buffer[0], (<Tensor>buffer[0]).dtype))
    return 0


cdef int check_result(object hook, object before, object after) except -1:
    """Raise unless a hook's replacement has the gradient's size, dtype and device."""
    cdef Tensor old, new
    name = hook_name(hook)
    if not is_tensor(after):
        raise TypeError(f"expected Variable, but hook returned '{type(after).__name__}' "
                        f"(hook '{name}')")
    if before is None:
        raise RuntimeError(f"can't replace a None gradient with a non-None value (hook '{name}')")
    old = <Tensor>before
    new = <Tensor>after
    if new.dtype != old.dtype:
        raise RuntimeError(f"hook '{name}' has changed the type of value (was "
                           f"{dtype_object(old.dtype).name} got {dtype_object(new.dtype).name})")
    if (tensor_device_type(new) != tensor_device_type(old)
            or tensor_device_index(new) != tensor_device_index(old)):
        raise RuntimeError(f"hook '{name}' has changed the device of value")
    if not layout_same_shape(new.layout, old.layout):
        raise RuntimeError(f"hook '{name}' has changed the size of value (was "
                           f"{list(layout_shape_tuple(old.layout))} got "
                           f"{list(layout_shape_tuple(new.layout))})")
    return 0


cdef int run_one(object hook, PyObject **buffer) except -1:
    """Call hook(grad) on an input buffer; with None where it is empty."""
    cdef object grad = None, result
    if buffer[0] != NULL:
        make_private(buffer)
        grad = <object>buffer[0]
    result = hook(grad)
    if result is not None:
        check_result(hook, grad, result)
        replace(buffer, result)
    return 0


cdef bint gives_none(pb_node *node):
    """True if a hook of an output that gets no gradient runs, with None.

    The outputs of a compiled function have nodes of their own in the function itself.
    """
    return node.kind != NODE_PYTHON or not getattr(
        <object>node.wrapper, "is_several_nodes", False)


cdef int run_tensor_hooks(pb_node *node, PyObject **grads) except -1:
    """Run tensor hooks in order of registration, then retain_grad()."""
    cdef object number, hook
    if node.extra == NULL:
        return 0
    if node.extra.tensor_hooks != NULL:
        for number, hook in list((<dict>node.extra.tensor_hooks).values()):
            if grads[<uint32_t>number] != NULL or gives_none(node):
                run_one(hook, &grads[<uint32_t>number])
    if node.kind == NODE_ACCUMULATE and (<Tensor>node.op).extra.hooks != NULL:
        run_leaf_hooks(node, grads)
    if node.extra.retain != NULL:
        # Not list(items()): CPython 3.11 crashes there when memory is exhausted.
        for number, reference in PyDict_Items(<dict>node.extra.retain):
            tensor = reference()
            if tensor is not None and grads[<uint32_t>number] != NULL:
                retain(<Tensor>tensor, <object>grads[<uint32_t>number])
    return 0


cdef int retain(Tensor tensor, object grad) except -1:
    """Add to the .grad of a non-leaf; not a batch of is_grads_batched, which ends with its pass."""
    cdef PyObject *before = tensor_extra(tensor).grad
    cdef object kept
    captured_change(<PyObject *>tensor, GRAD_ADDED)
    if (<Tensor>grad).flags & TENSOR_IS_BATCHED and not tensor.flags & TENSOR_IS_BATCHED:
        return 0
    if before == NULL:
        if tensor_is_tracked(<Tensor>grad):
            kept = op_named("clone")(grad)
        elif is_sparse(<PyObject *>grad):
            kept = sparse_clone(grad)
        else:
            kept = cast_tensor(<Tensor>grad, (<Tensor>grad).dtype)
    else:
        kept = sum_grads(before, <Tensor>grad, True)
    Py_INCREF(kept)
    tensor.extra.grad = <PyObject *>kept
    Py_XDECREF(before)
    return 0


cdef int run_leaf_hooks(pb_node *node, PyObject **grads) except -1:
    """Run the tensor hooks of a leaf."""
    cdef Tensor leaf = <Tensor>node.op
    for hook in list((<dict>leaf.extra.hooks).values()):
        run_one(hook, &grads[0])
    return 0


cdef tuple as_tuple(PyObject **values, uint32_t count):
    cdef uint32_t i
    return tuple([None if values[i] == NULL else <object>values[i] for i in range(count)])


cdef int take_tuple(object hook, object result, tuple before, PyObject **grads) except -1:
    """Put the result of a node hook into the input buffers."""
    cdef uint32_t i
    if not isinstance(result, tuple):
        raise TypeError(f"expected tuple, but hook '{hook_name(hook)}' returned "
                        f"'{type(result).__name__}'")
    if len(result) != len(before):
        raise RuntimeError(f"hook '{hook_name(hook)}' has returned an incorrect number of values "
                           f"(got {len(result)}, but expected {len(before)})")
    for i in range(<uint32_t>len(result)):
        if result[i] is None:
            Py_XDECREF(grads[i])
            grads[i] = NULL
        elif result[i] is not before[i]:
            check_result(hook, before[i], result[i])
            replace(&grads[i], result[i])
    return 0


cdef int run_pre_hooks(pb_node *node, PyObject **grads) except -1:
    """Run node pre-hooks: hook(grad_outputs)."""
    cdef tuple before
    cdef uint32_t i
    if node.extra == NULL or node.extra.pre_hooks == NULL:
        return 0
    for hook in list((<dict>node.extra.pre_hooks).values()):
        for i in range(node.noutputs):
            make_private(&grads[i])
        before = as_tuple(grads, node_gradient_count(node))
        result = hook(before)
        if result is not None:
            take_tuple(hook, result, before, grads)
    return 0


cdef int run_post_hooks(pb_node *node, PyObject **grads, PyObject **results) except -1:
    """Run node post-hooks: hook(grad_inputs, grad_outputs)."""
    cdef tuple before
    cdef uint32_t i
    cdef pb_edge *edges = node_edges(node)
    if node.extra == NULL or node.extra.post_hooks == NULL:
        return 0
    for i in range(node.nedges):
        if results[i] != NULL and edges[i].node != NULL:
            replace(&results[i], fit_gradient(node, i, &edges[i], <object>results[i]))
        make_private(&results[i])
    for i in range(node.noutputs):
        make_private(&grads[i])
    for hook in list((<dict>node.extra.post_hooks).values()):
        before = as_tuple(results, node.nedges)
        result = hook(before, as_tuple(grads, node_gradient_count(node)))
        if result is not None:
            take_tuple(hook, result, before, results)
    return 0


cdef int run_post_accumulate(pb_node *node) except -1:
    """Run post-accumulate hooks of a leaf: hook(param), which must return None."""
    cdef Tensor leaf = <Tensor>node.op
    for hook in list((<dict>leaf.extra.post_hooks).values()):
        result = hook(leaf)
        if result is not None:
            raise TypeError(f"post accumulate grad hook '{hook_name(hook)}' must return None, but "
                            f"returned '{type(result).__name__}'")
    return 0
