"""Batch and instance normalization, with running statistics."""

from __future__ import annotations

import warnings

import pullback
from pullback.nn import functional as F
from pullback.nn import init
from pullback.nn.modules.lazy import LazyModuleMixin
from pullback.nn.modules.module import Module
from pullback.nn.parameter import Parameter, UninitializedBuffer, UninitializedParameter

__all__ = [
    f"{lazy}{kind}Norm{n}d"
    for lazy in ("", "Lazy")
    for kind in ("Batch", "Instance")
    for n in (1, 2, 3)
]
__all__ += ["SyncBatchNorm"]


class _NormBase(Module):
    """Weight, bias and running statistics of ``num_features`` channels."""

    _version = 2
    __constants__ = ("track_running_stats", "momentum", "eps", "num_features", "affine")

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        options = {"device": device, "dtype": dtype}
        self._make_tensors(affine and bias, options)
        self.reset_parameters()

    def _make_tensors(self, bias, options):
        def parameter():
            return Parameter(pullback.empty(self.num_features, **options))

        self.register_parameter("weight", parameter() if self.affine else None)
        self.register_parameter("bias", parameter() if bias else None)
        if self.track_running_stats:
            self.register_buffer("running_mean", pullback.zeros(self.num_features, **options))
            self.register_buffer("running_var", pullback.ones(self.num_features, **options))
            count = pullback.tensor(0, dtype=pullback.long, device=options["device"])
            self.register_buffer("num_batches_tracked", count)
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)

    def reset_running_stats(self):
        """Set the running mean to 0 and the running variance to 1."""
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self):
        """Set weight to 1, bias to 0 and the running statistics to their first values."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def extra_repr(self):
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, "
            f"affine={self.affine}, bias={self.bias is not None}, "
            f"track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *others):
        if local_metadata.get("version") in (None, 1) and self.track_running_stats:
            # Version 1 did not count the batches.
            key = prefix + "num_batches_tracked"
            count = self.num_batches_tracked
            if key not in state_dict:
                known = count is not None and not count.is_meta
                state_dict[key] = count if known else pullback.tensor(0, dtype=pullback.long)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *others)

    def _check_dims(self, input, *allowed):
        if input.dim() not in allowed:
            wanted = " or ".join(f"{dims}D" for dims in allowed)
            raise ValueError(f"expected {wanted} input (got {input.dim()}D input)")


class _BatchNorm(_NormBase):
    def forward(self, input):
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the mean of all batches
                momentum = 1.0 / float(self.num_batches_tracked)
        by_batch = self.training or (self.running_mean is None and self.running_var is None)
        tracked = not self.training or self.track_running_stats
        return F.batch_norm(
            input,
            self.running_mean if tracked else None,
            self.running_var if tracked else None,
            self.weight,
            self.bias,
            by_batch,
            momentum,
            self.eps,
        )


class BatchNorm1d(_BatchNorm):
    """Normalize each channel of inputs (n, c) or (n, c, l) over all other dims, then scale it.

    (x - mean) / sqrt(var + eps) * weight + bias. In training, mean and variance are those of the
    batch, and running ones move towards them by ``momentum`` (None: their mean over all batches);
    ``eval()`` takes the running ones. ``affine=False`` leaves out weight and bias,
    ``track_running_stats=False`` the running ones. S. Ioffe and C. Szegedy (2015).

    Raises: ValueError for another number of dims.

    >>> import pullback
    >>> layer = pullback.nn.BatchNorm1d(1)
    >>> layer(pullback.tensor([[1.], [3.]])).flatten()
    tensor([-1.0000,  1.0000], grad_fn=<ViewBackward0>)
    >>> layer.running_mean
    tensor([0.2000])
    """

    def _check_input_dim(self, input):
        self._check_dims(input, 2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalize each channel of images (n, c, h, w). See BatchNorm1d.

    >>> import pullback
    >>> pullback.nn.BatchNorm2d(3)(pullback.randn(2, 3, 4, 4)).shape
    pullback.Size([2, 3, 4, 4])
    """

    def _check_input_dim(self, input):
        self._check_dims(input, 4)


class BatchNorm3d(_BatchNorm):
    """Normalize each channel of volumes (n, c, d, h, w). See BatchNorm1d.

    >>> import pullback
    >>> pullback.nn.BatchNorm3d(3)(pullback.randn(2, 3, 2, 2, 2)).shape
    pullback.Size([2, 3, 2, 2, 2])
    """

    def _check_input_dim(self, input):
        self._check_dims(input, 5)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization over the batches of all processes; one process has only its own.

    >>> import pullback
    >>> model = pullback.nn.Sequential(pullback.nn.BatchNorm1d(2))
    >>> pullback.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    Sequential(
      (0): SyncBatchNorm(2, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    )
    """  # noqa: E501

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        process_group=None,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(
            *(num_features, eps, momentum, affine, track_running_stats, device, dtype), bias=bias
        )
        self.process_group = process_group

    def _check_input_dim(self, input):
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    @classmethod
    def convert_sync_batchnorm(cls, module, process_group=None):
        """Return a module with all of its batch normalizations converted to this class."""
        made = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            made = cls(
                *(module.num_features, module.eps, module.momentum, module.affine),
                *(module.track_running_stats, process_group),
                bias=module.bias is not None,
            )
            made.weight, made.bias = module.weight, module.bias
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(made, name, getattr(module, name))
            made.training = module.training
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


# ---- one sample at a time ------------------------------------------------------------------------


class _InstanceNorm(_NormBase):
    _spatial_dims = 0

    def __init__(
        self,
        num_features,
        eps=1e-5,
        momentum=0.1,
        affine=False,
        track_running_stats=False,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(
            *(num_features, eps, momentum, affine, track_running_stats, device, dtype), bias=bias
        )

    def _check_input_dim(self, input):
        self._check_dims(input, self._spatial_dims + 1, self._spatial_dims + 2)

    def forward(self, input):
        self._check_input_dim(input)
        channel_dim = input.dim() - self._spatial_dims - 1
        if input.size(channel_dim) != self.num_features:
            if self.affine:
                raise ValueError(
                    f"expected input's size at dim={channel_dim} to match num_features "
                    f"({self.num_features}), but got: {input.size(channel_dim)}."
                )
            warnings.warn(
                f"input's size at dim={channel_dim} does not match num_features. You can silence "
                "this warning by not passing in num_features, which is not used because "
                "affine=False",
                stacklevel=2,
            )
        batched = input if channel_dim else input.unsqueeze(0)
        result = F.instance_norm(
            batched,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum,
            self.eps,
        )
        return result if channel_dim else result.squeeze(0)


class InstanceNorm1d(_InstanceNorm):
    """Normalize each channel of each sample of inputs (n, c, l) or (c, l). See BatchNorm1d.

    By default it has no weight, bias and running statistics. D. Ulyanov et al. (2016).

    >>> import pullback
    >>> pullback.nn.InstanceNorm1d(1)(pullback.tensor([[1., 3.]]))
    tensor([[-1.0000,  1.0000]])
    """

    _spatial_dims = 1


class InstanceNorm2d(_InstanceNorm):
    """Normalize each channel of each image (n, c, h, w) or (c, h, w). See InstanceNorm1d.

    >>> import pullback
    >>> pullback.nn.InstanceNorm2d(3)(pullback.randn(3, 4, 4)).shape
    pullback.Size([3, 4, 4])
    """

    _spatial_dims = 2


class InstanceNorm3d(_InstanceNorm):
    """Normalize each channel of each volume (n, c, d, h, w) or (c, d, h, w).

    >>> import pullback
    >>> pullback.nn.InstanceNorm3d(3)(pullback.randn(3, 4, 4, 2)).shape
    pullback.Size([3, 4, 4, 2])
    """

    _spatial_dims = 3


# ---- lazy ----------------------------------------------------------------------------------------


class _LazyNormBase(LazyModuleMixin):
    """A normalization that takes ``num_features`` from its first input."""

    def __init__(
        self,
        eps=1e-5,
        momentum=0.1,
        affine=True,
        track_running_stats=True,
        device=None,
        dtype=None,
        *,
        bias=True,
    ):
        super().__init__(0, eps, momentum, False, False, device, dtype)
        self.affine = affine
        self.track_running_stats = track_running_stats
        options = {"device": device, "dtype": dtype}
        if affine:
            self.weight = UninitializedParameter(**options)
            if bias:
                self.bias = UninitializedParameter(**options)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**options)
            self.running_var = UninitializedBuffer(**options)
            self.num_batches_tracked = pullback.tensor(0, dtype=pullback.long, device=device)

    def reset_parameters(self):
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input):
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for name in ("weight", "bias", "running_mean", "running_var"):
            tensor = getattr(self, name)
            if tensor is not None:
                tensor.materialize((self.num_features,))
        self.reset_parameters()


def _lazy(kind, dims):
    """Return the lazy class of a normalization."""
    doc = f"""A {kind.__name__} that takes ``num_features`` from its first input.

    >>> import pullback
    >>> layer = pullback.nn.Lazy{kind.__name__}()
    >>> _ = layer(pullback.randn({", ".join("23" + "4" * dims)}))
    >>> layer.num_features
    3
    """
    attributes = {"cls_to_become": kind, "__module__": __name__, "__doc__": doc}
    return type("Lazy" + kind.__name__, (_LazyNormBase, kind), attributes)


LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = (
    _lazy(kind, n) for n, kind in enumerate((BatchNorm1d, BatchNorm2d, BatchNorm3d), 1)
)
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _lazy(kind, n) for n, kind in enumerate((InstanceNorm1d, InstanceNorm2d, InstanceNorm3d), 1)
)
