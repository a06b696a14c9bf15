"""References of discrete Fourier transforms, in NumPy, and of short-time transforms."""


def _dft(np, self, dim, normalization, forward):
    """Sum over the points of each dim, by a matrix of roots of unity."""
    self = self.astype(complex)
    for d in dim:
        count = self.shape[d]
        steps = np.arange(count)
        roots = np.exp((-2j if forward else 2j) * np.pi / count * (np.outer(steps, steps) % count))
        roots = roots / (1, np.sqrt(count), count)[normalization]
        self = np.moveaxis(np.tensordot(roots, self, (1, d)), 0, d)
    return self


def fft_c2c(np, self, dim, normalization, forward):
    return _dft(np, self, dim, normalization, forward)


def fft_r2c(np, self, dim, normalization, forward, onesided):
    full = _dft(np, self, dim, normalization, forward)
    return full.take(range(self.shape[dim[-1]] // 2 + 1), dim[-1]) if onesided else full


def fft_c2r(np, self, dim, normalization, forward, last_dim_size):
    """The other half of the last dim has the conjugates."""
    last = dim[-1]
    self = _dft(np, self, dim[:-1], normalization, forward)
    others = [last_dim_size - k for k in range(last_dim_size // 2 + 1, last_dim_size)]
    full = np.concatenate([self, self.take(others, last).conj()], last)
    ends = [slice(None)] * self.ndim
    for k in {0, last_dim_size // 2} if last_dim_size % 2 == 0 else {0}:
        ends[last] = k
        full[tuple(ends)] = full[tuple(ends)].real
    return _dft(np, full, (last,), normalization, forward).real


def _dims(self, s, dim):
    """Return the dims and sizes of a transform, as torch finds them."""
    if dim is None:
        dim = tuple(range(self.ndim)) if s is None else tuple(range(self.ndim - len(s), self.ndim))
    return dim, [self.shape[d] for d in dim] if s is None else s


def _not_empty(np, self, dim):
    """Put a zero into an empty dim, whose first element NumPy's irfft reads in any case."""
    if self.shape[dim]:
        return self
    shape = list(self.shape)
    shape[dim] = 1
    return np.zeros(shape, self.dtype)


def fft(np, self, n=None, dim=-1, norm=None):
    return np.fft.fft(self, n, dim, norm)


def ifft(np, self, n=None, dim=-1, norm=None):
    return np.fft.ifft(self, n, dim, norm)


def rfft(np, self, n=None, dim=-1, norm=None):
    return np.fft.rfft(self, n, dim, norm)


def irfft(np, self, n=None, dim=-1, norm=None):
    return np.fft.irfft(_not_empty(np, self, dim), n, dim, norm)


def hfft(np, self, n=None, dim=-1, norm=None):
    return np.fft.hfft(_not_empty(np, self, dim), n, dim, norm)


def ihfft(np, self, n=None, dim=-1, norm=None):
    return np.fft.ihfft(self, n, dim, norm)


def fftn(np, self, s=None, dim=None, norm=None):
    dim, s = _dims(self, s, dim)
    return np.fft.fftn(self, s, dim, norm)


def ifftn(np, self, s=None, dim=None, norm=None):
    dim, s = _dims(self, s, dim)
    return np.fft.ifftn(self, s, dim, norm)


def rfftn(np, self, s=None, dim=None, norm=None):
    dim, s = _dims(self, s, dim)
    return np.fft.rfftn(self, s, dim, norm)


def irfftn(np, self, s=None, dim=None, norm=None):
    dim, sizes = _dims(self, s, dim)
    if s is None:
        sizes[-1] = 2 * (sizes[-1] - 1)
    return np.fft.irfftn(_not_empty(np, self, dim[-1]), sizes, dim, norm)


def hfftn(np, self, s=None, dim=None, norm=None):
    """The transform of the conjugate is that with the other sign, divided the other way."""
    norm = {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)
    return irfftn(np, np.conj(self), s, dim, norm)


def ihfftn(np, self, s=None, dim=None, norm=None):
    norm = {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)
    return np.conj(rfftn(np, self, s, dim, norm))


def _framed(np, window, n_fft):
    """The window in the middle of a frame."""
    framed = np.zeros(n_fft, window.dtype)
    start = (n_fft - len(window)) // 2
    framed[start : start + len(window)] = window
    return framed


def stft(
    np,
    self,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    pad_mode="reflect",
    normalized=False,
    onesided=None,
    return_complex=None,
    align_to_window=None,
):
    """A transform of each frame."""
    hop_length = n_fft // 4 if hop_length is None else hop_length
    last = [(0, 0)] * (self.ndim - 1)
    if center:
        self = np.pad(self, [*last, (n_fft // 2, n_fft // 2)], mode=pad_mode)
    if align_to_window:
        missing = n_fft - len(window)
        self = np.pad(self, [*last, (missing // 2, missing - missing // 2)])
    framed = _framed(np, window, n_fft)
    starts = range(0, self.shape[-1] - n_fft + 1, hop_length)
    found = [np.fft.fft(self[..., k : k + n_fft] * framed) for k in starts]
    found = np.stack(found, -1) / (np.sqrt(n_fft) if normalized else 1)
    halved = onesided is not False and not np.iscomplexobj(self)
    return found[..., : n_fft // 2 + 1, :] if halved else found


def istft(
    np,
    self,
    n_fft,
    hop_length=None,
    win_length=None,
    window=None,
    center=True,
    normalized=False,
    onesided=None,
    length=None,
    return_complex=False,
):
    """Frames, multiplied by the window, added, and divided by the sum of squared windows."""
    count = self.shape[-1]
    whole = n_fft + hop_length * (count - 1)
    framed = _framed(np, window, n_fft)
    signal = np.zeros((*self.shape[:-2], whole), complex)
    envelope = np.zeros(whole, framed.dtype)
    for k in range(count):
        spectrum = self[..., k]
        if return_complex:
            frame = np.fft.ifft(spectrum)
        else:
            frame = np.fft.irfft(spectrum[..., : n_fft // 2 + 1], n_fft)
        place = slice(k * hop_length, k * hop_length + n_fft)
        signal[..., place] += frame * framed * (np.sqrt(n_fft) if normalized else 1)
        envelope[place] += framed**2
    start = n_fft // 2 if center else 0
    end = whole - start if length is None else start + length
    signal = (signal / np.where(envelope == 0, 1, envelope))[..., start:end]
    return signal if return_complex else signal.real
