"""``record_sites``: a context manager that records the source lines of ops."""

from __future__ import annotations

import copy
import functools
import sys
import weakref
from collections.abc import Iterable
from contextlib import ContextDecorator
from types import FrameType
from typing import Any, NamedTuple

import numpy

import pullback
from pullback._c.base import state
from pullback._c.base.errors import user_frame
from pullback._c.graph.tensor import Tensor
from pullback.autograd import grad_mode
from pullback.autograd.diagnostics.records import (
    KEY,
    Record,
    Site,
    Sites,
    fresh_number,
    number,
    numbered,
    numbers_of,
    of_thread,
)
from pullback.autograd.function import Function
from pullback.overrides import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    TorchFunctionMode,
)

RECENT = 64  # tensors whose memory a new leaf may share
_LEAF = 2**64 - 1  # the sequence number of nodes that accumulate into leaves
_APPLY = Function.apply.__func__.__code__  # type: ignore[attr-defined]


class record_sites(ContextDecorator):
    """Record the source line of every operation inside, for ``explain_grad``.

    A context manager, whose value is the records, and a decorator; thread-local, and can be nested.
    For each operation it notes the line of the user's code that ran it, the tensors that it took
    and returned, and why its results have no history where an input had one: ``detach``, ``.data``,
    ``no_grad``, a result of integers, a Python number. Nodes made inside have the line in
    ``metadata['site_']``. Records keep no tensor alive. The last block of a thread stays known to
    ``explain_grad`` until the next one begins. Operations run several times slower inside.

    >>> import pullback
    >>> from pullback.autograd.graph import explain_grad, record_sites
    >>> x = pullback.ones(2, requires_grad=True)
    >>> with record_sites() as sites:
    ...     loss = (x.detach() * 2).sum()
    >>> sites
    <Sites: 3 operations>
    >>> explain_grad(x, loss).reason
    'detach'
    """

    def __init__(self) -> None:
        self._open: list[_Mode] = []

    def _recreate_cm(self) -> record_sites:
        return record_sites()  # each call of a decorated function has its own

    def __enter__(self) -> Sites:
        mode = _Mode()
        mode.__enter__()
        self._open.append(mode)
        of_thread.open = (*of_thread.open, mode.sites)
        return mode.sites

    def __exit__(self, *error: Any) -> None:
        mode = self._open.pop()
        mode.__exit__(*error)
        of_thread.open = tuple(sites for sites in of_thread.open if sites is not mode.sites)
        of_thread.last = mode.sites


class _Mode(TorchFunctionMode):
    """Receives the calls of a thread and records those that concern tensors."""

    def __init__(self) -> None:
        self.sites = Sites()
        self.arrays: dict[int, tuple[weakref.ref, int]] = {}  # numbers of arrays, by address
        self.floats: dict[int, tuple[float, int]] = {}  # of what item() returned, by id
        self.aliases: dict[int, tuple[weakref.ref, weakref.ref]] = {}  # of .data, by id
        self.given: list[int] = []  # ids of the tensors that the last call took
        with DisableTorchFunction(), grad_mode.inference_mode(False), grad_mode.enable_grad():
            node = pullback.zeros((), requires_grad=True).clone().grad_fn
        self.first = node._sequence_nr()  # nodes made inside have higher numbers

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = {} if kwargs is None else kwargs
        if func.__name__ == "__get__":  # reading an attribute changes nothing
            result = func(*args, **kwargs)
            if not isinstance(result, Tensor) or func in _functions().unrecorded:
                return result
            given = _tensors(args)
            before = _states_of(given)
        else:
            given = _tensors((*args, *kwargs.values()))
            if func is Tensor.requires_grad_:
                self._note_wrapper(given[0])
            before = _states_of(given)
            result = func(*args, **kwargs)
            if result is NotImplemented:
                return result
        with DisableTorchFunctionSubclass():
            self._compare(func, args, given, before, result)
            self.given = [id(tensor) for tensor in given]
        return result

    def _compare(self, func, args, given, before, result):
        """Find out what a call has returned, written and cut off, and record it."""
        pairs = list(zip(given, before, _states_of(given), strict=True))
        written = [t for t, old, new in pairs if new.version != old.version]
        lost = [t for t, old, new in pairs if old.tracked and not new.tracked]
        returned = [t for t in _tensors((result,)) if not any(t is item for item in given)]
        is_number = func in _functions().numeric
        if returned or written or lost or is_number:
            others = self._known_values(args) if self.arrays or self.floats else ()
            values = self._keep_value(result) if is_number else ()
            self._note(func, given, before, returned, written, lost, others, values)

    def _note_wrapper(self, made):
        """Record a new leaf over the memory of another tensor, as ``nn.Parameter`` makes it."""
        with DisableTorchFunctionSubclass():
            if numbers_of(made) or made.grad_fn is not None or not made.numel():
                return
            for tensor in numbered(self.given, RECENT):
                if tensor is not made and tensor.requires_grad and _share_memory(tensor, made):
                    site, _ = _here()
                    source = number(tensor)
                    kept = Record(
                        type(made).__name__, site, (source,), (number(made),), (source,), ("copy",)
                    )
                    self.sites.records.append(kept)
                    return

    def _keep_value(self, value):
        """Give an array or a float that was made of a tensor a number, which is returned."""
        made = fresh_number()
        if isinstance(value, numpy.ndarray):
            self.arrays[_address(value)] = (weakref.ref(value), made)
        elif isinstance(value, float):
            self.floats[id(value)] = value, made
        return (made,)

    def _aliased(self, written):
        """Return the tensors whose ``.data``, or what detach() returned of them, was written."""
        found = []
        for tensor in written:
            alias, source = self.aliases.get(id(tensor), (lambda: None, lambda: None))
            if alias() is tensor and source() is not None:
                found.append(source())
        return found

    def _known_values(self, args):
        """Return the numbers of arrays and floats among some arguments."""
        found = []
        for value in _flat(args):
            if isinstance(value, numpy.ndarray):
                reference, known = self.arrays.get(_address(value), (lambda: None, 0))
                found.extend([known] if reference() is not None else [])
            elif isinstance(value, float) and id(value) in self.floats:  # not an equal literal
                found.append(self.floats[id(value)][1])
        return found

    def _note(self, func, given, before, returned, written, lost, others, values):
        site, frame = _here()
        tracked = tuple(item.number for item in before if item.tracked)
        inputs = (*(item.number for item in before), *others)
        changed = _with_bases(written)
        behind = self._aliased(written)
        targets = [number(t, renew=True) for t in (*changed, *lost, *behind)]
        outputs = (*map(number, returned), *targets, *values)
        ends: list[str | None] = [None] * len(outputs)
        function = _custom_function(frame)
        if lost or (tracked and function is None):
            ends = [_end(func, t) for t in (*returned, *changed)]
            ends += ["detach"] * len(lost) + ["alias"] * len(behind) + ["number"] * len(values)
        name = _name(func)
        record = Record(name, site, inputs, outputs, tracked, tuple(ends), function)
        self.sites.records.append(record)
        if func in _functions().aliasing and returned:
            self.aliases[id(returned[0])] = weakref.ref(returned[0]), weakref.ref(given[0])
        made = [t for t, end in zip((*returned, *changed), ends, strict=False) if end is None]
        _mark(made, [item.node for item in before], self.first, site)


class _State(NamedTuple):
    """An input before an op."""

    number: int
    tracked: bool
    version: int
    node: Any


def _states_of(tensors: list[Tensor]) -> list[_State]:
    with DisableTorchFunctionSubclass():  # subclasses are not to see what is read here
        return [_state_of(tensor) for tensor in tensors]


def _state_of(tensor: Tensor) -> _State:
    try:
        version = 0 if tensor.is_inference() else tensor._version
        return _State(number(tensor), tensor.requires_grad, version, tensor.grad_fn)
    except RuntimeError:  # of a view, or of a batch, that can no longer be used
        return _State(number(tensor), False, 0, None)


class _Functions(NamedTuple):
    """Functions of three kinds that `record_sites` treats in different ways."""

    unrecorded: frozenset  # attributes that are other tensors, not computed from their owner
    numeric: frozenset  # return numbers, lists or arrays
    makers: frozenset  # make tensors of data
    aliasing: frozenset  # return a tensor over the same memory, without its history


@functools.cache
def _functions() -> _Functions:
    return _Functions(
        frozenset((Tensor.grad.__get__, Tensor._base.__get__)),
        frozenset(
            (
                *(Tensor.item, Tensor.tolist, Tensor.numpy),
                *(Tensor.__float__, Tensor.__int__, Tensor.__complex__),
            )
        ),
        frozenset(
            (
                *(pullback.tensor, pullback.as_tensor, pullback.asarray, pullback.from_numpy),
                *(pullback.full, Tensor.new_tensor, Tensor.__copy__, Tensor.__deepcopy__),
            )
        ),
        frozenset((Tensor.detach, Tensor.data.__get__)),
    )


def _end(func: Any, made: Tensor) -> str | None:
    """Say why a result has no history although an input has one; None if it has one."""
    known = _functions()
    is_new = made.is_leaf and made.requires_grad and made.grad_fn is None
    if made.requires_grad and not is_new:
        return None
    if is_new and func in known.makers:
        return "copy"
    if state.is_inference_mode_enabled():
        return "inference_mode"
    if not state.is_grad_enabled():
        return "no_grad"
    if func in known.makers:
        return "copy"
    if func == Tensor.data.__get__:
        return "data"
    if func is Tensor.detach:
        return "detach"
    if func is pullback.autograd.grad:
        return "no_create_graph"
    if not (made.is_floating_point() or made.is_complex()):
        return "integer"
    return "not_differentiable"


def _here() -> tuple[Site, FrameType]:
    """Return the line of the user that runs an op, and its frame."""
    frame = user_frame() or sys._getframe()
    while frame.f_code.co_filename == copy.__file__ and frame.f_back is not None:
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name), frame


def _share_memory(first: Tensor, second: Tensor) -> bool:
    try:
        return first.numel() == second.numel() and first.data_ptr() == second.data_ptr()
    except RuntimeError:  # of tensors without memory
        return False


def _custom_function(frame: FrameType) -> str | None:
    """Return the custom Function whose ``forward`` a frame is in: its node is made afterwards."""
    above: FrameType | None = frame
    while above is not None:
        if above.f_code is _APPLY:
            return above.f_locals["cls"].__name__
        above = above.f_back
    return None


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among some values, also those in tuples, lists and dicts of them."""
    return [value for value in _flat(values) if isinstance(value, Tensor)]


def _flat(values: Iterable[Any], depth: int = 4) -> Iterable[Any]:
    """Yield some values, and those in tuples, lists and dicts among them."""
    for value in values:
        if depth and isinstance(value, (tuple, list, dict)):
            yield from _flat(value.values() if isinstance(value, dict) else value, depth - 1)
        else:
            yield value


def _address(array: numpy.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _with_bases(tensors: list[Tensor]) -> list[Tensor]:
    """Add the tensors whose memory some tensors are views of."""
    bases = [t._base for t in tensors]
    return [*tensors, *(base for base in bases if base is not None)]


def _name(func: Any) -> str:
    name = func.__name__
    return func.__self__.__name__ if name in ("__get__", "__set__") else name


def _mark(made: list[Tensor], before: list[Any], first: int, site: Site) -> None:
    """Give the nodes of an op's results that are new the op's site."""
    seen = {id(node) for node in before if node is not None}
    waiting = [t.grad_fn for t in made]
    alive = []  # so that no id is used twice
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        alive.append(node)
        if first < node._sequence_nr() < _LEAF and KEY not in node.metadata:
            node.metadata[KEY] = site
            waiting.extend(below for below, _ in node.next_functions)
