"""Autocast: dtypes of results, kept casts, regions, threads, transforms, checkpoints, modules."""

import gc
import operator
import threading
import weakref

import pytest

import pullback as pb
from pullback import nn
from pullback.nn import functional as F
from pullback.ops.table.schema import op
from pullback.utils.checkpoint import checkpoint

LOW, FULL, WIDE = pb.bfloat16, pb.float32, pb.float64


@pytest.fixture
def device():
    """The type of the default device, which is one of the host."""
    return pb.get_default_device().type


def low(*shape):
    return pb.ones(*shape, dtype=LOW)


@pytest.mark.parametrize(
    ("function", "args", "expected"),
    [
        (pb.mm, (pb.ones(2, 2), pb.ones(2, 2)), LOW),
        (pb.mm, (low(2, 2), pb.ones(2, 2, dtype=pb.float16)), LOW),
        (pb.mm, (pb.ones(2, 2, dtype=WIDE),) * 2, WIDE),
        (pb.mm, (pb.ones(2, 2, dtype=pb.int32),) * 2, pb.int32),
        (pb.mm, (pb.ones(2, 2, dtype=pb.complex64),) * 2, pb.complex64),
        (F.linear, (pb.ones(1, 2), pb.ones(3, 2), pb.ones(3)), LOW),
        (F.conv1d, (pb.ones(1, 1, 3), pb.ones(1, 1, 2)), LOW),
        (F.mse_loss, (low(2), low(2)), FULL),
        (F.cross_entropy, (low(2, 3), pb.tensor([0, 1])), FULL),
        (pb.prod, (low(2),), FULL),
        (pb.cat, ([low(1), pb.ones(1)],), FULL),
        (pb.cat, ([low(1), low(1)],), LOW),
        (pb.cat, ([pb.ones(1, dtype=WIDE), low(1)],), WIDE),
        (pb.sin, (low(2),), LOW),
        (pb.add, (pb.ones(2), low(2)), FULL),
        (pb.einsum, ("ij,jk", pb.ones(2, 2), pb.ones(2, 2)), LOW),
        (pb.tensordot, (pb.ones(2), pb.ones(2), 1), FULL),
        (F.max_pool3d, (low(1, 2, 2, 2), 2), FULL),
        (lambda x: F.max_pool3d(x, 2, return_indices=True)[0], (low(1, 2, 2, 2),), LOW),
        (lambda x: F.pad(x, (1, 1), "reflect"), (low(1, 3),), FULL),
        (lambda x: F.pad(x, (1, 1), "circular"), (low(1, 3),), LOW),
    ],
)
def test_result_dtype_in_a_region(device, function, args, expected):
    with pb.autocast(device):
        assert function(*args).dtype == expected
    assert not pb.is_autocast_enabled(device)


@pytest.mark.parametrize("left", [1, 2, 3])
@pytest.mark.parametrize("right", [1, 2, 3])
def test_products_by_every_spelling(device, left, right):
    """``@`` takes other ways than ``matmul`` for vectors; a region sees no difference."""
    spellings = (pb.matmul, pb.Tensor.matmul, operator.matmul, pb.Tensor.__matmul__)
    left, right = pb.ones((2,) * left), pb.ones((2,) * right)
    with pb.autocast(device):
        assert {function(left, right).dtype for function in spellings} == {LOW}
        assert right.__rmatmul__(left).dtype == LOW
        found = pb.vmap(operator.matmul)(left.unsqueeze(0), right.unsqueeze(0))
        assert found.dtype == LOW


def test_promotion_of_another_16_bit_dtype_is_refused(device):
    with pb.autocast(device), pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
        pb.stack([pb.ones(1, dtype=pb.float16)] * 2)


def test_out_and_inplace_forms_are_not_cast(device):
    x, out = pb.ones(2, 2), pb.empty(2, 2)
    with pb.autocast(device):
        assert pb.mm(x, x, out=out).dtype == FULL
        assert pb.ones(2, 2).addmm_(x, x).dtype == FULL
        with pytest.raises(RuntimeError, match="same dtype"):
            low(2, 2).addmm_(x, x)


def test_values_are_those_of_explicit_casts(device):
    pb.manual_seed(0)
    x, w, b = pb.randn(4, 8), pb.randn(3, 8, requires_grad=True), pb.randn(3)
    with pb.autocast(device):
        y = F.linear(x, w, b)
        loss = F.mse_loss(y, pb.zeros(4, 3))
    loss.backward()
    other = w.detach().clone().requires_grad_()
    z = F.linear(x.to(LOW), other.to(LOW), b.to(LOW))
    assert pb.equal(y, z)
    F.mse_loss(z.float(), pb.zeros(4, 3)).backward()
    assert w.grad.dtype == FULL
    assert pb.equal(w.grad, other.grad)


def cast_of(result):
    return result.grad_fn.next_functions[0][0]


def test_casts_of_parameters_are_kept_until_the_outermost_region_ends(device):
    w, x = pb.ones(2, 2, requires_grad=True), pb.ones(2, 2)
    with pb.autocast(device):
        with pb.no_grad():
            pb.mm(w, x)
        first = pb.mm(w, x)
        with pb.autocast(device):
            assert cast_of(pb.mm(w, x)) is cast_of(first)
        with pb.autocast(device, cache_enabled=False):
            assert cast_of(pb.mm(w, x)) is not cast_of(first)
        assert cast_of(pb.mm(w, x)) is cast_of(first)
        with pb.autocast(device, dtype=pb.float16):
            assert pb.mm(w, x).dtype == pb.float16
        assert cast_of(pb.mm(w * 1, x)) is not cast_of(pb.mm(w * 1, x))
        with pb.no_grad():
            w.mul_(3)
        assert pb.mm(w, x).tolist() == [[6.0, 6.0], [6.0, 6.0]]
        (first + pb.mm(w, x)).sum().backward()
        kept = weakref.ref(w)
    assert w.grad.tolist() == [[4.0, 4.0], [4.0, 4.0]]
    with pb.autocast(device):
        assert cast_of(pb.mm(w, x)) is not cast_of(first)
    del w, first
    gc.collect()
    assert kept() is None


def test_inner_region_restores_what_it_found(device):
    assert pb.get_autocast_dtype(device) == LOW
    with pb.autocast(device, dtype=pb.float16, cache_enabled=False):
        with pb.autocast(device, enabled=False):
            assert (pb.ones(1, 1) @ pb.ones(1, 1)).dtype == FULL
        assert pb.get_autocast_dtype(device) == pb.float16
        assert not pb.is_autocast_cache_enabled()
        assert (pb.ones(1, 1) @ pb.ones(1, 1)).dtype == pb.float16
    assert pb.get_autocast_dtype(device) == LOW
    assert pb.is_autocast_cache_enabled()
    region = pb.autocast(device)

    @region
    def nested(depth):
        return nested(depth - 1) if depth else (pb.ones(1, 1) @ pb.ones(1, 1)).dtype

    assert nested(2) == LOW
    assert not pb.is_autocast_enabled(device)


def test_a_region_is_of_one_thread(device):
    seen = []
    with pb.autocast(device):
        worker = threading.Thread(target=lambda: seen.append(pb.is_autocast_enabled(device)))
        worker.start()
        worker.join()
    assert seen == [False]


def test_arguments_that_are_refused(device):
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`, got: `<class 'in"):
        pb.autocast(3)
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'meta'"):
        pb.autocast("meta", LOW)
    with pytest.warns(UserWarning, match="target dtype is not supported"):
        region = pb.autocast(device, dtype=FULL)
    with region:
        assert not pb.is_autocast_enabled(device)
    with pytest.raises(TypeError, match=r"autocast\(\)\(func\) requires a callable, but got int"):
        region(3)
    with pytest.raises(TypeError, match=r"'enabled' \(position 2\) must be bool, not int"):
        pb.set_autocast_enabled(device, 1)
    with pytest.raises(RuntimeError, match="unknown device type for autocast"):
        pb.is_autocast_enabled("meta")
    with pytest.warns(DeprecationWarning, match=r"use pullback.get_autocast_dtype\('cpu'\)"):
        assert pb.get_autocast_cpu_dtype() == LOW


def test_backward_inside_of_a_region_runs_as_outside(device):
    pb.manual_seed(0)
    w, x = pb.randn(3, 3, requires_grad=True), pb.randn(3, 3)

    def gradients(inside):
        with pb.autocast(device):
            y = (w @ x).sin() @ x
            if inside:
                return pb.autograd.grad(y.sum(), w)[0]
        return pb.autograd.grad(y.sum(), w)[0]

    assert pb.equal(gradients(True), gradients(False))


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_runs_again_with_the_autocast_of_its_first_run(device, use_reentrant):
    w, x = pb.ones(2, 2, requires_grad=True), pb.ones(2, 2, requires_grad=True)
    seen = []

    def function(x):
        y = x @ w
        seen.append((y.dtype, pb.is_autocast_cache_enabled()))
        return y.sin()

    with pb.autocast(device, dtype=pb.float16, cache_enabled=False):
        y = checkpoint(function, x, use_reentrant=use_reentrant)
    y.sum().backward()
    assert seen == [(pb.float16, False)] * 2
    assert not pb.is_autocast_enabled(device)
    assert w.grad.dtype == FULL


def test_custom_function_by_what_it_says(device):
    seen = []

    def made(**how):
        class Product(pb.autograd.Function):
            @staticmethod
            @pb.amp.custom_fwd(device_type=device, **how)
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                seen.append((a.dtype, pb.is_autocast_enabled(device)))
                return a @ b

            @staticmethod
            @pb.amp.custom_bwd(device_type=device)
            def backward(ctx, grad):
                a, b = ctx.saved_tensors
                seen.append((grad.dtype, pb.is_autocast_enabled(device)))
                return grad @ b.t(), a.t() @ grad

        return Product

    a = pb.ones(2, 2, requires_grad=True)
    for how, dtype, is_on in (({}, LOW, True), ({"cast_inputs": FULL}, FULL, False)):
        seen.clear()
        with pb.autocast(device):
            y = made(**how).apply(a if is_on else a.to(LOW), pb.ones(2, 2))
        assert y.dtype == dtype
        y.sum().backward()
        assert seen == [(FULL, is_on), (dtype, is_on)]


def test_transforms_see_cast_operands(device):
    w = pb.ones(3, 2)
    x = pb.ones(4, 3, 3)
    with pb.autocast(device):
        assert pb.vmap(lambda x: x @ w)(x).dtype == LOW
        grads = pb.func.vmap(pb.func.grad(lambda x: (x @ w).float().sum()))(x)
        value, tangent = pb.func.jvp(lambda x: x @ w, (x[0],), (x[1],))
        assert pb.func.jacrev(lambda w: x[0] @ w)(w).dtype == FULL
    assert grads.dtype == FULL
    assert grads.tolist() == pb.full((4, 3, 3), 2.0).tolist()
    assert (value.dtype, tangent.dtype) == (LOW, LOW)


@pytest.mark.parametrize(
    ("module", "shape", "expected"),
    [
        (nn.Linear(4, 3), (2, 4), LOW),
        (nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU()), (2, 4), LOW),
        (nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True), (2, 3, 4), None),
        (nn.MultiheadAttention(4, 2, batch_first=True), (2, 3, 4), LOW),
        (nn.LSTM(4, 3), (5, 2, 4), None),
        (nn.GRU(4, 3), (5, 2, 4), None),
        (nn.LSTMCell(4, 3), (2, 4), None),
    ],
)
def test_modules_train_in_a_region(device, module, shape, expected):
    pb.manual_seed(0)
    x = pb.randn(*shape)
    args = (x, x, x) if isinstance(module, nn.MultiheadAttention) else (x,)
    with pb.autocast(device):
        found = module(*args)
        y = found[0] if isinstance(found, tuple) else found
        loss = F.mse_loss(y, pb.zeros_like(y))
    assert expected in (None, y.dtype)
    assert loss.dtype == FULL
    loss.backward()
    assert all(p.grad.dtype == FULL and p.grad.isfinite().all() for p in module.parameters())
    exact = module(*args)
    exact = exact[0] if isinstance(exact, tuple) else exact
    assert (y.float() - exact).abs().max() < 0.05


def test_anomaly_mode_and_observers_see_the_casts(device):
    x = pb.ones(2, 2, requires_grad=True)
    with pb.autograd.set_detect_anomaly(True), pb.autocast(device):
        y = x @ x
    assert cast_of(y).name() == "ToCopyBackward0"
    assert "traceback_" in cast_of(y).metadata


@pytest.mark.parametrize(
    ("policy", "text"),
    [("lowest", "a policy is one of None, lower"), ("dtype", "no argument 'dtype'")],
)
def test_policy_that_no_entry_can_have(policy, text):
    with pytest.raises(ValueError, match=text):
        op("nothing_like_this(self: Tensor) -> Tensor", composite=lambda x: x, autocast=policy)
