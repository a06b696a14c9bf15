# Batches of problems for LAPACK. Each problem is copied into memory of its own, which is stored
# column by column. Threads share a batch of small problems; a long one runs on a thread that can be
# left behind.
from libc.limits cimport INT_MAX
from libc.math cimport NAN
from libc.stdlib cimport free, malloc

from pullback_cpu.gemm.blas cimport (
    blas_table, load_blas, pb_blas_threads, pb_blas_threads_hold, pb_blas_threads_release)
from pullback_cpu.kernels.common.kernel cimport *
from pullback_cpu.runtime.threads cimport parallel_for, stopping

cdef extern from "runtime/huge_pages.h" nogil:
    void advise_huge "pb_advise_huge"(void *data, size_t nbytes) noexcept

cdef extern from "runtime/detached_call.h" nogil:
    int run_detached "pb_run_detached"(
        void (*work)(void *context) noexcept, void (*release)(void *context) noexcept,
        void *context, bint (*stopping)() noexcept)

cdef enum:
    PARTS = 5         # operands, results and further memory of a problem, at most
    MIDDLING = 256    # rows up to which more than one thread of BLAS gains little
    MIDDLING_QR = 768  # the same for reflections, whose products are narrower
    GRAIN = 1 << 16   # multiplications that a thread takes at a time, at least
    LONG = 1 << 24    # multiplications from which on LAPACK runs on a thread that can be left


ctypedef fused unit:
    float
    double
    c128


# A matrix of each problem: what it is read from and written to, if anything.
cdef struct part:
    const pb_array *source
    const pb_array *target
    int64_t rows
    int64_t columns
    int64_t size        # of an element
    int64_t offset      # in a problem's memory
    bint turned         # it is stored row by row
    int64_t read        # columns that are read; what is left is 0


# One problem, with all of the memory that LAPACK reads and writes.
cdef struct problem:
    int routine         # in the order of BLAS's types
    int info
    int rows
    int columns
    int flag            # upper, Hermitian or with vectors
    int unit            # the diagonal counts as ones
    int by_rows         # the first matrix is stored row by row
    int lwork
    int lrwork
    int liwork
    char *parts[PARTS]
    char *work
    char *rwork
    int *iwork

ctypedef void (*problem_routine)(problem *of) noexcept nogil


# A batch of problems.
cdef struct task:
    problem_routine run
    pb_call *call
    const pb_array *info    # or NULL
    problem model           # of sizes; without memory
    part parts[PARTS]
    int count
    int64_t bytes           # of all parts
    bint failed             # there was no memory
    bint has_some           # done: those whose info is not -1
    pb_blas_threads *threads


cdef inline void copy_tiles(
        const unit *source, int64_t row, int64_t column, unit *target, int64_t target_row,
        int64_t target_column, int64_t rows, int64_t columns) noexcept nogil:
    """Copy a matrix by tiles that are read whole before they are written: strides may be large."""
    cdef unit tile[16 * 16]
    cdef int64_t i, j, first, start, height, width
    for first from 0 <= first < rows by 16:
        height = min(<int64_t>16, rows - first)
        for start from 0 <= start < columns by 16:
            width = min(<int64_t>16, columns - start)
            for i in range(height):
                for j in range(width):
                    tile[j * 16 + i] = source[(first + i) * row + (start + j) * column]
            for j in range(width):
                for i in range(height):
                    target[(first + i) * target_row + (start + j) * target_column] = (
                        tile[j * 16 + i])


cdef inline void copy_part(const part *of, int64_t batch, char *memory, bint back) noexcept nogil:
    """Copy a matrix into a problem's memory, or back."""
    cdef const pb_array *array = of.target if back else of.source
    cdef int64_t row, column, own_row, own_column, rows = of.rows, columns = of.columns, j
    cdef char *data
    if array == NULL:
        return
    data = <char *>array.data + batch * array.strides[0] * of.size
    row, column = array.strides[1], array.strides[2] if array.ndim > 2 else 0
    if not back and of.read < columns:
        memset(memory + rows * of.read * of.size, 0, rows * (columns - of.read) * of.size)
        columns = of.read
    if of.turned:
        row, column, rows, columns = column, row, columns, rows
    if row == 1 or rows == 1:
        for j in range(columns):
            if back:
                memcpy(data + j * column * of.size, memory + j * rows * of.size, rows * of.size)
            else:
                memcpy(memory + j * rows * of.size, data + j * column * of.size, rows * of.size)
        return
    own_row, own_column = 1, rows
    # The inner loop of reading runs along the last index.
    if back:
        if of.size == 4:
            copy_tiles(<const float *>memory, own_column, own_row, <float *>data, column, row,
                       columns, rows)
        elif of.size == 8:
            copy_tiles(<const double *>memory, own_column, own_row, <double *>data, column, row,
                       columns, rows)
        else:
            copy_tiles(<const c128 *>memory, own_column, own_row, <c128 *>data, column, row,
                       columns, rows)
    elif of.size == 4:
        copy_tiles(<const float *>data, row, column, <float *>memory, own_row, own_column,
                   rows, columns)
    elif of.size == 8:
        copy_tiles(<const double *>data, row, column, <double *>memory, own_row, own_column,
                   rows, columns)
    else:
        copy_tiles(<const c128 *>data, row, column, <c128 *>memory, own_row, own_column,
                   rows, columns)


cdef inline void release(void *context) noexcept nogil:
    free(context)


cdef inline problem *new_problem(const task *of) noexcept nogil:
    """Return a problem with memory for its parts and LAPACK's workspace, or NULL."""
    cdef int64_t size = 8 if of.model.routine % 2 == 0 else 16      # of an element, at most
    cdef int64_t head = (sizeof(problem) + 63) // 64 * 64
    cdef int64_t work = (of.model.lwork * size + 63) // 64 * 64
    cdef int64_t rwork = (of.model.lrwork * <int64_t>8 + 63) // 64 * 64
    cdef int64_t total = head + of.bytes + work + rwork + of.model.liwork * <int64_t>sizeof(int)
    cdef char *memory = <char *>malloc(total)
    cdef problem *made = <problem *>memory
    cdef int i
    if memory == NULL:
        return NULL
    advise_huge(memory, total)
    made[0] = of.model
    for i in range(of.count):
        made.parts[i] = memory + head + of.parts[i].offset
    made.work = memory + head + of.bytes
    made.rwork = made.work + work
    made.iwork = <int *>(made.rwork + rwork)
    return made


cdef inline void read_in(const task *of, problem *at, int64_t batch) noexcept nogil:
    cdef int i
    at.info = 0
    for i in range(of.count):
        copy_part(&of.parts[i], batch, at.parts[i], False)


cdef inline void write_out(const task *of, const problem *at, int64_t batch) noexcept nogil:
    cdef int i
    for i in range(of.count):
        copy_part(&of.parts[i], batch, at.parts[i], True)
    if of.info != NULL:
        (<int32_t *>of.info.data)[batch * of.info.strides[0]] = at.info


cdef inline int32_t info_of(const pb_array *info, int64_t batch) noexcept nogil:
    return (<const int32_t *>info.data)[batch * info.strides[0]]


cdef inline bint all_done(task *of) noexcept nogil:
    """True if no info is -1; else LAPACK gets those matrices alone."""
    cdef int64_t batch
    for batch in range(of.info.shape[0]):
        if info_of(of.info, batch) == -1:
            of.has_some = True
            return False
    return True


cdef inline void run_some(void *context, int64_t first, int64_t last) noexcept nogil:
    cdef task *of = <task *>context
    cdef problem *at = new_problem(of)
    cdef int64_t batch
    if at == NULL:
        of.failed = True
        return
    for batch in range(first, last):
        if of.has_some and info_of(of.info, batch) != -1:
            continue
        read_in(of, at, batch)
        of.run(at)
        write_out(of, at, batch)
        if batch % 64 == 63 and stopping():
            break
    free(at)


cdef inline void add_part(
        task *of, const pb_array *source, const pb_array *target, int64_t rows, int64_t columns,
        int64_t size) noexcept nogil:
    cdef part *made = &of.parts[of.count]
    of.count += 1
    made.source, made.target = source, target
    made.rows, made.columns, made.size, made.read = rows, columns, size, columns
    made.offset = of.bytes
    of.bytes += (rows * columns * size + 63) // 64 * 64


cdef struct detached_problem:
    problem *at
    problem_routine run


cdef inline void run_alone(void *context) noexcept nogil:
    cdef detached_problem *of = <detached_problem *>context
    of.run(of.at)


cdef inline void release_alone(void *context) noexcept nogil:
    free((<detached_problem *>context).at)
    free(context)


cdef inline int run_one_by_one(task *of, int64_t count) noexcept nogil:
    """Run long problems, each on a thread that is left behind where the call shall end."""
    cdef detached_problem *context = <detached_problem *>malloc(sizeof(detached_problem))
    cdef int64_t batch
    if context == NULL:
        return fail_memory(of.call)
    context.run = of.run
    context.at = new_problem(of)
    if context.at == NULL:
        free(context)
        return fail_memory(of.call)
    for batch in range(count):
        read_in(of, context.at, batch)
        if run_detached(run_alone, release_alone, context, stopping):
            return PB_OK
        write_out(of, context.at, batch)
        if stopping():
            break
    release_alone(context)
    return PB_OK


cdef inline int ask_for_workspace(task *of) noexcept nogil:
    """Let LAPACK say how much memory it wants for itself."""
    cdef problem at = of.model
    cdef double work[2]
    cdef double rwork[2]
    cdef int iwork[2]
    work[0] = rwork[0] = iwork[0] = 0
    at.lwork = at.lrwork = at.liwork = -1
    at.work, at.rwork, at.iwork = <char *>work, <char *>rwork, iwork
    of.run(&at)
    if at.routine % 2 == 0:
        of.model.lwork = <int>(<float *>work)[0]
        of.model.lrwork = max(of.model.lrwork, <int>(<float *>rwork)[0])
    else:
        of.model.lwork = <int>work[0]
        of.model.lrwork = max(of.model.lrwork, <int>rwork[0])
    of.model.lwork += of.model.lwork // 1024 + 1    # a large count is rounded in float
    of.model.lrwork += of.model.lrwork // 1024 + 1
    of.model.liwork = iwork[0] + 1
    return PB_OK


cdef inline int start(
        task *of, blas_table **blas, pb_call *call, problem_routine run) noexcept nogil:
    """Begin a task with the sizes of the first operand. -1: there is nothing to do."""
    cdef pb_array *a = call.in_[0]
    cdef int error
    memset(of, 0, sizeof(task))
    of.call, of.run = call, run
    if a.shape[1] > INT_MAX or a.shape[2] > INT_MAX or a.shape[1] * a.shape[2] > INT_MAX // 2:
        return fail(call, PB_E_RUNTIME, b"a matrix is too large for LAPACK")
    if a.shape[0] == 0 or a.shape[1] == 0 or a.shape[2] == 0:
        return -1
    of.model.routine = a.dtype - <int>PB_F32
    of.model.rows, of.model.columns = <int>a.shape[1], <int>a.shape[2]
    if unlikely(blas[0] == NULL):
        error = load_blas(blas)
        if error:
            return error
    of.threads = &blas[0].threads
    return PB_OK


cdef inline int finish(task *of, int64_t work, bint asks,
                       int64_t middling=MIDDLING) noexcept nogil:
    """Run a task; ``work`` is the number of multiplications of one problem.

    Of up to ``middling`` rows or columns, BLAS has one thread for each of ours.
    """
    cdef int64_t count = of.call.in_[0].shape[0]
    cdef int held, error = PB_OK
    if asks:
        ask_for_workspace(of)
    held = pb_blas_threads_hold(
        of.threads, min(of.model.rows, of.model.columns) <= middling)
    if work >= LONG:
        error = run_one_by_one(of, count)
    else:
        parallel_for(count, GRAIN // max(work, <int64_t>1) + 1, run_some, of)
        if of.failed:
            error = fail_memory(of.call)
    pb_blas_threads_release(of.threads, held)
    return error


cdef inline bint all_finite(const char *elements, int routine, int64_t n) noexcept nogil:
    cdef int64_t i
    cdef float lost_float = 0
    cdef double lost = 0
    n *= 1 + (routine >= 2)
    if routine % 2 == 0:
        for i in range(n):
            lost_float += (<const float *>elements)[i] - (<const float *>elements)[i]
        return lost_float == 0
    for i in range(n):
        lost += (<const double *>elements)[i] - (<const double *>elements)[i]
    return lost == 0


cdef inline void fill_nan(char *elements, int routine, int64_t n) noexcept nogil:
    cdef int64_t i
    n *= 1 + (routine >= 2)
    for i in range(n):
        if routine % 2 == 0:
            (<float *>elements)[i] = <float>NAN
        else:
            (<double *>elements)[i] = NAN
