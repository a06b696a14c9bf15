/* Where a Python frame is, in a form that costs little to take and a look-up to read. */
#ifndef PULLBACK_PROFILER_FRAME_PLACE_H
#define PULLBACK_PROFILER_FRAME_PLACE_H
#include <Python.h>
#include <frameobject.h>
#include <stdint.h>

/* What runs around a frame, and its code: owned. */
static inline PyObject *frame_back(PyObject *frame) {
    return (PyObject *)PyFrame_GetBack((PyFrameObject *)frame);
}
static inline PyObject *frame_code(PyObject *frame) {
    return (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
}
static inline PyObject *frame_now(void) {
    return (PyObject *)PyEval_GetFrame();
}

#if PY_VERSION_HEX >= 0x030B0000
/* The instruction; finding its line takes a walk through the table of lines. */
static inline int64_t frame_place(PyObject *frame) {
    return PyFrame_GetLasti((PyFrameObject *)frame);
}
static inline int64_t line_of(PyObject *code, int64_t place) {
    return PyCode_Addr2Line((PyCodeObject *)code, (int)place);
}
#else
static inline int64_t frame_place(PyObject *frame) {
    return PyFrame_GetLineNumber((PyFrameObject *)frame);
}
static inline int64_t line_of(PyObject *code, int64_t place) {
    return place;
}
#endif
#endif
