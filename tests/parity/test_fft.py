"""Values, gradients and errors of Fourier transforms and windows are torch's."""

import inspect
import warnings

import numpy as np
import pytest

import pullback as pb

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
CALLS = (
    *[{"n": n, "norm": norm} for n in (None, 3, 9, 1) for norm in (None, "ortho")],
    {"dim": 0, "norm": "forward"},
    {"n": 4, "dim": 1, "norm": "backward"},
)
CALLS_OF_DIMS = (
    {},
    {"s": (3, 6)},
    {"s": (4, -1), "norm": "ortho"},
    {"dim": (2, 0), "norm": "forward"},
    {"s": (5, 2), "dim": (-1, 1), "norm": "backward"},
)

MISTAKES = (
    "{f}(R(4), 0)",
    "{f}(R(4), -1)",
    "{f}(R(()))",
    "{f}(R(4), dim=2)",
    "{f}(R(4), norm='x')",
    "{f}(R(4), norm=1)",
    "{f}(R(4), 'a')",
    "{f}(R(4), 2.5)",
    "{f}(R(4).half())",
    "{f}(R(4).bfloat16())",
    "{f}(R(4).to(m.complex64), out=m.empty(0, dtype=m.int64))",
    "{f}(R(4), out=m.empty(0))",
    "{f}(R(4), out=m.empty(0, dtype=m.complex64))",
    "{f}2(R(4))",
    "{f}2(R(()))",
    "{f}n(R(()))",
    "{f}n(R(4, 6), dim=(0, 0))",
    "{f}n(R(4, 6), dim=(0, 2))",
    "{f}n(R(4, 6), dim=())",
    "{f}n(R(4, 6), s=(2, 3, 4))",
    "{f}n(R(4, 6), s=(-2, 2))",
    "{f}n(R(4, 6), s=(3,), dim=(0, 1))",
    "{f}2(R(4, 6), out=m.empty(0))",
    "{f}2(R(4, 6).to(m.complex64))",
    "{f}n(R(4, 1))",
)
OTHERS = (
    "fft.fftfreq(-1)",
    "fft.fftfreq(5, dtype=m.int64)",
    "fft.rfftfreq(5, dtype=m.complex64)",
    "fft.fftfreq(2.5)",
    "fft.fftfreq(3, d='a')",
    "fft.fftfreq(4, out=m.empty(0), dtype=m.float64)",
    "fft.fftshift(R(()))",
    "fft.fftshift(R(3, 4), dim=(0, 5))",
    "hann_window(-1)",
    "kaiser_window(2.5)",
    "signal.windows.hann(-1)",
    "signal.windows.gaussian(5, std=0)",
    "signal.windows.exponential(5, center=2)",
    "signal.windows.kaiser(5, beta=-1)",
    "signal.windows.general_cosine(5, a=3)",
    "signal.windows.bartlett(5, dtype=m.float16)",
    "stft(R(2, 20), 8, window=m.ones(8))",
    "stft(R(2, 20), 8, window=m.ones(7), return_complex=True)",
    "stft(R(2, 20), 8, win_length=9, window=m.ones(8), return_complex=True)",
    "stft(R(20), 0, window=m.ones(8), return_complex=True)",
    "stft(R(20), 8, 0, window=m.ones(8), return_complex=True)",
    "stft(R(20), 30, window=m.ones(8), center=False, return_complex=True)",
    "stft(R(20).to(m.complex64), 8, window=m.ones(8), onesided=True)",
    "stft(R(2, 3, 20), 8, window=m.ones(8), return_complex=True)",
    "stft(R(20), 8, window=m.ones(8), align_to_window=True, return_complex=True)",
    "stft(R(20), 8, window=m.ones(8), pad_mode='bad', return_complex=True)",
    "istft(R(5, 9), 8, window=m.ones(8))",
    "istft(C(9), 8, window=m.ones(8))",
    "istft(C(5, 0), 8, window=m.ones(8))",
    "istft(C(2, 3, 5, 9), 8, window=m.ones(8))",
    "istft(C(5, 9), 7, window=m.ones(8))",
    "istft(C(5, 9), 10, window=m.ones(8))",
    "istft(C(5, 9), 8, 9, window=m.ones(8))",
    "istft(C(5, 9), 8, window=m.ones(7))",
    "istft(C(5, 9), 8, window=m.zeros(8))",
    "istft(C(5, 9), 8, window=m.ones(8), return_complex=True)",
    "istft(C(5, 9), 8, window=m.ones(8) + 0j)",
    "istft(C(5, 9), 8, window=m.ones(8), length=0)",
)
STFT = (
    {"n_fft": 8},
    {"n_fft": 7, "hop_length": 3},
    {"n_fft": 8, "win_length": 5, "normalized": True},
    {"n_fft": 8, "onesided": False, "pad_mode": "constant"},
    {"n_fft": 8, "center": False, "win_length": 4, "align_to_window": True},
)
WINDOWS = {
    "hann_window": [(), (False,)],
    "hamming_window": [(), (False, 0.3, 0.2)],
    "blackman_window": [(), (False,)],
    "bartlett_window": [(), (False,)],
    "kaiser_window": [(), (False, 5.0)],
}


def numbers(*shape, is_complex=False):
    draw = np.random.default_rng(3)
    values = draw.standard_normal(shape)
    return values + 1j * draw.standard_normal(shape) if is_complex else values


def both(run, *arrays):
    """Run a function of each library on leaves made of arrays; return results and gradients."""
    found = []
    for m in (pb, torch):
        leaves = [m.tensor(array.tolist(), dtype=getattr(m, array.dtype.name)) for array in arrays]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        result = run(m, *leaves)
        weights = m.arange(float(result.numel()), dtype=m.float64).cos().reshape(result.shape)
        parts = result
        if result.is_complex():
            parts = m.view_as_real(result.resolve_conj()).sum(-1)
        (parts * parts * weights).sum().backward()
        found.append([result, *(leaf.grad for leaf in leaves)])
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
        assert tuple(ours.shape) == tuple(theirs.shape)
        np.testing.assert_allclose(
            ours.detach().numpy(), theirs.detach().resolve_conj().numpy(), atol=1e-11
        )


@pytest.mark.parametrize("name", ONE)
def test_transforms_agree_in_values_and_gradients(name):
    for is_complex in (False, True):
        if is_complex and name in ("rfft", "ihfft"):
            continue
        x = numbers(4, 6, is_complex=is_complex)
        for call in CALLS:
            both(lambda m, x, call=call: getattr(m.fft, name)(x, **call), x)
        x = numbers(3, 4, 6, is_complex=is_complex)
        for call in CALLS_OF_DIMS:
            for full in (name + "2", name + "n") if call else (name + "n",):
                both(lambda m, x, full=full, call=call: getattr(m.fft, full)(x, **call), x)


def outcome(m, text):
    """Return the result of a call, or the class and first line of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            scope = {"m": m, "R": lambda *s: m.ones(*s), "C": lambda *s: m.ones(*s) + 0j}
            found = eval(f"m.{text}", scope)
        except Exception as error:
            text = str(error).splitlines()[0]
            return type(error).__name__, text.replace("torch", "pullback").replace("PyTorch", "")
        return str(found.dtype).replace("torch", "pullback"), tuple(found.shape)


@pytest.mark.parametrize("name", ONE)
def test_mistakes_in_transforms_raise_as_in_torch(name):
    for text in MISTAKES:
        text = "fft." + text.format(f=name)
        assert outcome(pb, text) == outcome(torch, text), text


@pytest.mark.parametrize("text", OTHERS)
def test_mistakes_elsewhere_raise_as_in_torch(text):
    assert outcome(pb, text) == outcome(torch, text)


@pytest.mark.parametrize("call", STFT, ids=str)
def test_short_time_transforms_agree_with_torch(call):
    window = numbers(call.get("win_length", call["n_fft"])) ** 2 + 0.5

    def run(m, x, window):
        return m.stft(x, **call, window=window, return_complex=True)

    both(run, numbers(2, 21), window)
    if call.get("center", True):
        inverse = {key: value for key, value in call.items() if key != "pad_mode"}
        for length in (None, 15):
            both(
                lambda m, x, window, length=length: m.istft(
                    run(m, x, window), **inverse, window=window, length=length
                ),
                numbers(2, 21),
                window,
            )


def test_windows_agree_with_torch():
    for name, calls in WINDOWS.items():
        for count in (0, 1, 2, 5, 8):
            for call in calls:
                ours, theirs = (
                    getattr(m, name)(count, *call, dtype=m.float64) for m in (pb, torch)
                )
                np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-12, err_msg=name)
    for name in torch.signal.windows.__all__:
        ours, theirs = (getattr(m.signal.windows, name) for m in (pb, torch))
        assert list(inspect.signature(ours).parameters) == list(
            inspect.signature(theirs).parameters
        )
        given = {"a": (0.4, 0.3, 0.2)} if name == "general_cosine" else {}
        for count in (0, 1, 2, 5, 8):
            for sym in (True, False):
                np.testing.assert_allclose(
                    ours(count, sym=sym, dtype=pb.float64, **given).numpy(),
                    theirs(count, sym=sym, dtype=torch.float64, **given).numpy(),
                    atol=1e-12,
                    err_msg=f"{name}({count}, sym={sym})",
                )


def test_frequencies_agree_with_torch():
    for name in ("fftfreq", "rfftfreq"):
        for n, d in ((5, 1.0), (4, 0.3), (1, 2.0), (0, 1.0)):
            ours, theirs = (getattr(m.fft, name)(n, d, dtype=m.float64) for m in (pb, torch))
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-15)
