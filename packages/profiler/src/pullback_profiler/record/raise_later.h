/* Exceptions for observers, which core calls where none may be raised. */
#ifndef PULLBACK_PROFILER_RAISE_LATER_H
#define PULLBACK_PROFILER_RAISE_LATER_H
#include <Python.h>

static int raise_now(void *error) {
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)error), (PyObject *)error);
    Py_DECREF((PyObject *)error);
    return -1;
}

/* Raise an exception in the main thread once it runs Python code again; -1 if that cannot be. */
static inline int raise_later(PyObject *error) {
    Py_INCREF(error);
    if (Py_AddPendingCall(raise_now, error) == 0)
        return 0;
    Py_DECREF(error);
    return -1;
}

/* Hand an exception to sys.unraisablehook. */
static inline void write_unraisable(PyObject *error, PyObject *function) {
    PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    PyErr_WriteUnraisable(function);
}
#endif
