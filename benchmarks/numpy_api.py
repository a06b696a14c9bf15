"""NumPy under the names by which torch makes tensors, so that operands are declared once."""

from __future__ import annotations

from typing import Any

import numpy as np

__version__ = np.__version__


class Creator:
    """Makes arrays as torch makes tensors: float32 and int64 unless another type is named."""

    def __init__(self, **types: Any) -> None:
        self.generator = np.random.default_rng(0)
        self.__dict__.update(types)  # those that NumPy lacks

    def __getattr__(self, name: str) -> Any:
        """Give everything that has one name in both."""
        return getattr(np, name)

    def manual_seed(self, seed: int) -> None:
        """Begin the random numbers anew."""
        self.generator = np.random.default_rng(seed)

    def randn(self, *shape: int, dtype: Any = np.float32) -> np.ndarray:
        """Return normal numbers; complex ones have variance 1 as well."""
        if np.issubdtype(dtype, np.complexfloating):
            parts = self.generator.normal(scale=0.5**0.5, size=(*shape, 2))
            return (parts[..., 0] + 1j * parts[..., 1]).astype(dtype)
        double = np.dtype(dtype) == np.float64
        return self.generator.standard_normal(shape, np.float64 if double else np.float32)

    def rand(self, *shape: int) -> np.ndarray:
        """Return numbers between 0 and 1."""
        return self.generator.random(shape, np.float32)

    def randint(self, low: int, high: int, shape: tuple[int, ...]) -> np.ndarray:
        """Return integers from low to high, without high."""
        return self.generator.integers(low, high, shape)

    def ones(self, *shape: int) -> np.ndarray:
        """Return ones."""
        return np.ones(shape, np.float32)

    def zeros(self, *shape: int) -> np.ndarray:
        """Return zeros."""
        return np.zeros(shape, np.float32)

    def eye(self, n: int) -> np.ndarray:
        """Return an identity matrix."""
        return np.eye(n, dtype=np.float32)

    def linspace(self, first: float, last: float, n: int) -> np.ndarray:
        """Return evenly spaced numbers."""
        return np.linspace(first, last, n, dtype=np.float32)
