"""Anomaly detection: stacks of forward calls, ancestors of a failing node, NaN, in-place errors."""

import re
import traceback
import warnings

import pytest

import pullback as pb
from pullback.autograd import Function


@pytest.fixture
def anomaly():
    """Anomaly detection, on for the test, without its own warning."""
    with pb.autograd.set_detect_anomaly(True):
        yield


class Failing(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        raise ValueError("no gradient today")


class Nan(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * float("nan")


class Outer(Function):
    """Its backward records a node that fails in the second backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return Failing.apply(g * ctx.saved_tensors[0])


def messages(run, error):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(error):
            run()
    return [str(item.message) for item in caught]


# ---- the switches --------------------------------------------------------------------------------


def test_detect_anomaly_warns_when_it_is_made():
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
        mode = pb.autograd.detect_anomaly()
    assert not pb.is_anomaly_enabled()
    with mode:
        assert pb.is_anomaly_enabled()
        assert pb.is_anomaly_check_nan_enabled()
    assert not pb.is_anomaly_enabled()


@pytest.mark.filterwarnings("error")
def test_set_detect_anomaly_acts_at_once_and_is_undone():
    with pb.autograd.set_detect_anomaly(True, check_nan=False):
        assert pb.is_anomaly_enabled()
        assert not pb.is_anomaly_check_nan_enabled()
        with pb.autograd.set_detect_anomaly(False):
            assert not pb.is_anomaly_enabled()
        assert pb.is_anomaly_enabled()
    assert not pb.is_anomaly_enabled()
    assert pb.is_anomaly_check_nan_enabled()


# ---- what nodes remember -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x * 2,
        lambda x: Failing.apply(x),
        lambda x: x.unbind()[1],
        lambda x: (x * 1).mul_(2),
    ],
    ids=["op", "function", "many", "inplace"],
)
def test_node_keeps_the_stack_of_its_forward_call(anomaly, make):
    metadata = make(pb.ones(2, requires_grad=True)).grad_fn.metadata
    assert list(metadata) == ["traceback_"]
    last = metadata["traceback_"][-1]
    assert "test_anomaly.py" in last


def test_kept_stack_is_that_of_format_stack(anomaly):
    def made_here():
        return pb.ones(2, requires_grad=True) * 2, traceback.format_stack()

    y, expected = made_here()
    kept = y.grad_fn.metadata["traceback_"]
    for text, other in zip(kept, expected):
        assert text.splitlines()[0] == other.splitlines()[0]
        assert text.splitlines()[1:] == other.splitlines()[1:2]  # without the marks below
    assert len(kept) == len(expected) and kept[-2:] == list(kept)[-2:]
    assert str(kept) == kept[-1].splitlines()[0].strip()
    with pytest.raises(IndexError):
        kept[len(kept)]
    with pytest.raises(TypeError, match="cannot create 'Stack' instances"):
        type(kept)()


def test_source_of_a_module_that_is_gone_is_found(anomaly):
    class Loader:
        def get_source(self, name):
            return "def double(x):\n    return x * 2  # of a module without a file\n"

    names = {"__name__": "gone", "__loader__": Loader()}
    exec(compile(Loader().get_source("gone"), "/not/there/gone.py", "exec"), names)
    y = names["double"](pb.ones(2, requires_grad=True))
    del names
    assert y.grad_fn.metadata["traceback_"][-1] == (
        '  File "/not/there/gone.py", line 2, in double\n'
        "    return x * 2  # of a module without a file\n"
    )


def test_written_view_and_its_base_keep_it(anomaly):
    base = pb.ones(2, requires_grad=True) * 1
    view = base[0]
    view.mul_(2)
    assert "traceback_" in view.grad_fn.metadata
    assert "traceback_" in base.grad_fn.metadata


def test_node_made_by_a_running_node_has_it_as_parent(anomaly):
    x = pb.ones(2, requires_grad=True)
    y = (x * x * x).sum()
    (g,) = pb.autograd.grad(y, x, create_graph=True)
    parent = g.grad_fn.metadata["parent_"]
    assert parent.name() == "MulBackward0"
    assert "parent_" not in parent.metadata
    assert "parent_" not in (g * 2).grad_fn.metadata


def test_nothing_is_kept_otherwise():
    assert (pb.ones(1, requires_grad=True) * 2).grad_fn.metadata == {}


# ---- failing nodes -------------------------------------------------------------------------------


def test_warning_shows_the_forward_call(anomaly):
    y = Failing.apply(pb.ones(1, requires_grad=True))
    (message,) = messages(lambda: y.backward(), ValueError)
    assert message.startswith(
        "Error detected in FailingBackward. Traceback of forward call that caused the error:\n"
    )
    assert "y = Failing.apply(pb.ones(1, requires_grad=True))" in message


def test_without_forward_information():
    y = Failing.apply(pb.ones(1, requires_grad=True))
    with pb.autograd.set_detect_anomaly(True):
        (message,) = messages(lambda: y.backward(), ValueError)
    assert message == (
        "Error detected in FailingBackward. No forward pass information available. "
        "Enable detect anomaly during forward pass for more information."
    )


def test_warning_for_each_ancestor(anomaly):
    x = pb.ones(1, requires_grad=True)
    y = Outer.apply(x * 1)
    (g,) = pb.autograd.grad(y, x, create_graph=True)
    first, second = messages(lambda: g.backward(), ValueError)
    assert first.startswith("Error detected in FailingBackward. Traceback of forward call")
    assert second.startswith(
        "\n\nPrevious calculation was induced by OuterBackward. Traceback of "
        "forward call that induced the previous calculation:\n"
    )
    assert "y = Outer.apply(x * 1)" in second


def test_failing_hook_is_reported_with_its_node(anomaly):
    y = pb.ones(1, requires_grad=True) * 2
    y.register_hook(lambda g: 1 / 0)
    (message,) = messages(lambda: y.backward(), ZeroDivisionError)
    assert message.startswith("Error detected in MulBackward0.")


# ---- NaN -----------------------------------------------------------------------------------------


def test_nan_is_found(anomaly):
    y = Nan.apply(pb.ones(1, requires_grad=True))
    with (
        pytest.warns(UserWarning, match="Error detected in NanBackward"),
        pytest.raises(
            RuntimeError, match="Function 'NanBackward' returned nan values in its 0th output"
        ),
    ):
        y.backward()


def test_nan_is_looked_for_in_batches_of_gradients(anomaly):
    found = pb.func.jacrev(lambda x: x.clone().mul_(x))(pb.tensor([1.0, 2.0]))
    assert found.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    with (
        pytest.warns(UserWarning, match="Error detected in MulBackward0"),
        pytest.raises(RuntimeError, match="Function 'MulBackward0' returned nan values"),
    ):
        pb.func.jacrev(lambda x: x * pb.tensor([1.0, float("nan")]))(pb.ones(2))


def test_nan_may_pass():
    x = pb.ones(1, requires_grad=True)
    with pb.autograd.set_detect_anomaly(True, check_nan=False):
        Nan.apply(x).backward()
    assert x.grad.isnan().all()


def test_infinity_is_no_nan(anomaly):
    x = pb.zeros(1, requires_grad=True)
    x.sqrt().backward()
    assert x.grad.tolist() == [float("inf")]


# ---- in-place errors -----------------------------------------------------------------------------


def overwritten():
    x = pb.ones(1, requires_grad=True) * 1
    y = x * x  # saves x
    x.add_(1)  # writes x
    return y


def error_of(y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(RuntimeError, match="modified by an inplace operation") as caught:
            y.backward()
    return str(caught.value)


def test_inplace_error_shows_both_lines(anomaly):
    message = error_of(overwritten())
    saved, written = map(int, re.findall(r"line (\d+), in overwritten", message))
    assert written == saved + 1
    assert "It was saved by MulBackward0 at File" in message
    assert "the last in-place operation on it was add_, at File" in message
    assert "the backtrace further above" in message


def test_inplace_error_without_anomaly_mode_names_the_operations():
    message = error_of(overwritten())
    assert (
        "It was saved by MulBackward0; the last in-place operation on it was add_. Hint: "
        "enable anomaly detection"
    ) in message
    assert "line" not in message


# ---- better than the reference -------------------------------------------------------------------


def test_nan_error_counts_and_locates(anomaly):
    x = pb.ones(2, 2, requires_grad=True)
    weights = pb.tensor([[1.0, 1.0], [float("nan"), 1.0]])
    with (
        pytest.warns(UserWarning, match="Error detected in MulBackward0"),
        pytest.raises(
            RuntimeError,
            match=r"1 of 4 elements of shape \[2, 2\] are nan, the first "
            r"at index \(1, 0\); the gradients it was given had "
            r"none",
        ),
    ):
        (x * weights).sum().backward()
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="given had some too"):
        (x * 2).backward(weights)


@pytest.mark.parametrize(
    ("run", "call"),
    [
        (lambda x, y: y.backward(), r"backward\(\)"),
        (lambda x, y: y.backward(inputs=[x]), r"backward\(\)"),
        (lambda x, y: pb.autograd.grad(y, x), r"autograd.grad\(\)"),
    ],
)
def test_error_after_freeing_says_which_call_freed(run, call):
    x = pb.ones(1, requires_grad=True)
    y = x * x
    run(x, y)
    with pytest.raises(RuntimeError, match="MulBackward0 were freed by " + call + r"\. Saved"):
        run(x, y)


def test_error_after_freeing_shows_the_line(anomaly):
    y = pb.ones(1, requires_grad=True).exp()
    y.backward()  # here
    with pytest.warns(UserWarning), pytest.raises(RuntimeError) as caught:
        y.backward()
    line = int(re.search(r"freed by backward\(\) at File \S+ line (\d+)", str(caught.value))[1])
    with open(__file__) as lines:
        assert lines.readlines()[line - 1] == "    y.backward()  # here\n"
