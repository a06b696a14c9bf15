/* The running thread. */
#ifndef PULLBACK_PROFILER_THIS_THREAD_H
#define PULLBACK_PROFILER_THIS_THREAD_H
#include <Python.h>
#include <pythread.h>
#include <stdint.h>

/* Its number in the system; 0 where there is none. */
static inline uint64_t native_id(void) {
#ifdef PY_HAVE_THREAD_NATIVE_ID
    return PyThread_get_thread_native_id();
#else
    return 0;
#endif
}

/* Its entry in a dict of threads by ident, borrowed, or NULL. Runs no Python code, and an
 * exception that is set stays. */
static inline PyObject *thread_object(PyObject *threads) {
    PyObject *kind, *value, *trace, *ident, *found = NULL;
    PyErr_Fetch(&kind, &value, &trace);
    ident = PyLong_FromUnsignedLong(PyThread_get_thread_ident());
    if (ident != NULL) {
        found = PyDict_GetItemWithError(threads, ident);
        Py_DECREF(ident);
    }
    PyErr_Restore(kind, value, trace);
    return found;
}
#endif
