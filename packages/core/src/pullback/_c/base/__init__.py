"""The lowest layer: C structs, thread state, errors, dtypes, sizes and strides, interrupts."""
