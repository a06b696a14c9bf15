// Warp-level functions: shuffles, votes and matches.
#ifndef PULLBACK_EMULATION_WARPS_H
#define PULLBACK_EMULATION_WARPS_H

namespace emulation {

enum { sync_only, shuffle, ballot, match_any, match_all };
static const char *const meeting_names[] = {"__syncwarp", "a shuffle", "a vote", "__match_any_sync",
                                            "__match_all_sync"};

// Lanes that wait for each other. Several can be open in a warp, with different masks.
struct warp_call {
    unsigned mask, arrived;
    int kind, line;
    const char *file;
    uint64_t value[lanes];
    unsigned source[lanes];
    fiber *waiting[lanes];
};

static struct warp {
    unsigned absent; // lanes that have returned, or that the block does not have
    unsigned open;   // calls
    warp_call calls[lanes];
} warps[largest_block / lanes];

EMULATED_UNCHECKED static void begin_warps() {
    for (unsigned i = 0; i * lanes < state.threads; i++) {
        const unsigned here = state.threads - i * lanes;
        warps[i].absent = here < lanes ? ~0u << here : 0;
        warps[i].open = 0;
    }
}

static void explain_warps() {
    for (unsigned i = 0; i * lanes < state.threads; i++)
        for (unsigned j = 0; j < warps[i].open; j++) {
            const warp_call &that = warps[i].calls[j];
            fprintf(stderr, ", lanes 0x%08x of warp %u wait in %s with the mask 0x%08x of %s:%d",
                    that.arrived, i, meeting_names[that.kind], that.mask, that.file, that.line);
        }
}

EMULATED_UNCHECKED static uint64_t outcome(const warp_call &of, unsigned lane) {
    uint64_t same = 0;
    switch (of.kind) {
    case shuffle:
        if (of.arrived >> of.source[lane] & 1)
            return of.value[of.source[lane]];
        memset(&same, poison, sizeof same);
        return same;
    case ballot:
        for (unsigned i = 0; i < lanes; i++)
            same |= static_cast<uint64_t>((of.arrived >> i & 1) && of.value[i] != 0) << i;
        return same;
    case match_any:
    case match_all:
        for (unsigned i = 0; i < lanes; i++)
            same |= static_cast<uint64_t>((of.arrived >> i & 1) && of.value[i] == of.value[lane])
                    << i;
        return of.kind == match_any || same == of.arrived ? same : 0;
    }
    return 0;
}

// Complete a warp operation that all lanes of its mask have reached: all but the caller become ready.
EMULATED_UNCHECKED static bool settle(warp &in, warp_call &call) {
    if ((call.mask & ~in.absent & ~call.arrived) != 0)
        return false;
    const uint64_t votes = call.kind == ballot ? outcome(call, 0) : 0;
    for (unsigned lane = 0; lane < lanes; lane++) {
        if (!(call.arrived >> lane & 1))
            continue;
        fiber *const waited = call.waiting[lane];
        waited->received = call.kind == ballot ? votes : outcome(call, lane);
        waited->lanes_present = call.arrived;
        if (waited != state.current)
            make_ready(waited);
    }
    warp_call &last = in.calls[--in.open];
    if (&last != &call)
        call = last;
    return true;
}

EMULATED_UNCHECKED static void lane_ended(unsigned thread) {
    warp &in = warps[thread / lanes];
    in.absent |= 1u << thread % lanes;
    for (unsigned i = in.open; i-- > 0;)
        settle(in, in.calls[i]);
}

// Wait for the other lanes of the mask; then state.current has the result.
EMULATED_UNCHECKED static void join_call(unsigned mask, int kind, uint64_t value, unsigned source,
                                    const char *file, int line) {
    const unsigned lane = state.current->thread % lanes;
    warp &in = warps[state.current->thread / lanes];
    if (!(mask >> lane & 1))
        fail("lane %u calls %s at %s:%d with the mask 0x%08x, which lacks it", lane,
             meeting_names[kind], file, line, mask);
    unsigned i = 0;
    while (i < in.open && in.calls[i].mask != mask)
        i++;
    warp_call &here = in.calls[i];
    if (i == in.open) {
        in.open++;
        here.mask = mask;
        here.arrived = 0;
        here.kind = kind;
        here.file = file;
        here.line = line;
    } else if (here.kind != kind) {
        fail("lane %u calls %s at %s:%d, but lanes 0x%08x of the same mask wait in %s at %s:%d",
             lane, meeting_names[kind], file, line, here.arrived, meeting_names[here.kind],
             here.file, here.line);
    }
    here.arrived |= 1u << lane;
    here.value[lane] = value;
    here.source[lane] = source;
    here.waiting[lane] = state.current;
    if (!settle(in, here))
        park();
}

template <typename T>
static T shuffled(unsigned mask, T value, unsigned source, const char *file, int line) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle moves 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    join_call(mask, shuffle, bits, source, file, line);
    bits = state.current->received;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static unsigned lane() { return state.current->thread % lanes; }

} // namespace emulation

#define EMULATED_SHUFFLES(T)                                                                       \
    static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32,                \
                                EMULATED_CALLER) {                                                 \
        const unsigned part = static_cast<unsigned>(width) - 1;                                    \
        const unsigned from =                                                                      \
            (emulation::lane() & ~part) | (static_cast<unsigned>(source) & part);                  \
        return emulation::shuffled(mask, value, from, file, line);                                 \
    }                                                                                              \
    static inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,         \
                                   EMULATED_CALLER) {                                              \
        const unsigned lane = emulation::lane();                                                   \
        const unsigned within = lane & (static_cast<unsigned>(width) - 1);                         \
        const unsigned from = within < delta ? lane : lane - delta;                                \
        return emulation::shuffled(mask, value, from, file, line);                                 \
    }                                                                                              \
    static inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,       \
                                     EMULATED_CALLER) {                                            \
        const unsigned lane = emulation::lane();                                                   \
        const unsigned within = lane & (static_cast<unsigned>(width) - 1);                         \
        const unsigned from =                                                                      \
            delta >= static_cast<unsigned>(width) - within ? lane : lane + delta;                  \
        return emulation::shuffled(mask, value, from, file, line);                                 \
    }                                                                                              \
    static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,              \
                                    EMULATED_CALLER) {                                             \
        const unsigned lane = emulation::lane();                                                   \
        const unsigned other = lane ^ static_cast<unsigned>(bits);                                 \
        const unsigned end = (lane & ~(static_cast<unsigned>(width) - 1)) + width;                 \
        return emulation::shuffled(mask, value, other < end ? other : lane, file, line);           \
    }

EMULATED_SHUFFLES(int)
EMULATED_SHUFFLES(unsigned)
EMULATED_SHUFFLES(long)
EMULATED_SHUFFLES(unsigned long)
EMULATED_SHUFFLES(long long)
EMULATED_SHUFFLES(unsigned long long)
EMULATED_SHUFFLES(float)
EMULATED_SHUFFLES(double)
#undef EMULATED_SHUFFLES

static inline void __syncwarp(unsigned mask = 0xffffffffu, EMULATED_CALLER) {
    emulation::join_call(mask, emulation::sync_only, 0, 0, file, line);
}
static inline unsigned __ballot_sync(unsigned mask, int vote, EMULATED_CALLER) {
    emulation::join_call(mask, emulation::ballot, vote != 0, 0, file, line);
    return static_cast<unsigned>(emulation::state.current->received);
}
static inline int __any_sync(unsigned mask, int vote, EMULATED_CALLER) {
    return __ballot_sync(mask, vote, file, line) != 0;
}
static inline int __all_sync(unsigned mask, int vote, EMULATED_CALLER) {
    return __ballot_sync(mask, vote, file, line) == emulation::state.current->lanes_present;
}
template <typename T>
static inline unsigned __match_any_sync(unsigned mask, T value, EMULATED_CALLER) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    emulation::join_call(mask, emulation::match_any, bits, 0, file, line);
    return static_cast<unsigned>(emulation::state.current->received);
}
template <typename T>
static inline unsigned __match_all_sync(unsigned mask, T value, int *same, EMULATED_CALLER) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    emulation::join_call(mask, emulation::match_all, bits, 0, file, line);
    *same = emulation::state.current->received != 0;
    return static_cast<unsigned>(emulation::state.current->received);
}
// Any set that holds the caller is right here; the smallest finds the most errors.
static inline unsigned __activemask() { return 1u << emulation::lane(); }

#endif
