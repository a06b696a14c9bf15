"""explain_grad: small programs as beginners write them, with the answers that are true of them."""

import ast
import inspect
import itertools
import math
import pathlib
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.autograd.diagnostics import causes, explain, lineage, unreached
from pullback.autograd.diagnostics.explanation import ADVICE, Reason
from pullback.autograd.graph import explain_grad
from pullback.utils.checkpoint import checkpoint

F = pb.nn.functional
NAN, INF = math.nan, math.inf


def leaf(*values, dtype=None):
    return pb.tensor(values, dtype=dtype, requires_grad=True)


def ones(*shape):
    return pb.ones(*shape, requires_grad=True)


def rows(*values):
    """A matrix whose gradient is asked for."""
    return pb.tensor(values, requires_grad=True)


class GivesZero(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 0


class GivesNaN(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * NAN


class GivesInfinity(GivesNaN):
    @staticmethod
    def backward(ctx, grad):
        return grad * INF


def infinite_layer():
    layer = pb.nn.Linear(2, 2)
    with pb.no_grad():
        layer.weight.fill_(INF)
    return layer


def classes(count, scores=2):
    """Scores of some examples, from weights whose gradient is asked for."""
    weight = ones(3, scores)
    return weight, pb.rand(count, 3) @ weight


# ---- programs, which return a tensor and a root --------------------------------------------------


def linear_of_nan():
    layer = pb.nn.Linear(2, 1)
    return layer.weight, layer(pb.tensor([[NAN, 1.0]])).sum()


def matmul_of_nan():
    w = ones(2, 2)
    return w, (pb.tensor([[NAN, 1.0], [1.0, 1.0]]) @ w).sum()


def linear_of_infinite_weight():
    x = leaf(1.0, 1.0)
    return x, infinite_layer()(x).sum()


def first_of_stack():
    a, b = leaf(1.0), leaf(2.0)
    return a, pb.stack([a, b])[1].sum()


def first_of_cat():
    a, b = leaf(1.0), leaf(2.0)
    return a, pb.cat([a, b])[1]


def loser_of_max_pool():
    w = leaf(1.0)
    return w, F.max_pool1d(pb.cat([w, pb.tensor([2.0])])[None, None], 2).sum()


def padding_row():
    w = ones(3, 2)
    return w, F.embedding(pb.tensor([0, 0]), w, padding_idx=0).sum()


def scattered_elsewhere():
    w = leaf(1.0, 2.0)
    return w, pb.zeros(3).scatter(0, pb.tensor([0, 0]), w)[1]


def scattered_over():
    w = leaf(1.0, 2.0)
    return w, w.scatter(0, pb.tensor([0, 1]), pb.zeros(2)).sum()


def replaced_by_index():
    w = leaf(1.0, 2.0)
    h = w * 2
    h[pb.tensor([0, 1])] = 5.0
    return w, h.sum()


def upper_triangle():
    w = ones(2, 2)
    return w, w.triu(2).sum()


def sum_of_batch_norm():
    w = ones(3, 2)
    inputs = pb.tensor([[1.0, 0.0, 0.0], [3.0, 0.0, 0.0], [5.0, 0.0, 1.0], [7.0, 0.0, 1.0]])
    return w, pb.nn.BatchNorm1d(2)(inputs @ w).sum()


def weight_of_zero_batch_norm():
    x = rows([1.0, 2.0], [3.0, 5.0])
    layer = pb.nn.BatchNorm1d(2)
    pb.nn.init.zeros_(layer.weight)
    return x, (layer(x) * pb.tensor([[1.0, 2.0], [4.0, 8.0]])).sum()


def sum_of_softmax():
    w = leaf(0.0, 0.0)
    return w, w.softmax(0).sum()


def one_class():
    w, scores = classes(4, 1)
    return w, F.cross_entropy(scores, pb.zeros(4, dtype=pb.int64))


def zero_inputs():
    w = ones(3, 2)
    return w, (pb.zeros(4, 3) @ w).sum()


def zero_square_inputs():
    w = ones(3, 3)
    return w, (pb.zeros(3, 3) @ w).sum()


def zero_layer_after():
    w = ones(3, 2)
    return w, (pb.ones(4, 3) @ w @ pb.zeros(2, 1)).sum()


def zero_kernel():
    x = ones(1, 1, 5)
    return x, F.conv1d(x, pb.zeros(1, 1, 3)).sum()


def zero_inputs_of_layer():
    layer = pb.nn.Linear(3, 2)
    return layer.weight, layer(pb.zeros(4, 3)).sum()


def product_of_tiny_numbers():
    w = leaf(1.0)
    return w, (w * 1e-30 * 1e-30).sum()


def half_of_tiny_number():
    w = leaf(1.0)
    return w, (w.to(pb.float16) * 1.0).double().mul(1e-10).sum()


def halving():
    h = w = leaf(1.0)
    for _ in range(200):
        h = h * 0.25 + h * 0.25
    return w, h.sum()


def nothing_selected():
    w = leaf(1.0, 2.0)
    return w, w[w > 5].sum()


def mean_of_nothing():
    w = leaf(1.0, 2.0)
    return w, w[:0].mean()


def nothing_selected_and_scaled():
    w = leaf(1.0, 2.0)
    return w, (w[w > 5] * 2 + 1).sum()


def all_targets_ignored():
    w, scores = classes(4)
    return w, F.cross_entropy(scores, pb.full((4,), -100))


def targets_of_no_weight():
    w, scores = classes(4)
    weight = pb.tensor([0.0, 1.0])
    targets = pb.zeros(4, dtype=pb.int64)
    return w, F.cross_entropy(scores, targets, weight=weight, reduction="sum")


def function_of_zeros():
    w = leaf(1.0, 2.0)
    return w, GivesZero.apply(w).sum()


def function_of_nan():
    w = leaf(1.0, 2.0)
    return w, GivesNaN.apply(w).sum()


def function_of_infinity():
    w = leaf(1.0, 2.0)
    return w, GivesInfinity.apply(w).sum()


def degenerate_eigenvectors():
    w = pb.eye(2).requires_grad_()
    return w, pb.linalg.eigh(w)[1].sum()


def degenerate_singular_vectors():
    w = pb.eye(2).requires_grad_()
    return w, pb.linalg.svd(w)[0].sum()


def log_of_singular_matrix():
    w = ones(2, 2)
    return w, pb.logdet(w)


def negative_base():
    w = leaf(-2.0, 1.0)
    return w, (pb.tensor([-2.0, 3.0]) ** w).sum()


def root_of_negative_number():
    w = leaf(-2.0, 1.0)
    return w, (w**0.5).sum()


def entropy_at_zero():
    w = leaf(0.0, 0.2)
    return w, (w * w.log()).sum()


def cosine_of_zero():
    w = leaf(0.0, 0.0)
    return w, (w / w.norm()).sum()


def softmax_by_hand():
    w = leaf(1000.0, 1.0)
    powers = w.exp()
    return w, (powers / powers.sum()).sum()


def power(function, *values):
    def program():
        w = leaf(*values)
        return w, function(w).sum()

    return program


def opposite_terms():
    w = leaf(1.0)
    return w, (w.expand(2) * pb.tensor([1.0, -1.0])).sum()


def opposite_terms_of_broadcasting():
    w = leaf(1.0)
    return w, (pb.tensor([1.0, -1.0]) * w).sum()


def opposite_terms_of_matmul():
    w = ones(2, 1)
    return w, (pb.tensor([[1.0, 2.0], [-1.0, -2.0]]) @ w).sum()


def dead_units():
    layer = pb.nn.Linear(3, 4)
    pb.nn.init.constant_(layer.bias, -100.0)
    return layer.weight, F.relu(layer(pb.rand(5, 3))).sum()


def perfect_prediction():
    w = leaf(1.0, 2.0)
    return w, F.mse_loss(w, pb.tensor([1.0, 2.0]))


def zero_rows_where_it_matters():
    w = ones(2, 2)
    return w, (pb.tensor([[0.0, 0.0], [1.0, 1.0]]) @ w)[0].sum()


def no_weight_to_divide_by():
    w = ones(2, 2)
    return w, F.nll_loss(w, pb.tensor([0, 0]), weight=pb.tensor([0.0, 1.0]))


def hook_among_two_paths():
    w = leaf(1.0, 2.0)
    h = w * 1
    h.register_hook(lambda grad: grad * NAN)
    return w, (h * 2 + h).sum()


def checkpointed(function, *values):
    def program():
        w = leaf(*values)
        return w, checkpoint(function, w, use_reentrant=False).sum()

    return program


PROGRAMS = [
    (linear_of_nan, "nan_value", "'mat1' is NaN at 1 of 2 elements"),
    (matmul_of_nan, "nan_value", "MmBackward0 works on NaN: 'self' is NaN at 1 of 4 elements"),
    (linear_of_infinite_weight, "infinite_value", "'mat2' is infinite at 4 of 4 elements"),
    (first_of_stack, "unused_part", "StackBackward0 returns 0 here: no gradient reaches this part"),
    (first_of_cat, "unused_part", "CatBackward0 returns 0 here: no gradient reaches this part"),
    (loser_of_max_pool, "unused_part", "CatBackward0"),
    (padding_row, "unused_part", "row 0 no gradient, since it is padding_idx"),
    (scattered_elsewhere, "unused_part", "no gradient reaches the elements that it writes"),
    (scattered_over, "unused_part", "overwrites this input"),
    (replaced_by_index, "unused_part", "overwrites this input"),
    (upper_triangle, "unused_part", "keeps no element"),
    (sum_of_batch_norm, "constant_sum", "the sum of its results is constant"),
    (weight_of_zero_batch_norm, "zero_factor", "'weight'"),
    (sum_of_softmax, "constant_sum", "the sum of its results is constant"),
    (one_class, "constant_sum", "normalizes over 1 element"),
    (zero_inputs, "zero_factor", "MmBackward0 multiplies by 'self', which is 0 at all elements"),
    (zero_square_inputs, "zero_factor", "MmBackward0 multiplies by 'self'"),
    (zero_layer_after, "zero_factor", "MmBackward0 multiplies by 'mat2'"),
    (zero_kernel, "zero_factor", "'weight'"),
    (zero_inputs_of_layer, "zero_factor", "AddmmBackward0 multiplies by 'mat1'"),
    (product_of_tiny_numbers, "underflow", "underflow, below the range of float32"),
    (half_of_tiny_number, "underflow", "float16"),
    (halving, "underflow", "MulBackward0"),
    (nothing_selected, "no_elements", "IndexBackward0 selects no elements"),
    (mean_of_nothing, "no_elements", "SliceBackward0 selects no elements"),
    (nothing_selected_and_scaled, "no_elements", "IndexBackward0 selects no elements"),
    (all_targets_ignored, "all_ignored", "all 4 are ignore_index (-100)"),
    (targets_of_no_weight, "zero_factor", "'weight', which is 0 for the classes of all targets"),
    (function_of_zeros, "function_returned_zero", "the backward of GivesZero ("),
    (function_of_nan, "function_returned_nan", "the backward of GivesNaN ("),
    (function_of_infinity, "function_returned_inf", "the backward of GivesInfinity ("),
    (degenerate_eigenvectors, "degenerate_matrix", "two eigenvalues are equal"),
    (degenerate_singular_vectors, "degenerate_matrix", "two singular values are equal"),
    (log_of_singular_matrix, "degenerate_matrix", "the matrix is singular"),
    (negative_base, "outside_domain", "'self' is outside of the operation's domain (below 0)"),
    (root_of_negative_number, "outside_domain", "(below 0) at 1 element"),
    (entropy_at_zero, "infinite_value", "MulBackward0 has infinite saved values"),
    (cosine_of_zero, "singularity", "DivBackward0 has an infinite derivative: 'other' is 0"),
    (softmax_by_hand, "infinite_value", "'other' is infinite"),
    (opposite_terms, "cancels", "ExpandBackward0"),
    (opposite_terms_of_broadcasting, "cancels", "MulBackward0"),
    (opposite_terms_of_matmul, "cancels", "MmBackward0"),
    (dead_units, "zero_result", "ReluBackward0"),
    (zero_rows_where_it_matters, "zero_factor", "'self', which is 0 wherever a gradient arrives"),
    (no_weight_to_divide_by, "singularity", "the weight of the targets that it counts, which is 0"),
    (hook_among_two_paths, "hook", "a hook on the result of MulBackward0"),
    (checkpointed(lambda w: w.relu(), -1.0, -2.0), "zero_result", "its result is 0"),
    (checkpointed(lambda w: w.sqrt(), 0.0, 2.0), "singularity", "'result' is 0 at 1 element"),
    (perfect_prediction, "zero_derivative", "'self' equals 'target'"),
    (power(lambda w: w.acos(), 2.0, 0.5), "outside_domain", "(not in [-1, 1]) at 1 element"),
    (power(lambda w: w.asin(), 2.0, 0.5), "outside_domain", "AsinBackward0"),
    (power(lambda w: w.acosh(), 0.5, 2.0), "outside_domain", "(below 1)"),
    (power(lambda w: w.acos(), 1.0, 0.5), "singularity", "'self' is 1 at 1 element"),
    (power(lambda w: w.atanh(), 1.0, -1.0), "singularity", "'self' is -1 or 1 at 2 elements"),
    (power(lambda w: w.log1p(), -1.0, 1.0), "singularity", "'self' is -1"),
    (power(lambda w: w.digamma(), -1.0, 1.0), "singularity", "0 or a negative integer"),
    (power(lambda w: w.sqrt(), 0.0, 1.0), "singularity", "'result' is 0"),
    (power(lambda w: 1 / w, 1e-20, 2.0), "overflow", "infinite at 1 element"),
    (power(lambda w: w.sigmoid(), 200.0, -200.0), "zero_derivative", "it is saturated"),
    (power(lambda w: w.round(), 1.2, 2.3), "zero_derivative", "it is flat"),
    (power(lambda w: w.clamp(0, 1), 5.0, 6.0), "zero_derivative", "outside of its bounds"),
    (
        power(lambda w: pb.maximum(w, pb.tensor(9.0)), 5.0),
        "zero_derivative",
        "'other' is the larger",
    ),
    (power(lambda w: pb.add(pb.ones(1), w, alpha=0), 5.0), "zero_factor", "'alpha', which is 0"),
    (power(lambda w: w * 0, 1.0, 2.0), "zero_factor", "'other', which is 0"),
    (power(lambda w: w.pow(2), 0.0, 0.0), "zero_factor", "'self', which is 0 at all 2 elements"),
    (power(lambda w: w.pow(0), 1.0, 2.0), "zero_factor", "'other', which is 0"),
    (power(lambda w: F.dropout(w, 1.0), 1.0, 2.0), "zero_factor", "'other', which is 0"),
    (power(lambda w: w * (w > 9), 1.0, 2.0), "zero_mask", "'other' is False"),
    (power(lambda w: w.log(), -1.0, 1.0), "fine", "but the root itself is NaN"),
    (power(lambda w: w / pb.tensor([INF, INF]), 1.0, 2.0), "zero_factor", "divides by 'other'"),
    (power(lambda w: w / INF, 1.0, 2.0), "zero_factor", "divides by 'other', which is infinite"),
]


@pytest.mark.parametrize(("program", "reason", "text"), PROGRAMS)
def test_program(program, reason, text):
    found = explain_grad(*program())
    assert (found.reason, text in found.answer) == (reason, True), str(found)
    assert bool(found.advice)
    for value in ("'dim'", "'index'", "'indices'", "'bias'"):
        assert value not in found.answer


def test_the_line_of_a_backward_is_in_the_file():
    line = GivesZero.backward.__code__.co_firstlineno
    assert f"({__file__}:{line})" in explain_grad(*function_of_zeros()).answer


def test_advice_names_the_saved_value():
    assert explain_grad(*zero_inputs()).advice == ["Check how 'self' is computed."]


# ---- the tables of reasons and ops ---------------------------------------------------------------


def literals(module, method, position):
    """Return the strings that calls of a method have as one of their arguments."""
    found = set()
    for call in ast.walk(ast.parse(inspect.getsource(module))):
        is_method = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if is_method and call.func.attr == method and len(call.args) > position:
            value = call.args[position]
            found.update([value.value] if isinstance(value, ast.Constant) else [])
    return found


def test_each_reason_has_advice_and_a_row_in_the_documentation():
    assert set(ADVICE) == set(get_args(Reason))
    assert literals(causes, "cause", 0) < set(ADVICE)
    assert set(lineage.REASONS) == set(lineage.WHAT_TO_DO)
    reasons = {*ADVICE, *lineage.REASONS}
    reasons |= literals(unreached, "give", 1) | literals(explain, "give", 1)
    assert {"backward_raises", "swapped", "fine"} < reasons
    page = pathlib.Path(__file__).parents[4] / "docs" / "howto" / "explain-gradients.md"
    if not page.exists():
        pytest.skip("the tests run without the documentation")
    table = [line for line in page.read_text().splitlines() if line.startswith("|")]
    codes = {word for line in table for word in line.split("|")[2].split("`")[1::2]}
    assert reasons == codes - {"reason"}


VALUES = 0.0, 1.0, -1.0, 2.0, NAN, INF, -INF, 1e-40, 1e38
FUNCTIONS = {
    name: getattr(pb.Tensor, name)
    for name in (
        "abs acos acosh asin atanh ceil cos cosh digamma erfinv exp expm1 frac lgamma log log10 "
        "log1p log2 logit neg reciprocal round rsqrt sigmoid sign sin sqrt square tan tanh relu "
        "prod mean std var norm amax min max median"
    ).split()
} | {
    "pow": lambda x: x**0.5,
    "power": lambda x: x ** x.detach(),
    "exponent": lambda x: x.detach() ** x,
    "divide": lambda x: x / x.detach(),
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0),
    "logsumexp": lambda x: x.logsumexp(0),
    "cumprod": lambda x: x.cumprod(0),
    "layer_norm": lambda x: F.layer_norm(x, (2,)),
    "outer": lambda x: pb.outer(x, x.detach()),
    "matmul": lambda x: x[None] @ x.detach()[:, None],
    "conv": lambda x: F.conv1d(x[None, None], x.detach()[None, None]),
    "cat": lambda x: pb.cat([x, x])[:1],
    "gather": lambda x: x.gather(0, pb.tensor([0, 0])),
    "eigenvalues": lambda x: pb.linalg.eigvalsh(pb.outer(x, x)) if x.isfinite().all() else x,
    "std": lambda x: x[:1].std(),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_gradient_has_an_explanation(name):
    for values in itertools.product(VALUES, repeat=2):
        x = leaf(*values)
        try:
            root = FUNCTIONS[name](x).sum()
        except RuntimeError:  # of decompositions that do not converge
            continue
        found = explain_grad(x, root)
        assert found.reason in {*ADVICE, "fine"}, (values, str(found))
        if found.reason == "zero_factor":
            assert "is 0" in found.answer or "infinite" in found.answer
        if found.reason == "nan_value":
            assert root.isnan().any() or any(map(math.isnan, values)) or "result" in found.answer


MOVES = {
    "stack": lambda x, i: pb.stack([x, x * 2])[i % 2],
    "cat": lambda x, i: pb.cat([x, x * 2])[i],
    "select": lambda x, i: x[i % 3],
    "index": lambda x, i: x[pb.tensor([0, i % 3])],
    "gather": lambda x, i: x.gather(0, pb.tensor([i % 3, 0])),
    "scatter": lambda x, i: pb.zeros(4).scatter(0, pb.tensor([0, 0, i % 4]), x)[i % 3],
    "index_add": lambda x, i: pb.zeros(4).index_add(0, pb.tensor([0, 1, 0]), x)[i % 4],
    "embedding": lambda x, i: F.embedding(pb.tensor([0, i % 3]), x[:, None], padding_idx=i % 2),
    "unbind": lambda x, i: x.unbind(0)[i % 3],
    "split": lambda x, i: x.split(1)[i % 3],
    "roll": lambda x, i: x.roll(i)[:1],
    "diagonal": lambda x, i: x.diag().diagonal(i % 2),
    "cumsum": lambda x, i: x.cumsum(0)[i % 3],
    "pad": lambda x, i: F.pad(x, (0, 1))[i % 4],
}


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(sorted(MOVES)), number=st.integers(0, 5), part=st.booleans())
def test_indices_are_no_factors(name, number, part):
    x, y = leaf(1.0, 2.0, 3.0), leaf(4.0, 5.0, 6.0)
    joined = pb.cat([x[:2], y[2:]]) if part else x
    for tensor in (x, y):
        found = explain_grad(tensor, MOVES[name](joined, number).sum())
        assert found.reason in ("fine", "unused", "unused_part", "no_elements"), str(found)


def node_of(op):
    """Return the node of an expression that an op makes, by its key in causes.FACTORS."""
    a, b, c = rows([1.0, 2.0], [3.0, 5.0]), rows([2.0, 1.0], [1.0, 4.0]), leaf(1.0, 2.0)
    batch = a[None]
    made = {
        "Mul": lambda: a * b,
        "Mm": lambda: a @ b,
        "Bmm": lambda: pb.bmm(batch, batch * 1),
        "Mv": lambda: pb.mv(a, c),
        "Dot": lambda: pb.dot(c, leaf(3.0, 1.0)),
        "Addmm": lambda: pb.addmm(b, a, b),
        "Addmv": lambda: pb.addmv(c, a, leaf(1.0, 1.0)),
        "Addbmm": lambda: pb.addbmm(a, batch, batch * 1),
        "Baddbmm": lambda: pb.baddbmm(batch, batch * 1, batch * 2),
        "Convolution": lambda: F.conv2d(batch[None], b[None, None]),
        "LinalgCross": lambda: pb.linalg.cross(ones(3), ones(3)),
        "Addcmul": lambda: pb.addcmul(a, b, b * 1),
        "Add": lambda: pb.add(a, b, alpha=2),
        "Sub": lambda: pb.sub(a, b, alpha=2),
        "Rsub": lambda: pb.rsub(a, 1, alpha=2),
        "IndexAdd": lambda: a.index_add(0, pb.tensor([0]), b[:1], alpha=2),
        "Addcdiv": lambda: pb.addcdiv(a, b, b * 1),
        "Div": lambda: a / b,
        "PowBackward0": lambda: a**2,
        "PowBackward1": lambda: a**b,
        "PowBackward2": lambda: 2**a,
        "LerpBackward0": lambda: pb.lerp(a, b, 0.5),
        "LerpBackward1": lambda: pb.lerp(a, b, pb.full((2, 2), 0.5)),
        "Hypot": lambda: pb.hypot(a, b),
        "Atan2": lambda: pb.atan2(a, b),
        "Xlogy": lambda: pb.xlogy(a, b),
        "NativeBatchNorm": lambda: F.batch_norm(a, None, None, c, c, training=True),
        "NativeLayerNorm": lambda: F.layer_norm(a, (2,), c, c),
        "NativeGroupNorm": lambda: F.group_norm(a[..., None], 2, c, c),
    }
    return made[op]().grad_fn


@pytest.mark.parametrize("op", causes.FACTORS)
def test_the_table_of_factors_is_that_of_the_nodes(op):
    waiting = [node_of(op)]
    while not waiting[0].name().startswith(op):
        node = waiting.pop(0)
        waiting.extend(below for below, _ in node.next_functions if below is not None)
    node = waiting[0]
    assert op in (node.name(), node.name().partition("Backward")[0])
    values = causes.saved_values(node)
    for names in causes.FACTORS[op]:
        assert all(name in values for name in names), (names, list(values))
    assert len(causes.FACTORS[op]) <= len(node.next_functions)
