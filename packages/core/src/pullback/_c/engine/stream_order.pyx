# build: small
"""Synchronisation of streams in a backward pass, and of memory that streams share.

A node runs on the streams that were current when its outputs were made. Its stream waits for the
stream of a gradient just before the node runs, or before another gradient is added to it, which
happens on the node's stream. Until then both streams run concurrently. Work on a device for which
the node has no stream is on the caller's current stream. At the end the caller's streams wait for
the streams of captured and accumulated gradients.
"""

import warnings

from libc.stdint cimport uint16_t, uint32_t

from pullback._c.graph.levels cimport whole
from pullback._c.device.device cimport device_types
from pullback._c.engine.ready cimport node_task
from pullback._c.device.streams cimport (
    memory_use, pb_stream, stream_default, stream_now, stream_of, stream_set, stream_use,
    stream_wait)
from pullback._c.graph.tensor cimport TENSOR_IS_BATCHED, Tensor, tensor_device
from pullback._c.base.types cimport NODE_ACCUMULATE, node_meta, pb_meta, pb_node

cdef bint mismatch_warned = False       # once is enough


def warn_of_mismatch(bint enabled):
    """Turn the warning about gradients of a leaf from another stream on or off."""
    global mismatch_warned
    mismatch_warned = not enabled


cdef uint16_t stream_on(pb_node *node, int device_type, int device_index) except? 0:
    """Return the stream of a node on a device, or 0."""
    cdef pb_meta *meta = node_meta(node)
    cdef uint32_t i
    for i in range(node.noutputs):
        if meta[i].device_type == device_type and meta[i].device_index == device_index:
            return meta[i].stream or stream_default(device_type, device_index)
    return 0


cdef uint16_t own_stream(pb_node *node, uint32_t nr) except? 0:
    """Return the stream of a node on the device of one of its outputs."""
    cdef pb_meta *meta = node_meta(node) + nr
    return stream_on(node, meta.device_type, meta.device_index)


cdef int use_grad(Tensor grad, uint16_t number) except -1:
    if grad.flags & TENSOR_IS_BATCHED:
        grad = whole(grad)
    return stream_use(grad.storage, number)


cdef int wait_here(node_task *task) except -1:
    """Let the streams of a node wait for the streams of its gradients."""
    cdef pb_stream *stream
    cdef uint16_t awaited
    cdef int i
    for i in range(2):
        awaited = task.awaited[i]
        if awaited:
            task.awaited[i] = 0
            stream = stream_of(awaited)
            stream_wait(stream_on(task.node, stream.device_type, stream.device_index), awaited)
    return 0


cdef class StreamOrder:
    """The streams of a backward pass: the caller's, and those that the caller must wait for."""

    def __cinit__(self):
        self.callers = {}
        self.leaves = set()

    cdef uint16_t caller_on(self, int device_type, int device_index) except? 0:
        """Return the caller's current stream; at the first call it is still current."""
        cdef size_t key = <size_t>device_type << 16 | <size_t>device_index
        found = self.callers.get(key)
        if found is None:
            found = self.callers[key] = stream_now(device_type, device_index)
        return found

    cdef int enter(self, node_task *task) except -1:
        """Make a node's streams current, and let them wait for the streams of its gradients."""
        cdef pb_meta *meta = node_meta(task.node)
        cdef uint16_t caller, number
        cdef pb_stream *stream
        cdef uint32_t i
        for i in range(task.noutputs):
            if device_types()[meta[i].device_type].streams:
                self.caller_on(meta[i].device_type, meta[i].device_index)
        for value in self.callers.values():
            caller = value
            stream = stream_of(caller)
            number = stream_on(task.node, stream.device_type, stream.device_index)
            stream_set(number or caller)
        return wait_here(task)

    cdef uint16_t source_of(self, pb_node *source, uint16_t own) except? 0:
        """Return the stream on which a gradient was computed; `own` is on the same device."""
        cdef pb_stream *stream = stream_of(own)
        cdef uint16_t number = 0
        if source != NULL:
            number = stream_on(source, stream.device_type, stream.device_index)
        return number or self.caller_on(stream.device_type, stream.device_index)

    cdef uint16_t arrive(self, pb_node *source, node_task *task, uint32_t nr, Tensor grad,
                         bint is_added) except? 0:
        """Note the stream of a gradient for an input buffer; without `source`, it is the caller's.

        If it is going to be added to another one, make the node's stream current and return the
        current one before, which the engine restores (0: none).
        """
        cdef uint16_t own = own_stream(task.node, nr), number
        if not own:
            return 0
        number = self.source_of(source, own)
        if number != own:
            if (task.node.kind == NODE_ACCUMULATE and task.dependencies == 1 and not is_added
                    and not mismatch_warned):
                warn_once()
            use_grad(grad, own)
            if number != task.awaited[0] and number != task.awaited[1]:
                if task.awaited[0] and task.awaited[1]:
                    wait_here(task)
                task.awaited[1 if task.awaited[0] else 0] = number
        if not is_added:
            return 0
        wait_here(task)
        return stream_set(own)

    cdef bint is_shared(self, pb_node *source, node_task *task, uint32_t nr) except -1:
        """True if a node and the next one are on one stream: it may add to the next input buffer,
        which is of that stream, or STORAGE_SHARED."""
        cdef uint16_t own = own_stream(task.node, nr)
        return not own or self.source_of(source, own) == own

    cdef int hand_over(self, pb_node *node, uint32_t nr, Tensor grad) except -1:
        """Note that the caller gets a captured gradient of a node."""
        cdef uint16_t own = own_stream(node, nr), caller
        if own:
            caller = self.source_of(NULL, own)
            self.leaves.add(own)
            if own != caller:
                use_grad(grad, caller)
        return 0

    cdef int finish_leaf(self, pb_node *node) except -1:
        """Note that a node without edges has run: the caller may read the .grad that it wrote."""
        cdef uint16_t own
        cdef uint32_t i
        if node.kind == NODE_ACCUMULATE:
            if (<Tensor>node.op).extra.grad != NULL:
                self.hand_over(node, 0, <Tensor>(<Tensor>node.op).extra.grad)
            return 0
        for i in range(node.noutputs):
            own = own_stream(node, i)
            if own:
                self.leaves.add(own)
        return 0

    cdef int leave(self, bint failed) except -1:
        """Make the caller's streams current again, and let them wait for the gradients it gets.

        A nested pass adds its streams to those of the outer one. After a failure, an exception of
        this method does not replace the first one.
        """
        try:
            self.restore()
        except Exception:
            if not failed:
                raise
        return 0

    cdef int restore(self) except -1:
        cdef uint16_t number, caller
        cdef pb_stream *stream
        for value in self.callers.values():
            stream_set(value)
        while self.leaves:
            number = self.leaves.pop()
            stream = stream_of(number)
            caller = self.caller_on(stream.device_type, stream.device_index)
            if caller != number:
                stream_wait(caller, number)
            if self.outer is not None:
                self.outer.leaves.add(caller)
        self.callers.clear()
        return 0


cdef int warn_once() except -1:
    global mismatch_warned
    mismatch_warned = True
    warnings.warn(
        "a leaf's only gradient comes from another stream than the one that was current when its "
        "accumulator was made: the streams have to wait for each other. The accumulator is as old "
        "as the oldest graph that uses the leaf: let go of old graphs (a loss that is kept holds "
        "its graph), or switch this warning off with pullback.autograd.graph."
        "set_warn_on_accumulate_grad_stream_mismatch(False)", UserWarning, stacklevel=1)
    return 0


def record_stream(Tensor self not None, stream):
    """Notify the backend that a stream, or the one at an address, uses the tensor's memory."""
    cdef Tensor tensor = whole(self) if self.flags & TENSOR_IS_BATCHED else self
    handle = stream
    for name in ("cuda_stream", "handle"):
        if not isinstance(handle, int):
            handle = getattr(stream, name, None)
    if not isinstance(handle, int) or isinstance(handle, bool):
        raise TypeError(f"record_stream(): argument 'stream' must be a stream or its address, not "
                        f"{type(stream).__name__}")
    if not 0 <= handle < 1 << 64:
        raise RuntimeError(f"record_stream(): argument 'stream' is no address: {handle}")
    if not device_types()[tensor.storage.device_type].streams:
        raise NotImplementedError(f"record_stream(): the device {tensor_device(tensor)} has no "
                                  f"streams")
    memory_use(tensor.storage, <void *><size_t>handle)
