/* The location of a Python frame in its code: cheap to take, and looked up when it is read. */
#ifndef PULLBACK_PROFILER_CODE_LOCATION_H
#define PULLBACK_PROFILER_CODE_LOCATION_H
#include <Python.h>
#include <frameobject.h>
#include <stdint.h>

/* The frame that called a frame, and its code: both owned. */
static inline PyObject *frame_back(PyObject *frame) {
    return (PyObject *)PyFrame_GetBack((PyFrameObject *)frame);
}
static inline PyObject *frame_code(PyObject *frame) {
    return (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
}
static inline PyObject *frame_now(void) { return (PyObject *)PyEval_GetFrame(); }

#if PY_VERSION_HEX >= 0x030B0000
/* The instruction; finding its line takes a walk through the table of lines. */
static inline int64_t code_location(PyObject *frame) {
    return PyFrame_GetLasti((PyFrameObject *)frame);
}
static inline int64_t line_of(PyObject *code, int64_t location) {
    return PyCode_Addr2Line((PyCodeObject *)code, (int)location);
}
#else
static inline int64_t code_location(PyObject *frame) {
    return PyFrame_GetLineNumber((PyFrameObject *)frame);
}
static inline int64_t line_of(PyObject *code, int64_t location) { return location; }
#endif
#endif
