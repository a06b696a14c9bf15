"""Functions that count, change, and have something to save."""

from pullback.autograd import grad


class Counted:
    """A function that counts how often it was begun and ended."""

    def __init__(self, function):
        self.function = function
        self.begun = self.ended = 0

    def __call__(self, *args, **kwargs):
        self.begun += 1
        result = self.function(*args, **kwargs)
        self.ended += 1
        return result


class Changing:
    """Another function at each call."""

    def __init__(self, *functions):
        self.functions = list(functions)

    def __call__(self, x):
        return self.functions.pop(0)(x)


def wave(x):
    """Save three tensors."""
    return x.sin().exp().sin()


def two(x):
    """Save two tensors."""
    return x.sin().exp()


def gradient(function, x):
    """Return the gradient of the sum of a function's elements."""
    return grad(function(x).sum(), x)[0]


def same(left, right):
    """Tell whether two tensors agree but for rounding."""
    return bool(((left - right).abs() <= 1e-12 * right.abs()).all())
