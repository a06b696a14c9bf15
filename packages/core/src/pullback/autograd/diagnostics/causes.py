"""Why a gradient becomes None, zero, NaN, infinite or huge at a node, by the values it saved."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import pullback
from pullback._c.graph.tensor import Tensor
from pullback.autograd.diagnostics.explanation import Reason
from pullback.autograd.diagnostics.nonfinite import statistics

PREFIX = "_saved_"

# ---- what is known of ops ------------------------------------------------------------------------

# The saved values that multiply the gradient, by the position of the input that it is for. A key is
# the name of a node, without "Backward" and what follows unless ops of one name differ in it.
FACTORS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Mul": (("other",), ("self",)),
    "Mm": (("mat2",), ("self",)),
    "Bmm": (("mat2",), ("self",)),
    "Mv": (("vec",), ("self",)),
    "Dot": (("tensor",), ("self",)),
    "Addmm": (("beta",), ("mat2", "alpha"), ("mat1", "alpha")),
    "Addmv": (("beta",), ("vec", "alpha"), ("mat", "alpha")),
    "Addbmm": (("beta",), ("batch2", "alpha"), ("batch1", "alpha")),
    "Baddbmm": (("beta",), ("batch2", "alpha"), ("batch1", "alpha")),
    "Convolution": (("weight",), ("self",)),
    "LinalgCross": (("other",), ("self",)),
    "Addcmul": ((), ("tensor2", "value"), ("tensor1", "value")),
    "Add": ((), ("alpha",)),
    "Sub": ((), ("alpha",)),
    "Rsub": (("alpha",), ()),
    "IndexAdd": ((), ("alpha",)),
    "Addcdiv": ((), ("value",), ("tensor1", "value")),
    "Div": ((), ("self",)),
    "PowBackward0": (("other", "self"),),
    "PowBackward1": (("other", "self"), ("result",)),
    "PowBackward2": ((), ("result",)),
    "LerpBackward0": ((), ("weight",)),
    "LerpBackward1": ((), ("weight",)),
    "Hypot": (("self",), ("other",)),
    "Atan2": (("other",), ("self",)),
    "Xlogy": ((), ("self",)),
    "NativeBatchNorm": (("weight",),),
    "NativeLayerNorm": (("weight",),),
    "NativeGroupNorm": (("weight",),),
}
DIVISORS = {"Div": "other", "Addcdiv": "tensor2"}

# Ops that only multiply and add, so that no value of theirs makes an infinite derivative.
PLAIN = frozenset(
    ("Mul", "Mm", "Bmm", "Mv", "Dot", "Addmm", "Addmv", "Addbmm", "Baddbmm", "Convolution")
    + ("LinalgCross", "Addcmul", "Add", "Sub", "Rsub", "IndexAdd")
)
MATRIX_PRODUCTS = frozenset(("Mm", "Bmm", "Addmm", "Baddbmm"))
PRODUCTS = (PLAIN - {"IndexAdd", "LinalgCross"}) | {"Div", "PowBackward0"}

# Ops whose saved values do not correspond to the gradient element by element.
SUMMED = re.compile(
    "(Mm|Bmm|Mv|Dot|Addmm|Addmv|Addbmm|Baddbmm|Convolution|Cdist|Prod|Cumprod|Embedding.*|Lstm|Gru"
    "|Rnn.*|NllLoss.*|ScaledDot.*|Inverse|Cholesky.*|Lu.*|Trace|Triangular.*|Linalg(?!VectorNorm|Cross).*)"
)

# Ops that move or replace elements, by the position of the input.
_WRITES = (
    "overwrites this input at all elements that a gradient reaches",
    "returns 0 here: no gradient reaches the elements that it writes",
)
_PART = ("returns 0 here: no gradient reaches this part of its result",)
PARTS = {
    **dict.fromkeys(("Cat", "Stack", "ConstantPadNd", "DiagEmbed"), _PART),
    **dict.fromkeys(("Triu", "Tril"), ("keeps no element that a gradient reaches",)),
    **dict.fromkeys(("Scatter", "IndexPut", "IndexCopy", "MaskedScatter"), _WRITES),
    **dict.fromkeys(("SelectScatter", "SliceScatter", "DiagonalScatter"), _WRITES),
    **dict.fromkeys(("ScatterAdd", "IndexAdd"), ("", _WRITES[1])),
}
# Ops with inputs that have several results each, whose gradients are added up.
SPREAD = frozenset(
    ("Expand", "Repeat", "Gather", "Index", "IndexSelect", "Take", "Embedding", "AsStrided")
)
CHOICES = {"Maximum": "larger", "Minimum": "smaller", "Fmax": "larger", "Fmin": "smaller"}
FLAT = {
    **dict.fromkeys(
        ("Round", "Floor", "Ceil", "Trunc", "Sign", "Bernoulli", "Heaviside"), "it is flat"
    ),
    **dict.fromkeys(("Clamp", "Hardtanh", "Hardsigmoid"), "its input is outside of its bounds"),
    **dict.fromkeys(("Sigmoid", "Tanh", "Softmax", "Erf"), "it is saturated"),
}
NEVER = frozenset(("bias", "mean"))  # saved values that neither multiply nor divide

# The saved value and the range where ops have a finite derivative, which is not so at the ends.
DOMAINS = {
    **dict.fromkeys(("Acos", "Asin", "Atanh", "Erfinv"), ("self", -1.0, 1.0)),
    **dict.fromkeys(("Log", "Log2", "Log10"), ("self", 0.0, math.inf)),
    **dict.fromkeys(("PowBackward0", "PowBackward1"), ("self", 0.0, math.inf)),
    "Xlogy": ("other", 0.0, math.inf),
    "Acosh": ("self", 1.0, math.inf),
    "Log1P": ("self", -1.0, math.inf),
    "Logit": ("self", 0.0, 1.0),
}
POLES = frozenset(("Digamma", "Lgamma"))  # at 0 and the negative integers
# Matrix functions, the saved values that must differ from each other, and what is wrong otherwise.
MATRICES = {
    "LinalgEigh": ("out0", "two eigenvalues are equal, or nearly so"),
    "LinalgSvd": ("out1", "two singular values are equal, or nearly so"),
    **dict.fromkeys(
        ("LinalgSlogdet", "LinalgDet", "LinalgInvEx", "LinalgSolveEx", "LinalgCholeskyEx"),
        ("", "the matrix is singular, or nearly so"),
    ),
}


class Saved(NamedTuple):
    """One saved value: its name, and figures of a tensor, or the value of a number.

    ``always`` is the one value that it has at all elements in question, or None.
    """

    name: str
    text: str
    always: float | bool | None


class Cause(NamedTuple):
    """A reason code, a sentence with the node as its subject, the saved values, which one of them
    is to blame, or an empty name, and whether they could be read.
    """

    reason: Reason
    text: str
    saved: tuple[Saved, ...]
    value: str = ""
    was_readable: bool = True


def saved_values(node: Any) -> dict[str, Any]:
    """Return the values that a node saved, by name; those that cannot be read are left out.

    Raises: RuntimeError when they were freed, or overwritten since.
    """
    found = {}
    if hasattr(type(node), "_forward_cls"):
        for position, tensor in enumerate(node.saved_tensors):
            found[f"saved_tensors[{position}]"] = tensor
        return found
    for name in dir(node):
        if name.startswith(PREFIX) and not name.endswith("_shape"):
            value = getattr(node, name)
            if isinstance(value, (Tensor, int, float, complex)):
                found[name.removeprefix(PREFIX)] = value
    return found


def examine(
    node: Any, kind: str, outputs: tuple, gradient: Tensor | None, position: int = 0
) -> Cause:
    """Say why the gradient of a node's input is of a kind, where those that it took are not."""
    backward = _backward_of(node)
    if gradient is None and backward:
        text = f"gives this input no gradient: {backward} returned None"
        return Cause("function_returned_none", text, ())
    if gradient is None:
        return Cause("no_gradient", "returns no gradient for this input", ())
    look = _Look(node, kind, outputs, gradient, position)
    if kind == "huge":
        found = look.cause("growth_step", "returns a gradient that is far larger")
    else:
        found = _zero(look, backward) if kind == "zero" else _not_finite(look, backward)
    return found._replace(text=f"{found.text}{look.unreadable}", was_readable=not look.unreadable)


def _backward_of(node: Any) -> str:
    """Return the ``backward`` of a custom Function, and its line; of other nodes nothing."""
    forward = getattr(type(node), "_forward_cls", None)
    if forward is None:
        return ""
    code = getattr(forward.backward, "__code__", None)
    line = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    return f"the backward of {forward.__name__}{line}"


class _Look:
    """A node at one of its inputs: what it saved, and the gradients that it took and returned.

    ``where`` is a mask of the elements in question: those that a gradient of some elements reaches,
    or those of the returned gradient that are not finite.
    """

    def __init__(
        self, node: Any, kind: str, outputs: tuple, gradient: Tensor, position: int
    ) -> None:
        self.node = node
        self.kind = kind
        self.position = position
        self.unreadable = ""
        try:
            self.values = saved_values(node)
        except RuntimeError:  # a hook that unpacks a value raised
            self.values = {}
            self.unreadable = " (its saved values cannot be read)"
        name = node.name()
        base = re.sub(r"Backward\d*$", "", name)
        self.op = name if name in FACTORS else base
        self.is_summed = SUMMED.fullmatch(base) is not None
        self.gradient = _dense(gradient)
        taken = [_dense(one) for one in outputs if one is not None]
        self.taken = taken[0] if len(taken) == 1 else None
        if kind == "nan":
            self.where = self.gradient.isnan()
        elif kind == "inf":
            self.where = self.gradient.isinf()
        elif kind == "zero" and self.taken is not None:
            self.where = self.taken != 0
        else:
            self.where = pullback.ones_like(self.gradient, dtype=pullback.bool)
        self.count = int(self.where.sum())
        self.saved = tuple(self._describe(*item) for item in sorted(self.values.items()))

    def cause(self, reason: Reason, text: str, value: str = "") -> Cause:
        return Cause(reason, text, self.saved, value)

    def _describe(self, name: str, value: Any) -> Saved:
        if not isinstance(value, Tensor):
            return Saved(name, f"{name} = {value!r}", None)
        return Saved(name, f"{name}: {statistics(value)}", self.always(value))

    def always(self, value: Tensor) -> float | bool | None:
        """Return the value that a saved tensor has at all elements in question, if it is one."""
        if self.is_summed and value.dtype != pullback.bool:
            return _constant(_dense(value).flatten())
        return _constant(self.at(value))

    def at(self, value: Any) -> Tensor | None:
        """Return the elements of a value that are in question, if it broadcasts to their mask."""
        if self.is_summed or not isinstance(value, Tensor) or value.is_sparse:
            return None
        try:
            if pullback.broadcast_shapes(value.shape, self.where.shape) != self.where.shape:
                return None
        except RuntimeError:
            return None
        return value.detach().expand(self.where.shape)[self.where]

    @property
    def factors(self) -> tuple[str, ...] | None:
        """The names of the saved values that multiply this gradient; None where not known."""
        by_position = FACTORS.get(self.op)
        if by_position is None or self.position >= len(by_position):
            return None
        return by_position[self.position]

    def find(self, test: Callable[[float], bool], names: Any = None) -> Saved | None:
        """Return the first saved tensor of floats with one value throughout that passes a test."""
        for saved in self.saved:
            if saved.always is None or isinstance(saved.always, bool) or saved.name in NEVER:
                continue
            is_asked = names is None or saved.name in names
            if is_asked and _is_float(self.values[saved.name]) and test(saved.always):
                return saved
        return None

    def elements(self, which: str = " that a gradient reaches") -> str:
        if which:
            return f"{'the' if self.count == 1 else 'all'} {_elements(self.count)}{which}"
        return _elements(self.count)


def _elements(count: int) -> str:
    return f"{count} element{'' if count == 1 else 's'}"


def _dense(tensor: Tensor) -> Tensor:
    return tensor.to_dense() if tensor.is_sparse else tensor.detach()


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _constant(picked: Tensor | None) -> float | bool | None:
    """Return the value that all elements have; NaN and infinities count as one each."""
    if picked is None or picked.numel() == 0:
        return None
    if picked.dtype == pullback.bool:
        count = int(picked.sum())
        return bool(count) if count in (0, picked.numel()) else None
    if picked.is_complex():
        picked = picked.abs()
    if bool(picked.isnan().all()):
        return math.nan
    if bool(picked.isinf().all()):
        return math.inf
    return 0.0 if int(picked.count_nonzero()) == 0 else None


# ---- zero ----------------------------------------------------------------------------------------


def _zero(look: _Look, backward: str) -> Cause:
    """Explain a gradient of zeros, where the gradient that the node took has other elements."""
    if look.gradient.numel() == 0:
        return look.cause("no_elements", "works on no elements")
    if backward:
        zero = look.find(lambda v: v == 0)
        hint = "" if zero is None else f" ('{zero.name}' is 0)"
        text = f"gives this input a gradient of 0: {backward} returned zeros{hint}"
        return look.cause("function_returned_zero", text)
    mask = next((s for s in look.saved if isinstance(s.always, bool)), None)
    if mask is not None:
        text = f"lets no gradient through: '{mask.name}' is {mask.always} at {look.elements()}"
        return look.cause("zero_mask", text, mask.name)
    for rule in (_zero_factor, _part, _ignored, _constant_sum, _zero_result, _underflow, _cancels):
        found = rule(look)
        if found is not None:
            return found
    return look.cause("zero_derivative", f"has a derivative of 0{_why_flat(look)}")


def _zero_factor(look: _Look) -> Cause | None:
    for name in look.factors or ():
        value = look.values.get(name)
        if isinstance(value, Tensor):
            where = "at all elements" if look.is_summed else f"at {look.elements()}"
            if look.always(value) != 0:
                if not _misses(look, name, value):
                    continue
                where = "wherever a gradient arrives"
            text = f"multiplies by '{name}', which is 0 {where}"
        elif value is not None and value == 0:
            text = f"multiplies by '{name}', which is 0"
        else:
            continue
        return look.cause("zero_factor", text, name)
    divisor = DIVISORS.get(look.op, "")
    value = look.values.get(divisor)
    if look.find(math.isinf, (divisor,)) is not None:
        text = f"divides by '{divisor}', which is infinite at {look.elements()}"
    elif isinstance(value, float) and math.isinf(value):
        text = f"divides by '{divisor}', which is infinite"
    else:
        return None
    return look.cause("zero_factor", text, divisor)


def _misses(look: _Look, name: str, factor: Tensor) -> bool:
    """True if each product that a matrix product adds up has a 0 of the factor or the gradient."""
    taken = look.taken
    if taken is None or look.op not in MATRIX_PRODUCTS or taken.dim() == 0:
        return False
    left, right = (taken != 0).float(), (_dense(factor) != 0).float()
    found = left @ right.mT if name in ("mat2", "batch2") else right.mT @ left
    return int(found.count_nonzero()) == 0


def _part(look: _Look) -> Cause | None:
    """Explain a zero by the part of a result, or the row of a table, that an input is."""
    texts = PARTS.get(look.op, ())
    if texts:
        text = texts[min(look.position, len(texts) - 1)]
        return look.cause("unused_part", text) if text else None
    row = look.values.get("padding_idx", -1)
    if look.op != "Embedding" or row < 0 or look.taken is None:
        return None
    used = look.values["indices"][(look.taken != 0).any(-1)]
    if not bool((used == row).all()):
        return None
    text = f"gives row {row} no gradient, since it is padding_idx, and a gradient reaches no other"
    return look.cause("unused_part", text, "padding_idx")


def _ignored(look: _Look) -> Cause | None:
    if not look.op.startswith("NllLoss") or look.unreadable:
        return None
    target, (ignored, *_) = look.values["target"], look.node._saved_spec[-1]
    if bool((target == ignored).all()):
        text = f"counts no target: all {target.numel()} are ignore_index ({ignored})"
        return look.cause("all_ignored", text, "target")
    weight = look.values.get("weight")
    if isinstance(weight, Tensor) and not bool(weight[target[target != ignored]].any()):
        text = "multiplies by 'weight', which is 0 for the classes of all targets"
        return look.cause("zero_factor", text, "weight")
    return None


def _constant_sum(look: _Look) -> Cause | None:
    """Explain the zero of an op that normalizes: the loss takes what is the same for all inputs."""
    taken, values = look.taken, look.values
    if taken is None or look.position != 0:
        return None
    weight = None
    if look.op in ("Softmax", "LogSoftmax") and "result" in values:
        pair = taken, values["result"]
        rows, result = (v.movedim(values["dim"], -1) if v.dim() else v[None] for v in pair)
        weight = result.exp() if look.op == "LogSoftmax" else None
    elif look.op == "NativeBatchNorm" and "out1" in values:
        dims = tuple(look.node._saved_dims)
        rows = taken.movedim(dims, tuple(range(-len(dims), 0))).flatten(-len(dims))
    elif look.op.startswith("Native") and "out1" in values:
        rows = taken.reshape(-1, taken.numel() // values["out1"].numel())
    else:
        return None
    if rows.shape[-1] == 1:
        return look.cause("constant_sum", "normalizes over 1 element, so its result is constant")
    expected = rows.mean(-1, True) if weight is None else rows.sum(-1, True) * weight
    if not pullback.allclose(rows, expected, rtol=1e-3, atol=_peak(rows) * 1e-6):
        return None
    same, what = ("", "its results") if weight is None else (" times exp(result)", "exp(result)")
    text = f"takes the same gradient{same} at all elements that it normalizes together: the sum of "
    return look.cause("constant_sum", f"{text}{what} is constant")


def _zero_result(look: _Look) -> Cause | None:
    zero = look.find(lambda v: v == 0, ("result",))
    if zero is None:
        return None
    text = f"has a derivative of 0: its result is 0 at {look.elements()}"
    return look.cause("zero_result", text, "result")


def _underflow(look: _Look) -> Cause | None:
    """Explain a zero by a product below the smallest number of the dtype."""
    if look.taken is None or look.taken.numel() == 0 or look.unreadable:
        return None
    limits = pullback.finfo(look.gradient.dtype)
    peak = _peak(look.taken)
    below = f"an underflow, below the range of {str(look.gradient.dtype).rpartition('.')[2]}"
    if look.op in PRODUCTS:
        factors = {n: _peak(look.values[n]) for n in look.factors or () if n in look.values}
        divisor = DIVISORS.get(look.op, "")
        if divisor in look.values:
            factors[f"1 / {divisor}"] = 1 / (_peak(look.values[divisor], smallest=True) or 1.0)
        product = math.prod((peak, *factors.values()))
        no_sum = not look.is_summed and look.taken.shape == look.gradient.shape
        is_small = product < limits.tiny * limits.eps or (no_sum and math.isfinite(product))
        if factors and is_small:
            by = " and ".join(f"'{name}' (at most {value:.3g})" for name, value in factors.items())
            text = f"multiplies a gradient of at most {peak:.3g} by {by}: {below}"
            return look.cause("underflow", text, next(iter(factors)))
    if peak < limits.tiny or look.op in ("ToCopy", "Mean"):
        return look.cause("underflow", f"takes a gradient of at most {peak:.3g}: {below}")
    return None


def _peak(value: Any, smallest: bool = False) -> float:
    """Return the largest magnitude of the elements, or the smallest one."""
    if not isinstance(value, Tensor):
        return abs(value)
    size = _dense(value).abs()
    return float(size.min() if smallest else size.max()) if size.numel() else 0.0


def _cancels(look: _Look) -> Cause | None:
    """Explain a zero by a sum, where all that is added up cannot be 0."""
    if look.taken is None or look.unreadable:
        return None
    if look.op.startswith("Native") and look.position > 0:
        return look.cause(
            "cancels", "adds up the gradients of all that it normalizes, which cancel"
        )
    if look.op in PRODUCTS and look.is_summed:
        names = " and ".join(f"'{n}'" for n in (look.factors or ())[:1] if n in look.values)
        what = f"products of the gradient and {names}" if names else "gradients"
        return look.cause("cancels", f"adds up {what}, which are 0 or cancel")
    if look.op in SPREAD or (look.op in PRODUCTS and look.taken.shape != look.gradient.shape):
        text = "adds up the gradients of the results that an element was used in, and they cancel"
        return look.cause("cancels", text)
    return None


def _why_flat(look: _Look) -> str:
    if look.op in FLAT:
        return f" at all elements: {FLAT[look.op]}"
    if look.op in CHOICES:
        other = ("other", "self")[min(look.position, 1)]
        return f": '{other}' is the {CHOICES[look.op]} one at {look.elements()}"
    is_loss = look.op in ("MseLoss", "SmoothL1Loss", "HuberLoss") and not look.unreadable
    if is_loss and pullback.equal(look.values["self"], look.values["target"]):
        return " at all elements: 'self' equals 'target'"
    odd = look.find(lambda v: v == 0) or look.find(math.isinf)
    if odd is not None and not look.is_summed:
        return f" where '{odd.name}' is {_word(odd.always)}: at {look.elements()}"
    return " at all elements"


# ---- NaN and infinities --------------------------------------------------------------------------


def _not_finite(look: _Look, backward: str) -> Cause:
    """Explain NaN or infinity by the saved values at those elements, and the gradient there."""
    is_plain = look.op in PLAIN
    names = look.factors if is_plain else None
    there = look.elements("")
    inside = f", in {backward}" if backward else ""
    if look.op.startswith("NllLoss") and _ignored(look) is not None:
        text = "divides by the weight of the targets that it counts, which is 0"
        return look.cause("singularity", text, "weight")
    nan, inf = look.find(math.isnan, names), look.find(math.isinf, names)
    zero = None if is_plain or look.is_summed else look.find(lambda v: v == 0, names)
    odd, shown = nan or zero or inf, _domain(look)
    taken = look.at(look.taken)
    if look.kind == "nan" and _constant(taken) == 0:
        what = f"'{odd.name}' is {_word(odd.always)}" if odd is not None else shown[1]
        text = "multiplies a gradient of 0 by a derivative that is infinite or NaN"
        text += (f" ({what})" if what else "") + f" at {there}{inside}"
        return look.cause("masked_singularity", text, "" if odd is None else odd.name)
    if nan is not None and not look.is_summed:
        text = f"works on NaN: '{nan.name}' is NaN at {there}{inside}"
        return look.cause("nan_value", text, nan.name)
    if zero is not None and not backward:
        text = f"has an infinite derivative: '{zero.name}' is 0 at {there}"
        return look.cause("singularity", text, zero.name)
    if inf is not None and not look.is_summed:
        text = "has infinite saved values (a division by 0, or an overflow): "
        text += f"'{inf.name}' is infinite at {there}{inside}"
        return look.cause("infinite_value", text, inf.name)
    if look.kind == "nan" and taken is not None and bool(taken.isinf().any()):
        return look.cause(
            "infinity_times_zero", f"multiplies an infinite gradient by 0 at {there}{inside}"
        )
    if (found := _in_whole(look, names, inside)) is not None:
        return found
    if shown[0] == "singularity":
        return look.cause("singularity", f"has an infinite derivative: {shown[1]} at {there}")
    if shown[0] == "outside_domain":
        return look.cause("outside_domain", f"has no derivative: {shown[1]} at {there}")
    if matrix := _matrix(look):
        return look.cause("degenerate_matrix", f"divides by 0, or by a tiny number: {matrix}")
    word = "NaN" if look.kind == "nan" else "infinite"
    if backward:
        reason: Reason = "function_returned_nan" if word == "NaN" else "function_returned_inf"
        hint = "" if zero is None else f" ('{zero.name}' is 0)"
        text = f"gives this input a gradient that is {word} at {there}: {backward} returned it"
        return look.cause(reason, text + hint)
    text = f"returns a gradient that is {word} at {there}"
    if look.kind == "inf" and not look.unreadable:
        return look.cause("overflow", text)
    if not look.unreadable:
        text += ": its input is outside of the operation's domain, or where it has no derivative"
    return look.cause("nan_at_node", text)


def _in_whole(look: _Look, names: Any, inside: str) -> Cause | None:
    """Look for NaN, and else for infinities, at any elements of the saved tensors."""
    kinds: tuple[tuple[Reason, str, str, Callable], ...] = (
        ("nan_value", "works on NaN", "NaN", Tensor.isnan),
        ("infinite_value", "has infinite saved values", "infinite", Tensor.isinf),
    )
    for reason, start, word, test in kinds:
        for name, value in sorted(look.values.items()):
            if name in NEVER or (names is not None and name not in names):
                continue
            if isinstance(value, float) and name in (look.factors or ()):
                value = pullback.tensor(value)
            count = int(test(_dense(value)).sum()) if _is_float(value) else 0
            if count:
                size = "" if value.dim() == 0 else f" at {count} of {_elements(value.numel())}"
                return look.cause(reason, f"{start}: '{name}' is {word}{size}{inside}", name)
    return None


def _domain(look: _Look) -> tuple[str, str]:
    """Return a reason and text for an input at an end of an op's domain, or outside of it."""
    name, low, high = DOMAINS.get(look.op, ("self", math.nan, math.nan))
    picked = look.at(look.values.get(name))
    if picked is None or picked.numel() == 0 or picked.is_complex():
        return "", ""
    if look.op in POLES and bool(((picked <= 0) & (picked == picked.floor())).any()):
        return "singularity", f"'{name}' is 0 or a negative integer"
    if bool(((picked < low) | (picked > high)).any()):
        shown = f"below {low:g}" if math.isinf(high) else f"not in [{low:g}, {high:g}]"
        return ("outside_domain", f"'{name}' is outside of the operation's domain ({shown})")
    ends = [f"{end:g}" for end in (low, high) if bool((picked == end).any())]
    return ("singularity", f"'{name}' is {' or '.join(ends)}") if ends else ("", "")


def _matrix(look: _Look) -> str:
    """Say what is wrong with the matrix that an op works on, as far as its saved values show."""
    if look.op not in MATRICES or look.unreadable:
        return ""
    name, text = MATRICES[look.op]
    if not name:
        return text
    values = _dense(look.values[name])
    if values.is_complex():
        return text
    ordered = values.sort(-1)[0]
    gaps = ordered[..., 1:] - ordered[..., :-1]
    near = pullback.finfo(values.dtype).eps * 8 * _peak(values)
    return text if bool((gaps <= near).any()) else ""


def _word(value: Any) -> str:
    if value == 0:
        return "0"
    return "NaN" if math.isnan(value) else "infinite"
