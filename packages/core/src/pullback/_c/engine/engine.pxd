from pullback._c.base.types cimport pb_edge

cdef object run_pass(pb_edge *edges, Py_ssize_t nroots, list grads, bint keep_graph,
                     bint create_graph, bint restricted, Py_ssize_t ninputs, bint accumulate)
