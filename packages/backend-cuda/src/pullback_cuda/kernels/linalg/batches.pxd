# Batches of matrices for cuBLAS and cuSOLVER. Operands are copied into memory of the call, which is
# stored column by column; a function of cusolver.py calls the library; results are copied out.
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t

from pullback.abi cimport pb_array, pb_call

cdef enum:
    PARTS = 4       # operands, results and further memory of a problem, at most
    LARGE = 192     # rows from which on one call for each matrix beats a call for all of them


# A matrix or vector of each problem: what it is read from and written to, if anything.
ctypedef struct part:
    pb_array *source
    pb_array *target
    int dtype
    int64_t rows
    int64_t columns
    int64_t strides[3]      # in memory, of the batch, rows and columns; elements
    bint turned             # memory holds the transpose of the arrays
    bint apart              # results are never computed in the target's own memory
    bint lower              # what is above the diagonal of the target is 0
    bint owned              # it has a place in the call's memory
    char *data

ctypedef struct task
ctypedef int (*task_step)(task *of) noexcept nogil

# A batch of problems.
ctypedef struct task:
    pb_call *call
    PyObject *routine       # of cusolver.py, or NULL: borrowed from the module
    task_step after         # what follows the library's work, or NULL
    int64_t batch
    bint at_once            # one call of the library for all matrices
    int options[2]          # for the routine
    int count
    part parts[PARTS]
    pb_array *info          # gets a code for each matrix, or NULL
    bint marked             # where there is no result the outputs are NaN
    bint screened           # of matrices with elements that are not finite there is no result
    int of_infinity         # their codes
    int of_nan
    char *start
    size_t nbytes
    int32_t *codes
    int32_t *flags


cdef PyObject *routine_named(str name) except NULL
cdef bint start(task *of, pb_call *call, PyObject *routine) noexcept nogil
cdef part *add_part(task *of, pb_array *source, pb_array *target, int dtype, int64_t rows,
                    int64_t columns) noexcept nogil
cdef int run_task(task *of) noexcept nogil
