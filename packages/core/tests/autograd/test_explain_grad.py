"""explain_grad: one worked bug for each reason."""

import inspect
import json
import re

import pytest

import pullback as pb
from pullback.autograd.graph import explain_grad, record_sites


def leaf(*values, dtype=None):
    return pb.tensor(values, dtype=dtype, requires_grad=True)


def other():
    """Something else that requires grad, for roots that do."""
    return pb.ones(1, requires_grad=True)


# ---- worked bugs: (tensor, root); the line that is to blame ends in "culprit" --------------------


def detach():
    x = leaf(1.0, 2.0)
    y = (x * 2).detach()  # culprit
    return x, (y * other()).sum()


def data():
    x = leaf(1.0, 2.0)
    y = x.data  # culprit
    return x, (y * other()).sum()


def no_grad():
    x = leaf(1.0, 2.0)
    with pb.no_grad():
        y = x.exp()  # culprit
    return x, (y * other()).sum()


def inference_mode():
    x = leaf(1.0, 2.0)
    with pb.inference_mode():
        y = x.exp()  # culprit
    return x, (y.clone() * other()).sum()


def argmax():
    x = leaf(1.0, 2.0)
    best = x.argmax()  # culprit
    return x, (best * other()).sum()


def cast_to_integers():
    x = leaf(1.0, 2.0)
    y = x.round().to(pb.int64)  # culprit
    return x, (y * other()).sum()


def python_number():
    x = leaf(1.0, 2.5)
    scale = x.sum().item()  # culprit
    return x, (other() * scale).sum()


def array():
    x = leaf(1.0, 2.0)
    values = x.detach().numpy()  # culprit
    return x, (pb.from_numpy(values) * other()).sum()


def copy():
    x = leaf(1.0, 2.0)
    y = pb.tensor(x)  # culprit
    return x, (y * other()).sum()


def gradient_without_a_graph():
    x = leaf(1.0, 2.0)
    (slope,) = pb.autograd.grad((x * x).sum(), x)  # culprit
    return x, (slope * other()).sum()


def no_derivative():
    x = leaf(1.0, 2.0)
    y = pb.zeros_like(x)  # culprit
    return x, (y * other()).sum()


def turned_off_in_place():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.detach_()  # culprit
    return x, (y * other()).sum()


def unused_output():
    x = leaf(1.0, 2.0)
    x * 2  # culprit
    return x, other().sum()


def root_without_history():
    x = leaf(1.0, 2.0)
    return x, pb.ones(2).sum()


def used_before_it_required_grad():
    x = pb.ones(2)
    y = x * 2
    x.requires_grad_()
    return x, (y * other()).sum()


def not_requiring_grad():
    x = pb.ones(2)
    return x, (x * other()).sum()


def integers():
    x = pb.arange(2)
    return x, (x * other()).sum()


def result_of_no_grad():
    x = leaf(1.0, 2.0)
    with pb.no_grad():
        y = x * 2  # culprit
    return y, (y * other()).sum()


def converted_afterwards():
    w = leaf(1.0, 2.0)
    loss = (w * w).sum()
    w = w.to(pb.float64)
    return w, loss


def copied_leaf():
    w = leaf(1.0, 2.0)
    loss = (w * w).sum()
    w = w.detach().clone().requires_grad_()
    return w, loss


def exchanged_arguments():
    x = leaf(1.0, 2.0)
    return (x * x).sum(), x


def non_leaf():
    x = leaf(1.0, 2.0)
    y = x * 2
    return y, y.sum()


def inactive_relu():
    x = leaf(-1.0, -2.0)
    return x, x.relu().sum()  # culprit


def masked_by_where():
    x = leaf(1.0, 2.0)
    return x, pb.where(x > 5, x, 0.0).sum()  # culprit


def masked_fill():
    x = leaf(1.0, 2.0)
    return x, x.masked_fill(x > 0, 0.0).sum()  # culprit


def times_zero():
    x = leaf(1.0, 2.0)
    return x, (x * pb.zeros(2)).sum()  # culprit


def flat():
    x = leaf(1.2, 2.4)
    return x, x.floor().sum()  # culprit


def clamped():
    x = leaf(5.0, 7.0)
    return x, x.clamp(0, 1).sum()  # culprit


def opposite_paths():
    x = leaf(1.0, 2.0)
    return x, (x * 3 - x * 3).sum()


def overwritten_by_a_number():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.fill_(0.0)  # culprit
    return x, y.sum()


def overwritten_by_items():
    x = leaf(1.0, 2.0)
    y = x * 2
    y[:] = pb.ones(2)  # culprit
    return x, y.sum()


def replaced_by_a_hook():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.register_hook(lambda grad: grad * 0)
    return x, y.sum()


def replaced_by_a_hook_of_a_node():
    x = leaf(1.0, 2.0)
    y = x * 2
    z = y * 3
    z.grad_fn.register_hook(lambda grads, _: (grads[0] * 0, grads[1]))
    return x, z.sum()


def replaced_by_a_hook_of_the_last_node():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.grad_fn.register_hook(lambda grads, _: (grads[0] * float("nan"), grads[1]))
    return x, y.sum()


def sqrt_at_zero_times_zero():
    x = leaf(0.0, 4.0)
    return x, (x.sqrt() * 0).sum()  # culprit


def division_in_the_other_branch():
    x = leaf(0.0, 4.0)
    ratio = x / x  # culprit
    return x, pb.where(x > 0, ratio, 0.0).sum()


def sqrt_of_a_negative_number():
    x = leaf(-1.0, 4.0)
    return x, x.sqrt().sum()  # culprit


def log_of_zero():
    x = leaf(0.0, 4.0)
    return x, x.log().sum()  # culprit


def division_by_zero():
    x = leaf(0.0, 4.0)
    return x, (1 / x).sum()  # culprit


def overflow():
    x = leaf(1e30, 1.0)
    return x, (x**3).sum()  # culprit


def exponential():
    x = leaf(50.0, 1.0)
    return x, x.exp().sum()  # culprit


def chain_of_products():
    x = leaf(3.0)
    y = x
    for _ in range(30):
        y = y * 10
    return x, y.sum()


class Forgetful(pb.autograd.Function):
    """Forgets the gradient of its input."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return None


def custom_function():
    x = leaf(1.0, 2.0)
    return x, Forgetful.apply(x).sum()


def freed_graph():
    x = leaf(1.0, 2.0)
    loss = (x * x).sum()  # culprit
    loss.backward()
    return x, loss


def saved_value_overwritten():
    x = leaf(1.0, 2.0)
    y = x.exp()
    loss = (y * y).sum()  # culprit
    y.add_(1)
    return x, loss


BUGS = [
    (detach, "none", "detach", r"detach \(.*\) cut the history"),
    (data, "none", "data", r"\.data was read at .* has no history"),
    (no_grad, "none", "no_grad", r"exp \(.*\) ran under no_grad\(\)"),
    (inference_mode, "none", "inference_mode", r"exp \(.*\) ran in inference mode"),
    (argmax, "none", "integer", r"argmax \(.*\) returned integers"),
    (cast_to_integers, "none", "integer", r"to \(.*\) returned integers"),
    (python_number, "none", "number", r"item \(.*\) returned a Python number or an array"),
    (array, "none", "detach", r"detach \(.*\) cut the history"),
    (copy, "none", "copy", r"tensor \(.*\) copied values into a new leaf"),
    (
        gradient_without_a_graph,
        "none",
        "no_create_graph",
        r"grad \(.*\) computed .* create_graph=True",
    ),
    (no_derivative, "none", "not_differentiable", r"zeros_like \(.*\) has no derivative"),
    (turned_off_in_place, "none", "detach", r"detach_ \(.*\) cut the history"),
    (unused_output, "none", "unused", "the root does not use the tensor; its last use is mul"),
    (root_without_history, "none", "root_not_required", "the root does not require grad"),
    (used_before_it_required_grad, "none", "required_late", "before it required grad"),
    (not_requiring_grad, "none", "not_required", "the tensor does not require grad"),
    (integers, "none", "integer", "its dtype is int64"),
    (result_of_no_grad, "none", "no_grad", r"does not require grad: mul \(.*\) ran under no_grad"),
    (converted_afterwards, "none", "other_branch", "from a leaf float32 .* not from the tensor"),
    (copied_leaf, "none", "copy", "the root used another leaf of the same values"),
    (exchanged_arguments, "none", "swapped", "the tensor was computed from the root"),
    (non_leaf, "fine", "non_leaf", "None by design: .* not a leaf.* its gradient exists"),
    (inactive_relu, "zero", "zero_result", "ReluBackward0.* its result is 0 at all 2 elements"),
    (masked_by_where, "zero", "zero_mask", "'condition' is False at all 2 elements"),
    (masked_fill, "zero", "zero_mask", "'mask' is True at all 2 elements"),
    (times_zero, "zero", "zero_factor", "MulBackward0.* multiplies by 'other', which is 0"),
    (flat, "zero", "zero_derivative", "FloorBackward0.* has a derivative of 0"),
    (clamped, "zero", "zero_derivative", "ClampBackward1.* has a derivative of 0"),
    (opposite_paths, "zero", "cancels", r"2 contributions to .* cancel"),
    (overwritten_by_a_number, "zero", "overwritten", "overwrites the value in place"),
    (overwritten_by_items, "zero", "overwritten", "overwrites the value in place"),
    (replaced_by_a_hook, "zero", "hook", "a hook on the result of MulBackward0"),
    (replaced_by_a_hook_of_a_node, "zero", "hook", "a hook on the result of MulBackward0"),
    (replaced_by_a_hook_of_the_last_node, "nan", "hook", "a hook on the tensor"),
    (sqrt_at_zero_times_zero, "nan", "masked_singularity", "SqrtBackward0.*'result' is 0"),
    (division_in_the_other_branch, "nan", "masked_singularity", "DivBackward0.*'other' is 0"),
    (sqrt_of_a_negative_number, "nan", "nan_value", "SqrtBackward0.*'result' is NaN at 1 element"),
    (log_of_zero, "inf", "singularity", "LogBackward0.* 'self' is 0 at 1 element"),
    (division_by_zero, "inf", "infinite_value", "ReciprocalBackward0.* division by 0"),
    (overflow, "inf", "overflow", "PowBackward0.* infinite at 1 element"),
    (exponential, "huge", "growth_step", r"ExpBackward0.* enlarges it \d.* times"),
    (chain_of_products, "huge", "growth_chain", "over 31 nodes, none of which does so alone"),
    (
        custom_function,
        "none",
        "function_returned_none",
        "gives this input no gradient: the backward of Forgetful .* returned None",
    ),
    (freed_graph, "unknown", "freed", "the graph was freed; MulBackward0"),
    (saved_value_overwritten, "unknown", "saved_overwritten", "MulBackward0 .* was overwritten"),
]


def culprit(function):
    """Return file and line of the line that is to blame, or None."""
    lines, first = inspect.getsourcelines(function)
    found = [first + k for k, line in enumerate(lines) if line.rstrip().endswith("# culprit")]
    return f"{__file__}:{found[0]}, in {function.__name__}" if found else None


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize(
    ("bug", "status", "reason", "text"), BUGS, ids=[bug[0].__name__ for bug in BUGS]
)
def test_worked_bug(bug, status, reason, text):
    with record_sites():
        tensor, root = bug()
        found = explain_grad(tensor, root)
    first = str(found).splitlines()[0]
    facts = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (facts["status"], facts["reason"]) == (status, reason), str(found)
    assert first == facts["answer"] and re.search(text, first), first
    assert culprit(bug) is None or culprit(bug) in first
    assert facts["advice"]


@pytest.mark.parametrize("bug", [division_by_zero, masked_by_where, exponential])
def test_lines_of_anomaly_detection(bug):
    with pb.autograd.set_detect_anomaly(True, check_nan=True):
        tensor, root = bug()
        assert culprit(bug) in explain_grad(tensor, root).answer


@pytest.mark.parametrize("bug", [detach, no_grad, argmax, unused_output])
def test_advice_to_record(bug):
    found = explain_grad(*bug())
    assert found.reason == "unused"
    assert "record_sites" in found.advice[-1]
