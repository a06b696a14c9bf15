// How kernels are defined, and what an image of them exports.
#ifndef PULLBACK_EMULATION_KERNELS_H
#define PULLBACK_EMULATION_KERNELS_H
#include <utility>

struct emulated_kernel {
    const char *name;
    size_t argument_size; // of all parameters, laid out as a struct
    void (*run)(const void *arguments, const unsigned grid[3], const unsigned block[3],
                size_t shared_bytes);
};

namespace emulation {

static emulated_kernel *known;
static size_t known_count;

// Adds a kernel to the image's list; kernels register before main, or while the image is loaded.
struct registration {
    explicit registration(const emulated_kernel &kernel) {
        known = static_cast<emulated_kernel *>(
            realloc(known, (known_count + 1) * sizeof(emulated_kernel)));
        if (known == nullptr)
            abort();
        known[known_count++] = kernel;
    }
};

__attribute__((destructor)) static void forget_kernels() { free(known); }

// A kernel with any parameters, which are laid out as the fields of a struct.
template <typename... Parameters> struct parameters {
    static size_t offset(size_t number) {
        const size_t sizes[] = {sizeof(Parameters)..., 0};
        const size_t alignments[] = {alignof(Parameters)..., 1};
        size_t end = 0, begin = 0;
        for (size_t i = 0; i <= number; i++) {
            begin = (end + alignments[i] - 1) / alignments[i] * alignments[i];
            end = begin + sizes[i];
        }
        return begin;
    }
    template <typename T> static T taken(const char *from, size_t number) {
        typename std::remove_const<T>::type value;
        memcpy(&value, from + offset(number), sizeof value);
        return value;
    }
    template <size_t... numbers>
    static void call(void (*function)(Parameters...), const void *from,
                     std::index_sequence<numbers...>) {
        function(taken<Parameters>(static_cast<const char *>(from), numbers)...);
    }
};

template <auto function> struct any_kernel;
template <typename... Parameters, void (*function)(Parameters...)> struct any_kernel<function> {
    static constexpr size_t number = sizeof...(Parameters);
    static void thread(const void *arguments) {
        parameters<Parameters...>::call(function, arguments, std::make_index_sequence<number>());
    }
    static size_t size() { return parameters<Parameters...>::offset(number); }
};

} // namespace emulation

#define EMULATED_EXPORT extern "C" __attribute__((visibility("default"), used))

// For a program that looks at the file: what it is, and the version of what it exports.
EMULATED_EXPORT const char emulated_marker[] = "pullback emulated kernels 1";

EMULATED_EXPORT const emulated_kernel *emulated_kernels(size_t *count) {
    *count = emulation::known_count;
    return emulation::known;
}

// Not 0: run blocks and the threads of a block from the last to the first.
EMULATED_EXPORT void emulated_reverse(int reversed) {
    pthread_mutex_lock(&emulation::state.mutex);
    emulation::state.reversed = reversed != 0;
    pthread_mutex_unlock(&emulation::state.mutex);
}

#define KERNEL(name, Arguments) EMULATED_KERNEL(name, Arguments)
#define EMULATED_RUN(name)                                                                         \
    static void name##_run(const void *emulated_from, const unsigned emulated_grid[3],             \
                           const unsigned emulated_block[3], size_t emulated_bytes)
#define EMULATED_LAUNCH(name, thread, from)                                                        \
    emulation::launch(#name, thread, from, emulated_grid, emulated_block, emulated_bytes)
#define EMULATED_REGISTRATION(name, size)                                                          \
    static const emulation::registration name##_registration{                                      \
        emulated_kernel{#name, size, name##_run}};

// The names of locals are long so that they hide no type of the kernel's.
#define EMULATED_KERNEL(name, Arguments)                                                           \
    static void name##_body(const Arguments &args);                                                \
    static void name##_thread(const void *emulated_from) {                                         \
        name##_body(*static_cast<const Arguments *>(emulated_from));                               \
    }                                                                                              \
    EMULATED_RUN(name) {                                                                           \
        Arguments emulated_copy;                                                                   \
        memcpy(&emulated_copy, emulated_from, sizeof emulated_copy);                               \
        EMULATED_LAUNCH(name, name##_thread, &emulated_copy);                                      \
    }                                                                                              \
    EMULATED_REGISTRATION(name, sizeof(Arguments))                                                 \
    static void name##_body(const Arguments &args)

// Register a __global__ function that was written without KERNEL.
#define EMULATED_FUNCTION(name)                                                                    \
    EMULATED_RUN(name) {                                                                           \
        EMULATED_LAUNCH(name, emulation::any_kernel<name>::thread, emulated_from);                 \
    }                                                                                              \
    EMULATED_REGISTRATION(name, emulation::any_kernel<name>::size())

#define DYNAMIC_SHARED(T, name) T *const name = static_cast<T *>(emulation::state.shared)

#endif
