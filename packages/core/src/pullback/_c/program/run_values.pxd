from pullback._c.graph.tensor cimport Tensor
from pullback._c.program.launches cimport Launch


cdef bint is_random(Launch launch)
cdef bint find_draw(Launch launch, list draws)
cdef list joined_draws(list draws, list launches, list before)
cdef list take_draws(list draws, list launches)
cdef int give_back(list draws, list firsts, Py_ssize_t kept) except -1
cdef Py_ssize_t count_drawn(list launches)


# An option of a parameter group, a number that a program reads in each run.
cdef class Option:
    cdef readonly dict group
    cdef readonly str key
    cdef readonly int item              # of a tuple; -1: the option is a number itself
    cdef int sign                       # it keeps: -1, 0, 1, or 2 for NaN
    cdef Tensor tensor                  # of float64, which has its value in each run; or None

    cdef double value(self) except? -1
    cdef int store(self) except -1
    cdef bint holds(self) except -1


cdef list options_of(Launch launch, object group)
cdef Option rate_of(object group, object value, dict known)
