// cummax and cummin, with indices. Of equal elements the last counts.
#include "kernels/reductions/sort_order.cuh"
#include "kernels/reductions/scan.cuh"

// An index below 0: there was no element.
template <class Value>
struct indexed_value {
    int64_t index;
    Value value;
};

template <class T, class Bits, class Value>
struct cumulative_max : sort_order<T, Bits, Value> {
    typedef sort_order<T, Bits, Value> order;
    typedef indexed_value<Value> accumulator;
    static constexpr bool HAS_INDICES = true;
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
    static DEVICE int64_t index(const accumulator &found) { return found.index; }
};

#define CUMMAX(name, T, Bits, Value) \
    BUSY_KERNEL(cummax_##name, pb_scan, 3) { scan<cumulative_max<T, Bits, Value>>(args); }
FOR_ORDERED(CUMMAX)
