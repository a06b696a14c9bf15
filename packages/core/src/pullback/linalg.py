"""Linear algebra: ``pullback.linalg``. Its functions come from the op table."""

from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from pullback._help import explain_names as _explain_names


class LinAlgError(RuntimeError):
    """A matrix has no inverse, or a decomposition does not exist."""


_explain_names(globals())
if _TYPE_CHECKING:  # of the sources; the stub of a wheel has the functions

    def __getattr__(name: str) -> _Any: ...
