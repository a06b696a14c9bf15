// amax, amin, argmax and argmin.
#include "kernels/reductions/sort_order.cuh"
#include "kernels/common/reduction_driver.cuh"

// The part of an operator that reads elements.
template <class T, class Bits, class Value>
struct read_in_order : sort_order<T, Bits, Value> {
    static DEVICE Value read(Bits bits, const pb_reduction &args) {
        return sort_order<T, Bits, Value>::value_from(bits, args.mask);
    }
};

// ---- amax and amin -----------------------------------------------------------------------------

template <class T, class Bits, class Value>
struct largest_of : read_in_order<T, Bits, Value> {
    typedef sort_order<T, Bits, Value> order;
    typedef Value value;
    typedef Value local;
    typedef Value accumulator;
    static DEVICE value start() { return order::lowest(); }
    static DEVICE value identity() { return order::lowest(); }
    static DEVICE value merge(value x, value y) { return order::is_larger(y, x) ? y : x; }
    template <int N>
    static DEVICE void take(value &largest, const value (&values)[N], uint32_t) {
#pragma unroll
        for (int i = 0; i < N; i++)
            largest = merge(largest, values[i]);
    }
    static DEVICE value close(value largest, uint32_t, int64_t, int64_t) { return largest; }
    static DEVICE void finish(const pb_reduction &args, value largest, int64_t offset) {
        static_cast<Bits *>(args.out)[offset] = order::bits_from(largest, args.mask);
    }
};

// ---- argmax and argmin -------------------------------------------------------------------------

// An index below 0: there was no element.
template <class Value>
struct indexed_value {
    Value value;
    int64_t index;
};

template <class Value>
struct numbered {
    Value value;
    uint32_t number; // among the elements that the thread took in
};

template <class T, class Bits, class Value>
struct index_of_largest : read_in_order<T, Bits, Value> {
    typedef sort_order<T, Bits, Value> order;
    typedef Value value;
    typedef numbered<Value> local;
    typedef indexed_value<Value> accumulator;
    static DEVICE local start() { return {order::lowest(), 0}; }
    static DEVICE accumulator identity() { return {order::lowest(), -1}; }
    static DEVICE accumulator merge(const accumulator &x, const accumulator &y) {
        if (x.index < 0 || y.index < 0)
            return x.index < 0 ? y : x;
        if (order::is_larger(y.value, x.value))
            return y;
        return order::is_larger(x.value, y.value) || x.index < y.index ? x : y;
    }
    template <int N>
    static DEVICE void take(local &best, const value (&values)[N], uint32_t number) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (order::is_larger(values[i], best.value)) {
                best.value = values[i];
                best.number = number + i;
            }
        }
    }
    // Where nothing was larger than the lowest value, the first element has it.
    static DEVICE accumulator close(const local &best, uint32_t count, int64_t first,
                                    int64_t apart) {
        return {best.value, count == 0 ? -1 : first + best.number * apart};
    }
    static DEVICE void finish(const pb_reduction &args, const accumulator &best, int64_t offset) {
        static_cast<int64_t *>(args.out)[offset] = best.index;
    }
};

// ---- kernels -----------------------------------------------------------------------------------

#define MINMAX(name, T, Bits, Value) \
    KERNEL(minmax_##name, pb_reduction) { reduce<largest_of<T, Bits, Value>>(args); } \
    KERNEL(argminmax_##name, pb_reduction) { reduce<index_of_largest<T, Bits, Value>>(args); }
FOR_ORDERED(MINMAX)
