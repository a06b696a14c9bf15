# build: small
"""Recording the kernels of one thread, with the memory that they use.

The recorder knows memory by its address: what is allocated from now on is the program's own, until
it is freed; the arguments' is known before; all other memory is from outside. It runs nothing and
changes nothing: what is recorded runs as it would without it.
"""

from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.object cimport PyObject
from cython cimport no_gc_clear
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset

from pullback._c.base.errors import place_of_call
from pullback.abi cimport (
    PB_ARRAY_HOST, PB_ARRAY_WRITE, PB_U8, pb_array, pb_call)
from pullback._c.base.dtype cimport dtype_itemsize
from pullback._c.base.layout cimport layout_contiguous, layout_shape
from pullback._c.base.random_position cimport record_draws
from pullback._c.base.state cimport (
    HISTORY_CHANGED, HOOKED, LEAF_MADE, OPTIONS_READ, SIZE_AS_INT, SIZE_ASKED, capture_change,
    capture_size, capturing, globals_, pb_globals, thread_state)
from pullback._c.base.types cimport pb_storage
from pullback._c.capture.code_names cimport count_hooks
from pullback._c.capture.spec cimport has_own_memory
from pullback._c.capture.recording cimport Recording
from pullback._c.program.launches cimport (
    BUFFER_CONSTANT, BUFFER_INPUT, BUFFER_OUTER, BUFFER_RESULT, BUFFER_TEMPORARY, Buffer, Launch,
    buffer_on_host, launch_of, place, place_of)
from pullback._c.program.program cimport Outer, Result, fill, result_of
from pullback._c.program.run_values cimport (
    Option, find_draw, is_random, joined_draws, options_of, rate_of)
from pullback._c.program.simplify cimport decided_first
from pullback._c.device.storage cimport (
    storage_new, storage_original, storage_release, storage_retain)
from pullback._c.graph.tensor cimport (
    TENSOR_IS_WRAPPED, TENSOR_OVERRIDES, Tensor, is_tensor, tensor_data, tensor_requires_grad,
    tensor_wrap)

from pullback.ops.table.primitives import PRIMITIVES

__all__ = ["Recorder", "refuse_element"]

cdef pb_globals *process = globals_()
cdef set fused_steps = {
    number for number, one in enumerate(PRIMITIVES.values()) if one.family == "optim"}


cdef inline int64_t begin_of(Tensor tensor) noexcept:
    return tensor.offset * dtype_itemsize[tensor.dtype]


@no_gc_clear    # while it is the process's capture, its hooks need all that it has
cdef class Recorder:
    """Records kernels between `begin` and `end`.

    Attributes: ``refusal`` (why nothing can be replayed, and the line of the program, or None),
    ``launches``, ``buffers``, ``changes`` (of each tensor whose gradient or history changed: how,
    and the gradient before).
    """

    def __cinit__(self, tuple inputs not None, bint strict, sizes=None, Recorder forward=None):
        cdef Tensor tensor
        cdef Buffer buffer
        cdef Outer prior
        self.strict, self.forward = strict, forward
        self.launches, self.buffers, self.draws, self.steps, self.begins = [], [], [], [], []
        self.changes, self.live, self.known, self.before, self.copies = {}, {}, {}, {}, {}
        self.leaves, self.rates, self.known_rates, self.memory_before = set(), [], {}, []
        self.sizes, self.inputs = sizes, list(inputs)
        self.hooks_before = [count_hooks(tensor) for tensor in inputs]
        for number, tensor in enumerate(inputs):
            prior = Outer.__new__(Outer)    # held, so that no other storage gets its address
            prior.storage = storage_retain(tensor.storage)
            self.memory_before.append(prior)
            self.begins.append(begin_of(tensor))
            if tensor.storage.data != NULL and place_of(tensor.storage) not in self.live:
                buffer = self.add(tensor.storage, BUFFER_INPUT)
                buffer.input = number
            key = <size_t>tensor.storage
            if key not in self.known:
                prior = Outer.__new__(Outer)
                prior.input = number
                self.known[key] = prior
                self.before[key] = tensor.storage.version

    def begin(self):
        """Record this thread's kernels from now on; False while a thread records."""
        if process.capture != NULL:
            return False
        self.hooks.self = <void *>self
        self.hooks.state = thread_state()
        self.hooks.rate = rate
        self.hooks.allocated = allocated
        self.hooks.freed = freed
        self.hooks.used = used
        self.hooks.launched = launched
        self.hooks.read = read
        self.hooks.written = written
        self.hooks.changed = changed
        self.hooks.refuse = refuse
        self.hooks.decided = decided
        self.hooks.stepped = stepped
        self.hooks.element = element
        if self.sizes is not None:
            self.hooks.sized = sized
        if self.forward is not None:
            self.hooks.launching = launching
        self.sequence = self.hooks.state.sequence
        self.hooks.oldest = self.sequence if self.forward is None else self.forward.sequence
        record_draws(self.draws)
        process.capture = &self.hooks
        return True

    def end(self):
        """Record nothing more, after the memory of tensors that nobody else has was given back."""
        cdef list alone = [None]
        if process.capture != &self.hooks:
            return
        try:
            while alone:
                alone = [key for key, pair in self.changes.items()
                         if (<PyObject *>(<tuple>pair)[0]).ob_refcnt == 1]
                for key in alone:
                    del self.changes[key]
        finally:
            record_draws(None)
            process.capture = NULL

    def __dealloc__(self):
        if process.capture == &self.hooks:      # an exception came before `end`
            record_draws(None)
            process.capture = NULL

    cdef Buffer add(self, pb_storage *storage, int kind):
        cdef Buffer made = Buffer.__new__(Buffer)
        made.number = <int>len(self.buffers)
        made.kind = kind
        made.nbytes = storage.nbytes
        made.device_type = storage.device_type
        made.device_index = storage.device_index
        made.at = storage
        made.first = made.last = made.input = -1
        self.buffers.append(made)
        self.live[place_of(storage)] = made
        return made

    cdef int refuse_now(self, str why) except -1:
        """Note why nothing can be replayed; raises if the caller asked for a whole graph."""
        return self.refuse(why + place_of_call() if self.refusal is None else why)

    cdef int refuse(self, str why) except -1:
        if self.refusal is None:
            self.refusal = why
        if self.strict:
            raise RuntimeError(f"compile(): cannot capture {self.refusal}")
        return 0

    cdef int snapshot(self, Buffer buffer, pb_storage *storage) except -1:
        """Keep what the host has written: it is the same in each run."""
        cdef pb_storage *copy
        if buffer.kind != BUFFER_TEMPORARY or buffer.storage != NULL:
            return 0
        copy = storage_new(storage.device_type, storage.device_index, storage.nbytes)
        buffer.storage = copy
        self.live.pop(place_of(copy), None)      # not the program's own
        fill(copy, storage)
        buffer.kind = BUFFER_CONSTANT
        return 0

    cdef int use(self, pb_storage *storage) except -1:
        """Note an operand of the next kernel."""
        cdef pb_storage *original
        cdef Buffer buffer
        cdef Outer prior
        if storage.data == NULL:
            return 0
        buffer = <Buffer>self.live.get(place_of(storage))
        if buffer is None:
            original = storage_original(storage)
            buffer = self.add(original, BUFFER_OUTER)
            buffer.storage = storage_retain(original)
        elif buffer.filled:
            self.snapshot(buffer, storage)
        buffer.at = storage
        if buffer.kind == BUFFER_OUTER or buffer.kind == BUFFER_INPUT:
            key = <size_t>storage
            if key not in self.known:
                prior = Outer.__new__(Outer)
                prior.storage = storage_retain(storage)
                self.known[key] = prior
                self.before[key] = storage.version
        return 0

    cdef int launch(self, int type_id, pb_call *call, int key, int64_t work) except -1:
        """Record a kernel that has run."""
        cdef Launch made
        cdef Buffer buffer
        cdef pb_array *array
        cdef int i, d, number = <int>len(self.launches)
        cdef bint empty
        if self.refusal is not None:
            return 0
        made = launch_of(type_id, call, key, work)
        for i in range(call.nout + call.nin):
            array = &made.arrays[i]
            if array.flags & PB_ARRAY_HOST:
                if array.flags & PB_ARRAY_WRITE:
                    return self.refuse_now("a kernel that writes to the host's memory")
                buffer = buffer_on_host(self.live, call.out[i].base)
                if buffer is None:
                    continue                # a number
                array.data, array.base = call.out[i].data, call.out[i].base
            else:
                empty = array.base == NULL
                for d in range(array.ndim):
                    empty = empty or array.shape[d] == 0
                if empty:
                    array.base = array.data = NULL
                    continue
                buffer = <Buffer>self.live.get(place(type_id, array.device, array.base))
            if buffer is None:
                return self.refuse_now("a kernel on memory that no tensor has")
            if i >= call.nout and buffer.kind == BUFFER_TEMPORARY and not buffer.written:
                for d in range(call.nout):
                    if call.out[d].base == array.base:
                        return self.refuse_now("a kernel that changes memory in place which "
                                               "nothing has written")
                self.snapshot(buffer, buffer.at)
            made.buffers[i] = buffer.number
            made.shifts[i] = <char *>array.data - <char *>array.base
            if buffer.first < 0:
                buffer.first = number
            buffer.last = number
        for i in range(call.nout):
            if made.buffers[i] >= 0:
                (<Buffer>self.buffers[made.buffers[i]]).written = True
        if is_random(made) and not find_draw(made, self.draws):
            return self.refuse_now("random numbers of an unknown generator")
        if self.steps and call.primitive in fused_steps:
            step = self.steps[len(self.steps) - 1]
            made.options = options_of(made, step[0])
            step[2] += 0 if made.options is None else made.call.param[0].i
        self.launches.append(made)
        return 0

    cdef bint decide(self, Tensor condition, object error) except -1:
        """Record that the program is for one outcome, which is returned."""
        cdef pb_array array
        cdef pb_array *pointer = &array
        cdef pb_call call
        cdef Launch made
        cdef Py_ssize_t before = len(self.launches)
        self.use(condition.storage)
        memset(&array, 0, sizeof(array))
        memset(&call, 0, sizeof(call))
        array.size = sizeof(array)
        array.dtype = condition.dtype
        array.device = condition.storage.device_index
        array.data = tensor_data(condition)
        array.base = condition.storage.data
        array.shape = array.strides = layout_shape(condition.layout)     # no dims
        call.size = sizeof(call)
        call.primitive = -1
        call.nin = 1
        call.device = array.device
        call.out = call.in_ = &pointer
        process.capture = NULL
        try:
            outcome = bool(condition.item())
        finally:
            process.capture = &self.hooks
        self.launch(condition.storage.device_type, &call, condition.dtype, 1)
        if len(self.launches) > before:
            made = <Launch>self.launches[before]
            made.expected = outcome
            if isinstance(error, BaseException):
                made.error = error
        if error is not None and not outcome:
            self.strict = False             # the function is about to raise: that is what counts
        return outcome

    def became_leaf(self, Tensor tensor not None):
        """Return True for a tensor that did not require a gradient when the capture began."""
        return <size_t><PyObject *>tensor in self.leaves

    def is_known(self, Tensor tensor not None):
        """Return True if a tensor has memory that was there before."""
        cdef Buffer buffer = <Buffer>self.live.get(place_of(tensor.storage))
        return buffer is None or buffer.kind == BUFFER_INPUT or buffer.kind == BUFFER_OUTER

    def has_new_hooks(self):
        """Return True if a tensor from outside has hooks that it had not, or keeps its gradient."""
        return self.hooked or any([count_hooks(one) != before for one, before in zip(
            self.inputs, self.hooks_before)])

    def has_other_memory(self):
        """Return True if an argument has got the memory of another tensor, as by ``data``."""
        return any([(<Tensor>one).storage != (<Outer>before).storage
                    for one, before in zip(self.inputs, self.memory_before)])

    def take_gradient(self, Tensor grad not None):
        """Make a gradient that was there an argument; False where other tensors have its memory."""
        cdef pb_storage *storage = grad.storage
        cdef Buffer buffer = <Buffer>self.live.get(place_of(storage))
        cdef Outer prior = <Outer>self.known.get(<size_t>storage)
        if self.sizes is not None:
            return False
        if buffer is None and prior is None:    # no kernel uses it
            if not has_own_memory(grad, 1):
                return False
        elif buffer is None or prior is None or (
                buffer.storage != storage or not has_own_memory(grad, 3)):
            return False
        else:
            storage_release(buffer.storage)
            storage_release(prior.storage)
            buffer.storage = prior.storage = NULL
            buffer.kind = BUFFER_INPUT
            buffer.input = prior.input = <int>len(self.inputs)
        self.inputs.append(grad)
        self.begins.append(0)
        return True

    cdef int keep_written(self, int type_id, pb_call *call) except -1:
        """Copy memory from outside that a kernel is about to write, so that it can be restored."""
        cdef Buffer buffer
        cdef pb_storage *copy
        cdef int i
        for i in range(call.nout):
            buffer = <Buffer>self.live.get(place(type_id, call.out[i].device, call.out[i].base))
            if buffer is None or buffer.kind != BUFFER_OUTER or buffer.number in self.copies:
                continue
            copy = storage_new(buffer.device_type, buffer.device_index, buffer.storage.nbytes)
            self.live.pop(place_of(copy), None)
            self.copies[buffer.number] = tensor_wrap(
                copy, layout_contiguous(1, &copy.nbytes), 0, PB_U8)
            fill(copy, buffer.storage)
        return 0

    def restore(self):
        """Undo what a pass has done that was run ahead: memory from outside, random numbers."""
        cdef Tensor copy
        cdef Outer prior
        for number, copy in self.copies.items():
            fill((<Buffer>self.buffers[number]).storage, copy.storage)
        for key, prior in self.known.items():
            if prior.storage != NULL:
                prior.storage.version = self.before[key]
        for generator, seed, first, blocks in reversed(self.draws):
            if blocks != -1:
                generator.set_position(seed, first)

    cdef list written(self):
        """Return the memory that was there before and has been written, with how often."""
        cdef list found = []
        cdef Outer prior
        for key, prior in self.known.items():
            version = (prior.storage.version if prior.storage != NULL
                       else (<Tensor>self.inputs[prior.input]).storage.version)
            if version != self.before[key]:
                prior.writes = <uint32_t>(version - self.before[key])
                found.append(prior)
        return found

    def has_written(self, Tensor tensor=None):
        """Return True if memory that was there before has been written; a tensor's, if given."""
        return bool(self.written()) if tensor is None else self.before.get(
            <size_t>tensor.storage, tensor.storage.version) != tensor.storage.version

    def has_effects(self):
        """Return True if memory, gradients or generators from outside have changed."""
        return bool(self.draws or self.changes or self.written())

    def program(self, list results not None, known=()):
        """Return the program that was recorded.

        ``results`` are the tensors that it returns, and other values, which each run returns as
        they are, like tensors whose addresses are ``known``. None if memory was made that is kept
        elsewhere: a later call will find it there. Where a graph keeps memory, that is not looked
        at.
        """
        cdef Recording recording = Recording.__new__(Recording)
        cdef Tensor tensor
        cdef Buffer buffer
        cdef Result argument
        if self.failure is not None:
            raise self.failure
        if any(blocks is None for _, _, _, blocks in self.draws):
            self.refuse_now("a new state of a generator of random numbers")
            return None
        self.launches = decided_first(self.launches, self.buffers)
        if self.launches is None:
            self.refuse_now("a choice by values after a write to a tensor from outside")
            return None
        recording.results = []
        for item in results:
            if not is_tensor(item):
                recording.results.append(item)
                continue
            tensor = <Tensor>item
            buffer = <Buffer>self.live.get(place_of(tensor.storage))
            number = next((i for i, one in enumerate(self.inputs) if one is tensor), None)
            if number is not None:
                argument = result_of(tensor, -1)
                argument.offset = number
                recording.results.append(argument)
                continue
            if tensor.storage.data == NULL and (not tensor_requires_grad(tensor) or (
                    tensor.node != NULL and <int64_t>tensor.node.sequence >= self.sequence)):
                recording.results.append(result_of(tensor, -2))
                continue
            if buffer is None or buffer.kind == BUFFER_OUTER and (
                    buffer.first < 0 or <size_t><PyObject *>tensor in known
                    or tensor.node == NULL and tensor_requires_grad(tensor)):
                recording.results.append(tensor)
                continue
            if buffer.kind == BUFFER_TEMPORARY and (buffer.filled or buffer.first < 0):
                self.snapshot(buffer, tensor.storage)
            if buffer.kind == BUFFER_TEMPORARY or buffer.kind == BUFFER_CONSTANT:
                buffer.kind = BUFFER_RESULT
            recording.results.append(result_of(tensor, buffer.number))
        if not any(is_tensor(one) and tensor_requires_grad(<Tensor>one) for one in results):
            for one in self.live.values():
                if (<Buffer>one).kind in (BUFFER_TEMPORARY, BUFFER_CONSTANT):
                    return None
        recording.launches = self.launches
        recording.buffers = self.buffers
        recording.begins = self.begins
        recording.outers = self.written()
        recording.draws = joined_draws(
            self.draws, self.launches, [] if self.forward is None else self.forward.draws)
        if recording.draws is None:
            self.refuse_now("a state of random numbers from before")
            return None
        recording.rates = self.rates
        recording.reads_options = all(count == fused for _, count, fused in self.steps)
        if self.sizes is not None:
            self.recording = recording.copy()
        made = recording.program()
        if type(made) is str:
            self.refuse_now(made)
            return None
        return made


def refuse_element(str line not None):
    """Note that this thread reads an element that it got in some line."""
    if capturing():
        (<Recorder>process.capture.self).refuse("item()" + line)


# ---- the hooks -----------------------------------------------------------------------------------

cdef inline bint here(Recorder self) noexcept:
    return self.hooks.state == thread_state()


cdef void allocated(void *self, pb_storage *storage) noexcept:
    cdef Recorder recorder = <Recorder>self
    if not here(recorder):
        return
    try:
        recorder.add(storage, BUFFER_TEMPORARY)
    except BaseException as error:
        recorder.failure = error


cdef void freed(void *self, pb_storage *storage) noexcept:
    cdef Recorder recorder = <Recorder>self
    cdef PyObject *kind
    cdef PyObject *value
    cdef PyObject *trace
    PyErr_Fetch(&kind, &value, &trace)      # it may be why memory is freed
    try:
        recorder.live.pop(place_of(storage), None)
    except BaseException as error:
        recorder.failure = error
    PyErr_Restore(kind, value, trace)


cdef void used(void *self, pb_storage *storage) noexcept:
    cdef Recorder recorder = <Recorder>self
    if recorder.refusal is not None:
        return
    try:
        recorder.use(storage)
    except BaseException as error:
        recorder.failure = error


cdef int launching(void *self, int type_id, pb_call *call) except -1:
    return (<Recorder>self).keep_written(type_id, call)


cdef int launched(void *self, int type_id, pb_call *call, int key, int64_t work) except -1:
    (<Recorder>self).launch(type_id, call, key, work)
    return 0


cdef bint is_host_written(Recorder recorder, pb_storage *storage) except -1:
    """True if only the host has written to memory: it is the same in each run."""
    cdef Buffer buffer = <Buffer>recorder.live.get(place_of(storage))
    return storage.data == NULL or buffer is not None and not buffer.written and (
        buffer.kind == BUFFER_TEMPORARY or buffer.kind == BUFFER_CONSTANT)


cdef int read(void *self, pb_storage *storage, const char *what) except -1:
    cdef Recorder recorder = <Recorder>self
    return 0 if is_host_written(recorder, storage) else recorder.refuse_now(what.decode())


cdef void written(void *self, pb_storage *storage) noexcept:
    cdef Recorder recorder = <Recorder>self
    cdef Buffer buffer
    try:
        buffer = <Buffer>recorder.live.get(place_of(storage))
        if buffer is None or buffer.kind != BUFFER_TEMPORARY or buffer.written:
            recorder.refusal = recorder.refusal or "the host writes to memory that kernels use"
        else:
            buffer.filled = True
    except BaseException as error:
        recorder.failure = error


cdef void changed(void *self, PyObject *tensor, capture_change what) noexcept:
    cdef Recorder recorder = <Recorder>self
    try:
        if what == LEAF_MADE or what == HOOKED:
            if what == LEAF_MADE:
                recorder.leaves.add(<size_t>tensor)
            elif recorder.is_known(<object>tensor):
                recorder.hooked = True
            return
        grad = None
        events = recorder.changes.setdefault(<size_t>tensor, (<object>tensor, []))[1]
        if what != HISTORY_CHANGED:
            for before, _ in events:        # later gradients are the function's own
                if before != HISTORY_CHANGED:
                    return
            if (<Tensor>tensor).extra != NULL and (<Tensor>tensor).extra.grad != NULL:
                grad = <object>(<Tensor>tensor).extra.grad
        events.append((int(what), grad))
    except BaseException as error:
        recorder.failure = error


cdef int refuse(void *self, const char *what) except -1:
    return (<Recorder>self).refuse_now(what.decode())


cdef bint decided(void *self, PyObject *condition, PyObject *error) except -1:
    return (<Recorder>self).decide(<Tensor>condition, <object>error)


cdef int stepped(void *self, PyObject *group, Py_ssize_t count) except -1:
    if count == OPTIONS_READ:
        (<Recorder>self).reads_options = True
    elif count:
        (<Recorder>self).steps.append([<object>group, count, 0])
    return 0


cdef object rate(void *self, object value, Py_ssize_t count):
    cdef Recorder recorder = <Recorder>self
    cdef Option option
    if not recorder.steps:
        return value
    step = recorder.steps[len(recorder.steps) - 1]
    process.capture = NULL                  # the tensor is there before the program
    try:
        option = rate_of(step[0], value, recorder.known_rates)
    finally:
        process.capture = &recorder.hooks
    if option is None:
        return value
    step[2] += count
    recorder.rates.append(option)
    return option.tensor


cdef object element(void *self, object tensor, object value):
    cdef Recorder recorder = <Recorder>self
    if is_host_written(recorder, (<Tensor>tensor).storage):
        return value
    if recorder.element is not None and recorder.refusal is None and not (
            (<Tensor>tensor).flags & (TENSOR_OVERRIDES | TENSOR_IS_WRAPPED)):
        found = recorder.element(tensor, value)
        if found is not None:
            return found
    recorder.refuse_now("item()")
    return value


cdef object sized(void *self, object size, capture_size what):
    sizes = (<Recorder>self).sizes
    if what == SIZE_AS_INT:
        return sizes.fixed(size)
    return sizes.sized(size) if what == SIZE_ASKED else sizes.plain(size)
