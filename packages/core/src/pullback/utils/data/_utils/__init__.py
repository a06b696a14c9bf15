"""Parts of ``DataLoader``: collation, workers and what they send."""

from pullback.utils.data._utils import collate, fetch, pin_memory, worker
from pullback.utils.data._utils.errors import ExceptionWrapper
from pullback.utils.data._utils.worker import MP_STATUS_CHECK_INTERVAL

__all__ = [
    "MP_STATUS_CHECK_INTERVAL",
    "ExceptionWrapper",
    "collate",
    "fetch",
    "pin_memory",
    "worker",
]
