"""The base of classes that cannot be made."""

from typing import Any


class LeftOut:
    """Refuse to be made."""

    def __init__(self, *args: Any, **kwargs: Any):
        raise NotImplementedError(
            f"pullback.fx.{type(self).__name__}: symbolic tracing is left out"
        )
