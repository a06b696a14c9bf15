# build: small
"""Device types, each with a dense table of kernels; devices, the default and the current one.

Memory is in `storage.pyx`, streams in `streams.pyx`; launching is the layer `dispatch`.
"""

from cpython.mem cimport PyMem_Calloc
from cpython.object cimport PyObject
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t

from pullback.abi cimport (
    PB_ABI_VERSION, PB_BACKEND_CAPSULE, PB_BACKEND_HANDLES, PB_BACKEND_HOST, PB_E_PYTHON,
    PB_C32, PB_C64, PB_KERNEL_CAPSULE, PB_MESSAGE_SIZE, PB_NUM_DTYPES, PB_U16, pb_backend,
    pb_kernel)
from pullback.pool cimport pb_pool_trim
from pullback._c.base.dtype cimport dtype_object, dtype_signed
from pullback._c.base.errors cimport keep_error, raise_failure
from pullback._c.base.state cimport process_pool, thread_state

from pullback._c.device.py_allocator import wrap_memory
from pullback.ops.table.primitives import PRIMITIVE_IDS, PRIMITIVES

__all__ = ["device", "device_count", "get_default_device", "known_device_types",
           "set_default_device"]

cdef pb_device_type types[MAX_DEVICE_TYPES]
cdef unsigned int refused_dtypes[MAX_DEVICE_TYPES]     # masks: what a plugin left out
cdef unsigned char layouts[MAX_DEVICE_TYPES][MAX_PRIMITIVES]    # ROWS_FIRST and so on
cdef int type_count = 0
cdef dict type_ids = {}
cdef dict cached = {}
cdef device default_device = None

# Set by pullback.backend.registry: loads a device type's plugin, and names the default device.
cdef object load_plugin = None
cdef object choose_default = None


def bind(load, choose):
    """Install the functions that load plugins and choose the default device."""
    global load_plugin, choose_default
    load_plugin = load
    choose_default = choose


cdef pb_device_type *device_types() noexcept nogil:
    return &types[0]


cdef int device_type_id(str name, bint create) except -2:
    """Return the id of a device type; -1 when unknown and not to be created."""
    global type_count
    found = type_ids.get(name)
    if found is not None:
        return found
    if not create:
        return -1
    if type_count == MAX_DEVICE_TYPES:
        raise RuntimeError(f"too many device types: {name!r} is one more than {MAX_DEVICE_TYPES}")
    encoded = name.encode()
    Py_INCREF(encoded)
    Py_INCREF(name)
    types[type_count].name = <const char *>encoded
    types[type_count].name_object = <PyObject *>name
    types[type_count].table = <pb_entry *>PyMem_Calloc(
        MAX_PRIMITIVES * PB_NUM_DTYPES, sizeof(pb_entry))
    if types[type_count].table == NULL:
        raise MemoryError()
    type_ids[name] = type_count
    type_count += 1
    return type_count - 1


for known in ("meta", "ref", "cpu", "cuda"):
    device_type_id(known, True)
types[DEVICE_META].loaded = True
types[DEVICE_REF].host = True


cdef pb_device_type *device_type(int type_id) except NULL:
    """Return the device type, loaded; raises the exception of a load that failed."""
    cdef pb_device_type *found = &types[type_id]
    if found.loaded:
        return found
    if found.error != NULL:
        raise (<object>found.error).with_traceback(None)
    try:
        load_plugin(<str>found.name_object)
    except Exception as error:
        # Lack of stack or memory may be temporary; other failures are permanent.
        if not isinstance(error.__cause__ or error, (MemoryError, RecursionError)):
            Py_INCREF(error)
            found.error = <PyObject *>error
        raise
    found.loaded = True
    return found


def known_device_types():
    """Return the names of the device types so far, indexed by the numbers that observers receive.

    >>> import pullback
    >>> pullback.backend.device_types()[0]
    'meta'
    """
    return list(type_ids)


def install_backend(str name, capsule):
    """Set the memory functions of a device type; None: those of the C library.

    ``capsule`` is a PyCapsule of a ``pb_backend``, or a Python object with its methods.
    """
    cdef pb_device_type *found = &types[device_type_id(name, True)]
    cdef pb_backend *backend
    if capsule is None:
        found.host = True
        return
    if not PyCapsule_IsValid(capsule, PB_BACKEND_CAPSULE):
        capsule = wrap_memory(name, capsule)
    backend = <pb_backend *>PyCapsule_GetPointer(capsule, PB_BACKEND_CAPSULE)
    if backend.abi_version != PB_ABI_VERSION:
        raise RuntimeError(f"backend {name!r} was built for ABI version {backend.abi_version} of "
                           f"pullback, this is version {PB_ABI_VERSION}: rebuild the plugin "
                           "(docs/reference/abi.md says what changed)")
    Py_INCREF(capsule)
    found.capsule = <PyObject *>capsule
    found.backend = backend
    found.host = (backend.flags & PB_BACKEND_HOST) != 0
    found.handles = (backend.flags & PB_BACKEND_HANDLES) != 0
    found.streams = (backend.current_stream != NULL and has_field(backend, &backend.set_stream)
                     and backend.set_stream != NULL and backend.wait_stream != NULL)


def install_kernel(str name, int primitive, unsigned int mask, kernel, bint conj=False):
    """Put a kernel into a device type's table, for every dtype of the mask."""
    cdef pb_device_type *found = &types[device_type_id(name, True)]
    cdef pb_kernel pointer = NULL
    cdef pb_entry *entry
    cdef int code
    if not 0 <= primitive < MAX_PRIMITIVES:
        raise RuntimeError(f"backend {name!r}: there can be at most {MAX_PRIMITIVES} primitives")
    if PyCapsule_IsValid(kernel, PB_KERNEL_CAPSULE):
        pointer = <pb_kernel>PyCapsule_GetPointer(kernel, PB_KERNEL_CAPSULE)
    elif type(kernel).__name__ == "PyCapsule":
        raise TypeError(f"backend {name!r}: a kernel capsule must be named "
                        f"{PB_KERNEL_CAPSULE.decode()!r}, got {kernel!r}")
    elif not callable(kernel):
        raise TypeError(f"backend {name!r}: a kernel must be a PyCapsule or callable, "
                        f"got {type(kernel).__name__}")
    for code in range(PB_NUM_DTYPES):
        if mask & (1 << code):
            entry = &found.table[primitive * PB_NUM_DTYPES + code]
            Py_INCREF(kernel)
            Py_XDECREF(entry.callable)
            entry.callable = <PyObject *>kernel
            entry.kernel = pointer
            entry.resolution = 1
            entry.takes_conj = conj and pointer != NULL


def install_dtypes(str name, unsigned int mask):
    """State the dtypes of a device type; tensors of others are refused from then on."""
    refused_dtypes[device_type_id(name, True)] = ~mask


def install_layout(str name, int primitive, str layout):
    """State the order of dims in memory that a primitive of a device type prefers."""
    layouts[device_type_id(name, True)][primitive] = (
        CHANNELS_LAST if layout == "channels_last" else COLUMNS_FIRST)


cdef int preferred_layout(int type_id, int primitive) noexcept nogil:
    return layouts[type_id][primitive]


def offers_dtype(where, dtype):
    """Tell whether a device has a dtype, given as object; None: the default device."""
    cdef device d = default_now() if where is None else device_parse(where)
    return not refused_dtypes[d.type_id] >> <int>dtype.code & 1


cdef int device_check_dtype(int type_id, int dtype) except -1:
    """Raise unless a device type of a plugin has a dtype."""
    if refused_dtypes[type_id] >> dtype & 1:
        raise_dtype(type_id, dtype)
    return 0


cdef int raise_dtype(int type_id, int dtype) except -1:
    offered = [dtype_object(code).name for code in range(PB_NUM_DTYPES)
               if not refused_dtypes[type_id] >> code & 1]
    name = <str>types[type_id].name_object
    raise TypeError(f"Cannot make a tensor of {dtype_object(dtype).name} on device {name!r}: its "
                    f"backend has {', '.join(offered)}")


cdef class device:
    """A device type and an optional index: the location of a tensor's memory.

    Raises: RuntimeError for malformed names.

    >>> import pullback
    >>> pullback.device("cuda:1")
    device(type='cuda', index=1)
    """

    def __init__(self, type=None, index=None):
        cdef device parsed
        if type is None:
            raise TypeError("device(): argument 'type' must be a str, a device or an int")
        parsed = device_parse(type)
        if index is not None:
            if parsed.ordinal >= 0:
                raise RuntimeError(f"device(): type {type!r} already holds an index, got {index}")
            if not isinstance(index, int) or index < 0 or index > 32767:
                raise RuntimeError(f"Device index must be from 0 to 32767, got {index!r}")
            parsed = device_make(parsed.type_id, index)
        self.type = parsed.type
        self.type_id = parsed.type_id
        self.ordinal = parsed.ordinal

    @property
    def index(self):
        """The number, or None when none was given."""
        return None if self.ordinal < 0 else self.ordinal

    def __repr__(self):
        if self.ordinal < 0:
            return f"device(type='{self.type}')"
        return f"device(type='{self.type}', index={self.ordinal})"

    def __str__(self):
        return self.type if self.ordinal < 0 else f"{self.type}:{self.ordinal}"

    def __eq__(self, other):
        if type(other) is not device:
            return NotImplemented
        return (self.type_id == (<device>other).type_id
                and self.ordinal == (<device>other).ordinal)

    def __hash__(self):
        return hash((self.type, self.ordinal))

    def __reduce__(self):
        return device, (str(self),)

    def __enter__(self):
        defaults_stack.append(default_device)
        try:
            set_default_device(self)
        except BaseException:
            defaults_stack.pop()
            raise
        return self

    def __exit__(self, kind, value, traceback):
        global default_device
        default_device = defaults_stack.pop()


cdef list defaults_stack = []


cdef device device_make(int type_id, int ordinal):
    key = type_id * 65536 + ordinal
    found = cached.get(key)
    if found is None:
        found = device.__new__(device)
        (<device>found).type = <str>types[type_id].name_object
        (<device>found).type_id = type_id
        (<device>found).ordinal = ordinal
        cached[key] = found
    return <device>found


cdef device device_parse(object value):
    """Return the device that an argument names."""
    cdef int type_id
    if type(value) is device:
        return <device>value
    if isinstance(value, str):
        name, colon, number = value.partition(":")
        if not name.replace("_", "").isalnum() or (colon and not number.isdecimal()):
            raise RuntimeError(f"Invalid device string: '{value}'")
        if number and (len(number) > 5 or int(number) > 32767 or str(int(number)) != number):
            raise RuntimeError(f"Invalid device string: '{value}'")
        type_id = device_type_id(name, False)
        if type_id < 0:
            load_plugin(name)
            type_id = device_type_id(name, True)
            types[type_id].loaded = True
        return device_make(type_id, int(number) if number else -1)
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0 or value > 32767:
            raise RuntimeError(f"Device index must be from 0 to 32767, got {value}")
        return device_make(DEVICE_CUDA, value)
    raise TypeError(f"device must be a str, a pullback.device or an int, "
                    f"not {type(value).__name__}")


cdef int device_index(device d) except -1:
    """Return the index among the backend's devices; raises where there is no such device."""
    cdef pb_device_type *found = device_type(d.type_id)
    cdef int ordinal = d.ordinal if d.ordinal >= 0 else thread_state().devices[d.type_id]
    cdef int count = 1
    if d.type_id == DEVICE_META:
        return ordinal
    if found.backend != NULL and found.backend.device_count != NULL:
        count = found.backend.device_count(found.backend.self)
    if ordinal >= count:
        raise RuntimeError(f"device {d} does not exist: the backend {d.type!r} has "
                           f"{count} device(s)")
    return ordinal


cdef device default_now():
    global default_device
    if default_device is None:
        default_device = device_parse(choose_default())
    return default_device


cdef int device_default_type() except -1:
    return default_now().type_id


cdef int device_default_ordinal() noexcept:
    """Return the index of the default device; call `device_default_type` first."""
    if default_device.ordinal >= 0:
        return default_device.ordinal
    return thread_state().devices[default_device.type_id]


def current_device(str name):
    """Return the index of this thread's current device of a type, used where no index is given.

    >>> import pullback
    >>> pullback.backend.current_device("ref")
    0
    """
    return thread_state().devices[device_type_id(name, True)]


def set_current_device(str name, number):
    """Set this thread's current device of a type, used where no index is given.

    Raises: RuntimeError where there is no such device.

    >>> import pullback
    >>> pullback.backend.set_current_device("ref", 0)
    """
    cdef int type_id = device_type_id(name, True)
    cdef int count = device_count(name)
    if not 0 <= number < min(count, 255):
        raise RuntimeError(f"invalid device ordinal: {name}:{number} does not exist, the backend "
                           f"{name!r} has {count} device(s)")
    thread_state().devices[type_id] = number


def get_default_device():
    """Return the device of tensors made without one.

    >>> import pullback
    >>> pullback.get_default_device() == pullback.zeros(1).device
    True
    """
    return default_now()


def set_default_device(where):
    """Set the device of tensors made without one; None restores the original choice.

    Raises: RuntimeError when the device cannot be used.
    """
    global default_device
    if where is None:
        default_device = None
        return
    parsed = device_parse(where)
    device_index(parsed)
    default_device = parsed


def device_count(str name):
    """Return how many devices a backend has.

    Raises: RuntimeError for a device type that cannot be used.

    >>> import pullback
    >>> pullback.backend.device_count("ref")
    1
    """
    cdef pb_device_type *found = device_type(device_type_id(name, True))
    if found.backend != NULL and found.backend.device_count != NULL:
        return found.backend.device_count(found.backend.self)
    return 1


def times_kernels(str name):
    """Tell whether a backend has marks, by which profilers time its kernels.

    Raises: RuntimeError for a device type that cannot be used.

    >>> import pullback
    >>> pullback.backend.times_kernels("ref")
    False
    """
    cdef pb_backend *backend = device_type(device_type_id(name, True)).backend
    return backend != NULL and has_field(backend, &backend.release_mark) and backend.mark != NULL


def synchronize(where):
    """Wait until the device has finished all queued work.

    Raises: the exception of queued work that failed; RuntimeError where the backend names none.

    >>> import pullback
    >>> pullback.synchronize("ref")
    """
    cdef device d = device_parse(where)
    cdef int ordinal = device_index(d)
    cdef pb_backend *backend = types[d.type_id].backend
    cdef char message[PB_MESSAGE_SIZE]
    cdef int code
    message[0] = 0
    if backend != NULL and backend.synchronize != NULL:
        code = backend.synchronize(backend.self, ordinal, message)
        if code:
            raise_failure(code, message, "synchronize()", d)


def memory_stats(where=None):
    """Return bytes in use, their peak, bytes held and the number of allocations of a device.

    Without an argument: of the default device. Backends that do not count report 0.

    >>> import pullback
    >>> sorted(pullback.memory_stats())[0]
    'allocated_bytes.all.current'
    """
    cdef device d = default_now() if where is None else device_parse(where)
    cdef int ordinal = device_index(d)
    cdef pb_backend *backend = types[d.type_id].backend
    cdef int64_t stats[4]
    stats[0] = stats[1] = stats[2] = stats[3] = 0
    if backend != NULL and backend.memory_stats != NULL:
        backend.memory_stats(backend.self, ordinal, stats)
    return {"allocated_bytes.all.current": stats[0], "allocated_bytes.all.peak": stats[1],
            "reserved_bytes.all.current": stats[2], "allocation.all.allocated": stats[3]}


def reset_peak_memory_stats(where=None):
    """Reset the peak of ``memory_stats`` to the bytes in use.

    >>> import pullback
    >>> pullback.reset_peak_memory_stats()
    >>> stats = pullback.memory_stats()
    >>> stats["allocated_bytes.all.peak"] == stats["allocated_bytes.all.current"]
    True
    """
    cdef device d = default_now() if where is None else device_parse(where)
    cdef int ordinal = device_index(d)
    cdef pb_backend *backend = types[d.type_id].backend
    if backend != NULL and has_field(backend, &backend.reset_peak) and (
            backend.reset_peak != NULL):
        backend.reset_peak(backend.self, ordinal)


def empty_cache(where=None):
    """Return cached memory that no tensor and no node uses to the system."""
    cdef device d = default_now() if where is None else device_parse(where)
    cdef int ordinal = device_index(d)
    cdef pb_backend *backend = types[d.type_id].backend
    if backend != NULL and backend.empty_cache != NULL:
        backend.empty_cache(backend.self, ordinal)
        keep_error(PB_E_PYTHON)
    pb_pool_trim(process_pool(), 0)


def explain_entry(str device, str primitive, dtype, bint decomposable=False):
    """Return how a primitive runs for a dtype, as a text that `explain` prints."""
    from pullback.ops.table.primitives import PRIMITIVE_IDS, PRIMITIVES
    cdef Py_ssize_t code = dtype.code
    cdef Py_ssize_t index = <Py_ssize_t>PRIMITIVE_IDS[primitive] * PB_NUM_DTYPES + code
    cdef pb_entry *entry
    if device not in known_device_types():
        raise RuntimeError(f"there is no device type {device!r}")
    entry = &device_type(device_type_id(device, False)).table[index]
    if entry.kernel != NULL:
        return "kernel"
    if entry.callable != NULL:
        return "python"
    if code >= PB_U16:
        index += (PB_C64 if code == PB_C32 else dtype_signed(code)) - code
        entry = &device_type(device_type_id(device, False)).table[index]
        if entry.kernel != NULL or entry.callable != NULL:
            return "kernel of another dtype"
    if decomposable:
        return "decomposition into other ops"
    if device_type(DEVICE_REF).table[index].callable != NULL:
        return "host fallback" if PRIMITIVES[primitive].inputs else "numbers made on the host"
    return "cast to another dtype first"
