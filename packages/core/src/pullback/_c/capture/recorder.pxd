from libc.stdint cimport int64_t

from pullback.abi cimport pb_call
from pullback._c.base.state cimport pb_capture
from pullback._c.base.types cimport pb_storage
from pullback._c.capture.recording cimport Recording
from pullback._c.graph.tensor cimport Tensor
from pullback._c.program.launches cimport Buffer


# Records the kernels of one thread.
cdef class Recorder:
    cdef pb_capture hooks
    cdef readonly list launches
    cdef readonly list buffers
    cdef readonly dict changes          # address -> (tensor, its changes)
    cdef dict copies                    # of a pass that is run ahead: number of a buffer -> before
    cdef set leaves                     # addresses of tensors that have come to require a gradient
    cdef readonly list draws            # (generator, seed, first block, blocks), in order
    cdef readonly str refusal
    cdef bint strict
    cdef bint hooked                    # a leaf from outside has got a hook
    cdef readonly bint reads_options    # the program has asked for those of an optimizer
    cdef object failure                 # an exception of the recorder itself
    cdef readonly list steps            # of optimizers: [group, parameters, those of fused steps]
    cdef list rates                     # Option: learning rates that are tensors
    cdef public dict known_rates        # of all captures of a function, by the group's address
    cdef dict live                      # place of memory -> its Buffer
    cdef dict known                     # address of a storage that was there before -> Outer
    cdef dict before                    # the same -> its version when it was first used
    cdef list begins                    # of the arguments: bytes from their memory's begin
    cdef object sizes                   # notes what Python code does with sizes; or None
    cdef public object element          # of a tensor and its value: what item() returns; or None
    cdef readonly Recording recording   # while it does: what the program is made of
    cdef list inputs
    cdef int64_t sequence               # of the first node that is made
    cdef list hooks_before              # how many hooks each argument has
    cdef list memory_before             # Outer: each argument's storage
    cdef Recorder forward               # of the pass whose backward pass this is; or None

    cdef Buffer add(self, pb_storage *storage, int kind)
    cdef int refuse_now(self, str why) except -1
    cdef int refuse(self, str why) except -1
    cdef int snapshot(self, Buffer buffer, pb_storage *storage) except -1
    cdef int use(self, pb_storage *storage) except -1
    cdef int launch(self, int type_id, pb_call *call, int key, int64_t work) except -1
    cdef bint decide(self, Tensor condition, object error) except -1
    cdef int keep_written(self, int type_id, pb_call *call) except -1
    cdef list written(self)
