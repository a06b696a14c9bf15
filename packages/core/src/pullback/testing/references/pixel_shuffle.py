"""Channels and pixels exchanged."""


def pixel_shuffle(np, self, factor):
    """Strided writes, block by block."""
    *lead, c, h, w = self.shape
    r = factor
    out = np.zeros((*lead, c // (r * r), h * r, w * r), self.dtype)
    for i in range(r):
        for j in range(r):
            out[..., i::r, j::r] = self[..., i * r + j :: r * r, :, :]
    return out


def pixel_unshuffle(np, self, factor):
    """Strided reads, block by block."""
    *lead, c, h, w = self.shape
    r = factor
    out = np.zeros((*lead, c * r * r, h // r, w // r), self.dtype)
    for i in range(r):
        for j in range(r):
            out[..., i * r + j :: r * r, :, :] = self[..., i::r, j::r]
    return out


def channel_shuffle(np, self, groups):
    """Channel by channel."""
    each = self.shape[1] // groups
    return self[:, [g * each + k for k in range(each) for g in range(groups)]]
