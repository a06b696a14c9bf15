"""References of torch's lower-level functions of networks.

Each takes the NumPy module first, then the op's arguments with arrays for tensors.
"""

from pullback.testing.references import grid_sample, normalization, pooling


def adaptive_max_pool1d(np, self, output_size):
    """The largest element of each window, and where it is."""
    return pooling.adaptive_max_pool(1, True)(np, self, output_size)


grid_sampler = grid_sample.grid_sampler


def _statistics(np, self, view, dims, shape, eps):
    x = self.reshape(view)
    return x.mean(dims).reshape(shape), (1 / np.sqrt(x.var(dims) + eps)).reshape(shape)


def native_layer_norm(np, self, normalized_shape, weight, bias, eps):
    """Also the mean and the scale of each sample."""
    count = len(normalized_shape)
    shape = (*self.shape[:-count], *(1,) * count)
    out = normalization.layer_norm(np, self, normalized_shape, weight, bias, eps)
    dims = tuple(range(self.ndim - count, self.ndim))
    return out, *_statistics(np, self, self.shape, dims, shape, eps)


def native_group_norm(np, self, weight, bias, N, C, HxW, group, eps):
    """Also the mean and the scale of each group."""
    out = normalization.group_norm(np, self, group, weight, bias, eps)
    view = (N, group, C // group * HxW)
    return out, *_statistics(np, self, view, (2,), (N, group), eps)


def native_batch_norm(np, self, weight, bias, mean, variance, training, momentum, eps):
    """Also the mean and the scale of each channel, in training."""
    out = normalization.batch_norm(np, self, mean, variance, weight, bias, training, momentum, eps)
    if not training:
        return out, np.empty(0), np.empty(0)
    dims = tuple(d for d in range(self.ndim) if d != 1)
    return out, *_statistics(np, self, self.shape, dims, (self.shape[1],), eps)
