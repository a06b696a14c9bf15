"""GradScaler: the factor, gradients, steps that are left out, states, copies."""

import math
import pickle

import pytest

import pullback as pb

DEVICE = pb.get_default_device().type
SGD, ADAM = pb.optim.SGD, pb.optim.Adam


def made(kind=SGD, **options):
    weight = pb.nn.Parameter(pb.ones(2))
    scaler = pb.amp.GradScaler(DEVICE, init_scale=8.0, growth_interval=2)
    return weight, kind([weight], lr=0.5, **options), scaler


def train(weight, optimizer, scaler, factor=3.0):
    optimizer.zero_grad()
    scaler.scale((weight * factor).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("fused", [False, True])
def test_factor_grows_and_backs_off_and_bad_steps_are_left_out(fused):
    weight, optimizer, scaler = made(fused=fused)
    seen = []
    for factor in (3.0, 3.0, math.inf, 3.0, math.nan):
        train(weight, optimizer, scaler, factor)
        seen.append((scaler.get_scale(), scaler._get_growth_tracker(), weight.tolist()[0]))
    assert seen == [(8, 1, -0.5), (16, 0, -2), (8, 0, -2), (8, 1, -3.5), (4, 0, -3.5)]
    assert not hasattr(optimizer, "found_inf")


def test_counts_of_left_out_steps_stay_the_same():
    weight, optimizer, scaler = made(ADAM, fused=True)
    train(weight, optimizer, scaler)
    train(weight, optimizer, scaler, math.inf)
    assert optimizer.state[weight]["step"].item() == 1


def test_clipping_sees_unscaled_gradients():
    weight, optimizer, scaler = made()
    scaler.scale((weight * 3).sum()).backward()
    assert weight.grad.tolist() == [24.0, 24.0]
    scaler.unscale_(optimizer)
    assert weight.grad.tolist() == [3.0, 3.0]
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called on this"):
        scaler.unscale_(optimizer)
    with pytest.raises(AssertionError, match="only be pickled at the beginning"):
        pickle.dumps(scaler)
    weight.grad.clamp_(max=1.0)
    scaler.step(optimizer)
    assert weight.tolist() == [0.5, 0.5]
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called since the last"):
        scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) is being called after step\(\)"):
        scaler.unscale_(optimizer)


def test_factor_stays_finite():
    weight, optimizer, scaler = made()
    scaler.load_state_dict({**scaler.state_dict(), "scale": 3e38, "_growth_tracker": 1})
    train(weight, optimizer, scaler, 0.0)
    assert scaler.get_scale() == pytest.approx(3e38)


@pytest.mark.parametrize(
    ("run", "error", "text"),
    [
        (lambda s, o: s.update(), AssertionError, "Attempted update but _scale is None"),
        (lambda s, o: s.step(o), AssertionError, "Attempted step but _scale is None"),
        (lambda s, o: s.scale(3), ValueError, "outputs must be a Tensor or an iterable of T"),
        (lambda s, o: s.step(o, closure=len), RuntimeError, "Closure use is not currently"),
        (lambda s, o: s.load_state_dict({}), RuntimeError, "source state dict is empty"),
        (lambda s, o: (s.scale(pb.ones(1)), s.step(o)), AssertionError, "No inf checks were re"),
        (lambda s, o: (s.scale(pb.ones(1)), s.update()), AssertionError, "recorded prior to"),
        (
            lambda s, o: (s.scale(pb.ones(1)), s.update(pb.ones(2))),
            AssertionError,
            "new_scale should be a float or a 1-element",
        ),
        (lambda s, o: pb.amp.GradScaler(DEVICE, growth_factor=1.0), AssertionError, "growth"),
        (lambda s, o: pb.amp.GradScaler(DEVICE, backoff_factor=1.0), AssertionError, "backoff"),
    ],
)
def test_misuse(run, error, text):
    _, optimizer, scaler = made()
    with pytest.raises(error, match=text):
        run(scaler, optimizer)


def test_gradients_in_float16_are_refused():
    weight = pb.nn.Parameter(pb.ones(2, dtype=pb.float16))
    optimizer, scaler = SGD([weight]), pb.amp.GradScaler(DEVICE)
    scaler.scale(weight.float().sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(optimizer)


def test_copies_go_on_where_they_were():
    weight, optimizer, scaler = made()
    train(weight, optimizer, scaler)
    other = pickle.loads(pickle.dumps(scaler))
    assert other.state_dict() == scaler.state_dict()
    train(weight, optimizer, other)
    assert other.get_scale() == 16.0
    scaler.load_state_dict(other.state_dict())
    assert scaler.get_scale() == 16.0
    scaler.update(2.0)
    assert scaler.get_scale() == 2.0


def test_nothing_happens_when_it_is_not_enabled():
    weight, optimizer, _ = made()
    scaler = pb.amp.GradScaler(DEVICE, enabled=False)
    train(weight, optimizer, scaler)
    assert weight.tolist() == [-0.5, -0.5]
    assert (scaler.get_scale(), scaler.state_dict(), scaler.is_enabled()) == (1.0, {}, False)
    assert scaler.step(optimizer, closure=lambda: 5) == 5
