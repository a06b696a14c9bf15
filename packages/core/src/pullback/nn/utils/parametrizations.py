"""Parametrizations of weights: orthogonal matrices, weight and spectral normalization."""

from __future__ import annotations

import pullback
from pullback import Tensor
from pullback.nn.modules.module import Module
from pullback.nn.utils import parametrize
from pullback.nn.utils._matrices import (
    cayley,
    householder_qr,
    is_orthogonal,
    orthogonal_factor,
)
from pullback.nn.utils.spectral_norm import as_matrix, default_dim, iterate, normalize
from pullback.nn.utils.weight_norm import norm_except_dim, normalized

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

_MAPS = ("matrix_exp", "cayley", "householder")


def _weight_of(module, name):
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


# ---- orthogonal ----------------------------------------------------------------------------------


class _Orthogonal(Module):
    """A matrix with orthonormal columns, or rows if these are fewer, of any matrix.

    With ``use_trivialization`` it is ``base`` times the one that the map gives, and ``base`` is
    what was assigned last: M. Lezcano-Casado (2019).
    """

    base: Tensor | None

    def __init__(self, weight, orthogonal_map, *, use_trivialization=True):
        super().__init__()
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def _has_base(self):
        return "base" in self._buffers

    def forward(self, X):
        wide = X.shape[-2] < X.shape[-1]
        if wide:
            X = X.transpose(-2, -1)
        rows, columns = X.shape[-2:]
        if self.orthogonal_map == "householder":
            below = X.tril(-1)
            Q = pullback.linalg.householder_product(
                below, 2.0 / (1.0 + (below * below.conj()).sum(-2))
            )
            # Only the signs of the diagonal count.
            Q = Q * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        else:
            X = X.tril()
            if rows != columns:
                more = X.new_zeros((*X.shape[:-1], rows - columns))
                X = pullback.cat((X, more), -1)
            A = X - X.transpose(-2, -1).conj()
            Q = pullback.linalg.matrix_exp(A) if self.orthogonal_map == "matrix_exp" else cayley(A)
            if rows != columns:
                Q = Q[..., :columns]
        if self._has_base():
            Q = pullback.matmul(self.base, Q)
        return Q.transpose(-2, -1) if wide else Q

    def right_inverse(self, Q):
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of "
                f"shape {Q.shape}."
            )
        given = Q
        with pullback.no_grad():
            wide = Q.shape[-2] < Q.shape[-1]
            if wide:
                Q = Q.transpose(-2, -1)
            if not self._has_base():
                return self._inverse_of_map(Q, wide)
            rows, columns = Q.shape[-2:]
            if rows != columns:
                more = Q.new_empty((*Q.shape[:-1], rows - columns)).normal_()
                Q = pullback.cat((Q, more), -1)
            self.base = Q.clone() if is_orthogonal(Q) else orthogonal_factor(Q)
            # The map gives the identity for this one.
            made = pullback.zeros_like(given)
            made.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
            return made

    def _inverse_of_map(self, Q, wide):
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley "
                "parametrizations when use_trivialization=False."
            )
        made, signs = householder_qr(Q)
        made.diagonal(dim1=-2, dim2=-1).copy_(signs)
        return made.transpose(-2, -1) if wide else made


def orthogonal(module, name="weight", orthogonal_map=None, *, use_trivialization=True):
    """Keep a matrix, or a batch of them, orthogonal: orthonormal columns, or rows if fewer.

    ``orthogonal_map`` is "matrix_exp" (the default for square matrices), "cayley" or "householder"
    (the default for others). With ``use_trivialization`` the map begins at the matrix that was
    assigned last. Returns the module. M. Lezcano-Casado (2019).

    Raises: ValueError for another map, or what is no matrix.

    >>> import pullback
    >>> from pullback import nn
    >>> layer = nn.utils.parametrizations.orthogonal(nn.Linear(4, 2))
    >>> bool((layer.weight @ layer.weight.T - pullback.eye(2)).abs().max() < 1e-5)
    True
    """
    weight = _weight_of(module, name)
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    if orthogonal_map == "householder" and weight.is_complex():
        raise ValueError("The householder parametrization does not support complex tensors.")
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)


# ---- norms ---------------------------------------------------------------------------------------


class _WeightNorm(Module):
    def __init__(self, dim=0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g, weight_v):
        return normalized(weight_v, weight_g, self.dim)

    def right_inverse(self, weight):
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module, name="weight", dim=0):
    """Let a weight be a direction times its norm over all dims but ``dim``; return the module.

    ``original0`` has the norms, ``original1`` the direction. With ``dim=None`` there is one norm.
    State dicts of ``pullback.nn.utils.weight_norm`` load. T. Salimans and D. P. Kingma (2016).

    >>> import pullback
    >>> from pullback import nn
    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 3))
    >>> list(layer.state_dict())[1:]
    ['parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def load_older(state_dict, prefix, *others):
        old = [f"{prefix}{name}_{part}" for part in "gv"]
        if all(key in state_dict for key in old):
            for number, key in enumerate(old):
                new = f"{prefix}parametrizations.{name}.original{number}"
                state_dict[new] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(load_older)
    return module


class _SpectralNorm(Module):
    def __init__(self, weight, n_power_iterations=1, dim=0, eps=1e-12):
        super().__init__()
        dims = weight.ndim
        if dim >= dims or dim < -dims:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[-{dims}, {dims - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + dims
        self.eps = eps
        if dims > 1:
            self.n_power_iterations = n_power_iterations
            matrix = as_matrix(weight.detach(), self.dim)
            for name, size in zip("uv", matrix.shape, strict=True):
                start = normalize(matrix.new_empty(size).normal_(0, 1), eps)
                self.register_buffer(f"_{name}", start)
            self._iterate(matrix, 15)

    def _iterate(self, matrix, count):
        """Write better estimates into u, then v; the hook in ``nn.utils`` begins with v."""
        iterate(matrix.t(), self._v, self._u, count, self.eps)

    def forward(self, weight):
        if weight.ndim == 1:
            return normalize(weight, self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._iterate(matrix, self.n_power_iterations)
        # The next call writes into the buffers while the graph of this one may keep them.
        u, v = self._u.clone(), self._v.clone()
        return weight / pullback.dot(u, pullback.mv(matrix, v))

    def right_inverse(self, value):
        return value


def spectral_norm(module, name="weight", n_power_iterations=1, eps=1e-12, dim=None):
    """Divide a weight by an estimate of its largest singular value; return the module.

    The estimate takes ``n_power_iterations`` steps of the power method whenever the weight is read
    in training. ``dim`` counts outputs: by default 1 in transposed convolutions, else 0. A vector
    is divided by its norm. T. Miyato et al. (2018).

    Raises: ValueError if there is no such tensor, or for less than one step.

    >>> import pullback
    >>> from pullback import nn
    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2), n_power_iterations=30)
    >>> bool((pullback.linalg.svdvals(layer.weight)[0] - 1).abs() < 1e-4)
    True
    """
    weight = _weight_of(module, name)
    made = _SpectralNorm(weight, n_power_iterations, default_dim(module, dim), eps)
    return parametrize.register_parametrization(module, name, made)
