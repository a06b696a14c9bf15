"""Shapes: their number of elements, broadcasts, checks."""


def product(sizes):
    """Return the number of elements of a shape."""
    count = 1
    for size in sizes:
        count *= size
    return count


def by_sizes(sizes):
    """Return sizes as torch's messages write them: 3 x 4."""
    return " x ".join(str(size) for size in sizes)


def broadcast_shape(a, b):
    """Return the shape that two shapes broadcast to.

    Raises: RuntimeError for sizes that differ where neither is 1.
    """
    length = max(len(a), len(b))
    a = (1,) * (length - len(a)) + tuple(a)
    b = (1,) * (length - len(b)) + tuple(b)
    for d, (x, y) in enumerate(zip(a, b)):
        if x != y and x != 1 and y != 1:
            raise RuntimeError(
                f"The size of tensor a ({x}) must match the size of tensor b ({y}) "
                f"at non-singleton dimension {d}"
            )
    return tuple(y if x == 1 else x for x, y in zip(a, b))


def check_vectors(name, **vectors):
    """Raise RuntimeError unless each of the named tensors has one dim."""
    for argument, vector in vectors.items():
        if vector.ndim != 1:
            raise RuntimeError(f"{name}: Expected 1-D argument {argument}, but got {vector.ndim}-D")
