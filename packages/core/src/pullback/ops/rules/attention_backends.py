"""Which implementations of scaled dot product attention may run: those of ``nn.attention``."""

# As torch numbers them. What this library has is MATH, by other ops, and FLASH_ATTENTION, by a
# kernel where the device has one and by other ops elsewhere.
MATH, FLASH_ATTENTION, EFFICIENT_ATTENTION, CUDNN_ATTENTION = range(4)
_ALL = (FLASH_ATTENTION, EFFICIENT_ATTENTION, MATH, CUDNN_ATTENTION)

_allowed: list[tuple[int, ...]] = [_ALL]


def allowed_backends() -> tuple[int, ...]:
    """Return the numbers of what may run, by priority."""
    return _allowed[0]


def set_allowed_backends(numbers: tuple[int, ...]) -> None:
    """Set what may run, in the whole process."""
    _allowed[0] = numbers


def kernels_allowed() -> bool:
    """Return whether the device's kernel may run."""
    return FLASH_ATTENTION in _allowed[0]


def check_backends() -> None:
    """Raise RuntimeError if nothing that is there may run."""
    allowed = _allowed[0]
    if MATH not in allowed and FLASH_ATTENTION not in allowed:
        raise RuntimeError(
            "No viable backend for scaled_dot_product_attention was found. This is likely due to "
            "turning off both the math kernel and the fused kernels."
        )
