// Running extremes and where they are. Of equal elements the last counts.
#include "kernels/reductions/sort_order.cuh"
#include "kernels/reductions/scan.cuh"

// An index below 0: there was no element.
template <class Value>
struct extreme_of_range {
    int64_t index;
    Value value;
};

template <class T, class Bits, class Value>
struct running_largest : ordered<T, Bits, Value> {
    typedef ordered<T, Bits, Value> order;
    typedef extreme_of_range<Value> accumulator;
    static constexpr bool HAS_PLACES = true;
    static DEVICE accumulator identity() { return {-1, order::lowest()}; }
    static DEVICE accumulator read(Bits element, int64_t index, const pb_scan &args) {
        return {index, order::value_from(element, args.mask)};
    }
    static DEVICE accumulator join(const accumulator &x, const accumulator &y) {
        if (x.index < 0 || y.index < 0)
            return x.index < 0 ? y : x;
        return y.value >= x.value || order::is_nan(y.value) ? y : x;
    }
    static DEVICE Bits result(const accumulator &found, const pb_scan &args) {
        return order::bits_from(found.value, args.mask);
    }
    static DEVICE int64_t place(const accumulator &found) { return found.index; }
};

#define RUNNING_EXTREMES(name, T, Bits, Value) \
    BUSY_KERNEL(running_extreme_##name, pb_scan, 3) { scan<running_largest<T, Bits, Value>>(args); }
FOR_ORDERED(RUNNING_EXTREMES)
