# Executors of parts of compiled programs: lists of inner loops with their arguments.
#
# A part (abi.h, pb_part) has consecutive kernel calls of few elements. For an elementwise call of
# one dim the list has the inner loop, data pointers and strides; for any other, the kernel and the
# call. Data pointers that may move are read before each run.
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_GetPointer
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc

from pullback.abi cimport (
    PB_ARRAY_CONJ, PB_ARRAY_HOST, PB_ARRAY_NEG, PB_BACKEND_CAPSULE, PB_KERNEL_CAPSULE,
    PB_MESSAGE_SIZE, PB_NUM_DTYPES, PB_OK, PB_OPERAND_MOVES, pb_array, pb_backend, pb_call,
    pb_kernel, pb_part)
from pullback_cpu.kernels.common.elementwise_driver cimport SHORT, inner_loop
from pullback_cpu.kernels.common.kernel cimport item_shift

cdef enum:
    OPERANDS = 4        # of a call that becomes a loop, at most
    PATTERNS = 16       # each operand has a stride of 0 or 1

cdef extern from *:
    """
    /* A loop and its arguments. */
    typedef struct {
        int (*loop)(char **data, const int64_t *strides, int64_t n);
        char *data[4];
        const int64_t *strides;
        int64_t n;
    } pb_item;

    #define PB_RUN_ITEM(k) \\
        if (PB_UNLIKELY(code = item[k].loop(item[k].data, item[k].strides, item[k].n))) { \\
            *failed = (int)(item + k - first); \\
            return code; \\
        }

    /* Unrolled twelve times: in programs whose kernels repeat with a period of 1, 2, 3, 4, 6 or 12
     * each indirect call always has the same target, and is predicted. One call site in a loop
     * takes twice as long. */
    static int pb_run_items(pb_item *first, int count, int *failed) {
        pb_item *item = first, *end = first + count;
        int code;
        for (; end - item >= 12; item += 12) {
            PB_RUN_ITEM(0) PB_RUN_ITEM(1) PB_RUN_ITEM(2) PB_RUN_ITEM(3)
            PB_RUN_ITEM(4) PB_RUN_ITEM(5) PB_RUN_ITEM(6) PB_RUN_ITEM(7)
            PB_RUN_ITEM(8) PB_RUN_ITEM(9) PB_RUN_ITEM(10) PB_RUN_ITEM(11)
        }
        for (; item < end; ++item)
            PB_RUN_ITEM(0)
        return 0;
    }
    """
    ctypedef struct pb_item:
        inner_loop loop
        char *data[OPERANDS]
        const int64_t *strides
        int64_t n
    int run_items "pb_run_items"(pb_item *first, int count, int *failed) noexcept

# A pointer that may move.
ctypedef struct pb_pointer:
    char **place
    pb_array *array

ctypedef struct pb_list:
    int32_t items
    int32_t pointers
    pb_item *item
    pb_pointer *pointer

# Of each primitive whose kernel does nothing but run a loop: its kernel and the table of its loops.
ctypedef struct pb_loops:
    pb_kernel kernel
    const inner_loop *loops

cdef pb_loops *known = NULL
cdef dict registered = {}
cdef int64_t patterns[PATTERNS][OPERANDS]
cdef dict numbers = {}              # of the primitives
cdef int COPY = -1, WHERE = -1


cdef int find_loops() except -1:
    """Fill the table of loops, once."""
    global known, COPY, WHERE
    cdef pb_loops *made
    cdef int i, k
    made = <pb_loops *>calloc(len(numbers), sizeof(pb_loops))
    if made == NULL:
        raise MemoryError()
    for name, (_, kernel) in registered.items():
        i = numbers[name]
        made[i].kernel = <pb_kernel>PyCapsule_GetPointer(kernel, PB_KERNEL_CAPSULE)
        made[i].loops = <const inner_loop *>PyCapsule_GetContext(kernel)
    for i in range(PATTERNS):
        for k in range(OPERANDS):
            patterns[i][k] = i >> k & 1
    COPY = numbers["copy"]
    WHERE = numbers["where"]
    known = made
    return 0


cdef inner_loop loop_of(pb_call *call, pb_kernel kernel) noexcept:
    """Return the loop that a kernel would run; NULL if that is not known."""
    cdef pb_loops *found = known + call.primitive
    if found.kernel != kernel or found.loops == NULL:
        return NULL
    if call.primitive == COPY:
        return found.loops[call.in_[0].dtype * PB_NUM_DTYPES + call.out[0].dtype]
    if call.primitive == WHERE:
        return found.loops[item_shift[call.in_[1].dtype]]
    return found.loops[call.in_[0].dtype]


cdef int call_kernel(char **data, const int64_t *strides, int64_t n) noexcept nogil:
    """Call a kernel: what stands for the loop of a call that is none."""
    return (<pb_kernel><void *>data[0])(<pb_call *>data[1])


cdef bint fill_item(pb_item *item, pb_call *call, pb_kernel kernel) noexcept:
    """Resolve a call; True if it is a loop."""
    cdef pb_array *array
    cdef int k, count = call.nout + call.nin, pattern = 0
    cdef int64_t n = 1, stride
    cdef inner_loop loop = loop_of(call, kernel)
    item.loop = call_kernel
    item.data[0] = <char *><void *>kernel
    item.data[1] = <char *>call
    item.strides = patterns[0]
    item.n = 0
    if loop == NULL or call.nout != 1 or count > OPERANDS or call.out[0].ndim > 1:
        return False
    if call.out[0].ndim:
        n = call.out[0].shape[0]
    if not 0 < n <= SHORT:
        return False
    for k in range(count):
        array = call.out[k]             # the inputs follow the outputs
        stride = 0
        if array.flags & (PB_ARRAY_CONJ | PB_ARRAY_NEG):
            return False
        if not array.flags & PB_ARRAY_HOST:
            stride = array.strides[0] if array.ndim else 1
        if not 0 <= stride <= 1:
            return False
        pattern |= <int>stride << k
    for k in range(count):
        item.data[k] = <char *>call.out[k].data
    item.loop = loop
    item.strides = patterns[pattern]
    item.n = n
    return True


cdef void *compile_part(void *self, const pb_part *part) noexcept:
    """Resolve the calls of a part."""
    try:
        return resolve(part)
    except MemoryError:                 # then the core calls them as ever
        return NULL


cdef void *resolve(const pb_part *part) except? NULL:
    cdef pb_list *made
    cdef pb_call *call
    cdef pb_pointer *pointer
    cdef int i, k, at = 0, moving = 0
    if known == NULL:
        find_loops()
    for i in range(part.count):
        call = part.calls[i]
        for k in range(call.nout + call.nin):
            moving += part.flags[at + k] & PB_OPERAND_MOVES
        at += call.nout + call.nin
    made = <pb_list *>PyMem_Malloc(
        sizeof(pb_list) + part.count * sizeof(pb_item) + moving * sizeof(pb_pointer))
    if made == NULL:
        raise MemoryError()
    made.items = part.count
    made.item = <pb_item *>(made + 1)
    made.pointer = pointer = <pb_pointer *>(made.item + part.count)
    at = 0
    for i in range(part.count):
        call = part.calls[i]
        if fill_item(&made.item[i], call, part.kernels[i]):
            for k in range(call.nout + call.nin):
                if part.flags[at + k] & PB_OPERAND_MOVES:
                    pointer.place = &made.item[i].data[k]
                    pointer.array = call.out[k]
                    pointer += 1
        at += call.nout + call.nin
    made.pointers = <int32_t>(pointer - made.pointer)
    return made


cdef int run_list(void *self, void *executor, void *stream, int32_t *begun,
                  char *message) noexcept:
    """Run the calls of a part, one after the other."""
    cdef pb_list *made = <pb_list *>executor
    cdef pb_pointer *pointer = made.pointer
    cdef pb_pointer *last = pointer + made.pointers
    cdef int code, failed = 0
    while pointer < last:
        pointer.place[0] = <char *>pointer.array.data
        pointer += 1
    code = run_items(made.item, made.items, &failed)
    if code != PB_OK:
        begun[0] = failed + 1
        if made.item[failed].loop != call_kernel:
            # An integer division: see elementwise_driver.pxd.
            snprintf(message, PB_MESSAGE_SIZE, "%s", b"ZeroDivisionError")
    return code


cdef void release_list(void *self, void *executor) noexcept:
    PyMem_Free(executor)


def offer(capsule, dict kernels not None, dict primitives not None):
    """Let a backend's capsule offer executors.

    ``kernels`` are those that it registers, ``primitives`` the numbers of all primitives.
    """
    global registered, numbers
    cdef pb_backend *backend = <pb_backend *>PyCapsule_GetPointer(capsule, PB_BACKEND_CAPSULE)
    registered = kernels
    numbers = primitives
    backend.compile = compile_part
    backend.execute = run_list
    backend.release_executor = release_list
