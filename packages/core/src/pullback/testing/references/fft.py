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


def fft(np, self, n=None, dim=-1, norm=None):
    return np.fft.fft(self, n, dim, norm)


def ifft(np, self, n=None, dim=-1, norm=None):
    return np.fft.ifft(self, n, dim, norm)


def rfft(np, self, n=None, dim=-1, norm=None):
    return np.fft.rfft(self, n, dim, norm)


def irfft(np, self, n=None, dim=-1, norm=None):
    return np.fft.irfft(self, n, dim, norm)


def hfft(np, self, n=None, dim=-1, norm=None):
    return np.fft.hfft(self, n, dim, norm)


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
    return np.fft.irfftn(self, sizes, dim, norm)


def hfftn(np, self, s=None, dim=None, norm=None):
    """The transform of the conjugate is that with the other sign, divided the other way."""
    norm = {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)
    return irfftn(np, np.conj(self), s, dim, norm)


def ihfftn(np, self, s=None, dim=None, norm=None):
    norm = {None: "forward", "backward": "forward", "forward": "backward"}.get(norm, norm)
    return np.conj(rfftn(np, self, s, dim, norm))
