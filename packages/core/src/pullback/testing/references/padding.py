"""Padding."""


def _widths(ndim, pad):
    """Return NumPy's list of (before, after), first dim first."""
    ends = list(zip(pad[::2], pad[1::2]))
    return [(0, 0)] * (ndim - len(ends)) + ends[::-1]


def _cut(self, widths):
    """Remove what negative padding removes; return the rest and the padding left to do."""
    key = tuple(slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(self.shape, widths))
    return self[key], [(max(a, 0), max(b, 0)) for a, b in widths]


def constant_pad_nd(np, self, pad, value=0):
    """NumPy's pad, after cutting."""
    cut, widths = _cut(self, _widths(self.ndim, pad))
    return np.pad(cut, widths, constant_values=value) if self.ndim else self


def pad_mirrored(np, self, pad, mode):
    """NumPy's pad; mirrors see what is cut off, wrapping does not."""
    widths = _widths(self.ndim, pad)
    if mode == "circular":
        cut, widths = _cut(self, widths)
        return np.pad(cut, widths, mode="wrap")
    grown = np.pad(
        self,
        [(max(a, 0), max(b, 0)) for a, b in widths],
        mode={"reflect": "reflect", "replicate": "edge"}[mode],
    )
    return _cut(grown, [(min(a, 0), min(b, 0)) for a, b in widths])[0]


def pad_mirrored_backward(np, self, sizes, pad, mode):
    """Follow the number of every element."""
    numbers = pad_mirrored(np, np.arange(int(np.prod(sizes))).reshape(sizes), pad, mode)
    out = np.zeros(int(np.prod(sizes)), self.dtype)
    np.add.at(out, numbers.reshape(-1), self.reshape(-1))
    return out.reshape(sizes)


def pad(np, self, pad, mode="constant", value=None):
    """One of the two."""
    if mode == "constant":
        return constant_pad_nd(np, self, pad, value or 0)
    return pad_mirrored(np, self, pad, mode)
