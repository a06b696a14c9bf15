/* Modes of one thread. state.pyx holds the variable. */
#ifndef PULLBACK_STATE_H
#define PULLBACK_STATE_H
#include <Python.h>
#include <stdint.h>

typedef struct pb_state {
    uint8_t grad_enabled;
    uint8_t inference;
    uint8_t multithreading;
    uint8_t layout_policy;
    uint32_t saved_hooks_disabled;
    int64_t sequence;         /* of the next node this thread makes */
    uint64_t thread;          /* 1, 2, ... in order of first use */
    PyObject *saved_hooks;    /* owned tuple: pack, unpack, outer pair or None; NULL without */
    PyObject *hooks_message;  /* owned str: why saved-tensor hooks are off */
    void *graph_task;         /* innermost running GraphTask */
    void *running_node;       /* the node that it runs */
    int fallback_primitive;   /* the running op has another way without its kernel; or -1 */
    uint8_t levels;           /* number of open levels: see levels.pyx */
    uint64_t disabled_levels; /* bit i: ops do not see level i */
    uint64_t op_levels;       /* levels disabled only because an op runs at them */
    PyObject *level_stack;    /* owned list of MAX_LEVELS items, None where not open; or NULL */
    int transforms;           /* number of running functions that pullback.func transforms */
    uint32_t tracing;         /* number of the innermost recording transform, or 0 */
    uint8_t devices[32];      /* of each type: index of the current device */
    void *handoff;            /* Handoff that this thread works on for a waiting thread, or NULL */
    uint8_t in_kernel;        /* with a handoff: a long kernel runs, which polls */
    uint8_t left_writes;      /* with a handoff: an interrupted kernel's write is not counted yet */
    PyObject *interrupt;      /* borrowed: the exception that ends the handoff, or NULL */
    PyObject *function_modes; /* owned list of entered TorchFunctionModes, the innermost last; or NULL */
    uint8_t overrides_off;    /* 1: __torch_function__ of arguments is off; 2: that of modes too */
    uint8_t autocast_uncached; /* 1: autocast keeps no casts of parameters */
    uint32_t autocast;        /* bit i: autocast acts on tensors of device type i */
    int32_t autocast_nesting; /* number of entered autocast regions */
    PyObject *autocast_cache; /* owned dict of casts, see autocast.pyx; or NULL */
    uint8_t autocast_dtypes[32]; /* of each type: 1 + the dtype of autocast; 0: its default */
} pb_state;

#endif
