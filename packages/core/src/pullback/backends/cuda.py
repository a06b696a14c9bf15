"""Settings of products and attention on NVIDIA GPUs.

>>> import pullback
>>> pullback.backends.cuda.matmul.allow_tf32 = True
>>> pullback.get_float32_matmul_precision()
'high'
>>> pullback.backends.cuda.matmul.allow_tf32 = False
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from pullback import _context

__all__ = [
    "cudnn_sdp_enabled",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "is_built",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "sdp_kernel",
]


class _Matmul:
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True
    allow_fp16_accumulation = False

    @property
    def allow_tf32(self) -> bool:
        return _context.get_float32_matmul_precision() != "highest"

    @allow_tf32.setter
    def allow_tf32(self, value: bool) -> None:
        _context.set_float32_matmul_precision("high" if value else "highest")


matmul = _Matmul()
_allowed = {"cudnn": True, "flash": True, "math": True, "mem_efficient": True}


def is_built() -> bool:
    """Return whether pullback-cuda is installed; ``pullback.cuda.is_available()`` says more.

    >>> import pullback
    >>> isinstance(pullback.backends.cuda.is_built(), bool)
    True
    """
    from importlib.util import find_spec

    return find_spec("pullback_cuda") is not None


def is_flash_attention_available() -> bool:
    """Return False: attention has one kernel of its own on each device.

    >>> import pullback
    >>> pullback.backends.cuda.is_flash_attention_available()
    False
    """
    return False


def _answer(kind: str) -> Any:
    name = f"{kind}_sdp_enabled"

    def enabled() -> bool:
        return _allowed[kind]

    enabled.__name__ = enabled.__qualname__ = name
    enabled.__doc__ = f"""Return whether ``enable_{kind}_sdp`` allows this kind of attention.

    >>> import pullback
    >>> pullback.backends.cuda.{name}()
    True
    """
    return enabled


def _setter(kind: str) -> Any:
    def enable(enabled: bool) -> None:
        _allowed[kind] = bool(enabled)

    enable.__name__ = enable.__qualname__ = f"enable_{kind}_sdp"
    enable.__doc__ = f"""Allow or forbid this kind of attention; the one kernel runs in any case.

    >>> import pullback
    >>> pullback.backends.cuda.enable_{kind}_sdp(True)
    """
    return enable


cudnn_sdp_enabled, enable_cudnn_sdp = _answer("cudnn"), _setter("cudnn")
flash_sdp_enabled, enable_flash_sdp = _answer("flash"), _setter("flash")
math_sdp_enabled, enable_math_sdp = _answer("math"), _setter("math")
mem_efficient_sdp_enabled, enable_mem_efficient_sdp = (
    _answer("mem_efficient"),
    _setter("mem_efficient"),
)


@contextlib.contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[Any]:
    """Allow some implementations of attention in a ``with`` block: the older ``sdpa_kernel``.

    Warns FutureWarning. Attention raises RuntimeError where none is allowed.

    >>> import pullback, warnings
    >>> x = pullback.ones(1, 2, 3)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", FutureWarning)
    ...     with pullback.backends.cuda.sdp_kernel(enable_flash=False):
    ...         pullback.nn.functional.scaled_dot_product_attention(x, x, x).shape
    pullback.Size([1, 2, 3])
    """
    from pullback.nn.attention import SDPBackend, sdpa_kernel

    warnings.warn(
        "`backends.cuda.sdp_kernel()` is deprecated: use `nn.attention.sdpa_kernel()`",
        FutureWarning,
        stacklevel=3,
    )
    kinds = {
        SDPBackend.FLASH_ATTENTION: enable_flash,
        SDPBackend.EFFICIENT_ATTENTION: enable_mem_efficient,
        SDPBackend.MATH: enable_math,
        SDPBackend.CUDNN_ATTENTION: enable_cudnn,
    }
    with sdpa_kernel([kind for kind, enabled in kinds.items() if enabled]) as allowed:
        yield allowed
