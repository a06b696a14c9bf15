"""A line search for the strong Wolfe conditions."""

from __future__ import annotations

from typing import Any, NamedTuple

DECREASE, CURVATURE = 1e-4, 0.9  # c1 and c2 of the conditions
CLOSEST = 1e-9  # two steps whose points differ less are the same
MOST_EVALUATIONS = 25


class Point(NamedTuple):
    """A step along the search direction: the loss there, the gradient, and the slope."""

    step: float
    loss: float
    grad: Any
    slope: float


def strong_wolfe(evaluate, step, start, extent, most=MOST_EVALUATIONS):
    """Return a ``Point`` that fulfils the strong Wolfe conditions, and the count of evaluations.

    The loss has decreased by at least 1e-4 of what the slope promises, and the slope is at most
    0.9 of the first. A bracket of steps is extended until it holds such a point, then narrowed,
    both by cubic interpolation (Nocedal and Wright, "Numerical Optimization", 2006, algorithms 3.5
    and 3.6). ``evaluate`` maps a step to a ``Point``, ``start`` is the point of step 0, and
    ``extent`` the largest element of the direction. The best point is taken after the first
    evaluation above ``most``, at most 25.
    """
    most = min(most, MOST_EVALUATIONS)
    low, high, count = _bracket(evaluate, step, start, most)
    if high is None:
        return low, count
    stalled = False
    while count <= most and abs(high.step - low.step) * extent >= CLOSEST:
        step, stalled = _step_inside(low, high, stalled)
        point = evaluate(step)
        count += 1
        if _is_too_high(point, start) or point.loss >= low.loss:
            low, high = _ordered(low, point)
        elif _is_flat(point, start):
            return point, count
        else:
            turns = point.slope * (high.step - low.step) >= 0
            low, high = point, low if turns else high
    return low, count


def _bracket(evaluate, step, start, most):
    """Extend the step; return the two ends of a bracket, the better one first, or one good point
    and None, and the count of evaluations.
    """
    before, point, count = start, evaluate(step), 1
    while count <= most:
        if _is_too_high(point, start) or (count > 2 and point.loss >= before.loss):
            return *_ordered(before, point), count
        if _is_flat(point, start):
            return point, None, count
        if point.slope >= 0:
            return *_ordered(before, point), count
        bounds = point.step + 0.01 * (point.step - before.step), point.step * 10
        before, point = point, evaluate(cubic_minimum(before, point, bounds))
        count += 1
    return *_ordered(start, point), count


def _step_inside(low, high, stalled):
    """Return a step inside a bracket, and whether it is so near an end that progress stalls.

    The second such step in a row, or one outside, moves to a tenth of the bracket from that end.
    """
    left, right = sorted((low.step, high.step))
    first, second = (low, high) if low.step <= high.step else (high, low)
    step, margin = cubic_minimum(first, second), 0.1 * (right - left)
    if min(right - step, step - left) >= margin:
        return step, False
    if stalled or not left < step < right:
        near_right = abs(step - right) < abs(step - left)
        return (right - margin if near_right else left + margin), False
    return step, True


def _is_too_high(point, start):
    return point.loss > start.loss + DECREASE * point.step * start.slope


def _is_flat(point, start):
    return abs(point.slope) <= -CURVATURE * start.slope


def _ordered(a, b):
    """Return two points, that of the smaller loss first."""
    return (a, b) if a.loss <= b.loss else (b, a)


def cubic_minimum(a, b, bounds=None):
    """Return where the cubic through two points with their slopes is smallest, within bounds.

    Without a minimum it is the middle (Nocedal and Wright, equation 3.59).
    """
    left, right = bounds or sorted((a.step, b.step))
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step)
    square = d1 * d1 - a.slope * b.slope
    if not square >= 0:
        return (left + right) / 2
    d2 = square**0.5
    if a.step > b.step:
        a, b = b, a
    found = b.step - (b.step - a.step) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return min(max(found, left), right)
