# C structs behind tensors and the graph. They have reference counts of their own, changed with the
# interpreter lock held. A field that is "owned" holds one count. Only structs, constants and
# accessors belong here.
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


# ---- sizes and strides: immutable, shared by tensors ---------------------------------------------

cdef enum:
    LAYOUT_CONTIGUOUS = 1       # row-major without gaps
    LAYOUT_DENSE = 2            # some permutation of the dims is contiguous
    LAYOUT_OVERLAPPING = 4      # some stride is 0 on a dim of more than one element


ctypedef struct pb_layout:
    Py_ssize_t refcount
    int64_t numel
    int32_t ndim
    int32_t flags
    # int64_t shape[ndim], strides[ndim] follow


cdef inline int64_t *layout_shape(const pb_layout *layout) noexcept nogil:
    return <int64_t *>(layout + 1)


cdef inline int64_t *layout_strides(const pb_layout *layout) noexcept nogil:
    return <int64_t *>(layout + 1) + layout.ndim


# ---- memory ------------------------------------------------------------------------------------

cdef enum:
    STORAGE_READONLY = 1
    STORAGE_INFERENCE = 2
    STORAGE_PINNED = 4          # pinned host memory
    STORAGE_SHARED = 8          # used on another stream than it was allocated for


# Fields that few storages have. An alias has its own version counter over the original's memory.
ctypedef struct pb_storage_extra:
    PyObject *written_at        # owned Stack: where the last write was, in anomaly mode
    PyObject *object            # borrowed Python object, may be NULL
    int64_t capacity            # bytes that were allocated, if the storage was made smaller; else 0
    pb_storage *aliases         # of an original: the first alias
    pb_storage *next            # of an alias: its neighbours among those of its original
    pb_storage *previous
    int32_t exports             # of an original: buffers that other libraries hold


ctypedef struct pb_storage:
    Py_ssize_t refcount
    void *data                  # NULL on meta and when empty
    int64_t nbytes
    uint32_t version            # +1 per in-place write
    int16_t device_type
    int16_t device_index
    uint32_t flags
    int32_t last_writer         # id of the op that wrote last; -1 unknown
    pb_storage_extra *extra     # owned, may be NULL
    PyObject *owner             # owned; keeps foreign memory alive; NULL: allocated by a backend
    pb_storage *memory          # owned; of an alias with its own version counter: the original


# ---- graph -------------------------------------------------------------------------------------

cdef enum node_kind:
    NODE_OP = 0                 # an entry of the op table
    NODE_ACCUMULATE = 1         # adds into a leaf's .grad
    NODE_PYTHON = 2             # a custom Function; counted by its Python object
    NODE_COPY_SLICES = 3        # an in-place write to part of a base
    NODE_ERROR = 4              # raises when it runs (once_differentiable, freed histories)

cdef enum:
    NODE_FREED = 1              # its saved values were freed
    NODE_HOOKED = 2             # has hooks: the engine takes the slow path
    NODE_FREED_BY_GRAD = 4      # freed by grad(), not by backward()
    NODE_INNER = 8              # an op's node inside a CopySlices node, to which `task` points


ctypedef struct pb_meta:        # metadata of one forward output
    pb_layout *layout           # owned
    uint8_t dtype
    int16_t device_type
    int16_t device_index
    uint16_t stream             # number of its stream; 0: the default one, or no streams


ctypedef struct pb_edge:
    pb_node *node               # owned, may be NULL: no gradient flows
    uint32_t nr


cdef enum saved_kind:
    SAVED_NONE = 0
    SAVED_INPUT = 1             # snapshot of an input
    SAVED_OUTPUT = 2            # snapshot of an output: no count on its own node
    SAVED_TENSOR = 3            # the Python object: leaves, and tensors a snapshot cannot hold
    SAVED_OBJECT = 4            # a parameter
    SAVED_SHAPE = 5             # only the layout of a tensor
    SAVED_PACKED = 6            # the object that a pack hook returned
    SAVED_TUPLE = 7             # a KeptTuple: a parameter that holds tensors, such as indices


ctypedef struct pb_saved:
    uint8_t kind
    uint8_t dtype
    uint16_t flags
    uint32_t version
    pb_storage *storage         # owned
    pb_layout *layout           # owned
    pb_node *node               # owned; NULL for leaves and own outputs
    PyObject *object            # owned; of a snapshot its WrapperState, or NULL
    int64_t offset
    uint32_t output_nr


ctypedef struct pb_node_extra:
    PyObject *tensor_hooks      # owned OrderedDict: id -> (output number, hook)
    PyObject *pre_hooks         # owned OrderedDict: id -> hook(grad_outputs)
    PyObject *post_hooks        # owned OrderedDict: id -> hook(grad_inputs, grad_outputs)
    PyObject *metadata          # owned dict
    PyObject *retain            # owned dict: output number -> weak reference to the tensor
    PyObject *saved_hooks       # owned dict: index -> unpack hook


ctypedef struct pb_node:
    Py_ssize_t refcount         # unused by NODE_PYTHON
    uint64_t sequence
    PyObject *op                # borrowed Op; or owned: the leaf (accumulate), payload (others)
    PyObject *wrapper           # borrowed Python object, may be NULL
    pb_node_extra *extra        # owned, may be NULL
    void *task                  # node_task of the running pass; next node while being freed; of an
    #                             inner node, which no pass runs, the CopySlices node around it
    uint32_t thread             # number of the thread that made it
    uint32_t gc_epoch
    uint32_t gc_count
    uint8_t kind
    uint8_t flags
    uint16_t nsaved
    uint32_t nedges
    uint32_t noutputs
    # pb_meta meta[noutputs], pb_edge edges[nedges], pb_saved saved[nsaved] follow


cdef inline pb_meta *node_meta(pb_node *node) noexcept nogil:
    return <pb_meta *>(node + 1)


cdef inline pb_edge *node_edges(pb_node *node) noexcept nogil:
    return <pb_edge *>(node_meta(node) + node.noutputs)


cdef inline pb_saved *node_saved(pb_node *node) noexcept nogil:
    return <pb_saved *>(node_edges(node) + node.nedges)
