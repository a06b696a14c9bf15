/* Streams, their queues of work, and events.
 *
 * By default work runs immediately, inside the call that enqueues it. In deferred mode each stream
 * keeps a queue, and work runs only when a call waits for it, as late as
 * possible. A wait for an event is a task that runs the event's stream up to the
 * point where the event was recorded. So a consumer on another stream that forgot to wait finds the
 * memory as it was before the producer ran.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fake.h"

enum { NON_BLOCKING = 1, DISABLE_TIMING = 2 };

struct fake_item {
    struct fake_item *next;
    fake_work work;
    CUstream awaited; /* this task is a wait, if not NULL */
    uint64_t position;
    size_t size;
    char data[];
};

int fake_deferred;
static uint64_t stream_numbers;

static CUstream const LEGACY = (CUstream)1, PER_THREAD = (CUstream)2;
static __thread CUstream own[FAKE_MAX_DEVICES]; /* each thread's default streams */

/* -- running ----------------------------------------------------------------------------------- */

static void pop(CUstream stream) {
    struct fake_item *item = stream->first;
    stream->first = item->next;
    if (!stream->first) stream->last = NULL;
    stream->done++;
    free(item);
}

/* Waits lead from stream to stream, as deep as the program's longest chain: so an own stack. */
void fake_force(CUstream stream, uint64_t position) {
    static struct goal {
        CUstream stream;
        uint64_t position;
    } *goals;
    static size_t room;
    size_t count = 0;
    for (;;) {
        while (stream->done < position) {
            struct fake_item *item = stream->first;
            if (item->awaited && item->awaited->done < item->position) {
                if (count == room) {
                    room = room ? room * 2 : 64;
                    goals = realloc(goals, room * sizeof *goals);
                    if (!goals) abort();
                }
                goals[count++] = (struct goal){stream, position};
                position = item->position;
                stream = item->awaited;
                continue;
            }
            if (item->work) item->work(item->data);
            pop(stream);
        }
        if (!count) return;
        count--;
        stream = goals[count].stream;
        position = goals[count].position;
    }
}

void fake_force_stream(CUstream stream) { fake_force(stream, stream->queued); }

/* Destroyed streams leave the list with their last work. */
void fake_force_context(CUcontext context) {
    for (CUstream *link = &context->streams; *link;) {
        CUstream stream = *link;
        fake_force_stream(stream);
        if (stream->destroyed) *link = stream->next;
        else link = &stream->next;
    }
}

void fake_force_device(CUdevice device) {
    for (CUcontext context = fake_contexts; context; context = context->next)
        if (context->device == device) fake_force_context(context);
}

int64_t fake_work_left(void) {
    uint64_t left = 0;
    for (CUcontext context = fake_contexts; context; context = context->next)
        for (CUstream stream = context->streams; stream; stream = stream->next)
            left += stream->queued - stream->done;
    return (int64_t)left;
}

/* -- queueing ---------------------------------------------------------------------------------- */

static void append(CUstream stream, fake_work work, const void *data, size_t size, CUstream awaited,
                   uint64_t position) {
    struct fake_item *item = malloc(sizeof *item + size);
    if (!item) abort();
    *item = (struct fake_item){NULL, work, awaited, position, size};
    if (size) memcpy(item->data, data, size);
    if (stream->last) stream->last->next = item;
    else stream->first = item;
    stream->last = item;
    stream->queued++;
}

static void wait_for(CUstream stream, CUstream other) {
    if (other != stream && other->done < other->queued)
        append(stream, NULL, NULL, 0, other, other->queued);
}

/* The default stream waits for all streams that are not non-blocking, and they wait for it. */
static void wait_by_default(CUstream stream) {
    CUcontext context = stream->context;
    if (stream == context->legacy) {
        for (CUstream other = context->streams; other; other = other->next)
            if (!(other->flags & NON_BLOCKING)) wait_for(stream, other);
    } else if (!(stream->flags & NON_BLOCKING)) {
        wait_for(stream, context->legacy);
    }
}

CUresult fake_queue(CUstream stream, fake_work work, const void *data, size_t size) {
    if (!fake_deferred) {
        work((void *)data);
        stream->queued++;
        stream->done++;
        return CUDA_SUCCESS;
    }
    wait_by_default(stream);
    append(stream, work, data, size, NULL, 0);
    return CUDA_SUCCESS;
}

/* -- streams ----------------------------------------------------------------------------------- */

CUstream fake_stream_new(CUcontext context, unsigned flags, int priority) {
    CUstream stream = fake_new(sizeof *stream);
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->number = ++stream_numbers;
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

CUresult fake_stream_of(CUstream handle, CUcontext context, CUstream *stream) {
    if (!handle || handle == LEGACY) {
        *stream = context->legacy;
        return CUDA_SUCCESS;
    }
    if (handle == PER_THREAD) {
        CUstream *mine = &own[context->device];
        if (!*mine || (*mine)->context != context) *mine = fake_stream_new(context, 0, 0);
        *stream = *mine;
        return CUDA_SUCCESS;
    }
    REQUIRE(fake_handle_is(handle, KIND_STREAM), CUDA_ERROR_INVALID_HANDLE);
    *stream = handle;
    return CUDA_SUCCESS;
}

API CUresult cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority) {
    ENTER_CONTEXT();
    REQUIRE(handle && !(flags & ~1u), CUDA_ERROR_INVALID_VALUE);
    priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    *handle = fake_stream_new(context, flags, priority);
    fake_handle_add(*handle, KIND_STREAM);
    fake_count.live_streams++;
    return CUDA_SUCCESS;
}

API CUresult cuStreamCreate(CUstream *handle, unsigned flags) {
    ENTER();
    return cuStreamCreateWithPriority(handle, flags, 0);
}

static void end_stream(CUstream stream) {
    fake_handle_remove(stream);
    stream->destroyed = 1;
    fake_count.live_streams--;
}

/* Its work goes on, as with the real driver: synchronizing the context runs it. */
API CUresult cuStreamDestroy_v2(CUstream handle) {
    ENTER_CONTEXT();
    REQUIRE(fake_handle_is(handle, KIND_STREAM), CUDA_ERROR_INVALID_HANDLE);
    end_stream(handle);
    return CUDA_SUCCESS;
}

void fake_streams_end(CUcontext context) {
    for (CUstream stream = context->streams; stream; stream = stream->next)
        if (fake_handle_is(stream, KIND_STREAM)) end_stream(stream);
    for (CUevent event = context->events; event; event = event->next)
        if (fake_handle_is(event, KIND_EVENT)) {
            fake_handle_remove(event);
            fake_count.live_events--;
        }
}

API CUresult cuStreamSynchronize(CUstream handle) {
    ENTER_STREAM(handle);
    fake_force_stream(stream);
    return CUDA_SUCCESS;
}

/* Work that is pending runs after the answer, so that a loop that asks again comes to an end. */
API CUresult cuStreamQuery(CUstream handle) {
    ENTER_STREAM(handle);
    if (stream->done == stream->queued) return CUDA_SUCCESS;
    fake_force_stream(stream);
    return CUDA_ERROR_NOT_READY;
}

API CUresult cuStreamGetCtx(CUstream handle, CUcontext *out) {
    ENTER_STREAM(handle);
    REQUIRE(out, CUDA_ERROR_INVALID_VALUE);
    *out = stream->context;
    return CUDA_SUCCESS;
}

API CUresult cuStreamGetFlags(CUstream handle, unsigned *flags) {
    ENTER_STREAM(handle);
    REQUIRE(flags, CUDA_ERROR_INVALID_VALUE);
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

API CUresult cuStreamGetPriority(CUstream handle, int *priority) {
    ENTER_STREAM(handle);
    REQUIRE(priority, CUDA_ERROR_INVALID_VALUE);
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

API CUresult cuStreamGetId(CUstream handle, unsigned long long *number) {
    ENTER_STREAM(handle);
    REQUIRE(number, CUDA_ERROR_INVALID_VALUE);
    *number = stream->number;
    return CUDA_SUCCESS;
}

API CUresult cuStreamGetDevice(CUstream handle, CUdevice *device) {
    ENTER_STREAM(handle);
    REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    *device = stream->context->device;
    return CUDA_SUCCESS;
}

API CUresult cuStreamIsCapturing(CUstream handle, int *status) {
    ENTER_STREAM(handle);
    REQUIRE(status, CUDA_ERROR_INVALID_VALUE);
    *status = 0;
    return CUDA_SUCCESS;
}

/* -- events ------------------------------------------------------------------------------------ */

API CUresult cuEventCreate(CUevent *handle, unsigned flags) {
    ENTER_CONTEXT();
    REQUIRE(handle && !(flags & ~7u), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!(flags & 4) || flags & DISABLE_TIMING, CUDA_ERROR_INVALID_VALUE);
    CUevent event = fake_new(sizeof *event);
    event->context = context;
    event->flags = flags;
    event->next = context->events;
    context->events = event;
    fake_handle_add(event, KIND_EVENT);
    fake_count.live_events++;
    *handle = event;
    return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent event) {
    ENTER_CONTEXT();
    REQUIRE(fake_handle_is(event, KIND_EVENT), CUDA_ERROR_INVALID_HANDLE);
    fake_handle_remove(event);
    fake_count.live_events--;
    return CUDA_SUCCESS;
}

struct stamp {
    CUevent event;
    uint64_t position;
};

static void stamp(void *data) {
    struct stamp *of = data;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    of->event->time = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    of->event->time_of = of->position;
}

static CUresult record(CUevent event, CUstream handle, CUcontext context) {
    REQUIRE(fake_handle_is(event, KIND_EVENT), CUDA_ERROR_INVALID_HANDLE);
    CUstream stream;
    CUresult code = fake_stream_of(handle, context, &stream);
    if (code) return code;
    REQUIRE(event->context == stream->context, CUDA_ERROR_INVALID_HANDLE);
    if (fake_deferred) wait_by_default(stream);
    struct stamp of = {event, stream->queued + 1};
    event->stream = stream;
    event->position = of.position;
    if (fake_deferred) {
        append(stream, stamp, &of, sizeof of, NULL, 0);
        return CUDA_SUCCESS;
    }
    return fake_queue(stream, stamp, &of, sizeof of);
}

API CUresult cuEventRecord(CUevent event, CUstream handle) {
    ENTER_CONTEXT();
    return record(event, handle, context);
}

API CUresult cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned flags) {
    ENTER_CONTEXT();
    REQUIRE(!flags, CUDA_ERROR_INVALID_VALUE);
    return record(event, handle, context);
}

static int happened(CUevent event) {
    return !event->stream || event->stream->done >= event->position;
}

API CUresult cuEventQuery(CUevent event) {
    ENTER();
    REQUIRE(fake_handle_is(event, KIND_EVENT), CUDA_ERROR_INVALID_HANDLE);
    if (happened(event)) return fake_devices[event->context->device].broken;
    fake_force(event->stream, event->position);
    return CUDA_ERROR_NOT_READY;
}

API CUresult cuEventSynchronize(CUevent event) {
    ENTER();
    REQUIRE(fake_handle_is(event, KIND_EVENT), CUDA_ERROR_INVALID_HANDLE);
    if (!happened(event)) fake_force(event->stream, event->position);
    return fake_devices[event->context->device].broken;
}

API CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    ENTER();
    REQUIRE(milliseconds, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_handle_is(start, KIND_EVENT), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(fake_handle_is(end, KIND_EVENT), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(start->context == end->context, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(start->stream && end->stream, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(!((start->flags | end->flags) & DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(happened(start) && happened(end), CUDA_ERROR_NOT_READY);
    *milliseconds = (float)((double)(end->time - start->time) / 1e6);
    return CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime_v2(milliseconds, start, end);
}

/* Waits for the last record before this call; a later one does not matter. */
API CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
    ENTER_STREAM(handle);
    REQUIRE(!(flags & ~1u), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(fake_handle_is(event, KIND_EVENT), CUDA_ERROR_INVALID_HANDLE);
    if (!happened(event)) append(stream, NULL, NULL, 0, event->stream, event->position);
    return CUDA_SUCCESS;
}
