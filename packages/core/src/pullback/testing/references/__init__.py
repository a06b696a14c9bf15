"""Expected values of ops, in NumPy, one module a family; entries name them as `ref`."""
