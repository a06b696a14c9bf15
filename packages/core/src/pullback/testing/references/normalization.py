"""References of softmax, normalizations, embeddings and attention.

Each takes the NumPy module first, then the op's arguments with arrays for tensors.
"""


def softmax_backward(np, self, output, dim):
    """The product with the Jacobian of softmax."""
    return (
        output * (self - (self * output).sum(dim, keepdims=True))
        if self.ndim
        else (output * (self - self * output))
    )


def log_softmax_backward(np, self, output, dim):
    """The product with the Jacobian of log_softmax."""
    total = self.sum(dim, keepdims=True) if self.ndim else self
    return self - np.exp(output) * total


def normalized(np, self, weight, bias, view, dims, affine, eps, kind=None):
    """Standardize over dims of another shape; also the mean and the variance."""
    x = self.reshape(view)
    mean, variance = x.mean(dims, keepdims=True), x.var(dims, keepdims=True)
    out = ((x - mean) / np.sqrt(variance + eps)).reshape(self.shape)
    return _affine(np, out, weight, bias, affine), mean, variance


def normalize_channels(np, self, mean, scale, weight, bias):
    """By given numbers, in four dims."""
    out = (self - mean[..., None, None]) * scale[..., None, None]
    return out * weight[..., None] + bias[..., None]


def normalize_backward(np, self, source, mean, scale, weight):
    """The gradients of the elements, the weight and the bias."""
    dims = (2, 3) if len(mean) == len(source) else (0, 2, 3)
    unit = (source - mean[..., None, None]) * scale[..., None, None]
    inner = self * weight[..., None]
    gradient = scale[..., None, None] * (
        inner - inner.mean(dims, keepdims=True) - unit * (inner * unit).mean(dims, keepdims=True)
    )
    return gradient, (self * unit).sum((0, 3)), self.sum((0, 3))


def normalize_backward_input(np, self, source, mean, scale, weight):
    """The first of these."""
    return normalize_backward(np, self, source, mean, scale, weight)[0]


def _affine(np, out, weight, bias, shape):
    out = out if weight is None else out * weight.reshape(shape)
    return out if bias is None else out + bias.reshape(shape)


def batch_norm_eval(np, self, weight, bias, mean, variance, shape, eps):
    """Standardize by given numbers."""
    out = (self - mean.reshape(shape)) / np.sqrt(variance.reshape(shape) + eps)
    return _affine(np, out, weight, bias, shape)


def layer_norm(np, self, normalized_shape, weight=None, bias=None, eps=1e-5):
    """Over the last dims."""
    dims = tuple(range(-len(normalized_shape), 0))
    return normalized(np, self, weight, bias, self.shape, dims, tuple(normalized_shape), eps)[0]


def group_norm(np, self, num_groups, weight=None, bias=None, eps=1e-5):
    """Over groups of channels."""
    count, channels = self.shape[:2]
    inner = int(np.prod(self.shape[1:])) // num_groups
    affine = (1, channels) + (1,) * (self.ndim - 2)
    return normalized(np, self, weight, bias, (count, num_groups, inner), (2,), affine, eps)[0]


def batch_norm(
    np, self, mean, variance, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5
):
    """Over everything but the channels, or by given numbers."""
    affine = (1, self.shape[1]) + (1,) * (self.ndim - 2)
    if not training:
        return batch_norm_eval(np, self, weight, bias, mean, variance, affine, eps)
    dims = tuple(d for d in range(self.ndim) if d != 1)
    return normalized(np, self, weight, bias, self.shape, dims, affine, eps)[0]


def instance_norm(
    np,
    self,
    mean=None,
    variance=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """Over the dims behind the channels."""
    affine = (1, self.shape[1]) + (1,) * (self.ndim - 2)
    if not use_input_stats:
        return batch_norm_eval(np, self, weight, bias, mean, variance, affine, eps)
    dims = tuple(range(2, self.ndim))
    return normalized(np, self, weight, bias, self.shape, dims, affine, eps)[0]


def rms_norm(np, self, normalized_shape, weight=None, eps=0.0):
    """By the mean square alone; the default eps does not show."""
    dims = tuple(range(-len(normalized_shape), 0))
    out = self / np.sqrt((self * self).mean(dims, keepdims=True) + eps)
    return out if weight is None else out * weight


def local_response_norm(np, self, size, alpha=1e-4, beta=0.75, k=1.0):
    """Channel by channel."""
    out = np.empty_like(self)
    for c in range(self.shape[1] if self.size else 0):
        low, high = max(c - size // 2, 0), c + (size - 1) // 2 + 1
        total = (self[:, low:high] ** 2).sum(1)
        out[:, c] = self[:, c] / (k + alpha * total / size) ** beta
    return out


def embedding_renorm(np, self, indices, max_norm, norm_type):
    """Row by row."""
    out = self.copy()
    for n in set(indices.ravel().tolist()):
        size = (np.abs(self[n]) ** norm_type).sum() ** (1 / norm_type)
        if size > max_norm:
            out[n] *= max_norm / (size + 1e-7)
    return out


def embedding_bag(
    np,
    self,
    weight,
    offsets=None,
    mode="mean",
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """Bag by bag."""
    if self.ndim == 2:
        bags = [list(range(n * self.shape[1], (n + 1) * self.shape[1])) for n in range(len(self))]
    else:
        ends = list(offsets[1:]) + ([] if include_last_offset else [len(self)])
        bags = [list(range(a, b)) for a, b in zip(offsets, ends)]
    flat = self.ravel()
    factors = np.ones(len(flat)) if per_sample_weights is None else per_sample_weights.ravel()
    out = np.zeros((len(bags), weight.shape[1]))
    for n, bag in enumerate(bags):
        kept = [position for position in bag if flat[position] != padding_idx]
        if kept:
            rows = weight[flat[kept]] * factors[kept][:, None]
            out[n] = getattr(rows, mode)(0)
    return out


def embedding_bag_top(
    np,
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=0,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """Also the bag of each index, how many a bag has, and the index of the largest row."""
    out = embedding_bag(
        np,
        indices,
        weight,
        offsets,
        ("sum", "mean", "max")[mode],
        per_sample_weights,
        include_last_offset,
        padding_idx,
    )
    count, width = out.shape
    if mode == 0:
        return out, np.zeros(0, int), np.zeros(count, int), np.zeros(count, int)
    ends = list(offsets[1:]) + ([] if include_last_offset else [len(indices)])
    bags = np.concatenate([np.full(b - a, n) for n, (a, b) in enumerate(zip(offsets, ends))])
    sizes = np.bincount(bags.astype(int), minlength=count)
    if mode == 1:
        return out, bags, sizes, sizes
    largest = np.zeros((count, width), int)
    for n, (a, b) in enumerate(zip(offsets, ends)):
        if a < b:
            largest[n] = indices[a:b][weight[indices[a:b]].argmax(0)]
    return out, bags, sizes, largest


def attention(
    np,
    query,
    key,
    value,
    attn_mask=None,
    dropout_p=0.0,
    is_causal=False,
    scale=None,
    enable_gqa=False,
):
    """Queries that see nothing get zeros."""
    if enable_gqa:
        key, value = (_of_heads(np, query, part) for part in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = _scores(np, query, key, attn_mask, is_causal, scale)
    peak = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
    total = weights.sum(-1, keepdims=True)
    return (weights / np.where(total == 0, 1, total)) @ value


def attention_primitive(np, query, key, value, attn_mask, is_causal, scale):
    """The result of attention, and the logarithms of the sums of exponentials."""
    out = attention(np, query, key, value, attn_mask, 0.0, is_causal, scale, query.ndim > 2)
    scores = _scores(np, query, _of_heads(np, query, key), attn_mask, is_causal, scale)
    return out, np.logaddexp.reduce(scores, -1)


def attention_backward(np, g, query, key, value, attn_mask, out, logsumexp, is_causal, scale):
    """The derivatives, for a result and logarithms that may be any."""
    keys, values = (_of_heads(np, query, part) for part in (key, value))
    scores = _scores(np, query, keys, attn_mask, is_causal, scale)
    weights = np.exp(scores - logsumexp[..., None])
    slopes = weights * (g @ np.swapaxes(values, -1, -2) - (g * out).sum(-1, keepdims=True))
    groups = (*key.shape[:-2], _group(query, key))
    return (
        slopes @ keys * scale,
        *(
            (np.swapaxes(left, -1, -2) @ right).reshape((*groups, *part.shape[-2:])).sum(-3)
            for left, right, part in ((slopes, query * scale, key), (weights, g, value))
        ),
    )


def _group(query, part):
    return query.shape[-3] // max(part.shape[-3], 1) if query.ndim > 2 else 1


def _of_heads(np, query, part):
    return np.repeat(part, _group(query, part), -3) if query.ndim > 2 else part


def _scores(np, query, key, attn_mask, is_causal, scale):
    scores = query @ np.swapaxes(key, -1, -2) * scale
    if is_causal:
        attn_mask = np.tri(*scores.shape[-2:], dtype=bool)
    if attn_mask is None:
        return scores
    return np.where(attn_mask, scores, -np.inf) if attn_mask.dtype == bool else scores + attn_mask
