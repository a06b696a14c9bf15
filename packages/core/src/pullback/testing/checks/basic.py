"""What must hold for every op and every sample call. Each check raises AssertionError.

Calls see the same random numbers every time, so ops that draw them are checked like others.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pullback as pb
from pullback._c.dispatch.decompose import op_decomposed
from pullback._c.engine import formula
from pullback.ops import ops
from pullback.testing.compare import assert_close, default_tolerances, to_array
from pullback.testing.draw import lay_out
from pullback.testing.modes import differentiable
from pullback.testing.reference import expect
from pullback.testing.samples import (
    Sample,
    copy_as_it_lies,
    op_of,
    replace_tensors,
    tensors_in,
)

__all__ = [
    "check_alias",
    "check_batch",
    "check_batch_grad",
    "check_compiled",
    "check_decomposed",
    "check_devices",
    "check_forward",
    "check_grad",
    "check_gradgrad",
    "check_inplace",
    "check_inplace_grad",
    "check_leak",
    "check_meta",
    "check_out",
    "check_refusal",
    "check_repeatable",
    "check_value",
]

SEED = 20
REFUSALS = (RuntimeError, TypeError, ValueError, IndexError)  # NotImplementedError is the first


def call(sample: Sample) -> Any:
    """Return what the op gives; in-place ops work on a copy of what they write.

    Of an op that writes lists of tensors the result is what it wrote, list by list.
    """
    if any(argument.written for argument in sample.entry.arguments):
        return call_on_lists(sample, op_of(sample.entry))
    pb.manual_seed(SEED)
    args = sample.args
    if sample.entry.name.endswith("_"):
        args = (args[0].clone(), *args[1:])
    return op_of(sample.entry)(*args, **sample.kwargs)


def call_on_lists(sample: Sample, run: Callable[..., Any]) -> list[pb.Tensor]:
    """Return copies of the lists of tensors that a call writes, after the call."""
    args = [
        replace_tensors(value, copy_as_it_lies) if argument.written else value
        for argument, value in zip(sample.entry.arguments, sample.args)
    ]
    written = [a for a, argument in zip(args, sample.entry.arguments) if argument.written]
    before = [tensor._version for tensor in tensors_in(written)]
    result = run(*args, **sample.kwargs)
    assert result is None, f"the op returned {result}"
    moved = [tensor._version for tensor in tensors_in(written)]
    assert run is not op_of(sample.entry) or all(map(int.__lt__, before, moved)), (
        f"version counters went from {before} to {moved}"
    )
    return tensors_in(written)


# -- values ----------------------------------------------------------------------------------------


def check_value(sample: Sample) -> None:
    """The result is the reference's, and the arguments keep their elements."""
    before = [tensor.clone() for tensor in sample.tensors()]
    result = call(sample)
    for tensor, kept in zip(sample.tensors(), before):
        assert_same_bits(tensor, kept, "the op wrote into an argument")
    if sample.entry.ref is None:
        return
    expected = expect(sample)
    results, arrays = tensors_in((result,)), list(expected) if _is_many(result) else [expected]
    assert len(results) == len(arrays), f"{len(results)} results, the reference has {len(arrays)}"
    for tensor, array in zip(results, arrays):
        wanted = lay_out(_real_if(tensor, array), tensor.dtype, tensor.device, "contiguous")
        rtol, atol = tolerances(tensor.dtype, to_array(wanted))
        assert_close(tensor, wanted, rtol=rtol, atol=atol, equal_nan=True)


def tolerances(dtype: Any, expected: np.ndarray) -> tuple[float, float]:
    """Return (rtol, atol): 16-bit dtypes may lose a unit of the largest element.

    Operands of their size are rounded before elements cancel.
    """
    rtol, atol = default_tolerances(dtype)
    if dtype.kind in "fc" and dtype.to_real().itemsize == 2:
        finite = np.abs(expected[np.isfinite(expected)])
        atol = pb.finfo(dtype).eps * max(1.0, float(finite.max(initial=0)))
    return rtol, atol


def _is_many(result: Any) -> bool:
    return isinstance(result, tuple | list)


def _real_if(tensor: pb.Tensor, array: Any) -> Any:
    """Drop the imaginary part where the result has none either."""
    array = np.asarray(array)
    return array.real if array.dtype.kind == "c" and not tensor.is_complex() else array


def assert_same_bits(actual: pb.Tensor, expected: pb.Tensor, problem: str) -> None:
    """Raise unless two tensors have the same shape, dtype and elements, -0 and NaN included.

    One NaN is as good as another: which operand's sign a sum of two gets is up to the compiler.
    """
    assert actual.shape == expected.shape, f"{problem}: shape {actual.shape}, {expected.shape}"
    assert actual.dtype == expected.dtype, f"{problem}: dtype {actual.dtype}, {expected.dtype}"
    left, right = to_array(actual.detach()), to_array(expected.detach())
    same = left.tobytes() == right.tobytes() or _plain_bits(left) == _plain_bits(right)
    assert same, f"{problem}: {left.tolist()}, {right.tolist()}"


def _plain_bits(array: np.ndarray) -> bytes:
    """Return the bytes of an array in which every NaN, or NaN part, is the usual one."""
    array = array.reshape(-1).copy()
    parts = array.view(array.real.dtype) if array.dtype.kind == "c" else array
    return np.where(parts != parts, np.array(np.nan, parts.dtype), parts).tobytes()


def check_refusal(sample: Sample) -> None:
    """A dtype that the entry does not take is refused with an exception."""
    try:
        call(sample)
    except REFUSALS:
        return
    raise AssertionError(f"{sample.dtype} was not refused")


def check_decomposed(sample: Sample) -> None:
    """What stands in for a kernel, in other ops, gives the value that the kernel gives."""
    op = op_of(sample.entry)
    if any(argument.written for argument in sample.entry.arguments):
        found = call_on_lists(sample, lambda *args, **kwargs: op_decomposed(op, args, kwargs))
    else:
        found = op_decomposed(op, sample.args, sample.kwargs)
    for one, other in zip(tensors_in((found,)), tensors_in((call(sample),))):
        assert one.dtype == other.dtype, f"dtype {one.dtype}, the kernel gives {other.dtype}"
        rtol, atol = tolerances(other.dtype, to_array(other.detach()))
        assert_close(one, other, rtol=4 * rtol, atol=4 * atol, equal_nan=True)


def check_alias(sample: Sample) -> None:
    """Views share the argument's memory and version counter; other results share nothing."""
    arguments = sample.tensors()
    if sample.entry.name.endswith("_"):
        return
    results = tensors_in((call(sample),))
    before = [(tensor, tensor._version, tensor.clone()) for tensor in arguments]
    for value in (0, 1):  # whatever an argument holds, one of the two would change it
        for result in results:
            if any(result is argument for argument in arguments):
                return  # some ops give their very argument back, such as conj of real numbers
            try:
                result.fill_(value)
            except RuntimeError:  # elements that share memory, and views of several outputs
                return
        moved = any(tensor._version != version for tensor, version, _ in before)
        if sample.entry.view:
            assert moved or not results, "the result is no view of an argument"
            continue
        assert not moved, "writing to the result writes to an argument"
        for tensor, _, kept in before:
            assert_same_bits(tensor, kept, "writing to the result writes to an argument")


def check_repeatable(sample: Sample) -> None:
    """A second call gives the same bits."""
    first, second = tensors_in((call(sample),)), tensors_in((call(sample),))
    for one, other in zip(first, second):
        assert_same_bits(one, other, "a second call differs")


def check_leak(sample: Sample) -> None:
    """Calls leave nothing behind: no memory of the device, no reference to an argument."""
    arguments = sample.tensors()
    call(sample)
    for _ in range(2):  # garbage of other code may be collected meanwhile: then look again
        before = _held(arguments)
        for _ in range(3):
            call(sample)
        after = _held(arguments)
        if after == before:
            return
        gc.collect()
    raise AssertionError(f"bytes in use and reference counts went from {before} to {after}")


def _held(arguments: list[pb.Tensor]) -> list[int]:
    counts = map(sys.getrefcount, arguments)
    return [pb.memory_stats()["allocated_bytes.all.current"], *counts]


def check_meta(sample: Sample) -> None:
    """On the meta device, which has no elements, the result has the same shape and dtype."""
    result = call(sample)
    # Factories have no tensor to take the device from.
    options = {} if sample.tensors() else {"device": "meta"}
    there = sample.mapped(shadow_of)
    shadow = call(there._replace(kwargs={**there.kwargs, **options}))
    real, found = tensors_in((result,)), tensors_in((shadow,))
    assert len(found) == len(real), f"{len(found)} results on meta, {len(real)} here"
    for one, other in zip(found, real):
        assert one.device.type == "meta", f"the result is on {one.device}"
        assert one.shape == other.shape, f"shape {one.shape} on meta, {other.shape} here"
        assert one.dtype == other.dtype, f"dtype {one.dtype} on meta, {other.dtype} here"
        assert one.stride() == other.stride(), f"strides {one.stride()}, {other.stride()} here"


def shadow_of(tensor: pb.Tensor) -> pb.Tensor:
    """Return a meta tensor of the same sizes and strides."""
    length = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    memory = pb.empty((max(length, 0),), dtype=tensor.dtype, device="meta")
    return memory.as_strided(tensor.shape, tensor.stride()).detach()


def check_devices(sample: Sample) -> None:
    """An operand on another device is refused, also as a target and as ``out=``.

    The other device is meta, whose tensors have no memory. As in torch, 0-d tensors of the host may
    meet any device.
    """
    name, function = sample.entry.name, op_of(sample.entry)
    if sample.entry.out and sample.tensors():
        result = call(sample)
        shadows = tuple(shadow_of(tensor) for tensor in tensors_in((result,)))
        out = shadows if _is_many(result) else shadows[0]
        _must_refuse_devices("out=", lambda: function(*sample.args, **sample.kwargs, out=out))
    if sample.entry.devices == "any" or not all(tensor.numel() for tensor in sample.tensors()):
        return
    work = sample.cloned()
    inplace = getattr(ops, name + "_") if sample.entry.inplace is True else None
    try:
        if inplace is not None:
            inplace(*work.args, **work.kwargs)
    except REFUSALS:  # what is computed does not fit the target
        inplace = None
    for number, tensor in enumerate(sample.tensors()):
        if any(other.ndim for other in sample.tensors() if other is not tensor):
            mixed = _with_shadow(sample, number)
            _must_refuse_devices(f"tensor {number}", functools.partial(call, mixed))
            if inplace is not None:
                run = functools.partial(inplace, *mixed.args, **mixed.kwargs)
                _must_refuse_devices(f"tensor {number} of the in-place form", run)


def _with_shadow(sample: Sample, number: int) -> Sample:
    """Return the call on copies, one of the tensors on meta."""
    counter = itertools.count()
    return sample.mapped(lambda t: shadow_of(t) if next(counter) == number else t.clone())


def _must_refuse_devices(what: str, run: Callable[[], Any]) -> None:
    try:
        run()
    except RuntimeError as error:  # of NotImplementedError too: meta has no elements to read
        assert "device" in str(error) or "meta" in str(error), f"{what} on meta: {error}"
        return
    raise AssertionError(f"{what} on meta was accepted")


# -- variants --------------------------------------------------------------------------------------


def _category(dtype: Any) -> int:
    if dtype.is_complex:
        return 3
    return 2 if dtype.is_floating_point else 0 if dtype == pb.bool else 1


def check_inplace(sample: Sample) -> None:
    """The in-place form returns its argument, changed to the functional result."""
    if not isinstance(sample.args[0], pb.Tensor):
        return
    work = sample.cloned()
    expected = call(sample)
    pb.manual_seed(SEED)
    inplace = getattr(ops, sample.entry.name + "_")
    if not fits_inplace(work, expected):
        with must_refuse("a result that does not fit"):
            inplace(*work.args, **work.kwargs)
        return
    target, version = work.args[0], work.args[0]._version
    result = inplace(*work.args, **work.kwargs)
    assert result is target, "the in-place form returned another tensor"
    assert target._version > version, "the version counter did not move"
    assert_same_bits(target, expected.to(target.dtype), "in-place and functional form differ")


def fits_inplace(sample: Sample, result: pb.Tensor) -> bool:
    """Tell whether the in-place form can write the result of a call into its first argument."""
    target = sample.args[0]
    return (
        isinstance(target, pb.Tensor)
        and bool(sample.entry.view or result.shape == target.shape)
        and _category(result.dtype) <= _category(target.dtype)
    )


def check_out(sample: Sample) -> None:
    """``out=`` takes the results: resized if empty, through strides, cast, or refused.

    Some ops, as in torch, write to a tensor of the result's dtype only.
    """
    result = call(sample)
    many = _is_many(result)
    expected = [tensor.detach() for tensor in tensors_in((result,))]
    plain = sample.mapped(lambda tensor: tensor.detach())

    def run(make: Callable[[pb.Tensor], pb.Tensor]) -> list[pb.Tensor]:
        outs = [make(tensor) for tensor in expected]
        given = tuple(outs) if many else outs[0]
        pb.manual_seed(SEED)
        result = op_of(sample.entry)(*plain.args, **plain.kwargs, out=given)
        assert result is given, "out= was not returned"
        return outs

    for out, wanted in zip(run(lambda t: pb.empty((0,), dtype=t.dtype, device=t.device)), expected):
        assert_same_bits(out, wanted, "out= of no elements")
    for layout in ("transposed", "strided"):

        def lay(tensor: pb.Tensor, layout: str = layout) -> pb.Tensor:
            return lay_out(to_array(tensor), tensor.dtype, tensor.device, layout).zero_()

        for out, wanted in zip(run(lay), expected):
            strides = lay(wanted).stride()
            assert out.stride() == strides, f"the strides of out= changed to {out.stride()}"
            assert_same_bits(out, wanted, f"out= with layout {layout}")
    check_widened(sample, expected, run)
    if any(_category(tensor.dtype) > 0 for tensor in expected):
        with must_refuse("out= of a lower dtype"):
            run(lambda t: pb.zeros(t.shape, dtype=pb.bool, device=t.device))


def check_widened(sample: Sample, expected: list[pb.Tensor], run: Callable[..., Any]) -> None:
    """``out=`` of the widest dtype of the device takes the results, or is refused."""
    order = (pb.complex128, pb.complex64, pb.float64, pb.float32)
    widest = next((dtype for dtype in order if dtype.name not in sample.without), pb.bool)
    if any(_category(tensor.dtype) > _category(widest) for tensor in expected):
        return
    try:
        found = run(lambda t: pb.zeros(t.shape, dtype=widest, device=t.device))
    except RuntimeError:
        if sample.entry.out_dtype == "cast":
            raise
        return
    for out, wanted in zip(found, expected):
        assert_same_bits(out, wanted.to(widest), f"out= of {widest.name}")


@contextlib.contextmanager
def must_refuse(what: str) -> Iterator[None]:
    """Raise AssertionError unless the block raises one of the usual exceptions."""
    try:
        yield
    except REFUSALS:
        return
    raise AssertionError(f"{what} was not refused")


# -- derivatives -----------------------------------------------------------------------------------


def as_function(
    sample: Sample, run: Callable[[Sample], Any] = call
) -> tuple[Callable[..., Any], list[pb.Tensor]]:
    """Return the call as a function of the tensors that require grad, and these tensors."""
    inputs = [tensor for tensor in sample.tensors() if tensor.requires_grad]

    def function(*values: pb.Tensor) -> Any:
        given = iter(values)

        def pick(tensor: pb.Tensor) -> pb.Tensor:
            return next(given) if tensor.requires_grad else tensor

        args = replace_tensors(sample.args, pick)
        return run(sample._replace(args=args, kwargs=replace_tensors(sample.kwargs, pick)))

    return differentiable(function), inputs


def check_grad(sample: Sample) -> None:
    """Backward agrees with finite differences."""
    function, inputs = as_function(sample)
    if inputs:
        pb.autograd.gradcheck(function, tuple(inputs), fast_mode=is_large(inputs))


def is_large(inputs: list[pb.Tensor]) -> bool:
    """Tell whether to compare along a random direction instead of every entry of the Jacobian."""
    return sum(tensor.numel() for tensor in inputs) > 12


def check_inplace_grad(sample: Sample) -> None:
    """Backward of the in-place form agrees with finite differences."""
    found = inplace_function(sample)
    if found is not None:
        function, inputs = found
        pb.autograd.gradcheck(function, tuple(inputs), fast_mode=is_large(inputs))


def inplace_function(sample: Sample) -> tuple[Callable[..., Any], list[pb.Tensor]] | None:
    """Return the in-place form as ``as_function`` does the call; None where no result fits."""
    function, inputs = as_function(sample)
    if not inputs or not fits_inplace(sample, function(*inputs)):
        return None

    def changed(given: Sample) -> Any:
        pb.manual_seed(SEED)
        inplace = getattr(ops, given.entry.name + "_")
        return inplace(given.args[0].clone(), *given.args[1:], **given.kwargs)

    return as_function(sample, changed)


def check_gradgrad(sample: Sample) -> None:
    """Backward through backward agrees with finite differences of backward."""
    function, inputs = as_function(sample)
    if inputs:
        pb.autograd.gradgradcheck(function, tuple(inputs), fast_mode=is_large(inputs))


def check_forward(sample: Sample) -> None:
    """Forward mode is the transpose of backward: <u, J t> = <J^H u, t> for random u and t."""
    function, inputs = as_function(sample)
    if not inputs:
        return
    forward_ad = pb.autograd.forward_ad
    directions = [pb.randn(x.shape, dtype=x.dtype, device=x.device) for x in inputs]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(inputs, directions)]
        results = [forward_ad.unpack_dual(y) for y in tensors_in((function(*duals),))]
    outputs = []
    for y, (_, tangent) in zip(tensors_in((function(*inputs),)), results):
        if y.requires_grad and is_finite(y):
            assert tangent is not None, "a result has no tangent"
            outputs.append((y, tangent))
    if not outputs:
        return
    seeds = [pb.randn(y.shape, dtype=y.dtype, device=y.device) for y, _ in outputs]
    for y, tangent in outputs:
        assert tangent.shape == y.shape, f"shape {y.shape}, its tangent {tangent.shape}"
        assert tangent.dtype == y.dtype, f"dtype {y.dtype}, its tangent {tangent.dtype}"
    grads = pb.autograd.grad([y for y, _ in outputs], inputs, seeds, allow_unused=True)
    pushed = [inner(u, t) for u, (_, t) in zip(seeds, outputs)]
    pulled = [inner(g, t) for g, t in zip(grads, directions) if g is not None]
    size = sum(abs(value) for value in (*pushed, *pulled))
    atol = (1e-4 if "float64" in sample.without else 1e-9) * (1 + size)
    assert math.isclose(sum(pushed), sum(pulled), abs_tol=atol, rel_tol=0), (
        f"<u, J t> is {sum(pushed)}, <J^H u, t> is {sum(pulled)}"
    )


def check_batch(sample: Sample) -> None:
    """vmap gives what the op gives for each element of a batch, whichever arguments are batched."""
    tensors = sample.tensors()
    patterns = {tuple(True for _ in tensors)}
    patterns |= {tuple(i == k for i in range(len(tensors))) for k in range(len(tensors))}
    if sample.entry.name.endswith("_"):  # what is written must be batched where others are
        patterns = {pattern for pattern in patterns if pattern[:1] == (True,)}
    for pattern in sorted(patterns, reverse=True) if tensors else ():
        batches = [pb.stack([t, rolled(t), t]) if on else t for t, on in zip(tensors, pattern)]

        def run(*values: pb.Tensor) -> list[pb.Tensor]:
            given = iter(values)
            args = replace_tensors(sample.args, lambda tensor: next(given))
            kwargs = replace_tensors(sample.kwargs, lambda tensor: next(given))
            return tensors_in((call(sample._replace(args=args, kwargs=kwargs)),))

        try:
            rows = [
                run(*(b[i].clone() if on else b for b, on in zip(batches, pattern)))
                for i in range(3)
            ]
        except (RuntimeError, ValueError, IndexError):  # rolled elements may not be allowed
            continue
        if any(len({part.shape for part in column}) > 1 for column in zip(*rows)):
            continue  # vmap has no batches of different shapes
        expected = [pb.stack(column) for column in zip(*rows)]
        in_dims = tuple(0 if on else None for on in pattern)
        try:
            found = pb.func.vmap(run, in_dims=in_dims, randomness="same")(*batches)
        except RuntimeError as error:
            # Elements that say how large the result is cannot be in a batch.
            if "meta" in sample.case.skip and str(error).startswith("vmap: It looks like"):
                continue
            if not str(error).startswith("Vmap does not currently support same randomness"):
                raise
            # It draws by the elements: the first row sees the numbers of a call of its own.
            found = pb.func.vmap(run, in_dims=in_dims, randomness="different")(*batches)
            assert all(one.shape == other.shape for one, other in zip(found, expected))
            found, expected = [one[:1] for one in found], [other[:1] for other in expected]
        assert len(found) == len(expected), f"{len(found)} results, {len(expected)} expected"
        for one, other in zip(found, expected):
            assert one.dtype == other.dtype, f"{pattern}: dtype {one.dtype}, not {other.dtype}"
            rtol, atol = tolerances(other.dtype, to_array(other))
            assert_close(one, other, rtol=rtol, atol=atol, equal_nan=True)


def check_batch_grad(sample: Sample) -> None:
    """A pass with a batch of gradients gives what a pass with each of them gives."""
    function, inputs = as_function(sample)
    outputs = [tensor for tensor in tensors_in((function(*inputs),)) if tensor.requires_grad]
    if not outputs or not inputs:
        return
    seeds = [pb.randn((2, *y.shape), dtype=y.dtype, device=y.device) for y in outputs]
    options = {"retain_graph": True, "allow_unused": True}
    found = pb.autograd.grad(outputs, inputs, seeds, is_grads_batched=True, **options)
    rows = [
        pb.autograd.grad(outputs, inputs, [seed[i] for seed in seeds], **options) for i in range(2)
    ]
    for one, column in zip(found, zip(*rows)):
        if one is None:
            assert column == (None, None), "the batch has no gradient"
            continue
        expected = pb.stack([one.new_zeros(one.shape[1:]) if g is None else g for g in column])
        assert_close(one, expected, equal_nan=True)


def rolled(tensor: pb.Tensor) -> pb.Tensor:
    return tensor.reshape(-1).roll(1).reshape(tensor.shape)


def is_finite(tensor: pb.Tensor) -> bool:
    return bool(np.isfinite(to_array(tensor.detach())).all())


def inner(left: pb.Tensor, right: pb.Tensor) -> float:
    """Return the real inner product of two tensors of the same shape, in float64."""
    one, other = to_array(left.detach()), to_array(right.detach())
    return float((one.conj() * other).real.sum())


def derivatives(sample: Sample) -> list[pb.Tensor | None]:
    """Return the gradients of a call, and the gradients of those."""
    function, inputs = as_function(sample)
    outputs = [tensor for tensor in tensors_in((function(*inputs),)) if tensor.requires_grad]
    if not outputs or not inputs:
        return []
    seeds = [pb.randn(o.shape, dtype=o.dtype, device=o.device).requires_grad_() for o in outputs]
    first = pb.autograd.grad(outputs, inputs, seeds, create_graph=True, allow_unused=True)
    again = [grad for grad in first if grad is not None and grad.requires_grad]
    if not again:
        return list(first)
    ones = [pb.ones_like(grad) for grad in again]
    second = pb.autograd.grad(again, [*inputs, *seeds], ones, allow_unused=True)
    return [*first, *second]


def check_compiled(sample: Sample) -> None:
    """Compiled formulas give the bits that the interpreted ones give."""
    before = formula.set_compiled(True)
    try:
        compiled = derivatives(sample)
        formula.set_compiled(False)
        interpreted = derivatives(sample)
    finally:
        formula.set_compiled(before)
    assert len(compiled) == len(interpreted), "one form has second derivatives, the other none"
    for number, (one, other) in enumerate(zip(compiled, interpreted)):
        assert (one is None) == (other is None), f"derivative {number}: {one}, {other}"
        if one is not None and other is not None:
            assert_same_bits(one, other, f"derivative {number} of compiled and plain formula")
