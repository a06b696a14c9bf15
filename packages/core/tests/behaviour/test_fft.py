"""Fourier transforms and windows: arguments, inverses, gradients, warnings."""

import numpy as np
import pytest

import pullback as pb
from pullback.ops.fft import short_time

REFUSED = (
    (lambda: pb.fft.fft(pb.ones(4), 0), RuntimeError, "Invalid number of data points (0)"),
    (lambda: pb.fft.irfft(pb.ones(1)), RuntimeError, "Invalid number of data points (0)"),
    (lambda: pb.fft.fft(pb.ones(())), IndexError, "Dimension specified as -1 but tensor has no"),
    (lambda: pb.fft.fft(pb.ones(4), norm="x"), RuntimeError, 'Invalid normalization mode: "x"'),
    (lambda: pb.fft.fft(pb.ones(4), norm=1), TypeError, "argument 'norm' must be str, not int"),
    (lambda: pb.fft.fft(pb.ones(4).half()), RuntimeError, "Unsupported dtype Half"),
    (lambda: pb.fft.rfft(pb.ones(4) + 0j), RuntimeError, "rfft expects a real input tensor, but"),
    (lambda: pb.fft.rfftn(pb.ones(4), dim=()), RuntimeError, "must transform at least one axis"),
    (lambda: pb.fft.fftn(pb.ones(2, 2), dim=(0, -2)), RuntimeError, "FFT dims must be unique"),
    (lambda: pb.fft.fft2(pb.ones(2, 2), (1,)), RuntimeError, "must have the same length"),
    (lambda: pb.fft.fftn(pb.ones(2), (1, 1)), RuntimeError, "Got shape with 2 values but input"),
    (
        lambda: pb.fft.fft2(pb.ones(2, 2), out=pb.empty(0)),
        RuntimeError,
        "fftn expects a complex output tensor, but got Float",
    ),
    (
        lambda: pb.fft.hfft(pb.ones(4), out=pb.empty(0, dtype=pb.int64)),
        RuntimeError,
        "hfft expects a floating point output tensor, but got Long",
    ),
    (lambda: pb.fft.fftfreq(4, dtype=pb.int32), RuntimeError, "fftfreq requires a floating point"),
    (lambda: pb.hann_window(-1), RuntimeError, "requires non-negative window_length, got"),
    (lambda: pb.signal.windows.hann(-1), ValueError, "requires non-negative window length, got M="),
    (lambda: pb.stft(pb.ones(9), 4, window=pb.ones(4)), RuntimeError, "stft requires the return_c"),
    (
        lambda: pb.stft(pb.ones(2, 9), 4, window=pb.ones(3), return_complex=True),
        RuntimeError,
        "stft(pullback.FloatTensor[2, 13], n_fft=4, hop_length=1, win_length=4, "
        "window=pullback.FloatTensor{[3]}, normalized=0, onesided=None, return_complex=1, "
        "align_to_window=None) : expected a 1D window tensor of size equal to win_length=4, but "
        "got window with size [3]",
    ),
    (
        lambda: pb.istft(pb.ones(3, 4) + 0j, 4, window=pb.zeros(4)),
        RuntimeError,
        "window overlap add min: 1",
    ),
)


@pytest.mark.parametrize(("call", "error", "text"), REFUSED)
def test_wrong_arguments_are_refused(call, error, text):
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("size", [1, 2, 7, 8])
def test_inverses_give_the_signal_again(norm, size):
    x = pb.from_numpy(np.random.default_rng(1).standard_normal((3, size)))
    z = x + 1j * x.flip(1)
    for there, back, signal in (
        (pb.fft.fft(z, norm=norm), pb.fft.ifft, z),
        (pb.fft.ifft2(z, norm=norm), pb.fft.fft2, z),
        (pb.fft.fftn(x, norm=norm), pb.fft.ifftn, x),
    ):
        assert pb.allclose(back(there, norm=norm), signal.to(pb.complex128))
    for there, back in ((pb.fft.rfft, pb.fft.irfft), (pb.fft.ihfftn, pb.fft.hfftn)):
        sizes = size if there is pb.fft.rfft else (3, size)
        assert pb.allclose(back(there(x, norm=norm), sizes, norm=norm), x)


def test_gradients_of_halves_count_conjugate_pairs_twice():
    """Parseval: the energy of a signal is that of its spectrum, so its gradient is 2 n x."""
    for size in (5, 6):
        x = pb.arange(1.0, size + 1, dtype=pb.float64, requires_grad=True)
        half = pb.fft.rfft(x)
        weights = pb.full((size // 2 + 1,), 2.0, dtype=pb.float64)
        weights[0] = 1
        if size % 2 == 0:
            weights[-1] = 1
        (weights * half.abs().square()).sum().backward()
        assert pb.allclose(x.grad, 2 * size * x.detach())


def test_names_of_nodes_are_those_of_torch():
    x = pb.ones(4, requires_grad=True)
    assert pb.fft.rfft(x).grad_fn.name() == "FftR2CBackward0"
    assert pb.fft.fft(x + 0j).grad_fn.name() == "FftC2CBackward0"
    assert pb.fft.irfft(x + 0j).grad_fn.name() == "FftC2RBackward0"


def test_out_is_resized_and_takes_a_wider_dtype():
    out = pb.empty(0, dtype=pb.complex128)
    assert pb.fft.fft(pb.tensor([1.0, 2.0]), out=out) is out
    assert out.tolist() == [3, -1]


def test_short_time_transform_is_inverted_where_windows_overlap():
    x = pb.from_numpy(np.random.default_rng(2).standard_normal((2, 50)))
    window = pb.hann_window(12, dtype=pb.float64)
    spectrum = x.stft(16, 3, 12, window, return_complex=True)
    assert spectrum.shape == (2, 9, 17)
    assert pb.allclose(spectrum.istft(16, 3, 12, window), x[:, :48])
    with pytest.warns(UserWarning, match="The length of signal is shorter than"):
        found = pb.istft(spectrum, 16, 3, window=pb.ones(16), length=70)
    assert found.shape == (2, 70)
    assert not found[:, 56:].any()


def test_short_time_transform_warns_once_without_a_window(monkeypatch):
    monkeypatch.setattr(short_time, "_given_warnings", set())
    x = pb.ones(9)
    with pytest.warns(UserWarning, match="A window was not provided"):
        spectrum = pb.stft(x, 4, return_complex=True)
    with pytest.warns(UserWarning, match="return_complex=False is deprecated"):
        assert pb.stft(x, 4, return_complex=False).equal(pb.view_as_real(spectrum))
    pb.stft(x, 4, return_complex=True)


def test_windows_of_signals_are_those_of_the_formulas():
    k = np.arange(6)
    windows = pb.signal.windows
    for found, expected in (
        (windows.cosine(6), np.sin(np.pi * (k + 0.5) / 6)),
        (windows.exponential(6, tau=2.0), np.exp(-np.abs(k - 2.5) / 2)),
        (windows.exponential(6, center=1, sym=False), np.exp(-np.abs(k - 1.0))),
        (windows.gaussian(6, std=2.0, sym=False), np.exp(-((k - 3) ** 2) / 8)),
        (windows.hamming(6), np.hamming(6)),
        (windows.kaiser(6, beta=3.0), np.kaiser(6, 3)),
        (windows.bartlett(6, sym=False), np.bartlett(7)[:6]),
        (windows.blackman(1), np.ones(1)),
        (windows.hann(0), np.ones(0)),
    ):
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-7)
    assert windows.hann(3, dtype=pb.float64, requires_grad=True).requires_grad
