"""What must hold for every op that is compiled: a replay gives what the op itself gives."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pullback as pb
from pullback.testing.checks.basic import SEED, assert_same_bits
from pullback.testing.samples import Sample, copy_as_it_lies, op_of, tensors_in

__all__ = ["check_compiled", "check_compiled_grad"]


def fresh(tensor: pb.Tensor) -> pb.Tensor:
    """Return a copy with other elements; integers, which may be indices, stay as they are."""
    made = copy_as_it_lies(tensor)
    if tensor.is_floating_point() or tensor.is_complex():
        made.copy_((tensor.detach() * 0.875).reshape(-1).flip(0).reshape(tensor.shape))
    return made


def check_compiled(sample: Sample) -> None:
    """A captured call, and its replay on other values, give what eager calls give."""
    op = op_of(sample.entry)

    def function(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    compiled = pb.compile(function)
    for number, values in enumerate((copy_as_it_lies, fresh, fresh)):
        eager, replayed = sample.mapped(values), sample.mapped(values)
        pb.manual_seed(SEED)
        expected = op(*eager.args, **eager.kwargs)
        state = pb.get_rng_state()
        pb.manual_seed(SEED)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="compile")
            found = compiled(*replayed.args, **replayed.kwargs)
        what = "replay" if number else "capture"
        assert_alike(found, expected, f"{what}: result")
        assert_alike(replayed.tensors(), eager.tensors(), f"{what}: arguments")
        assert pb.get_rng_state().tolist() == state.tolist(), f"{what}: random numbers"
        versions = [x._version for x in replayed.tensors()], [x._version for x in eager.tensors()]
        assert versions[0] == versions[1], f"{what}: versions {versions[0]}, not {versions[1]}"
    assert_replayed(compiled)


def check_compiled_grad(sample: Sample) -> None:
    """Gradients, and gradients of these, of a replayed call are those of an eager one."""
    op = op_of(sample.entry)

    def function(*args: Any, **kwargs: Any) -> Any:
        return op(*args, **kwargs)

    compiled = pb.compile(function)
    for number, values in enumerate((copy_as_it_lies, fresh, fresh)):
        found: list[Any] = []
        expected: list[Any] = []
        for run, results in ((op, expected), (compiled, found)):
            call = sample.mapped(functools.partial(_differentiable, values))
            pb.manual_seed(SEED)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="compile")
                results += gradients(run, call, twice=number == 2)
        what = "replay" if number else "capture"
        assert_alike(found, expected, f"{what}: gradients", strides=False)
    assert_replayed(compiled)


def assert_replayed(compiled: Any) -> None:
    """Raise if a program was recorded, but later calls ran eagerly."""
    runs = [entry.runs for entry in compiled.entries if entry.program is not None]
    assert runs in ([], [2]), f"programs ran {runs} times, not twice"


def _differentiable(values: Any, tensor: pb.Tensor) -> pb.Tensor:
    return values(tensor).detach().requires_grad_(tensor.requires_grad)


def gradients(run: Any, call: Sample, twice: bool) -> list[Any]:
    """Return results and gradients of a call."""
    inputs = [x for x in call.tensors() if x.requires_grad]
    outputs = [y for y in tensors_in((run(*call.args, **call.kwargs),)) if y.requires_grad]
    if not inputs or not outputs:
        return []
    seeds = [pb.full_like(y, 0.75) for y in outputs]
    grads = pb.autograd.grad(outputs, inputs, seeds, allow_unused=True, create_graph=twice)
    found = [*outputs, *grads]
    again = [g for g in grads if g is not None and g.requires_grad]
    if twice and again:
        seeds = [pb.full_like(g, 0.5) for g in again]
        found += pb.autograd.grad(again, inputs, seeds, allow_unused=True)
    return found


def assert_alike(found: Any, expected: Any, what: str, strides: bool = True) -> None:
    """Raise unless two structures of tensors have the same elements, strides and history.

    Strides of gradients depend on those of the gradients of results, for which a program has one
    layout.
    """
    left, right = list(flat(found)), list(flat(expected))
    assert len(left) == len(right), f"{what}: {len(left)} values, not {len(right)}"
    for one, other in zip(left, right):
        if not isinstance(other, pb.Tensor):
            assert type(one) is type(other), f"{what}: {one}, not {other}"
            continue
        assert one.requires_grad == other.requires_grad, f"{what}: requires_grad"
        if strides:
            assert one.stride() == other.stride(), f"{what}: {one.stride()}, {other.stride()}"
        assert_same_bits(one, other, what)


def flat(value: Any) -> Any:
    """Yield the leaves of tuples and lists."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from flat(item)
    else:
        yield value
