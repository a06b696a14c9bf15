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
    int64_t sequence;      /* of the next node this thread makes */
    uint64_t thread;       /* 1, 2, ... in order of first use */
    PyObject *saved_hooks; /* owned tuple: pack, unpack, the pair around it or None; NULL without */
    PyObject *hooks_message; /* owned str: why saved-tensor hooks are off */
    void *graph_task;        /* innermost running pass */
    void *running_node;      /* of that pass */
    int expected_miss;       /* primitive that the running op can do without, or -1 */
    uint8_t levels;          /* how many are open: see levels.pyx */
    uint64_t hidden;         /* bit i: level i is out of sight */
    uint64_t op_levels;      /* levels hidden only because an op runs at them */
    PyObject *level_stack; /* owned list of as many as there may be, None where not open; or NULL */
    int transforms;        /* how many functions run that pullback.func transforms */
    uint32_t tracing;      /* the number of the innermost of these that records, or 0 */
    uint8_t devices[32];   /* of each type: the number that a device without one means */
    void *handoff;         /* what this thread does for one that waits, or NULL */
    uint8_t in_kernel;     /* of a thread with a handoff: in a long kernel, which asks */
    uint8_t left_writes;   /* likewise: that kernel was ended, and its writes are not counted yet */
    PyObject *interrupt;   /* borrowed: the exception that is to end it, or NULL */
} pb_state;

#endif
