/* The compiled half of the example: memory from malloc and one kernel, `add`.
 *
 * Nothing here knows of tensors or gradients, and the kernel needs no interpreter lock.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>

#include "pullback/abi.h"

/* ---- memory -------------------------------------------------------------------------- */

static int64_t bytes_in_use = 0;

static int device_count(void *self)
{
    (void)self;
    return 1;
}

static void *allocate(void *self, int device, size_t nbytes)
{
    void *data = malloc(nbytes);
    (void)self, (void)device;
    if (data != NULL)
        bytes_in_use += (int64_t)nbytes;
    return data;
}

static void release(void *self, int device, void *data, size_t nbytes)
{
    (void)self, (void)device;
    bytes_in_use -= (int64_t)nbytes;
    free(data);
}

static pb_backend backend = {
    .size = sizeof(pb_backend),
    .abi_version = PB_ABI_VERSION,
    .flags = PB_BACKEND_HOST, /* core may read and write our memory */
    .device_count = device_count,
    .allocate = allocate,
    .release = release,
};

/* ---- kernel ---------------------------------------------------------------------------- */

/* Add along the last dimension, where each operand moves by its own stride. */
#define DEFINE_ADD_ROW(NAME, TYPE)                                                            \
    static void NAME(void *out, const void *x, const void *y, int64_t n, const int64_t *step)  \
    {                                                                                          \
        for (int64_t i = 0; i < n; i++)                                                        \
            ((TYPE *)out)[i * step[0]] =                                                       \
                ((const TYPE *)x)[i * step[1]] + ((const TYPE *)y)[i * step[2]];               \
    }

DEFINE_ADD_ROW(add_row_f32, float)
DEFINE_ADD_ROW(add_row_f64, double)

/* All operands have the same shape; broadcasting shows as a stride of 0. */
static int add(pb_call *call)
{
    pb_array *operands[3] = {call->out[0], call->in[0], call->in[1]};
    const int64_t itemsize = operands[0]->dtype == PB_F32 ? sizeof(float) : sizeof(double);
    const int outer = operands[0]->ndim > 0 ? operands[0]->ndim - 1 : 0;
    const int64_t n = operands[0]->ndim > 0 ? operands[0]->shape[outer] : 1;
    int64_t index[PB_MAX_NDIM] = {0}, step[3] = {0, 0, 0};
    char *data[3];

    for (int k = 0; k < 3; k++) {
        data[k] = operands[k]->data;
        if (operands[0]->ndim > 0 && operands[k]->ndim > 0)
            step[k] = operands[k]->strides[outer];
    }
    for (int d = 0; d < operands[0]->ndim; d++)
        if (operands[0]->shape[d] == 0)
            return PB_OK;

    for (;;) {
        int d = outer - 1;
        if (itemsize == sizeof(float))
            add_row_f32(data[0], data[1], data[2], n, step);
        else
            add_row_f64(data[0], data[1], data[2], n, step);
        /* Go to the next row as an odometer does. */
        for (; d >= 0; d--) {
            const int64_t size = operands[0]->shape[d];
            const int wraps = ++index[d] == size;
            for (int k = 0; k < 3; k++)
                if (operands[k]->ndim > 0)
                    data[k] += operands[k]->strides[d] * itemsize * (wraps ? 1 - size : 1);
            if (!wraps)
                break;
            index[d] = 0;
        }
        if (d < 0)
            return PB_OK;
    }
}

/* ---- module ---------------------------------------------------------------------------- */

static PyObject *get_backend(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    return PyCapsule_New(&backend, PB_BACKEND_CAPSULE, NULL);
}

static PyObject *get_add_kernel(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    return PyCapsule_New((void *)add, PB_KERNEL_CAPSULE, NULL);
}

static PyObject *get_bytes_in_use(PyObject *module, PyObject *nothing)
{
    (void)module, (void)nothing;
    return PyLong_FromLongLong(bytes_in_use);
}

static PyMethodDef functions[] = {
    {"backend", get_backend, METH_NOARGS, "Return the backend as a capsule."},
    {"add_kernel", get_add_kernel, METH_NOARGS, "Return the kernel of `add` as a capsule."},
    {"bytes_in_use", get_bytes_in_use, METH_NOARGS, "Return how many bytes tensors hold."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_native", "Memory and one kernel.", -1, functions, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || PyModule_AddIntConstant(module, "F32", PB_MASK(PB_F32)) < 0 ||
        PyModule_AddIntConstant(module, "F64", PB_MASK(PB_F64)) < 0) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
