"""New tensors: values, ranges, random numbers."""
