"""Linear algebra: ``pullback.linalg``. Its functions come from the op table."""


class LinAlgError(RuntimeError):
    """A matrix has no inverse, or a decomposition does not exist."""


def __getattr__(name):
    from pullback._help.names import missing

    raise missing(__name__, name)
