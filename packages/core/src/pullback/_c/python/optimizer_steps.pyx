# build: small
"""What optimizers do for each parameter of a group: gather gradients and states, count steps."""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF

from pullback.abi cimport PB_F32, PB_F64, PB_MASK_FLOATING
from pullback._c.base.state cimport (
    GRAD_CLEARED, GRAD_READ, OPTIONS_READ, captured_change, captured_rate, captured_step,
    capturing)
from pullback._c.base.types cimport STORAGE_READONLY
from pullback._c.device.device cimport DEVICE_META, device_types
from pullback._c.dispatch.call cimport op_call2
from pullback._c.graph.op cimport Op, op_named
from pullback._c.graph.record cimport bump_version
from pullback._c.dispatch.operands cimport has_number, number_of
from pullback._c.graph.tensor cimport (
    TENSOR_IS_WRAPPED, TENSOR_LAZY, Tensor, is_tensor, same_device, tensor_data)

cdef Op add = op_named("add_")


def gather(params, state, tuple names not None, init, group):
    """Return the parameters with a gradient, their gradients, and a list of states a name.

    ``init(state, param, group)`` fills the dict of a parameter that has no state yet. A name that
    is missing gives None.
    """
    cdef list found = [], grads = [], lists = [[] for _ in names]
    cdef Tensor param
    cdef PyObject *own
    cdef PyObject *value
    cdef object states
    cdef Py_ssize_t i, count = len(names)
    if not isinstance(state, dict):
        raise TypeError(f"the state of an optimizer must be a dict, not {type(state).__name__}")
    for item in params:
        param = <Tensor?>item
        captured_change(<PyObject *>param, GRAD_READ)
        if param.extra != NULL and param.extra.grad != NULL:
            grad = <object>param.extra.grad
        elif param.node == NULL:
            continue
        else:
            grad = param.grad           # warns of a tensor that is no leaf
            if grad is None:
                continue
        found.append(param)
        grads.append(grad)
        if count == 0:
            continue
        own = PyDict_GetItemWithError(state, param)
        states = state[param] if own == NULL else <object>own
        if not states:
            init(states, param, group)
        if not isinstance(states, dict):
            raise TypeError(f"the state of a parameter must be a dict, not "
                            f"{type(states).__name__}")
        for i in range(count):
            value = PyDict_GetItemWithError(states, names[i])
            (<list>lists[i]).append(None if value == NULL else <object>value)
    captured_step(<PyObject *>group, len(found))
    return found, grads, *lists


def fits(params, *lists):
    """True if a fused step takes these tensors: lists that are as long, of one dtype and device.

    They have real floating-point numbers, and take no part in a transform.
    """
    cdef Tensor first, one
    cdef Py_ssize_t i, count
    if type(params) is not list or len(params) == 0 or not is_tensor(params[0]):
        return False
    count = len(params)
    first = <Tensor>(<list>params)[0]
    if first.storage.device_type == DEVICE_META:
        return False
    for tensors in (params, *lists):
        if type(tensors) is not list or len(<list>tensors) != count:
            return False
        for i in range(count):
            item = (<list>tensors)[i]
            if not is_tensor(item):
                return False
            one = <Tensor>item
            if (not PB_MASK_FLOATING >> one.dtype & 1 or one.flags & TENSOR_IS_WRAPPED
                    or one.dtype != (<Tensor>(<list>params)[i]).dtype
                    or not same_device(one, first)):
                return False
    return True


cdef bint is_counter(object value, Tensor param) except -1:
    """True for a number on the host, or on the parameter's device, that counts steps."""
    cdef Tensor one
    if not is_tensor(value):
        return False
    one = <Tensor>value
    return (one.layout.numel == 1 and (one.dtype == PB_F32 or one.dtype == PB_F64)
            and not one.flags & (TENSOR_IS_WRAPPED | TENSOR_LAZY)
            and one.storage.device_type != DEVICE_META
            and (same_device(one, param) or device_types()[one.storage.device_type].host))


def count_steps(list params not None, steps, *numbers):
    """Add 1 to each counter; False, and nothing is done, if one is no number that fits.

    ``numbers`` are further lists of a number for each parameter.
    """
    cdef Tensor one
    cdef tuple counters
    cdef list away = []                 # on a device with its own memory
    for each in (steps, *numbers):
        if type(each) is not list or len(<list>each) != len(params):
            return False
        for param, counter in zip(params, <list>each):
            if not is_counter(counter, <Tensor?>param):
                return False
    counters = tuple(steps)
    for counter in counters:
        one = <Tensor>counter
        if (not device_types()[one.storage.device_type].host
                or one.storage.flags & STORAGE_READONLY or capturing()):
            away.append(one)
            continue
        if one.dtype == PB_F32:
            (<float *>tensor_data(one))[0] += 1
        else:
            (<double *>tensor_data(one))[0] += 1
        bump_version(one, add.id)
    if away:
        count_away(away)
    return True


cdef int count_away(list counters) except -1:
    """Add 1 to counters on a device: by a step against a gradient of 1, if they are alike."""
    cdef Tensor first = <Tensor>counters[0]
    cdef Tensor one
    for counter in counters:
        one = <Tensor>counter
        if one.dtype != first.dtype or one.layout.ndim or not same_device(one, first):
            for one in counters:
                op_call2(add, one, 1)
            return 0
    unit = op_named("ones_like")(first)
    op_named("_fused_sgd_")(
        counters, [unit] * len(counters), [], weight_decay=0.0, momentum=0.0, lr=-1.0,
        dampening=0.0, nesterov=False, maximize=False, is_first_step=False)
    return 0


def count_missing(list values not None):
    """Return how many of the values are None."""
    cdef Py_ssize_t count = 0
    for value in values:
        count += value is None
    return count


def clear_grads(params):
    """Set the gradient of each parameter to None."""
    cdef Tensor param
    cdef PyObject *before
    for item in params:
        param = <Tensor?>item
        captured_change(<PyObject *>param, GRAD_CLEARED)
        if param.extra != NULL and param.extra.grad != NULL:
            before = param.extra.grad
            param.extra.grad = NULL
            Py_DECREF(<object>before)


def note_options_read():
    """Note that a program that is captured gets options of an optimizer, and depends on them."""
    captured_step(NULL, OPTIONS_READ)


def rate_in_capture(lr, list params not None):
    """Return the learning rate for a step; while a program is captured, a tensor that has it."""
    return captured_rate(lr, len(params))


def number_in_step(value):
    """Return the number of an option, which may be a tensor of one.

    A program reads it again in each run, if it is that of the parameter group.
    """
    return number_of(value) if capturing() and has_number(value) else (
        value.item() if is_tensor(value) else value)
