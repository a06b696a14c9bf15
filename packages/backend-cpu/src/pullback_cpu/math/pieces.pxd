# Tables of functions by pieces: see tables/pieces.h, and tools/piecewise.py, which writes them.
from libc.stdint cimport int64_t


cdef extern from "math/tables/pieces.h" nogil:
    ctypedef struct pieces "pb_pieces":
        double start
        double end
        int64_t count
    double other_row "pb_other_row"(const pieces *table, int which, double x, double y) noexcept
    void locate "pb_locate"(
        const pieces *table, int squared, const double *a, int64_t n, int64_t *rows,
        double *u) noexcept
    void evaluate "pb_evaluate"(
        const pieces *table, const int64_t *rows, const double *u, double *o, int64_t n) noexcept
