"""Fourier transforms of the standard: the extension ``fft``.

The dims of ``pullback.fft`` are called axes, and the default of each function is the standard's.
"""

from __future__ import annotations

from importlib import import_module

_fft = import_module("pullback.fft")


def _one_axis(name, meaning):
    transform = getattr(_fft, name)

    def function(x, /, *, n=None, axis=-1, norm="backward"):
        return transform(x, n, axis, norm)

    function.__doc__ = f"""Return the {meaning} along an axis.

    ``n``: the length, to which the elements are cut or padded with zeros. ``norm``: "backward"
    divides the inverse transforms by n, "forward" the others, "ortho" both by the root of n.

    >>> import pullback, pullback.array_api as xp
    >>> xp.fft.{name}(xp.ones(4)).shape == getattr(pullback.fft, "{name}")(xp.ones(4)).shape
    True
    """
    function.__name__ = function.__qualname__ = name
    return function


def _many_axes(name, meaning):
    transform = getattr(_fft, name)

    def function(x, /, *, s=None, axes=None, norm="backward"):
        return transform(x, s, axes, norm)

    function.__doc__ = f"""Return the {meaning} over axes, by default over all.

    ``s``: the lengths, one for each axis. ``norm``: as in ``fft``.

    >>> import pullback, pullback.array_api as xp
    >>> x = xp.ones((2, 4))
    >>> xp.fft.{name}(x).shape == getattr(pullback.fft, "{name}")(x).shape
    True
    """
    function.__name__ = function.__qualname__ = name
    return function


_ONE_AXIS = {
    "fft": "discrete Fourier transform",
    "ifft": "inverse discrete Fourier transform",
    "rfft": "nonnegative frequencies of the transform of real elements",
    "irfft": "real elements whose transform has the given nonnegative frequencies",
    "hfft": "real transform of the first half of elements that are Hermitian",
    "ihfft": "first half of the inverse transform of real elements",
}
_MANY_AXES = {
    "fftn": "discrete Fourier transform",
    "ifftn": "inverse discrete Fourier transform",
    "rfftn": "transform of real elements, nonnegative frequencies of the last axis",
    "irfftn": "real elements whose transform has the given nonnegative frequencies",
}
globals().update({_name: _one_axis(_name, _text) for _name, _text in _ONE_AXIS.items()})
globals().update({_name: _many_axes(_name, _text) for _name, _text in _MANY_AXES.items()})


def fftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """Return the frequencies of a transform of ``n`` samples with distance ``d``, as fft has them.

    >>> import pullback.array_api as xp
    >>> xp.fft.fftfreq(4)
    tensor([ 0.0000,  0.2500, -0.5000, -0.2500])
    """
    return _fft.fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n, /, *, d=1.0, dtype=None, device=None):
    """Return the frequencies of a transform of ``n`` real samples with distance ``d``.

    >>> import pullback.array_api as xp
    >>> xp.fft.rfftfreq(4)
    tensor([0.0000, 0.2500, 0.5000])
    """
    return _fft.rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x, /, *, axes=None):
    """Return ``x`` with the frequency 0 moved to the middle of axes, by default of all.

    >>> import pullback.array_api as xp
    >>> xp.fft.fftshift(xp.arange(4))
    tensor([2, 3, 0, 1])
    """
    return _fft.fftshift(x, axes)


def ifftshift(x, /, *, axes=None):
    """Return ``x`` with the frequency 0 moved back to the front of axes, by default of all.

    >>> import pullback.array_api as xp
    >>> xp.fft.ifftshift(xp.arange(4))
    tensor([2, 3, 0, 1])
    """
    return _fft.ifftshift(x, axes)


__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]
__all__.extend((*_ONE_AXIS, *_MANY_AXES))
