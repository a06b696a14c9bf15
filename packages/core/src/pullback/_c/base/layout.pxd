from libc.stdint cimport int32_t, int64_t

from pullback._c.base.types cimport layout_shape, layout_strides, pb_layout

cdef extern from *:
    """
    /* Read an int of one digit, as nearly all are; false for others. */
    static inline int pb_compact_int(PyObject *value, int64_t *found) {
    #if PY_VERSION_HEX >= 0x030C0000
        if (!PyUnstable_Long_IsCompact((PyLongObject *)value)) return 0;
        *found = (int64_t)PyUnstable_Long_CompactValue((PyLongObject *)value);
    #else
        Py_ssize_t size = Py_SIZE(value);
        if (size < -1 || size > 1) return 0;
        *found = (int64_t)size * ((PyLongObject *)value)->ob_digit[0];
    #endif
        return 1;
    }
    """
    bint compact_int "pb_compact_int"(object value, int64_t *found) noexcept

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow)
    bint PyLong_CheckExact(object value)

cdef pb_layout *layout_new(int32_t ndim, const int64_t *shape,
                           const int64_t *strides) except NULL
cdef pb_layout *layout_swapped(const pb_layout *layout, int a, int b) except NULL
cdef pb_layout *layout_contiguous(int32_t ndim, const int64_t *shape) except NULL
cdef pb_layout *layout_scalar() noexcept
cdef void layout_free(pb_layout *layout) noexcept
cdef bint layout_same_shape(const pb_layout *a, const pb_layout *b) noexcept nogil
cdef bint layout_same_strides(const pb_layout *a, const pb_layout *b) noexcept nogil
cdef tuple layout_shape_tuple(const pb_layout *layout)
cdef tuple layout_strides_tuple(const pb_layout *layout)
cdef int layout_parse(object dims, int64_t *out, const char *op, const char *argument) except -1
cdef int64_t layout_extent(const pb_layout *layout, int64_t *low) noexcept nogil
cdef bint layout_may_self_overlap(const pb_layout *layout) noexcept nogil
cdef int broadcast_pair(const pb_layout *a, const pb_layout *b, int64_t *shape) except -1
cdef int check_broadcast(const pb_layout *target, const pb_layout *source) except -1


cdef inline bint small_int(object value, int64_t *found) noexcept:
    """Read a plain int of 64 bits; false for anything else."""
    cdef int overflow = 0
    if not PyLong_CheckExact(value):
        return False
    if compact_int(value, found):
        return True
    found[0] = PyLong_AsLongLongAndOverflow(value, &overflow)
    return overflow == 0


cdef inline pb_layout *layout_retain(pb_layout *layout) noexcept:
    layout.refcount += 1
    return layout


cdef inline void layout_release(pb_layout *layout) noexcept:
    layout.refcount -= 1
    if layout.refcount == 0:
        layout_free(layout)
