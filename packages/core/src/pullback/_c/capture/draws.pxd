from pullback._c.capture.launches cimport Launch


cdef bint is_random(Launch launch)
cdef bint find_draw(Launch launch, list draws)
cdef list take_draws(list draws, list launches)
cdef int give_back(list draws, list firsts, Py_ssize_t kept) except -1
cdef Py_ssize_t count_drawn(list launches)
