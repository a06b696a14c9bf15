"""Short-time Fourier transforms and their inverse.

Source: D. Griffin, J. Lim, "Signal estimation from modified short-time Fourier transform", 1984.
"""

import warnings

from pullback.ops.fft.transforms import promoted
from pullback.ops.rules.arguments import check_str
from pullback.ops.rules.dtypes import type_name
from pullback.ops.rules.operands import check_all
from pullback.ops.table.primitives_api import new_filled
from pullback.ops.table.samples import T, case, real, references_of
from pullback.ops.table.schema import COMPLEX, FLOATING, HALF, op, ops

references = references_of("fft")

_TAKEN = (FLOATING & ~HALF) | COMPLEX
_LEAST = 1e-11  # envelopes below count as 0
_given_warnings: set[str] = set()


def _warn_once(text):
    if text not in _given_warnings:
        _given_warnings.add(text)
        warnings.warn(text, UserWarning, stacklevel=3)


# -- messages --------------------------------------------------------------------------------------


def _type_text(tensor):
    name = type_name(tensor.dtype)
    return f"CPU{name}Type" if tensor.is_complex() else f"pullback.{name}Tensor"


def _shown(value):
    if hasattr(value, "dtype"):
        return f"{_type_text(value)}{{{list(value.shape)}}}"
    return str(int(value) if isinstance(value, bool) else value)


def _call_text(name, self, **arguments):
    shown = ", ".join(f"{key}={_shown(value)}" for key, value in arguments.items())
    return f"{name}({_type_text(self)}{list(self.shape)}, {shown})"


# -- the transform ---------------------------------------------------------------------------------


def _centered(self, n_fft, pad_mode):
    """Fill both ends with half a frame, so that frames are centred at their times."""
    check_str(pad_mode, "stft", "pad_mode")
    shape = tuple(self.shape)
    wide = self.view((1,) * (3 - len(shape)) + shape)
    filled = ops.pad(wide, (n_fft // 2, n_fft // 2), pad_mode)
    return filled.view(tuple(filled.shape)[len(filled.shape) - len(shape) :])


def _widened(window, n_fft):
    """Put a window into the middle of a frame of zeros."""
    missing = n_fft - window.shape[0]
    return ops.pad(window, (missing // 2, missing - missing // 2)) if missing else window


def _check_frames(self, call, n_fft, hop_length, win_length, window):
    """Raise RuntimeError for a signal without frames of these sizes."""
    length = self.shape[-1]
    wrong = None
    if not 0 < n_fft <= length:
        wrong = f"expected 0 < n_fft < {length}, but got n_fft={n_fft}"
    elif hop_length <= 0:
        wrong = f"expected hop_length > 0, but got hop_length={hop_length}"
    elif not 0 < win_length <= n_fft:
        wrong = f"expected 0 < win_length <= n_fft, but got win_length={win_length}"
    elif window is not None and tuple(window.shape) != (win_length,):
        wrong = (
            f"expected a 1D window tensor of size equal to win_length={win_length}, but got "
            f"window with size {list(window.shape)}"
        )
    if wrong:
        raise RuntimeError(f"{call} : {wrong}")


def _is_complex_result(self, window, return_complex):
    """Return whether `stft` gives complex numbers."""
    if window is None:
        _warn_once(
            "A window was not provided. A rectangular window will be applied,which is known to "
            "cause spectral leakage. Other windows such as pullback.hann_window or "
            "pullback.hamming_window are recommended to reduce spectral leakage.To suppress this "
            "warning and use a rectangular window, explicitly set `window=pullback.ones(n_fft, "
            "device=<device>)`."
        )
    if return_complex is None:
        if not (self.is_complex() or (window is not None and window.is_complex())):
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will "
                "further require that return_complex=True in a future PyTorch release."
            )
        return True
    if not return_complex:
        _warn_once(
            "stft with return_complex=False is deprecated. In a future pytorch release, stft will "
            "return complex tensors for all inputs, and return_complex=False will raise an error.\n"
            "Note: you can still call pullback.view_as_real on the complex output to recover the "
            "old return format."
        )
    return return_complex


def _stft(
    self,
    n_fft,
    hop_length,
    win_length,
    window,
    center,
    pad_mode,
    normalized,
    onesided,
    return_complex,
    align_to_window,
):
    if center and align_to_window is not None:
        raise RuntimeError("stft align_to_window should only be set when center = false")
    if center:
        self = _centered(self, n_fft, pad_mode)
    hop_length = int(n_fft / 4) if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    is_complex_result = _is_complex_result(self, window, return_complex)
    call = _call_text(
        "stft",
        self,
        n_fft=n_fft,
        hop_length=hop_length,
        win_length=win_length,
        window=window,
        normalized=normalized,
        onesided=onesided,
        return_complex=is_complex_result,
        align_to_window=align_to_window,
    )
    if self.dtype.kind not in "fc":
        raise RuntimeError(f"{call} : expected a tensor of floating point or complex values")
    if self.ndim not in (1, 2):
        raise RuntimeError(f"{call} : expected a 1D or 2D tensor")
    _check_frames(self, call, n_fft, hop_length, win_length, window)
    self = promoted(self)
    if align_to_window and win_length < n_fft:
        before = (n_fft - win_length) // 2
        self = ops.pad(self, (before, n_fft - win_length - before))
    frames = ops.unfold_dim(self, -1, n_fft, hop_length)
    if window is not None:
        frames = frames * _widened(window, n_fft)
    if frames.is_complex() and onesided:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    dims = (frames.ndim - 1,)
    if frames.is_complex():
        found = ops.fft_c2c(frames, dims, int(normalized), True)
    else:
        found = ops.fft_r2c(frames, dims, int(normalized), True, onesided in (None, True))
    found = found.transpose(-2, -1)
    return found if is_complex_result else ops.view_as_real(found)


# -- the inverse -----------------------------------------------------------------------------------


def _check_spectrum(self, call, n_fft, hop_length, win_length, window, onesided):
    """Raise RuntimeError for sizes that do not fit each other."""
    size = self.shape[-2]
    wrong = None
    if not self.numel():
        wrong = "input tensor cannot be empty."
    elif self.ndim not in (2, 3):
        wrong = f"expected a tensor with 3 or 4 dimensions, but got {self.ndim + 1}"
    elif size != (n_fft // 2 + 1 if onesided else n_fft):
        half, word = (" / 2 + 1", "True") if onesided else ("", "False")
        wrong = (
            f"expected the frequency dimension (3rd to the last) of the input tensor to match "
            f"n_fft{half} when onesided={word}, but got {size}"
        )
    elif not 0 < hop_length <= win_length:
        wrong = "expected 0 < hop_length <= win_length"
    elif not 0 < win_length <= n_fft:
        wrong = "expected 0 < win_length <= n_fft"
    elif window is not None and tuple(window.shape) != (win_length,):
        wrong = "Invalid window shape. window has to be 1D and length of `win_length`"
    if wrong:
        raise RuntimeError(f"{call} : {wrong}")


def _frames_of(self, n_fft, normalized, onesided, return_complex):
    """Transform each spectrum back to a frame of the signal."""
    self = self.transpose(-2, -1)
    dims, normalization = (self.ndim - 1,), 1 if normalized else 2
    if return_complex:
        if onesided:
            raise RuntimeError("Cannot have onesided output if window or input is complex")
        return ops.fft_c2c(self, dims, normalization, False)
    if not onesided:
        self = self.narrow(-1, 0, n_fft // 2 + 1)
    return ops.fft_c2r(self, dims, normalization, False, n_fft)


def _istft(
    self,
    n_fft,
    hop_length,
    win_length,
    window,
    center,
    normalized,
    onesided,
    length,
    return_complex,
):
    hop_length = int(n_fft / 4) if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    if window is None:
        _warn_once(
            "A window was not provided. A rectangular window will be applied.Please provide the "
            "same window used by stft to make the inversion lossless.To suppress this warning and "
            "use a rectangular window, explicitly set `window=pullback.ones(n_fft, "
            "device=<device>)`."
        )
    if not self.is_complex():
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with "
            "return_complex=True."
        )
    if window is not None and window.is_complex() and not return_complex:
        raise RuntimeError("Complex windows are incompatible with return_complex=False")
    if self.ndim < 2:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-self.ndim - 1}, {self.ndim}], "
            f"but got -3)"
        )
    call = _call_text(
        "istft",
        self,
        n_fft=n_fft,
        hop_length=hop_length,
        win_length=win_length,
        window=window,
        center=center,
        normalized=normalized,
        onesided=onesided,
        length=length,
        return_complex=return_complex,
    )
    onesided = self.shape[-2] != n_fft if onesided is None else onesided
    _check_spectrum(self, call, n_fft, hop_length, win_length, window, onesided)
    frames = _frames_of(self, n_fft, normalized, onesided, return_complex)
    if window is None:
        window = new_filled(self, (win_length,), 1, self.dtype.to_real())
    window = _widened(window, n_fft)
    frames = frames * window
    count = self.shape[-1]
    whole = n_fft + hop_length * (count - 1)
    summed = _overlap_add(frames, whole, n_fft, hop_length)
    envelope = _overlap_add((window * window).expand(count, n_fft), whole, n_fft, hop_length)
    return _cut(summed, envelope, call, n_fft // 2 if center else 0, length)


def _overlap_add(frames, whole, n_fft, hop_length):
    shape = (*frames.shape[:-2], whole)
    return ops.unfold_dim_backward(frames, shape, len(shape) - 1, n_fft, hop_length)


def _cut(summed, envelope, call, start, length):
    """Cut the signal out of the sum of frames, and divide it by that of squared windows."""
    whole = summed.shape[-1]
    end = whole - start if length is None else start + length
    if min(end, whole) <= start:
        raise RuntimeError(
            "min(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
            "reduction dim with the 'dim' argument."
        )
    count = min(end, whole) - start
    envelope = envelope.narrow(-1, start, count)
    error = RuntimeError(f"{call} window overlap add min: 1\n[ CPUBoolType{{}} ]")
    check_all(ops.abs(envelope) >= _LEAST, error)
    signal = summed.narrow(-1, start, count) / envelope
    if end > whole:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded "
            "with zeros in the tail. Please check your center and hop_length settings.",
            UserWarning,
            stacklevel=3,
        )
        signal = ops.pad(signal, (0, end - whole))
    return signal


# -- entries ---------------------------------------------------------------------------------------

op(
    "stft(self: Tensor, n_fft: int, hop_length: int? = None, win_length: int? = None, "
    "window: Tensor? = None, center: bool = True, pad_mode: str = 'reflect', "
    "normalized: bool = False, onesided: bool? = None, return_complex: bool? = None, "
    "align_to_window: bool? = None) -> Tensor",
    autocast=("float32", None),
    composite=_stft,
    dtypes=_TAKEN,
    ref=references.stft,
    samples=lambda: [
        case(T(9), 4, 2, window=real(4), return_complex=True),
        case(T(2, 9), 5, 3, 3, real(3), onesided=False, return_complex=True),
        case(T(8), 4, 1, window=real(4), center=False, normalized=True, return_complex=True),
        case(T(7), 4, window=real(4), pad_mode="constant", return_complex=True),
        case(T(9), 6, 2, 2, real(2), False, return_complex=True, align_to_window=True),
    ],
    doc="Return the Fourier transforms of the frames of signals: of n_fft points, hop_length "
    "apart (by default a quarter of that), multiplied by a window.\n\n"
    "Shape: (length,) or (batch, length) gives (frequencies, frames) or (batch, frequencies, "
    "frames), with n_fft // 2 + 1 frequencies of a real signal and a real window unless `onesided` "
    "is False.\n\n"
    "With `center` frames are centred at their times: `pad_mode` fills the ends. `normalized` "
    "divides by the square root of n_fft. `return_complex=False` gives pairs of real numbers.\n\n"
    "Raises: RuntimeError for sizes that do not fit the signal.",
)
op(
    "istft(self: Tensor, n_fft: int, hop_length: int? = None, win_length: int? = None, "
    "window: Tensor? = None, center: bool = True, normalized: bool = False, "
    "onesided: bool? = None, length: int? = None, return_complex: bool = False) -> Tensor",
    composite=_istft,
    dtypes=COMPLEX,
    ref=references.istft,
    samples=lambda: [
        case(T(3, 4), 4, 2, window=real(4, low=1, high=2)),
        case(T(2, 3, 3), 5, 1, 3, real(3, low=1, high=2), normalized=True),
        case(T(4, 3), 4, 2, window=real(4, low=1, high=2), center=False),
        case(T(4, 3), 4, 2, window=T(4, low=1, high=2), onesided=False, return_complex=True),
        case(T(3, 4), 4, 2, window=real(4, low=1, high=2), length=5),
    ],
    doc="Return the signals of short-time Fourier transforms: the inverse of `stft`, and of "
    "spectra that are those of no signal the one with the nearest.\n\n"
    "Shape: (frequencies, frames) or (batch, frequencies, frames) gives (length,) or "
    "(batch, length).\n\n"
    "Raises: RuntimeError for sizes that do not fit, and where no window reaches a point.",
)
