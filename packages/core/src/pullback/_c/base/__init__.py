"""What all else stands on: C structs, thread state, errors, dtypes, sizes and strides, Ctrl-C."""
