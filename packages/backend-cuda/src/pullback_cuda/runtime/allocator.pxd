# Device memory for compiled code.
cdef void *block_take(int number, size_t nbytes) except NULL
cdef void block_release(int number, void *data) noexcept
cdef int note_use(int number, void *data, void *stream) except -1
