"""Parameters as one vector."""

from __future__ import annotations

from collections.abc import Iterable

import pullback
from pullback import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def _check_device(device, parameter):
    """Return the device of all parameters so far; None for none."""
    if device is not None and parameter.device != device:
        raise TypeError(
            "Found two parameters on different devices, this is currently not supported."
        )
    return parameter.device


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """Return the elements of all parameters as one vector, which is differentiable.

    Raises: TypeError for parameters on two devices; ValueError for none.

    >>> import pullback
    >>> pullback.nn.utils.parameters_to_vector([pullback.ones(1, 2), pullback.zeros(1)])
    tensor([1., 1., 0.])
    """
    device, parts = None, []
    for parameter in parameters:
        device = _check_device(device, parameter)
        parts.append(parameter.reshape(-1))
    return pullback.cat(parts)


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Let parameters be views of parts of a vector, one after the other.

    Raises: TypeError for what is no tensor, or parameters on two devices; RuntimeError for too
    few elements.

    >>> import pullback
    >>> layer = pullback.nn.Linear(2, 1)
    >>> pullback.nn.utils.vector_to_parameters(pullback.arange(3.0), layer.parameters())
    >>> layer.bias
    Parameter containing:
    tensor([2.], requires_grad=True)
    """
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected pullback.Tensor, but got: {pullback.typename(vec)}")
    device, first = None, 0
    for parameter in parameters:
        device = _check_device(device, parameter)
        count = parameter.numel()
        parameter.data = vec[first : first + count].view_as(parameter).data
        first += count
