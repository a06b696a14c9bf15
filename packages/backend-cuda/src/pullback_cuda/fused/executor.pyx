"""Executors of parts of compiled programs: generated kernels, and the calls between them.

The core offers calls that follow each other on a device (abi.h, pb_part). Elementwise calls over
the same elements become one kernel: ``fusion.py`` finds them, ``text.py`` writes its text. Results
have the same bits. Values that only these calls use are not stored. All other kernels of the part
are called one by one.
"""

import os
import warnings

from cpython.exc cimport PyErr_SetObject
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from pullback.abi cimport (
    PB_ARRAY_CONJ, PB_ARRAY_HOST, PB_ARRAY_NEG, PB_BACKEND_CAPSULE, PB_OK,
    PB_OPERAND_INNER, PB_U16, pb_array, pb_backend, pb_call, pb_part)
from pullback_cuda.kernels.common.arrays cimport find_divider, item_sizes
from pullback_cuda.kernels.common.elementwise_driver cimport (
    ELEMENTWISE_THREADS, class_of, write_scalar)
from pullback_cuda.kernels.common.launch cimport kernel_named, launch, pb_cuda_kernel

from pullback.backend import PRIMITIVE_IDS
from pullback_cuda.fused.fusion import (
    MOST_DIMS, MOST_OPERANDS, Call, Operand, Operation, find_groups)
from pullback_cuda.fused.text import NAME, family_of, is_moved, text_of
from pullback_cuda.kernels.elementwise.elementwise import operation_of
from pullback_cuda.runtime import cubin_loader, devices

__all__ = ["offer"]

cdef enum:
    OPERANDS = 16       # MOST_OPERANDS
    DIMS = 6            # MOST_DIMS, FUSED_DIMS
    ELEMENTS = 4        # FUSED_ELEMENTS
    WIDEST = 16         # bytes that are loaded together
    ROOM = 2048         # bytes of a kernel's arguments, at most

VARIABLE = "PULLBACK_CUDA_FUSE"
cdef list primitive_names = sorted(PRIMITIVE_IDS, key=PRIMITIVE_IDS.get)
cdef bint warned = False
assert MOST_OPERANDS == OPERANDS and MOST_DIMS == DIMS


# ---- parts ---------------------------------------------------------------------------------------

cdef object operand_of(const pb_part *part, const pb_array *array, int number):
    cdef int d
    return Operand(
        number, array.dtype, item_sizes[array.dtype], array.flags & PB_ARRAY_HOST != 0,
        part.blocks[number], part.offsets[number],
        tuple([array.shape[d] for d in range(array.ndim)]),
        tuple([array.strides[d] for d in range(array.ndim)]),
        part.flags[number] & PB_OPERAND_INNER != 0)


cdef object call_of(pb_call *call, int dtype, tuple operands):
    """Return a call that may be fused, or None."""
    cdef int k
    name = primitive_names[call.primitive]
    for k in range(call.nout + call.nin):
        if call.out[k].flags & (PB_ARRAY_CONJ | PB_ARRAY_NEG) or call.out[k].dtype >= PB_U16:
            return None
    if name == "copy":
        if call.in_[0].flags & PB_ARRAY_HOST:
            return None
        found = copy_of(call.in_[0].dtype, call.out[0].dtype)
    elif call.nout != 1:
        return None
    else:
        found = operation_of(name, dtype, operands[len(operands) - 1].host)
    return None if found is None else Call(Operation(*found), operands)


cdef tuple copy_of(int source, int target):
    """Return the operation of a copy from one dtype to another."""
    if source == target:
        return "", "", False
    return "copy", f"copy_{class_of(source)}_{class_of(target)}", False


# ---- generated kernels ---------------------------------------------------------------------------

cdef class Fused:
    """A generated kernel and its arguments."""
    cdef readonly int first, last       # the calls that it stands for
    cdef pb_cuda_kernel *kernel
    cdef pb_call *call                  # for launches
    cdef pb_array *arrays[OPERANDS]
    cdef int64_t item[OPERANDS]
    cdef int operands
    cdef bint rows                      # every operand is contiguous, or one element
    cdef uint32_t *flat                 # in `arguments`
    cdef int64_t count
    cdef size_t size
    cdef char arguments[ROOM]

    cdef int run(self) noexcept:
        """Launch the kernel; return what a kernel returns."""
        cdef void **data = <void **>self.arguments
        cdef int k
        cdef bint aligned = self.rows
        for k in range(self.operands):
            data[k] = self.arrays[k].data
            if <uint64_t>data[k] & <uint64_t>(min(ELEMENTS * self.item[k], <int64_t>WIDEST) - 1):
                aligned = False
        self.flat[0] = aligned
        return launch(self.call, self.kernel, self.arguments, self.size,
                      (self.count + ELEMENTS * ELEMENTWISE_THREADS - 1)
                      // (ELEMENTS * ELEMENTWISE_THREADS), ELEMENTWISE_THREADS, 0)


cdef list arrays_of(const pb_part *part):
    """Return the address of each operand's pb_array."""
    cdef int i, k
    return [<size_t>part.calls[i].out[k] for i in range(part.count)
            for k in range(part.calls[i].nout + part.calls[i].nin)]


cdef Fused fused_of(const pb_part *part, object group, list arrays):
    """Return the kernel of a fusion group, loaded, with all arguments but addresses."""
    cdef Fused made = Fused.__new__(Fused)
    cdef uint64_t *scalar
    cdef uint32_t *numbers
    cdef int32_t *strides
    cdef int k, d, dims, operands = <int>(len(group.loaded) + len(group.stored))
    cdef list merged = merged_dims(group)
    text = text_of(group)
    family = family_of(text)
    cubin_loader.USER_TEXTS[family] = text
    made.first = group.first
    made.last = group.first + <int>len(group.calls) - 1
    made.call = part.calls[made.first]
    devices.started(made.call.device).function(family, NAME)
    made.kernel = kernel_named(family, NAME)
    made.operands = operands
    for k, one in enumerate([*group.loaded, *group.stored]):
        made.arrays[k] = <pb_array *><size_t>arrays[one.number]
        made.item[k] = item_sizes[made.arrays[k].dtype]
    memset(made.arguments, 0, ROOM)
    scalar = <uint64_t *>(made.arguments + operands * sizeof(void *))
    k = 0
    for call in group.calls:
        for one in call.operands[1:]:
            if one.host:
                write_scalar(<pb_array *><size_t>arrays[one.number], is_moved(call.operation),
                             scalar + 2 * k)
                k += 1
    numbers = <uint32_t *>(scalar + 2 * max(k, 1))
    dims = <int>len(merged)
    made.count = 1
    for size, _ in merged:
        made.count *= size
    made.flat = numbers + 1
    numbers[0] = <uint32_t>made.count
    numbers[2] = dims
    strides = <int32_t *>(numbers + 3 + 3 * DIMS)
    made.rows = dims == 1
    for d in range(dims):
        size, steps = merged[d]
        numbers[3 + d] = size
        find_divider(size, &numbers[3 + DIMS + d], &numbers[3 + 2 * DIMS + d])
        for k in range(operands):
            strides[d * operands + k] = steps[k] * made.item[k]
            if steps[k] != 1 and (steps[k] != 0 or k >= <int>len(group.loaded)):
                made.rows = False
    # As the compiler lays out the struct, whose first members have eight bytes.
    made.size = (<char *>(strides + DIMS * operands) - made.arguments + 7) // 8 * 8
    return made


cdef list merged_dims(object group):
    """Return a group's dims, the fastest first: sizes, and strides of what is loaded and stored.

    Dims of one element are left out, and those that follow each other in every operand are one.
    """
    cdef list found = []
    operands = [*group.loaded, *group.stored]
    last, before = 0, []
    for d in sorted(range(len(group.shape)), key=lambda d: abs(group.stored[0].strides[d])):
        size, steps = group.shape[d], [one.strides[d] for one in operands]
        if size == 1:
            continue
        if found and all([step == last * one for step, one in zip(steps, before, strict=True)]):
            found.pop()
            size, steps = size * last, before
        found.append((size, steps))
        last, before = size, steps
    return found or [(1, [1] * len(operands))]


# ---- executors -----------------------------------------------------------------------------------

cdef class Executor:
    """Runs a part."""
    cdef const pb_part *part
    cdef list kernels                   # Fused, in order

    cdef int run(self, void *stream, int32_t *begun) noexcept:
        cdef Fused fused
        cdef int number = 0, code
        for fused in self.kernels:
            code = self.run_calls(number, fused.first, stream, begun)
            if code == PB_OK:
                code = fused.run()
                begun[0] = fused.last + 1
            if code != PB_OK:
                return code
            number = fused.last + 1
        return self.run_calls(number, self.part.count, stream, begun)

    cdef int run_calls(self, int number, int end, void *stream, int32_t *begun) noexcept:
        """Run some calls, kernel by kernel."""
        cdef pb_call *call
        cdef int code
        while number < end:
            call = self.part.calls[number]
            call.stream = stream
            begun[0] = number + 1
            code = self.part.kernels[number](call)
            if code != PB_OK:
                return code
            number += 1
        return PB_OK


cdef void *compile_part(void *self, const pb_part *part) noexcept:
    global warned
    cdef Executor made = None
    try:
        if os.environ.get(VARIABLE) != "0":
            made = executor_of(part)
    except RuntimeError as error:       # there is no compiler, or it refuses the text
        if not warned:
            warned = True
            try:
                warnings.warn(f"compiled functions run kernel by kernel on cuda: {error}",
                              RuntimeWarning)
            except BaseException as raised:
                PyErr_SetObject(type(raised), raised)
    except BaseException as error:
        PyErr_SetObject(type(error), error)
    if made is None:
        return NULL
    Py_INCREF(made)
    return <void *>made


cdef Executor executor_of(const pb_part *part):
    """Return what runs a part; None if no kernels of it can be one."""
    cdef Executor made
    cdef list calls = [], operands = []
    cdef pb_call *call
    cdef int number, k, at = 0
    for number in range(part.count):
        call = part.calls[number]
        one = tuple([operand_of(part, call.out[k], at + k)
                     for k in range(call.nout + call.nin)])
        operands.append(one)
        calls.append(call_of(call, part.dtypes[number], one))
        at += call.nout + call.nin
    groups = find_groups(calls, operands)
    if not groups:
        return None
    made = Executor.__new__(Executor)
    made.part = part
    arrays = arrays_of(part)
    made.kernels = [fused_of(part, group, arrays) for group in groups]
    return made


cdef int execute_part(void *self, void *executor, void *stream, int32_t *begun,
                      char *message) noexcept:
    return (<Executor>executor).run(stream, begun)


cdef void release_executor(void *self, void *executor) noexcept:
    Py_DECREF(<Executor>executor)


def offer(capsule):
    """Let a backend's capsule offer executors."""
    cdef pb_backend *backend = <pb_backend *>PyCapsule_GetPointer(capsule, PB_BACKEND_CAPSULE)
    backend.compile = compile_part
    backend.execute = execute_part
    backend.release_executor = release_executor
