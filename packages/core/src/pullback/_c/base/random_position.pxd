# Append this thread's draws of random numbers to a list from now on; None: no more.
cdef void record_draws(list draws) noexcept
