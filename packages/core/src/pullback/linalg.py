"""Linear algebra: ``pullback.linalg``. Its functions come from the op table."""


class LinAlgError(RuntimeError):
    """A matrix has no inverse, or a decomposition does not exist."""
