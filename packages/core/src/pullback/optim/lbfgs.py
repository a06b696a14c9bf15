"""L-BFGS, a quasi-Newton method with limited memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import pullback
from pullback._c.python.optimizer_steps import note_options_read
from pullback.optim.optimizer import Optimizer, _check_lr

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """L-BFGS: steps by an estimate of the inverse Hessian from the last changes of the gradient.

    A call of ``step`` makes up to ``max_iter`` iterations, with at most ``max_eval`` calls of the
    closure, by default 5/4 of that; it ends earlier where no element of the gradient is above
    ``tolerance_grad``, or the loss and the parameters change by less than ``tolerance_change``.
    ``history_size`` changes are kept (Nocedal and Wright, "Numerical Optimization", 2006,
    algorithm 7.4). Steps have the length ``lr``, or with ``line_search_fn="strong_wolfe"`` one
    that fulfils the strong Wolfe conditions. It takes one parameter group.

    Raises: ValueError for a negative ``lr`` or several groups; RuntimeError in a step for another
    ``line_search_fn``; TypeError if the closure returns no number.

    >>> import pullback
    >>> x = pullback.tensor([-1.2, 1.0], dtype=pullback.float64, requires_grad=True)
    >>> optimizer = pullback.optim.LBFGS([x], max_iter=50, line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2
    ...     loss.backward()
    ...     return loss
    >>> loss = optimizer.step(closure)
    >>> x
    tensor([1.0000, 1.0000], dtype=pullback.float64, requires_grad=True)
    """

    def __init__(
        self,
        params,
        lr=1,
        max_iter=20,
        max_eval=None,
        tolerance_grad=1e-7,
        tolerance_change=1e-9,
        history_size=100,
        line_search_fn=None,
    ):
        _check_lr(lr)
        super().__init__(
            params,
            {
                "lr": lr,
                "max_iter": max_iter,
                "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                "tolerance_grad": tolerance_grad,
                "tolerance_change": tolerance_change,
                "history_size": history_size,
                "line_search_fn": line_search_fn,
            },
        )
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params = self.param_groups[0]["params"]

    def __setstate__(self, state):
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    @pullback.no_grad()
    def step(self, closure):
        """Make iterations; return the loss of the first call of the closure.

        ``closure`` sets gradients to zero, computes the loss and its gradients, and returns it.
        """
        note_options_read()
        (group,) = self.param_groups
        state = self.state[self._params[0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first_loss, loss, grad = self._evaluate(closure)
        state["func_evals"] += 1
        if grad.abs().max() <= group["tolerance_grad"]:
            return first_loss
        evaluations = 1
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            direction = self._direction(state, grad, group["history_size"])
            state["prev_flat_grad"], state["prev_loss"] = grad, loss
            step = float(group["lr"])
            if state["n_iter"] == 1:
                step *= min(1.0, 1.0 / grad.abs().sum().item())
            slope = grad.dot(direction).item()
            if slope > -group["tolerance_change"]:
                state["t"] = step
                break
            previous = loss
            if group["line_search_fn"] is not None:
                start = Point(0.0, loss, grad, slope)
                found, count = self._search(
                    closure, direction, step, start, group, group["max_eval"] - evaluations
                )
                step, loss, grad = found.step, found.loss, found.grad
                self._add(direction, step)
            else:
                self._add(direction, step)
                count = 0
                if iteration != group["max_iter"]:
                    _, loss, grad = self._evaluate(closure)
                    count = 1
            state["t"] = step
            state["func_evals"] += count
            evaluations += count
            if (
                evaluations >= group["max_eval"]
                or grad.abs().max() <= group["tolerance_grad"]
                or direction.abs().max() * step <= group["tolerance_change"]
                or abs(loss - previous) < group["tolerance_change"]
            ):
                break
        return first_loss

    def _direction(self, state, grad, history_size):
        """Return minus the product of the estimated inverse Hessian and the gradient."""
        if state["n_iter"] == 1:
            state["d"] = grad.neg()
            state["old_dirs"], state["old_stps"], state["ro"] = [], [], []
            state["H_diag"] = 1
            return state["d"]
        changes, moves, inverses = state["old_dirs"], state["old_stps"], state["ro"]
        change, move = grad.sub(state["prev_flat_grad"]), state["d"].mul(state["t"])
        product = change.dot(move).item()
        if product > 1e-10:
            if len(changes) == history_size:
                for kept in (changes, moves, inverses):
                    kept.pop(0)
            changes.append(change)
            moves.append(move)
            inverses.append(1.0 / product)
            state["H_diag"] = product / change.dot(change).item()
        found = grad.neg()
        factors = state["al"] = [None] * history_size
        for i in range(len(changes) - 1, -1, -1):
            factors[i] = moves[i].dot(found).item() * float(inverses[i])
            found.add_(changes[i], alpha=-factors[i])
        found.mul_(state["H_diag"])
        for i in range(len(changes)):
            other = changes[i].dot(found).item() * float(inverses[i])
            found.add_(moves[i], alpha=factors[i] - other)
        state["d"] = found
        return found

    def _search(self, closure, direction, step, start, group, most):
        if group["line_search_fn"] != "strong_wolfe":
            raise RuntimeError("only 'strong_wolfe' is supported")
        kept = [param.clone() for param in self._params]

        def evaluate(step):
            self._add(direction, step)
            _, loss, grad = self._evaluate(closure)
            for param, value in zip(self._params, kept):
                param.copy_(value)
            return Point(step, loss, grad, grad.dot(direction).item())

        return strong_wolfe(evaluate, step, start, direction.abs().max().item(), most)

    def _evaluate(self, closure):
        """Return what a closure returns, as a number too, and the gradient as one vector."""
        with pullback.enable_grad():
            loss = closure()
        parts = []
        for param in self._params:
            grad = pullback.zeros_like(param) if param.grad is None else param.grad
            if grad.is_sparse:
                grad = grad.to_dense()
            parts.append((pullback.view_as_real(grad) if grad.is_complex() else grad).reshape(-1))
        return loss, float(loss), pullback.cat(parts)

    def _add(self, direction, step):
        """Add a multiple of a vector to the parameters."""
        offset = 0
        for param in self._params:
            real = pullback.view_as_real(param) if param.is_complex() else param
            part = direction[offset : offset + real.numel()]
            real.add_(part.view_as(real), alpha=step)
            offset += real.numel()


# -- the line search for the strong Wolfe conditions -----------------------------------------------

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
