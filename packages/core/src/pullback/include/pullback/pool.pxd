# Small blocks of host memory; see pool.h.
cdef extern from "pullback/pool.h" nogil:
    enum:
        PB_POOL_LARGEST
    ctypedef struct pb_pool:
        size_t held
    void *pb_pool_allocate(pb_pool *pool, size_t nbytes) noexcept
    void pb_pool_release(pb_pool *pool, void *block) noexcept
    void pb_pool_trim(pb_pool *pool, int keep) noexcept
