from libc.stdint cimport int16_t, int64_t

from pullback.abi cimport pb_array, pb_call
from pullback._c.base.types cimport pb_storage


cdef enum buffer_kind:
    BUFFER_TEMPORARY = 0        # made by the program, and freed by it
    BUFFER_RESULT = 1           # made by the program for its caller
    BUFFER_INPUT = 2            # of an argument
    BUFFER_OUTER = 3            # that was there before and is no argument's: parameters, states
    BUFFER_CONSTANT = 4         # that the host wrote while the program was recorded


# A block of memory that kernels of a program use.
cdef class Buffer:
    cdef readonly int number
    cdef readonly int kind
    cdef readonly int64_t nbytes
    cdef readonly int input             # of a BUFFER_INPUT: number of the argument
    cdef readonly int first, last       # launches that use it, the first and the last; -1: none
    cdef readonly int64_t place         # of a temporary: its offset in its arena, in bytes
    cdef int arena                      # of a temporary: the number of its arena
    cdef readonly bint written          # by a kernel
    cdef int16_t device_type, device_index
    cdef pb_storage *storage            # owned: of an outer buffer; of a constant: a copy
    cdef pb_storage *at                 # while the program is recorded: a storage that has it
    cdef bint filled                    # the host has written to it


# One recorded kernel call, with operands and parameters of its own; or a decision, which has one
# operand and no output.
cdef class Launch:
    cdef pb_call call
    cdef pb_array *arrays               # in one block with all that follows; owned
    cdef int *buffers                   # of each operand: its buffer's number; -1: none
    cdef int64_t *shifts                # of each operand: bytes from its buffer's begin
    cdef int type_id
    cdef int key
    cdef int64_t work
    cdef readonly int draw              # of a random kernel: number of its draw; -1: none
    cdef int seed, offset               # of a random kernel: numbers of these parameters
    cdef int64_t draw_shift             # blocks from the draw's first block
    cdef readonly object expected       # of a decision: its outcome; None of a kernel
    cdef readonly object error          # of a decision: what is raised if it is False, or None
    cdef list options                   # of an optimizer's step: (parameter, Option) pairs

    cdef Launch copy(self)
    cdef bint reads_host(self) noexcept


cdef Launch launch_of(int type_id, pb_call *call, int key, int64_t work, Launch like=*)
cdef object place_of(pb_storage *storage)
cdef Buffer buffer_on_host(dict live, void *base)


cdef inline object place(int type_id, int device, void *data):
    """Return what identifies memory: its address, or handle, and its device."""
    return <size_t>data ^ <size_t>type_id << 56 ^ <size_t>device << 48
