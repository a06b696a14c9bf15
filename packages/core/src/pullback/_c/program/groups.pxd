from libc.stdint cimport int64_t

from pullback.abi cimport PB_MESSAGE_SIZE, pb_array, pb_call
from pullback._c.device.device cimport pb_device_type, pb_entry
from pullback._c.program.rows cimport MAX_DIMS, MAX_TILED


# One launch of a group: what of its operands depends on the rows of a tile.
ctypedef struct pb_member:
    pb_call *call
    pb_entry *entry
    int count                   # operands
    int slots[MAX_TILED]        # the slot of an operand that stays in the cache; -1: none
    int64_t advance[MAX_TILED]  # bytes from one row to the next
    int64_t scale[MAX_TILED]    # entries of the first dim in a row
    int block                   # random numbers of a block; 0: not a random kernel
    int offset                  # number of the parameter with the first block
    int64_t row                 # elements of a row


# Launches that run tile by tile.
cdef class Group:
    cdef readonly int first, count      # launches
    cdef readonly int64_t rows          # that are independent of one another
    cdef readonly int64_t tile          # rows of a tile
    cdef readonly int nslots
    cdef readonly int64_t slot          # bytes of a slot
    cdef readonly set inner             # numbers of buffers that have a slot instead of a place
    cdef list slots                     # of each launch, of each operand
    cdef list advance
    cdef list scale


cdef list find_groups(list launches, list buffers)
cdef set hold_for_groups(list groups, list buffers)
cdef int fill_members(Group group, list launches, pb_member *members) except -1
cdef int run_group(Group group, pb_member *members, pb_device_type *found,
                   char *message) except -1
