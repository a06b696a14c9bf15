// What the compiler calls where device code does something undefined that the hardware and this
// processor would do differently: the process ends and prints the source line.
#ifndef PULLBACK_EMULATION_UNDEFINED_H
#define PULLBACK_EMULATION_UNDEFINED_H

namespace emulation {
struct source_place { // with which each of the compiler's records begins
    const char *file;
    uint32_t line, column;
};
[[noreturn]] static void undefined(const void *place, const char *what) {
    const source_place *at = static_cast<const source_place *>(place);
    fail("%s at %s:%u:%u", what, at->file, at->line, at->column);
}
} // namespace emulation

#define EMULATED_CHECK(name, what)                                                                 \
    extern "C" __attribute__((visibility("hidden"), used)) void __ubsan_handle_##name(             \
        const void *place) {                                                                       \
        emulation::undefined(place, what);                                                         \
    }
EMULATED_CHECK(type_mismatch_v1_abort, "a pointer that is null or not aligned to its type")
EMULATED_CHECK(out_of_bounds_abort, "an index outside of the array")
EMULATED_CHECK(shift_out_of_bounds_abort, "a shift by more bits than there are")
EMULATED_CHECK(divrem_overflow_abort, "an integer division by zero")
EMULATED_CHECK(float_cast_overflow_abort, "a number that the integer type cannot hold")
#undef EMULATED_CHECK

#endif
