"""Which implementations of ``nn.functional.scaled_dot_product_attention`` may run.

``nn.attention.flex_attention`` is attention with scores and masks of your own.
"""

from __future__ import annotations

import contextlib
import enum

from pullback._help import explain_names as _explain_names
from pullback.ops.rules.attention_backends import allowed_backends, set_allowed_backends

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(enum.IntEnum):
    """Implementations of attention. Here are MATH, by other ops, and FLASH_ATTENTION, by a kernel.

    >>> from pullback.nn.attention import SDPBackend
    >>> SDPBackend.MATH
    <SDPBackend.MATH: 0>
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __str__(self):
        return f"{type(self).__name__}.{self.name}"


@contextlib.contextmanager
def sdpa_kernel(backends, set_priority=False):
    """Allow one implementation of attention, or those of a list, within the ``with`` block.

    Attention without one that is there raises RuntimeError. It is a setting of the whole process.
    ``set_priority`` takes the order of the list as that of preference.

    Raises: AssertionError for what is neither an SDPBackend nor a list of them.

    >>> import pullback
    >>> from pullback.nn.attention import SDPBackend, sdpa_kernel
    >>> x = pullback.ones(1, 2, 3)
    >>> with sdpa_kernel(SDPBackend.MATH):
    ...     pullback.nn.functional.scaled_dot_product_attention(x, x, x).shape
    pullback.Size([1, 2, 3])
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
            f"{type(backends).__name__}"
        )
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    numbers = list(dict.fromkeys(int(backend) for backend in chosen))
    before = allowed_backends()
    if not set_priority:
        numbers = [number for number in before if number in numbers] + [
            number for number in numbers if number not in before
        ]
    set_allowed_backends(tuple(numbers))
    try:
        yield {}
    finally:
        set_allowed_backends(before)


def _find(name):
    if name == "flex_attention":
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    return None


_explain_names(globals(), _find)
