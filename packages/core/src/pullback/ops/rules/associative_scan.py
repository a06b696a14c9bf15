"""Cumulative results of associative operations, in other ops."""

from pullback.ops.table.schema import ops


def scan(combine, parts, dim, reverse=False):
    """Return the cumulative results of an associative operation along a dim.

    ``combine(left, right)`` joins the results of two neighbouring runs; each is a list of tensors,
    as ``parts`` is for runs of one element. With ``reverse`` the runs end at the last element.
    Source: Hillis and Steele, "Data parallel algorithms", 1986: log2(n) steps, which every device
    can take, and of which each is differentiable.
    """
    length, step = parts[0].shape[dim], 1
    while step < length:
        rest = length - step
        left = [part.narrow(dim, 0, rest) for part in parts]
        right = [part.narrow(dim, step, rest) for part in parts]
        joined = combine(left, right)
        if reverse:
            ends = [part.narrow(dim, rest, step) for part in parts]
            parts = [ops.cat([one, end], dim) for one, end in zip(joined, ends)]
        else:
            ends = [part.narrow(dim, 0, step) for part in parts]
            parts = [ops.cat([end, one], dim) for one, end in zip(joined, ends)]
        step *= 2
    return parts


def multiply_runs(left, right):
    """Join cumulative products."""
    return [left[0] * right[0]]


def recur_backwards(inputs, factors, dim):
    """Return s with s[k] = inputs[k] + factors[k] * s[k + 1] along a dim, and s[n] = 0.

    Source: Blelloch, "Prefix sums and their applications", 1990, section 1.4.
    """

    def combine(left, right):
        return [left[0] + left[1] * right[0], left[1] * right[1]]

    return scan(combine, [inputs, factors], dim, reverse=True)[0]


def shifted(self, dim, fill, forwards=True):
    """Return the elements shifted by one along a dim; ``fill`` is the value of the end."""
    count = self.shape[dim]
    if not count:
        return self
    edge = ops.full_like(self.detach().narrow(dim, 0, 1), fill)
    if forwards:
        return ops.cat([edge, self.narrow(dim, 0, count - 1)], dim)
    return ops.cat([self.narrow(dim, 1, count - 1), edge], dim)
