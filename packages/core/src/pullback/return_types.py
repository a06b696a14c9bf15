"""The classes of several named results, as those of ``sort`` and ``linalg.svd``.

Each has the name of its function, ``linalg_svd`` for ``linalg.svd``. They are named tuples whose
``repr`` has a result a line, as torch's.

>>> import pullback as pb
>>> largest = pb.tensor([3.0, 7.0, 5.0]).max(0)
>>> isinstance(largest, pb.return_types.max)
True
>>> largest
pullback.return_types.max(
values=tensor(7.),
indices=tensor(1))
"""

from pullback._help.names import missing
from pullback.ops import result_type


def __getattr__(name: str) -> type[tuple[object, ...]]:
    if name in result_type.made:
        return result_type.made[name].type
    raise missing(__name__, name)


def __dir__() -> list[str]:
    return sorted(name for name in result_type.made if not name.startswith("_"))
