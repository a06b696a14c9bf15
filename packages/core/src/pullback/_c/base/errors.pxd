cdef int keep_error(int code) except -1
cdef int raise_code(int code, const char *message, str kernel) except -1
cdef int raise_failure(int code, const char *message, str what, object where) except -1
