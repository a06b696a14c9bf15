// Positions at which elements keep sorted rows sorted, found by binary search.
#include "kernels/strides/indexer.cuh"
#include "kernels/sorting/searchsorted.h"
#include "kernels/sorting/sort_keys.cuh"

template <class Key>
DEVICE void search_rows(const searchsorted_arguments &args) {
    const key_maker<Key> maker(args.how);
    const bool right = args.right != 0, nan_last = args.nan_last != 0;
    for (int64_t number = thread_number(); number < args.total; number += thread_count()) {
        const int64_t row = quotient(number, args.width, args.narrow);
        const int64_t column = number - row * args.width.size;
        const Key wanted = maker.key_of(
            load_bits<Key>(args.values, row * args.values_steps[0] + column * args.values_steps[1],
                           args.how.bytes));
        const bool is_nan = maker.is_nan(wanted);
        const int64_t bounds = row * args.bounds_steps[0];
        int64_t low = 0, high = args.length;
        // The bounds need not be sorted: the result depends on the elements that are compared.
        while (low < high) {
            const int64_t middle = low + (high - low) / 2;
            const Key bound = maker.key_of(load_bits<Key>(
                args.bounds, bounds + middle * args.bounds_steps[1], args.how.bytes));
            bool found = right ? bound > wanted : bound >= wanted;
            if (maker.is_nan(bound))
                found = nan_last;
            else if (is_nan)
                found = false; // nothing compares with NaN
            if (found)
                high = middle;
            else
                low = middle + 1;
        }
        args.out[row * args.out_steps[0] + column * args.out_steps[1]] = low;
    }
}

KERNEL(searchsorted_4, searchsorted_arguments) { search_rows<uint32_t>(args); }
KERNEL(searchsorted_8, searchsorted_arguments) { search_rows<uint64_t>(args); }
