"""State dicts as flat lists of names: nested dicts and lists, tensors and plain values."""

from __future__ import annotations

import base64
import enum
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import pullback
from pullback import Tensor
from pullback_distributed.checkpoint.shards import Shard

# A path has a str or int for a key of a dict, and a tuple of one int for a place in a list.
Step = str | int | tuple[int]
Path = tuple[Step, ...]

_SCALARS = (bool, int, str)


class Leaf(NamedTuple):
    """A tensor, shard or plain value of a state dict, and the dict or list that holds it."""

    path: Path
    value: Any
    owner: Any
    key: Any


def name_of(path: Path) -> str:
    """Return the name of a path: its keys and places with points between them."""
    return ".".join(str(step[0] if isinstance(step, tuple) else step) for step in path)


def _holds_more(value: Any) -> bool:
    """Return whether a list or tuple is no plain value: there are tensors or dicts in it."""
    if isinstance(value, (list, tuple)):
        return any(_holds_more(each) for each in value)
    return isinstance(value, (Tensor, Shard, dict))


def is_stateful(value: Any) -> bool:
    """Return whether an object gives and takes a state dict, as modules and optimizers do."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def flatten(caller: str, state: Any) -> dict[str, Leaf]:
    """Return the leaves of a state dict by name. An empty dict is a leaf, also the outermost.

    Raises: TypeError for other types than those that a checkpoint can hold; ValueError for two
    entries of one name.
    """
    if not isinstance(state, dict):
        raise TypeError(
            f"{caller}: expected `state_dict` to be a dict, but got {type(state).__name__}"
        )
    leaves: dict[str, Leaf] = {}

    def visit(path: Path, value: Any, owner: Any, key: Any) -> None:
        if isinstance(value, dict) and value:
            for each, inner in value.items():
                if not isinstance(each, (str, int)) or isinstance(each, (bool, enum.Enum)):
                    raise TypeError(
                        f"{caller}: expected keys to be strings or ints, but got {each!r} in the "
                        f"dict at {name_of(path)!r}"
                    )
                visit((*path, each), inner, value, each)
        elif isinstance(value, (list, tuple)) and _holds_more(value):
            if isinstance(value, tuple):
                raise TypeError(
                    f"{caller}: the tuple at {name_of(path)!r} holds tensors or dicts: make it a "
                    "list, which can be filled in place"
                )
            for place, inner in enumerate(value):
                visit((*path, (place,)), inner, value, place)
        else:
            name = name_of(path)
            if name in leaves:
                raise ValueError(
                    f"{caller}: two entries of `state_dict` are called {name!r}: the paths "
                    f"{list(leaves[name].path)} and {list(path)}"
                )
            leaves[name] = Leaf(path, value, owner, key)

    visit((), state, None, None)
    return leaves


def with_states(state: Any) -> Any:
    """Return a state dict in which objects such as modules are replaced by theirs."""
    if not isinstance(state, dict) or not any(is_stateful(value) for value in state.values()):
        return state
    return {
        key: value.state_dict() if is_stateful(value) else value for key, value in state.items()
    }


def encode(caller: str, name: str, value: Any) -> Any:
    """Return a plain value as JSON can write it.

    Raises: TypeError for other types than None, bool, int, float, complex, str, bytes, dtypes, and
    lists and tuples of those.
    """
    if isinstance(value, enum.Enum):
        pass  # would come back as a number
    elif value is None or type(value) in _SCALARS:
        return value
    elif isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    elif isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    elif type(value) is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    elif isinstance(value, pullback.dtype):
        return {"dtype": value.name}
    elif type(value) is dict or (isinstance(value, dict) and not value):
        return {"dict": []}  # leaves are empty ones
    elif type(value) is list:
        return {"list": [encode(caller, name, each) for each in value]}
    elif type(value) in (tuple, pullback.Size):
        return {"tuple": [encode(caller, name, each) for each in value]}
    raise TypeError(
        f"{caller}: cannot write the value at {name!r}, a {type(value).__name__}: a checkpoint "
        "holds tensors, numbers, strings, bytes, None, and lists and tuples of those"
    )


def decode(value: Any) -> Any:
    """Return what ``encode`` was given.

    Raises: ValueError, TypeError or AttributeError for anything else than ``encode`` returns.
    """
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "float":
        return float(inner)
    if kind == "complex":
        return complex(float(inner[0]), float(inner[1]))
    if kind == "bytes":
        return base64.b64decode(inner)
    if kind == "dtype":
        return dtype_of(inner)
    if kind == "dict":
        return {}
    if kind in ("list", "tuple"):
        made = [decode(each) for each in inner]
        return made if kind == "list" else tuple(made)
    raise ValueError(f"unknown kind of value {kind!r}")


def dtype_of(name: str) -> Any:
    """Return the dtype of a name such as ``"float32"``.

    Raises: ValueError if there is none.
    """
    found = getattr(pullback, name, None)
    if not isinstance(found, pullback.dtype):
        raise ValueError(f"unknown dtype {name!r}")
    return found


def conflict(paths: Iterable[Path]) -> str | None:
    """Return what keeps paths from being those of one nested state dict; else None."""
    paths = list(paths)
    kinds: dict[Path, bool] = {}
    for path in paths:
        for depth, step in enumerate(path):
            listed = isinstance(step, tuple)
            if kinds.setdefault(path[:depth], listed) != listed:
                return f"{name_of(path[:depth])!r} is a list on one rank and a dict on another"
    for path in paths:
        if path in kinds:
            return f"{name_of(path)!r} is a value on one rank and a dict or list on another"
    return None


def nested(items: Iterable[tuple[Path, Any]]) -> Any:
    """Return the nested dicts and lists of values with their paths."""
    root: dict[Any, Any] = {}
    made = {id(root): root}  # the dicts that are made here, not those that are values
    for path, value in items:
        if not path:
            return value
        node = root
        for step in path[:-1]:
            if step not in node:
                node[step] = {}
                made[id(node[step])] = node[step]
            node = node[step]
        node[path[-1]] = value

    def finished(node: Any) -> Any:
        if id(node) not in made:
            return node
        if node and all(isinstance(step, tuple) for step in node):
            return [finished(node[step]) for step in sorted(node)]
        return {step: finished(inner) for step, inner in node.items()}

    return finished(root)
