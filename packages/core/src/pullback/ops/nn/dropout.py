"""Dropout of elements or whole channels; the others are scaled up.

Source of alpha dropout: Klambauer et al., "Self-normalizing neural networks", 2017.
"""

import warnings

from pullback.ops.rules.dtypes import check_dtype, check_takes_floats
from pullback.ops.table.kinks import kink
from pullback.ops.table.samples import T, case
from pullback.ops.table.schema import FLOATING, op, ops

_ALPHA = 1.7580993408473766  # scale * alpha of SELU: what zeroed elements saturate at


def _check(name, p, error=ValueError):
    """Return a probability as a number; torch takes tensors of one element too."""
    if hasattr(p, "item"):
        p = p.item()
    if not isinstance(p, (int, float)):
        raise TypeError(f"{name}(): argument 'p' must be float, not {type(p).__name__}")
    if not 0.0 <= p <= 1.0:
        raise error(f"dropout probability has to be between 0 and 1, but got {p}")
    return p


def _check_floating(self):
    check_dtype("bernoulli_scalar_cpu_", self, "biuf")
    check_takes_floats(self)


def _kept(self, shape, p):
    """Return a random mask that holds with probability 1 - p, in the dtype of self."""
    import pullback

    return (pullback.rand(shape, dtype=self.dtype, device=self.device) >= p).to(self.dtype)


def _by_channel(self):
    """Return the shape of one number per sample and channel."""
    if self.ndim < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return (*self.shape[:2], *(1,) * (self.ndim - 2))


def _drop(self, p, training, inplace, channels=False):
    if not training or p == 0 or not self.numel():
        return self
    _check_floating(self)
    shape = _by_channel(self) if channels else tuple(self.shape)
    scale = ops.zeros_like(self) if p == 1 else _kept(self, shape, p) / (1 - p)
    return ops.mul_(self, scale) if inplace else self * scale


def _dropout(self, p, training, inplace):
    return _drop(self, _check("dropout", p), training, inplace)


_DROPPED = [
    case(T(4, 5)),
    case(T(), 0.2),
    case(T(2, 3), 0.0),
    case(T(2, 3), 1.0),
    case(T(2, 3), 0.5, False),
    case(T(0, 3)),
]
op(
    "dropout(self: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor",
    composite=_dropout,
    method=False,
    namespace="functional",
    dtypes=FLOATING,
    doc="Return self with elements zeroed with probability p and the others scaled by 1 / (1 - p).",
    kinks=[kink([1.0], to=[0.0], p=1.0)],
    samples=_DROPPED,
)


# -- whole channels --------------------------------------------------------------------------------


def _dropout_of(rank):
    """Dropout of channels of `rank` dims, of one sample or of a batch."""
    name = f"dropout{rank}d"
    fitting = {1: (2, 3), 2: (3, 4), 3: (4, 5)}[rank]

    def dropout(self, p, training, inplace):
        p = _check(name, p)
        if rank == 1 and self.ndim not in fitting:
            raise RuntimeError(
                f"{name}: Expected 2D or 3D input, but received a {self.ndim}D "
                f"input. Note that dropout1d exists to provide channel-wise dropout "
                f"on inputs with 1 spatial dimension, a channel dimension, and an "
                f"optional batch dimension (i.e. 2D or 3D inputs)."
            )
        if self.ndim not in fitting:
            warnings.warn(
                f"{name}: Received a {self.ndim}-D input to {name}, which is deprecated "
                f"and will result in an error in a future release. To retain the "
                f"behavior and silence this warning, please use dropout instead.",
                UserWarning,
                stacklevel=2,
            )
        elif rank == 2 and self.ndim == 3:
            warnings.warn(
                "dropout2d: Received a 3D input to dropout2d and assuming that "
                "channel-wise 1D dropout behavior is desired - input is interpreted as "
                "shape (N, C, L), where C is the channel dim.",
                UserWarning,
                stacklevel=2,
            )
        # torch takes the first dim for the batch of images, and of volumes only if there is one
        single = self.ndim == 2 if rank == 1 else rank == 3 and self.ndim == 4
        if not single:
            return _drop(self, p, training, inplace, channels=True)
        out = _drop(self.unsqueeze(0), p, training, inplace, channels=True)
        return self if inplace else out.squeeze(0)

    return dropout


_OF = {
    1: [T(3, 4), T(2, 3, 4)],
    2: [T(1, 3, 2, 2), T(2, 3, 2, 2)],
    3: [T(2, 2, 2, 2), T(2, 2, 1, 2, 2)],
}
for _rank, _draws in _OF.items():
    op(
        f"dropout{_rank}d(self: Tensor, p: float = 0.5, training: bool = True, "
        f"inplace: bool = False) -> Tensor",
        composite=_dropout_of(_rank),
        method=False,
        namespace="functional",
        dtypes=FLOATING,
        doc=f"Return self with whole channels of {_rank} dims zeroed with probability p and the "
        f"others scaled by 1 / (1 - p).",
        samples=[
            *map(case, _draws),
            case(_draws[1], 0.3),
            case(_draws[0], 1.0),
            case(_draws[0], 0.5, False),
        ],
    )


# -- alpha dropout ---------------------------------------------------------------------------------


def _alpha_drop(self, p, training, inplace, channels=False):
    """Zeroed elements get the value at which SELU saturates; mean and variance are kept."""
    if not training or p == 0 or not self.numel():
        return self
    _check_floating(self)
    if p == 1:
        scale, shift = ops.zeros_like(self), 0
    else:
        a = (1 / ((1 - p) * (1 + p * _ALPHA**2))) ** 0.5
        kept = _kept(self, _by_channel(self) if channels else tuple(self.shape), p)
        scale = kept * a
        shift = (kept - 1) * (_ALPHA * a) + _ALPHA * a * p
    if inplace:
        return ops.add_(ops.mul_(self, scale), shift)
    return self * scale + shift


def _alpha_dropout(name, channels):
    def dropout(self, p, training, inplace):
        return _alpha_drop(self, _check(name, p), training, inplace, channels)

    return dropout


for _name, _channels, _what in (
    ("alpha_dropout", False, "elements"),
    ("feature_alpha_dropout", True, "whole channels"),
):
    op(
        f"{_name}(self: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) "
        f"-> Tensor",
        composite=_alpha_dropout(_name, _channels),
        method=False,
        namespace="functional",
        dtypes=FLOATING,
        doc=f"Return self with {_what} set to the value at which SELU saturates with probability "
        f"p, scaled and shifted so that mean and variance stay.",
        samples=lambda: [
            case(T(4, 5), 0.5, True),
            case(T(2, 3, 2), 0.2, True),
            case(T(2, 3), 0.5),
            case(T(2, 3), 1.0, True),
            case(T(2, 3), 0.0, True),
            case(T(0, 3), 0.5, True),
        ],
    )


# -- torch's functions outside nn.functional, where p and train have no defaults -------------------

_FORMS = {
    "dropout": (lambda self, p, train: _drop(self, p, train, False), T(2, 3)),
    "feature_dropout": (lambda self, p, train: _drop(self, p, train, False, True), T(2, 3, 2)),
    "alpha_dropout": (lambda self, p, train: _alpha_drop(self, p, train, False), T(2, 3)),
    "feature_alpha_dropout": (
        lambda self, p, train: _alpha_drop(self, p, train, False, True),
        T(2, 3, 2),
    ),
}
_FORMS |= {
    "dropout_": (lambda self, p, train: _drop(self, p, train, True), T(2, 3)),
    "feature_dropout_": (lambda self, p, train: _drop(self, p, train, True, True), T(2, 3, 2)),
    "alpha_dropout_": (lambda self, p, train: _alpha_drop(self, p, train, True), T(2, 3)),
    "feature_alpha_dropout_": (
        lambda self, p, train: _alpha_drop(self, p, train, True, True),
        T(2, 3, 2),
    ),
}


def _checked(name, make):
    def dropout(self, p, train):
        return make(self, _check(name, p, RuntimeError), train)

    return dropout


for _name, (_make, _draw) in _FORMS.items():
    op(
        f"{_name.rstrip('_')}.top{'_' * _name.endswith('_')}(self: Tensor, p: float, train: bool) "
        f"-> Tensor",
        method=False,
        function=_name,
        composite=_checked(_name, _make),
        dtypes=FLOATING,
        doc=f"Return what nn.functional.{_name.rstrip('_')} does"
        f"{', in place' if _name.endswith('_') else ''}; p and train must be given.",
        samples=[case(_draw, 0.5, True), case(_draw, 0.5, False), case(_draw, 0.0, True)],
    )
