"""explain_grad: figures, paths, and what an explanation leaves as it was."""

import gc
import json
import math
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback._c.base import state
from pullback.autograd.diagnostics import probe
from pullback.autograd.graph import explain_grad, record_sites
from pullback.utils.checkpoint import checkpoint


def leaf(*values, dtype=None):
    return pb.tensor(values, dtype=dtype, requires_grad=True)


# ---- the tensor alone ----------------------------------------------------------------------------


def test_without_a_root():
    x = leaf(1.0, 2.0)
    assert explain_grad(x).reason == "no_root"
    assert explain_grad(x * 2).reason == "non_leaf"
    assert explain_grad(pb.ones(2)).reason == "not_required"
    x.grad = pb.tensor([math.nan, 1.0])
    assert (found := explain_grad(x)).status == "nan"
    assert found.to_dict()["gradient"]["norm"] == "nan"
    x.grad = pb.zeros(2)
    assert explain_grad(x).status == "zero"
    x.grad = pb.ones(2)
    assert explain_grad(x).status == "fine"
    with record_sites():
        x = leaf(1.0)
        x.detach()
        assert "detach (" in str(explain_grad(x))


def test_root_itself():
    x = leaf(1.0, 2.0)
    y = x * 2
    assert explain_grad(y, y).to_dict()["gradient"]["norm"] == pytest.approx(math.sqrt(2))
    assert explain_grad(x, x).status == "fine"


def test_vanishing_gradient_is_noted():
    h = w = leaf(3.0, 2.0)
    for _ in range(60):
        h = h.sigmoid()
    found = explain_grad(w, h.sum())
    assert found.reason == "fine"
    assert "tiny" in found.answer and "below the normal numbers of float32" in str(found)
    assert found.advice
    assert "tiny" not in explain_grad(w, (w * 1e-3).sum()).answer


def test_a_root_that_is_not_finite_is_noted():
    w = leaf(1.0, 2.0)
    assert "the root itself is NaN" in str(explain_grad(w, w[:0].mean()))
    assert "the root itself is infinite" in explain_grad(w, w.sum() + math.inf).answer


# ---- figures and paths ---------------------------------------------------------------------------


def test_figures_of_the_gradient():
    x = leaf(3.0, 4.0, 0.0, dtype=pb.float64)
    facts = explain_grad(x, (x * x).sum() / 2).to_dict()
    assert facts["gradient"] == {
        "norm": 5.0,
        "peak": 4.0,
        "nan": 0,
        "inf": 0,
        "zeros": 1,
        "size": 3,
    }


@pytest.mark.parametrize("values", [(3.0, 0.0), (0.0, 0.0), (math.nan, 1.0), (math.inf, 0.0)])
@pytest.mark.parametrize("dtype", [pb.float32, pb.float64, pb.bfloat16, pb.complex64])
def test_figures_of_devices_without_numpy(monkeypatch, values, dtype):
    gradient = pb.tensor(values, dtype=dtype).reshape(2, 1)
    expected = repr(probe.measure(gradient))
    monkeypatch.setattr(probe.arrays, "is_host", lambda tensor: False)
    assert repr(probe.measure(gradient)) == expected


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_norms_do_not_overflow(scale):
    x = leaf(1.0, 1.0, dtype=pb.float64)
    found = explain_grad(x, (x * pb.tensor([3 * scale, 4 * scale], dtype=pb.float64)).sum())
    assert found.gradient["norm"] == pytest.approx(5 * scale, rel=1e-12)


@pytest.mark.parametrize("dtype", [pb.bfloat16, pb.float16, pb.complex64])
def test_dtypes(dtype):
    x = pb.ones(2, dtype=dtype, requires_grad=True)
    assert explain_grad(x, (x * 3).sum()).gradient["peak"] == 3
    assert explain_grad(x, (x * 0).sum()).reason == "zero_factor"


def test_sparse_gradients():
    rows = pb.nn.Embedding(5, 3, sparse=True)
    with record_sites():
        root = rows(pb.tensor([1, 1])).sum()
        found = explain_grad(rows.weight, root)
    assert (found.gradient["peak"], found.gradient["zeros"]) == (2, 12)
    assert explain_grad(rows.weight, rows(pb.tensor([1])).mul(0).sum()).reason == "zero_factor"


def test_modules_and_checkpoints():
    layers = pb.nn.Sequential(pb.nn.Linear(3, 4), pb.nn.ReLU(), pb.nn.Linear(4, 2))
    spare = pb.nn.Linear(2, 2)
    with record_sites():
        h = checkpoint(layers, pb.ones(5, 3), use_reentrant=False)
        loss = pb.nn.functional.cross_entropy(h, pb.zeros(5, dtype=pb.int64))
    for parameter in layers.parameters():
        found = explain_grad(parameter, loss)
        (grad,) = pb.autograd.grad(loss, parameter, retain_graph=True)
        assert found.gradient["peak"] == grad.abs().max().item()
    assert found.path[1]["site"].endswith("in test_modules_and_checkpoints")
    assert "operations takes the tensor" in str(explain_grad(spare.weight, loss))


def test_paths_are_counted_not_listed():
    x = leaf(1.0)
    y = x
    for _ in range(60):
        y = y * 0.5 + y.sin() * 0.5
    facts = explain_grad(x, y).paths
    assert facts["count"] == 10**6 and not facts["count_is_exact"]
    assert (facts["shortest"], facts["longest"]) == (2 * 60, 3 * 60)
    assert {item["node"] for item in facts["contributions"]} == {"MulBackward0", "SinBackward0"}


def test_main_path_has_the_greatest_gradients():
    x = leaf(1.0)
    found = explain_grad(x, x.sin() * 0.01 + x.exp() * 100 + x.tanh())
    assert [step["node"] for step in found.path] == [
        *("(root)", "AddBackward0", "AddBackward0", "MulBackward0", "ExpBackward0")
    ]
    assert found.paths["count"] == 3
    norms = [item["norm"] for item in found.paths["contributions"]]
    assert norms == sorted(norms, reverse=True)


def test_each_stopped_path_is_named():
    x = leaf(-1.0, -2.0)
    found = explain_grad(x, (x.relu() + x.ceil()).sum())
    assert found.status == "zero"
    assert "stops another path" in str(found)


def test_second_output_is_not_the_first():
    x = leaf(1.0, 2.0)
    first, second = x.unbind()
    assert explain_grad(first, second * 2).status == "none"
    assert explain_grad(second, second * 2).gradient["peak"] == 2


def test_arguments_without_derivatives_do_not_shift_edges():
    x = leaf(1.0, 2.0)
    table = leaf(5.0, 6.0)
    found = explain_grad(x, pb.where(table > 5, table, x * 3).sum())
    assert found.gradient["peak"] == 3 and found.status == "fine"
    assert explain_grad(table, table.gather(0, pb.tensor([1, 1])).sum()).gradient["peak"] == 2


def test_highlighted_graph():
    x, w = leaf(1.0), leaf(2.0)
    text = explain_grad(x, x.exp() * w).to_dot()
    bold = [line for line in text.splitlines() if "penwidth" in line]
    assert len(bold) == 3 + 2  # the nodes of mul, exp and the leaf, and the arrows between them
    assert not any("penwidth" in line for line in explain_grad(x, w * 2).to_dot().splitlines())
    with pytest.raises(RuntimeError, match="there is no graph"):
        explain_grad(pb.ones(1)).to_dot()


@pytest.mark.parametrize("count", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_long_chain(count):
    x = leaf(1.0)
    y = x
    for _ in range(count):
        y = y + 1
    found = explain_grad(x, y)
    assert found.status == "fine"
    assert found.paths["longest"] == count
    assert len(str(found).splitlines()) < 30
    assert explain_grad(leaf(1.0), y).reason == "unused"


def test_wrong_arguments():
    x = leaf(1.0)
    with pytest.raises(TypeError, match=r"explain_grad\(\): argument 'tensor' must be Tensor"):
        explain_grad(1.0)
    with pytest.raises(TypeError, match="argument 'root' must be Tensor, not list"):
        explain_grad(x, [x])
    with pytest.raises(TypeError, match="argument 'factor' must be float, not str"):
        explain_grad(x, x, factor="1")
    with pytest.raises(ValueError, match=r"argument 'factor' must be above 1, got 0\.5"):
        explain_grad(x, x, factor=0.5)


# ---- what stays as it was ------------------------------------------------------------------------

STEPS = {
    "exp": lambda x, y: (x * 0.1).exp(),
    "mul": lambda x, y: x * y,
    "add": lambda x, y: x + y,
    "where": lambda x, y: pb.where(x > 0, x, y),
    "relu": lambda x, y: x.relu(),
    "write": lambda x, y: x.clone().mul_(y),
    "items": lambda x, y: pb.stack([x, y])[1],
    "detach": lambda x, y: x.detach() + y,
}


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 5), st.integers(0, 5)),
        min_size=1,
        max_size=8,
    ),
    asked=st.integers(0, 9),
    retained=st.integers(0, 9),
    is_recorded=st.booleans(),
)
def test_state_stays_as_it_was(steps, asked, retained, is_recorded):
    def run(explain):
        tensors = [leaf(0.5, -1.0), leaf(2.0, 3.0)]
        for name, a, b in steps:
            tensors.append(STEPS[name](tensors[a % len(tensors)], tensors[b % len(tensors)]))
        root = tensors[-1].sum() + tensors[0].sum()
        tensor, kept = tensors[asked % len(tensors)], tensors[retained % len(tensors)]
        calls = []
        if kept.requires_grad:
            kept.retain_grad()
            kept.register_hook(lambda grad: grad * 2)
        if kept.grad_fn is not None:
            kept.grad_fn.register_hook(lambda inputs, outputs: calls.append(1))
        (tensors[1] * 3).sum().backward()
        state = [(t.grad, t._version) for t in tensors if t.is_leaf or t.retains_grad]
        peak = None
        if explain:
            found = explain_grad(tensor, root)
            json.dumps(found.to_dict(), allow_nan=False)
            assert str(found).splitlines()[0] == found.answer
            peak = None if found.gradient is None else found.gradient["peak"]
            now = [(t.grad, t._version) for t in tensors if t.is_leaf or t.retains_grad]
            assert all(a is c and b == d for (a, b), (c, d) in zip(state, now, strict=True))
        elif tensor.requires_grad:
            (expected,) = pb.autograd.grad(root, tensor, retain_graph=True, allow_unused=True)
            peak = None if expected is None else expected.abs().max().item()
            for t, (grad, _) in zip([t for t in tensors if t.is_leaf or t.retains_grad], state):
                t.grad = grad
        calls.clear()
        root.backward()
        grads = [t.grad for t in tensors if t.is_leaf or t.retains_grad]
        return [None if g is None else g.tolist() for g in grads], len(calls), peak

    if is_recorded:
        with record_sites():
            assert run(True) == run(False)
    else:
        assert run(True) == run(False)


def test_retained_gradients_stay():
    x = leaf(1.0, 2.0)
    y = x * 2
    y.retain_grad()
    explain_grad(x, y.sum())
    assert y.grad is None
    y.sum().backward(retain_graph=True)
    grad = y.grad
    explain_grad(x, y.sum())
    assert y.grad is grad and grad.tolist() == [1, 1]


def test_modes_stay():
    x = leaf(0.0)
    with pb.autograd.set_detect_anomaly(True, check_nan=True), pb.no_grad():
        with pb.enable_grad():
            y = x.sqrt() * 0
        assert explain_grad(x, y).status == "nan"
        assert pb.is_anomaly_enabled() and pb.is_anomaly_check_nan_enabled()
        assert not pb.is_grad_enabled()


def test_settings_of_anomaly_detection_stay():
    x = leaf(4.0)
    y = x.sqrt()
    with pb.autograd.set_detect_anomaly(True, check_inf=True, check_forward=True, sample=0.5):
        before = state.anomaly_settings()
        assert explain_grad(x, y).status == "fine"
        assert state.anomaly_settings() == before


def test_failing_backward_leaves_no_hooks():
    class Fails(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            raise ValueError("not today")

    x = leaf(1.0)
    y = x * 3
    found = explain_grad(x, Fails.apply(y).sum())
    assert found.reason == "backward_raises"
    assert "ValueError: not today" in found.answer
    (grad,) = pb.autograd.grad(y.sum(), x)
    assert grad.item() == 3


def test_nothing_is_kept_alive():
    x = leaf(1.0, 2.0)
    y = x * 2
    root = y.exp().sum()
    found = explain_grad(x, root)
    dead = [weakref.ref(t) for t in (y, root)]
    del y, root
    assert not any(ref() is not None for ref in dead)
    node = weakref.ref(found._edges[0][0])
    del found
    gc.collect()
    assert node() is None
