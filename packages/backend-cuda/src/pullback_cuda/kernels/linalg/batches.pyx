"""Batches of matrices for cuBLAS and cuSOLVER, in memory that is stored column by column."""

from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from pullback.abi cimport PB_C64, PB_C128, PB_F64, PB_OK, pb_array, pb_call
from pullback_cuda.kernels.common.arrays cimport item_sizes
from pullback_cuda.kernels.common.launch cimport (
    kernel_named, launch, pb_cuda_kernel, sm_count, workspace_alloc, workspace_free)
from pullback_cuda.kernels.linalg.matrices cimport (
    library_dtype, list_addresses, pack, rounded, run_in_context)
from pullback_cuda.runtime.allocator cimport block_release, block_take
from pullback_cuda.runtime.contexts cimport current_number

from pullback_cuda.runtime import cusolver

cdef extern from "kernels/linalg/decompose.h":
    ctypedef struct screen_arguments "struct screen_arguments":
        void *matrices
        int32_t *flags
        int64_t batch, count

    ctypedef struct settle_arguments "struct settle_arguments":
        int32_t *codes
        const int32_t *flags
        int32_t *info
        int64_t batch, info_stride
        int32_t of_infinity, of_nan

cdef pb_cuda_kernel *settler = kernel_named("decompose", "settle")
cdef pb_cuda_kernel **screeners = [
    kernel_named("decompose", "screen_f32"), kernel_named("decompose", "screen_f64")]


cdef class Batch:
    """What cusolver.py sees of a task; ``where`` is (device, stream), all numbers are addresses."""

    cdef task *of
    cdef list blocks
    cdef readonly tuple where
    cdef readonly str dtype

    @property
    def count(self):
        """How many matrices there are."""
        return self.of.batch

    @property
    def at_once(self):
        """Whether one call shall do all of them."""
        return bool(self.of.at_once)

    @property
    def options(self):
        return tuple(self.of.options)

    def shape(self, int number):
        """Return (rows, columns) of a part."""
        return self.of.parts[number].rows, self.of.parts[number].columns

    def at(self, int64_t matrix):
        """Return where each part of a problem is."""
        cdef list found = []
        cdef part *at
        cdef int i
        for i in range(self.of.count):
            at = &self.of.parts[i]
            found.append(<size_t>(at.data + matrix * at.strides[0] * item_sizes[at.dtype]))
        return found

    def code(self, int64_t matrix):
        """Return where the library writes the code of a problem."""
        return <size_t>(self.of.codes + matrix)

    def list(self, int number):
        """Return where the addresses of a part of all problems are."""
        cdef part *at = &self.of.parts[number]
        cdef void **table = <void **><size_t>self.workspace(self.of.batch * sizeof(void *))
        if list_addresses(self.of.call, table, at.data, at.strides[0] * item_sizes[at.dtype],
                          self.of.batch) != PB_OK:
            raise RuntimeError(self.of.call.message.decode())
        return <size_t>table

    def workspace(self, size_t nbytes):
        """Return memory that lasts until the routine has returned."""
        cdef void *memory = block_take(self.of.call.device, max(nbytes, <size_t>1))
        self.blocks.append(<size_t>memory)
        return <size_t>memory


cdef PyObject *routine_named(str name) except NULL:
    """Return a function of cusolver.py, which is never freed."""
    found = getattr(cusolver, name)
    Py_INCREF(found)
    return <PyObject *>found


cdef int run_routine(pb_call *call, void *data) except -1:
    """Call the function of cusolver.py."""
    cdef task *of = <task *>data
    cdef Batch batch = Batch()
    batch.of, batch.blocks = of, []
    batch.where = (call.device, current_number(call.device))
    batch.dtype = library_dtype(of.parts[0].dtype)
    try:
        (<object>of.routine)(batch)
    except Exception as error:
        library = type(error).__name__.removesuffix("Error")    # nvmath's own classes
        if library in ("cuBLAS", "cuSOLVER"):
            raise RuntimeError(f"cuda:{call.device}: {library} failed: {error}") from error
        if library == "FunctionNotFound":
            raise RuntimeError(f"cuda:{call.device}: the CUDA libraries are too old: "
                               f"{error}") from error
        raise
    finally:
        for block in batch.blocks:
            block_release(call.device, <void *><size_t>block)
    return 0


cdef bint start(task *of, pb_call *call, PyObject *routine) noexcept nogil:
    """Begin a task for the matrices of the first operand; false where there are none."""
    cdef pb_array *a = call.in_[0]
    memset(of, 0, sizeof(task))
    of.call, of.routine, of.batch = call, routine, a.shape[0]
    of.at_once = a.shape[0] > 1 and max(a.shape[1], a.shape[2]) < LARGE
    return a.shape[0] != 0 and a.shape[1] != 0 and a.shape[2] != 0


cdef part *add_part(task *of, pb_array *source, pb_array *target, int dtype, int64_t rows,
                    int64_t columns) noexcept nogil:
    cdef part *made = &of.parts[of.count]
    of.count += 1
    made.source, made.target, made.dtype, made.rows, made.columns = (
        source, target, dtype, rows, columns)
    made.strides[0], made.strides[1], made.strides[2] = rows * columns, 1, rows
    return made


cdef void describe(const part *of, const pb_array *array, int64_t *shape, int64_t *strides,
                   int64_t *own) noexcept nogil:
    """Give an array's shape and strides, and those of the part's memory, as three dims."""
    shape[0], shape[1], shape[2] = array.shape[0], array.shape[1], 1
    strides[0], strides[1], strides[2] = array.strides[0], array.strides[1], 0
    if array.ndim > 2:
        shape[2], strides[2] = array.shape[2], array.strides[2]
    own[0], own[1], own[2] = of.strides[0], of.strides[1], of.strides[2]
    if of.turned:
        own[1], own[2] = own[2], own[1]


cdef bint fits(const part *of) noexcept nogil:
    """Return whether the target's memory is as the library wants it."""
    cdef int64_t shape[3]
    cdef int64_t strides[3]
    cdef int64_t own[3]
    cdef int d
    if of.target == NULL or of.apart:
        return False
    describe(of, of.target, shape, strides, own)
    for d in range(3):
        if shape[d] > 1 and strides[d] != own[d]:
            return False
    return True


cdef void place(task *of) noexcept nogil:
    """Divide the memory into parts; also compute its size, before it is allocated."""
    cdef char *free = of.start
    cdef part *at
    cdef int i
    for i in range(of.count):
        at = &of.parts[i]
        at.owned = not fits(at)
        if at.owned:
            at.data = free
            free += rounded(of.batch * at.rows * at.columns * item_sizes[at.dtype])
        else:
            at.data = <char *>at.target.data
    of.codes = <int32_t *>free
    free += rounded((of.batch + 1) * sizeof(int32_t))
    of.flags = <int32_t *>free
    free += rounded(of.batch * sizeof(int32_t))
    of.nbytes = free - of.start


cdef int read_part(task *of, part *at) noexcept nogil:
    cdef int64_t shape[3]
    cdef int64_t strides[3]
    cdef int64_t own[3]
    if at.source == NULL:
        return PB_OK
    describe(at, at.source, shape, strides, own)
    return pack(of.call, at.dtype, at.data, own, at.source.data, strides, shape, NULL)


cdef int write_part(task *of, part *at) noexcept nogil:
    cdef int64_t shape[3]
    cdef int64_t strides[3]
    cdef int64_t own[3]
    if at.target == NULL or not (at.owned or at.lower or of.marked):
        return PB_OK
    describe(at, at.target, shape, strides, own)
    return pack(of.call, at.dtype, at.target.data, strides, at.data, own, shape,
                of.codes if of.marked else NULL, at.lower)


cdef int screen(task *of) noexcept nogil:
    """Set matrices of the first part to 0 that have elements which are not finite."""
    cdef screen_arguments args
    cdef part *at = &of.parts[0]
    cdef bint double = at.dtype == PB_F64 or at.dtype == PB_C128
    args.matrices, args.flags, args.batch = at.data, of.flags, of.batch
    args.count = at.strides[0] * (2 if at.dtype >= PB_C64 else 1)
    return launch(of.call, screeners[double], &args, sizeof(args),
                  min(of.batch, 64 * sm_count(of.call)), 256, 0)


cdef int settle(task *of) noexcept nogil:
    """Decide of which matrices there is no result, and write what the caller gets to know."""
    cdef settle_arguments args
    if of.info == NULL:
        return PB_OK
    args.codes, args.flags = of.codes, of.flags if of.screened else NULL
    args.info, args.batch, args.info_stride = (
        <int32_t *>of.info.data, of.batch, of.info.strides[0])
    args.of_infinity, args.of_nan = of.of_infinity, of.of_nan
    return launch(of.call, settler, &args, sizeof(args), min((of.batch + 255) // 256, 1024), 256, 0)


cdef int run_task(task *of) noexcept nogil:
    """Copy in, call the library, copy out."""
    cdef int code, i
    of.start = NULL
    place(of)
    code = workspace_alloc(of.call, of.nbytes, <void **>&of.start)
    if code != PB_OK:
        return code
    place(of)
    for i in range(of.count):
        if code == PB_OK:
            code = read_part(of, &of.parts[i])
    if code == PB_OK and of.screened:
        code = screen(of)
    if code == PB_OK and of.routine != NULL:
        with gil:
            code = run_in_context(of.call, run_routine, of)
    if code == PB_OK and of.after != NULL:
        code = of.after(of)
    if code == PB_OK:
        code = settle(of)
    for i in range(of.count):
        if code == PB_OK:
            code = write_part(of, &of.parts[i])
    workspace_free(of.call, of.start, of.nbytes)
    return code
