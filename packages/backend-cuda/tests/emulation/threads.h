// The threads of a block as fibers, and the barrier.
//
// A fiber runs one thread after another and belongs to a thread for good only while that waits. So
// a kernel without a barrier needs one fiber and no switch, and a block has as many fibers as
// threads that wait at the same time, and one.
#ifndef PULLBACK_EMULATION_THREADS_H
#define PULLBACK_EMULATION_THREADS_H
#include <pthread.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <ucontext.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

// Around the image's static shared memory; null where the image was linked without the script.
extern "C" __attribute__((weak, visibility("hidden"))) char emulated_shared_start[];
extern "C" __attribute__((weak, visibility("hidden"))) char emulated_shared_stop[];

// For functions that run for every thread: the emulation itself needs no checks.
#define EMULATED_UNCHECKED __attribute__((no_sanitize("undefined")))

namespace emulation {

constexpr unsigned largest_block = 1024;
constexpr unsigned lanes = 32;
constexpr size_t stack_bytes = 256 * 1024;
constexpr size_t page_bytes = 4096;
constexpr size_t shared_filled_every_block = 32 * 1024;
constexpr int poison = 0xCD;

// Where to go on: frame, instruction and stack, as __builtin_setjmp keeps them.
typedef void *place[5];

struct fiber {
    place context;
    bool begun;
    char *stack;
    unsigned thread;    // of the thread that runs here, its number in the block
    uint3 index;        // its threadIdx while it waits
    uint64_t received;  // what a warp function gave it
    unsigned lanes_present; // the lanes that took part in it
    fiber *next_idle;
    void *sanitizer;
};

struct barrier_state {
    unsigned arrived;
    int kind, line;
    const char *file;
    unsigned votes, result;
    fiber *waiting[largest_block];
};

static struct {
    pthread_mutex_t mutex;
    const char *name;
    void (*body)(const void *);
    const void *arguments;
    bool reversed;
    unsigned threads;              // of a block
    unsigned begun, ended;         // threads of the block
    unsigned long long blocks_run; // blocks that have begun, this one included
    fiber launcher, *current, *idle;
    fiber *ready[largest_block]; // a ring of the threads that may go on
    unsigned ready_first, ready_count;
    barrier_state barrier;
    void *shared;
    size_t shared_bytes;
    unsigned fibers;
    const void *launcher_stack;
    size_t launcher_stack_bytes;
} state = {PTHREAD_MUTEX_INITIALIZER};

static void explain_warps(); // warps.h
static void begin_warps();
static void lane_ended(unsigned thread);

[[noreturn]] __attribute__((format(printf, 1, 2), noinline)) static void
fail(const char *format, ...) {
    fprintf(stderr, "CUDA emulation: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): ",
            state.name, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    fflush(stderr);
    abort();
}

static void worker();

static void first_steps() {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &state.launcher_stack, &state.launcher_stack_bytes);
#endif
    worker();
}

// The sanitizer takes a jump for the end of a stack unless the function is left alone.
__attribute__((noinline, no_sanitize("address"))) static void jump(fiber *to) {
    if (to->begun)
        __builtin_longjmp(to->context, 1);
    to->begun = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = to->stack;
    context.uc_stack.ss_size = stack_bytes - to->thread; // see new_fiber
    context.uc_link = nullptr;
    makecontext(&context, first_steps, 0);
    setcontext(&context);
    abort();
}

// Go on with another fiber; return when another one switches back.
__attribute__((noinline, no_sanitize("address"))) static void switch_to(fiber *to) {
    fiber *const self = state.current;
    state.current = to;
#ifdef __SANITIZE_ADDRESS__
    if (to == &state.launcher)
        __sanitizer_start_switch_fiber(&self->sanitizer, state.launcher_stack,
                                       state.launcher_stack_bytes);
    else
        __sanitizer_start_switch_fiber(&self->sanitizer, to->stack, stack_bytes);
#endif
    if (__builtin_setjmp(self->context) == 0)
        jump(to);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(state.current->sanitizer, nullptr, nullptr);
#endif
}

static fiber *new_fiber() {
    char *memory =
        static_cast<char *>(mmap(nullptr, stack_bytes + page_bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    fiber *made = static_cast<fiber *>(calloc(1, sizeof(fiber)));
    if (memory == MAP_FAILED || made == nullptr)
        fail("no memory for the stack of one more thread");
    mprotect(memory, page_bytes, PROT_NONE); // so that a stack that is too deep ends in a fault
    made->stack = memory + page_bytes;
    // Stacks that all end at the same offset in a page would share few lines of the cache.
    made->thread = state.fibers++ % 31 * 128;
    return made;
}

EMULATED_UNCHECKED static fiber *idle_fiber() {
    fiber *found = state.idle;
    if (found == nullptr)
        return new_fiber();
    state.idle = found->next_idle;
    return found;
}

EMULATED_UNCHECKED static void make_ready(fiber *waited) {
    state.ready[(state.ready_first + state.ready_count++) % largest_block] = waited;
}

EMULATED_UNCHECKED static fiber *take_ready() {
    fiber *taken = state.ready[state.ready_first];
    state.ready_first = (state.ready_first + 1) % largest_block;
    state.ready_count--;
    return taken;
}

[[noreturn]] __attribute__((noinline)) static void deadlock() {
    const barrier_state &barrier = state.barrier;
    fprintf(stderr, "CUDA emulation: kernel %s, block (%u, %u, %u): no thread can go on: of %u "
                    "threads %u have returned", state.name, blockIdx.x, blockIdx.y, blockIdx.z,
            state.threads, state.ended);
    if (barrier.arrived != 0)
        fprintf(stderr, ", %u wait at the barrier of %s:%d", barrier.arrived, barrier.file,
                barrier.line);
    explain_warps();
    fputc('\n', stderr);
    fflush(stderr);
    abort();
}

// Wait until another thread has made this one ready.
EMULATED_UNCHECKED static void park() {
    state.current->index = threadIdx;
    if (state.ready_count != 0)
        switch_to(take_ready());
    else if (state.begun < state.threads)
        switch_to(idle_fiber());
    else
        deadlock();
    threadIdx = state.current->index;
}

// Let the others go first.
static void pass() {
    make_ready(state.current);
    park();
}

// Fill static shared memory. The address sanitizer keeps gaps in it that may be filled as well, so
// this is neither watched nor a call of memset, which is.
__attribute__((no_sanitize("address"))) static void fill_static_shared() {
    const size_t bytes = static_cast<size_t>(emulated_shared_stop - emulated_shared_start);
    if (bytes > shared_filled_every_block && state.blocks_run != 1)
        return;
#ifdef __SANITIZE_ADDRESS__
    for (size_t i = 0; i < bytes; i++)
        static_cast<volatile char *>(emulated_shared_start)[i] = static_cast<char>(poison);
#else
    if (bytes != 0)
        memset(emulated_shared_start, poison, bytes);
#endif
}

EMULATED_UNCHECKED static void begin_block() {
    unsigned long long number = state.blocks_run++;
    if (state.reversed)
        number = static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z - 1 - number;
    blockIdx.x = static_cast<unsigned>(number % gridDim.x);
    blockIdx.y = static_cast<unsigned>(number / gridDim.x % gridDim.y);
    blockIdx.z = static_cast<unsigned>(number / gridDim.x / gridDim.y);
    state.begun = state.ended = 0;
    begin_warps();
    if (state.shared_bytes != 0)
        memset(state.shared, poison, state.shared_bytes);
    fill_static_shared();
}

EMULATED_UNCHECKED static void run_thread() {
    const unsigned number = state.reversed ? state.threads - 1 - state.begun : state.begun;
    state.begun++;
    state.current->thread = number;
    if (blockDim.x == state.threads) {
        threadIdx = {number, 0, 0};
    } else {
        const unsigned rest = number / blockDim.x;
        threadIdx = {number % blockDim.x, rest % blockDim.y, rest / blockDim.y};
    }
    state.body(state.arguments);
    state.ended++;
    lane_ended(state.current->thread);
}

// What every fiber does for ever. Threads that may go on come before new ones, which keeps the
// number of fibers small.
EMULATED_UNCHECKED static void worker() {
    for (;;) {
        fiber *const self = state.current;
        if (state.ready_count != 0) {
            self->next_idle = state.idle;
            state.idle = self;
            switch_to(take_ready());
        } else if (state.begun < state.threads) {
            run_thread();
        } else if (state.ended < state.threads) {
            deadlock();
        } else if (state.blocks_run <
                   static_cast<unsigned long long>(gridDim.x) * gridDim.y * gridDim.z) {
            begin_block();
        } else {
            self->next_idle = state.idle;
            state.idle = self;
            switch_to(&state.launcher);
        }
    }
}

static void take_shared(size_t bytes) {
    if (bytes != state.shared_bytes) {
        free(state.shared); // its exact size, so that the address sanitizer knows its end
        state.shared = nullptr;
        state.shared_bytes = bytes;
        if (bytes != 0 && posix_memalign(&state.shared, 128, bytes) != 0)
            fail("no memory for %zu bytes of shared memory", bytes);
    }
}

static void launch(const char *name, void (*body)(const void *), const void *arguments,
                   const unsigned grid[3], const unsigned block[3], size_t shared_bytes) {
    pthread_mutex_lock(&state.mutex);
    state.name = name;
    state.body = body;
    state.arguments = arguments;
    gridDim = dim3(grid[0], grid[1], grid[2]);
    blockDim = dim3(block[0], block[1], block[2]);
    state.threads = block[0] * block[1] * block[2];
    if (state.threads == 0 || state.threads > largest_block)
        fail("a block of %u threads", state.threads);
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0)
        fail("a grid without blocks");
    take_shared(shared_bytes);
    state.blocks_run = 0;
    state.launcher.begun = true;
    state.current = &state.launcher;
    begin_block();
    switch_to(idle_fiber());
    pthread_mutex_unlock(&state.mutex);
}

// When the image is unloaded: stacks would stay behind.
__attribute__((destructor)) static void free_stacks() {
    if (pthread_mutex_trylock(&state.mutex) != 0)
        return;
    while (state.idle != nullptr) {
        fiber *const freed = idle_fiber();
        munmap(freed->stack - page_bytes, stack_bytes + page_bytes);
        free(freed);
    }
    take_shared(0);
    pthread_mutex_unlock(&state.mutex);
}

enum { plain, count, all, any };

EMULATED_UNCHECKED static unsigned barrier(int kind, int vote, const char *file, int line) {
    barrier_state &here = state.barrier;
    if (here.arrived == 0) {
        here.kind = kind;
        here.file = file;
        here.line = line;
        here.votes = 0;
    } else if (here.line != line || here.kind != kind ||
               (here.file != file && strcmp(here.file, file) != 0)) {
        fail("the barrier of %s:%d is reached while %u threads wait at that of %s:%d", file, line,
             here.arrived, here.file, here.line);
    }
    here.votes += vote != 0;
    here.waiting[here.arrived++] = state.current;
    if (here.arrived < state.threads) {
        park();
    } else {
        here.result = kind == all ? here.votes == here.arrived : here.votes;
        if (kind == any)
            here.result = here.votes != 0;
        for (unsigned i = 0; i + 1 < here.arrived; i++)
            make_ready(here.waiting[i]);
        here.arrived = 0;
    }
    return here.result;
}

} // namespace emulation

#define EMULATED_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(EMULATED_CALLER) {
    emulation::barrier(emulation::plain, 0, file, line);
}
static inline int __syncthreads_count(int vote, EMULATED_CALLER) {
    return static_cast<int>(emulation::barrier(emulation::count, vote, file, line));
}
static inline int __syncthreads_and(int vote, EMULATED_CALLER) {
    return static_cast<int>(emulation::barrier(emulation::all, vote, file, line));
}
static inline int __syncthreads_or(int vote, EMULATED_CALLER) {
    return static_cast<int>(emulation::barrier(emulation::any, vote, file, line));
}
static inline void __nanosleep(unsigned) { emulation::pass(); }

#endif
