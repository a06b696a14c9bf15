"""Invalid arguments: extreme numbers, odd tensors, objects with wrong special methods."""

from __future__ import annotations

import fractions
import itertools
import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

import pullback as pb
from pullback.autograd import forward_ad
from pullback.testing.samples import DTYPES, OPTIONAL_DTYPES

__all__ = ["Lie", "Values"]

INTEGERS = (
    0, 1, -1, 2, -2, 3, 5, 7, 64, 65, 1000, -1000, 2**15, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40,
    2**53 + 1, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64, 2**70, -(2**70),
)  # fmt: skip
FLOATS = (
    0.0, -0.0, 0.5, 1.5, -3.25, 1e-3, 5e-324, 1e38, 1e308, -1e308, 2.0**53, math.pi,
    math.inf, -math.inf, math.nan,
)  # fmt: skip
WORDS = (
    "", "mean", "sum", "none", "max", "reflect", "replicate", "constant", "ij,jk->ik", "ij->",
    "...", "a" * 5000, "\0", "\ud800", "same", "valid", "cpu", "meta", "float32", "nuc", "fro",
)  # fmt: skip
_ALL = DTYPES + OPTIONAL_DTYPES
SHAPES = (
    (), (0,), (1,), (2,), (3,), (7,), (2, 3), (3, 2), (3, 3), (0, 3), (3, 0), (1, 1), (5, 1),
    (2, 3, 4), (1, 0, 2), (2, 1, 3), (2, 3, 3), (1, 2, 5, 5), (2, 2, 3, 3), (1, 1, 2, 3, 3),
    (1,) * 8, (33,), (2, 70),
)  # fmt: skip
ENDLESS = 100_000  # elements after which an endless sequence gives up


class Lie(Exception):
    """Raised by an object that was asked for what it pretends to have."""


class Values:
    """Draws arguments; everything follows from the generator."""

    def __init__(self, rng: Random, device: str):
        self.rng = rng
        self.device = device

    def flip(self, share: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < share

    # -- numbers and sequences ---------------------------------------------------------------------

    def integer(self) -> Any:
        """Return an int, often far out of range; at times an object that stands for one."""
        number = self.rng.choice(INTEGERS) if self.flip(0.5) else self.rng.randrange(-4, 6)
        kind = self.rng.random()
        if kind < 0.9:
            return number
        if kind < 0.94:
            return np.int64(max(min(number, 2**63 - 1), -(2**63)))
        return self.liar() if kind < 0.97 else bool(number)

    def number(self) -> Any:
        """Return a number of any kind."""
        make = self.rng.choice((
            self.integer, lambda: self.rng.choice(FLOATS), lambda: self.rng.choice(FLOATS),
            lambda: complex(self.rng.choice(FLOATS), self.rng.choice(FLOATS)),
            lambda: np.float32(self.rng.choice(FLOATS[:7])), lambda: fractions.Fraction(1, 3),
            lambda: self.flip(0.5), self.liar,
        ))  # fmt: skip
        return make()

    def sequence(self) -> Any:
        """Return what may be taken for sizes, dims or a list of tensors."""
        length = self.rng.choice((0, 1, 1, 2, 2, 3, 4, 65))
        make = self.rng.choice((
            lambda: self.integer, lambda: lambda: self.rng.randrange(-1, 5), lambda: self.tensor,
            lambda: self.anything,
        ))()  # fmt: skip
        items = [make() for _ in range(min(length, 4))] * (16 if length == 65 else 1)
        kind = self.rng.random()
        if kind < 0.4:
            return items
        if kind < 0.8:
            return tuple(items)
        if kind < 0.9:
            return self.lying_sequence(items)
        if kind < 0.93:
            return iter(items)
        if kind < 0.96:
            return nested(items, self.rng.choice((1, 2, 70, 2000)))
        return np.array([self.rng.randrange(-2, 5) for _ in range(len(items))], object)

    def lying_sequence(self, items: list[Any]) -> Any:
        """Return a sequence that changes or misstates itself while it is read."""
        kind = self.rng.randrange(6)
        if kind == 0:
            found = Shrinking(items)
            found[:1] = [Index(found.clear)]
            return found
        if kind == 1:
            found = Shrinking(items)
            found.insert(0, Index(lambda: found.extend([1] * 50)))
            return found
        return (Long, Short, Raising, EndlessItems)[kind - 2](items)

    # -- objects with wrong special methods --------------------------------------------------------

    def liar(self) -> Any:
        """Return an object whose special methods raise, change their mind, or give nonsense."""
        names = self.rng.sample(SPECIAL, self.rng.choice((1, 2, 3, 6)))
        answers = {name: self.answer(name) for name in names}
        base = self.rng.choice((object, object, object, int, float, str, tuple, list))
        made = type("Liar", (base,), {name: Answering(name, answers[name]) for name in names})
        return made()

    def answer(self, name: str) -> Callable[[], Any]:
        """Return what a special method does when it is called."""
        kind = self.rng.random()
        if kind < 0.3:
            return raise_lie
        numbers = itertools.cycle([self.rng.choice(INTEGERS) for _ in range(3)])
        if name in ("__index__", "__int__", "__len__", "__hash__"):
            wrong = self.rng.choice((None, "1", 1.5, True))
            return (lambda: next(numbers)) if kind < 0.8 else lambda: wrong
        if name == "__float__":
            return lambda: self.rng.choice((*FLOATS, "x", None))
        if name == "__array__":
            return self.rng.choice((
                lambda: [1, 2], lambda: np.array([object()]), lambda: np.array(["x"]),
                lambda: np.broadcast_to(np.float32(1), (2**20, 2)), lambda: np.zeros((2, 0)),
                lambda: np.array([1.0, 2.0])[::-1], lambda: np.zeros(3, ">i4"),
            ))  # fmt: skip
        if name == "__array_interface__":
            return lambda: self.rng.choice(INTERFACES)
        if name == "shape":
            return lambda: self.rng.choice(((), (2,), (-1,), (2**62, 2**62), "x", None, 3))
        if name == "__class__":
            return lambda: self.rng.choice((pb.Tensor, pb.dtype, pb.device, int, tuple, pb.Size))
        values = (None, 1, "x", (), [1], (1, 0), b"", iter([1, 2]), pb.ones(2))
        return lambda: self.rng.choice(values)

    # -- tensors -----------------------------------------------------------------------------------

    def tensor(self, dtype: Any = None) -> pb.Tensor:
        """Return a tensor of any dtype, layout, device and history."""
        dtype = dtype or self.rng.choice(_ALL)
        made = self.filled(self.rng.choice(SHAPES), dtype)
        return self.changed(made) if self.flip(0.5) else made

    def filled(self, shape: tuple[int, ...], dtype: Any) -> pb.Tensor:
        """Return a tensor of ordinary or extreme elements."""
        count = math.prod(shape)
        if dtype.is_floating_point or dtype.is_complex:
            source = FLOATS if self.flip(0.3) else (0.25, -1.5, 2.0, 3.0)
            array = np.array([self.rng.choice(source) for _ in range(count)])
        elif self.flip(0.3):
            array = np.array([self.rng.choice(INTEGERS[:-8]) for _ in range(count)], np.int64)
        else:
            array = np.array([self.rng.randrange(0, 3) for _ in range(count)], np.int64)
        with np.errstate(all="ignore"):
            made = pb.from_numpy(array.reshape(shape)).to(dtype)
        return made.to(self.device)

    def changed(self, tensor: pb.Tensor) -> pb.Tensor:
        """Return the tensor with an odd layout, device, class or history."""
        change = self.rng.choice(CHANGES)
        try:
            return change(self, tensor)
        except RuntimeError:  # some cannot be combined
            return tensor

    # -- arguments ---------------------------------------------------------------------------------

    def anything(self) -> Any:
        """Return any object at all."""
        return self.rng.choice((
            self.integer, self.number, self.sequence, self.liar, self.tensor, self.tensor,
            self.array, lambda: self.rng.choice(ODDITIES), lambda: self.rng.choice(WORDS),
            lambda: self.rng.choice(_ALL),
        ))()  # fmt: skip

    def array(self) -> Any:
        """Return an array of NumPy, writable or not."""
        array = np.arange(6.0).reshape(2, 3).astype(self.rng.choice(ARRAY_TYPES))
        array.flags.writeable = self.flip(0.5)
        views = (array, array.T, array[::-1], array[:, ::-2], array[:0], array[0, 0])
        return self.rng.choice(views)

    def of_type(self, kind: str) -> Any:
        """Return an argument for a parameter of the op table; it has the right type, often."""
        if self.flip(0.2):
            return self.anything()
        if kind.endswith("?") and self.flip(0.2):
            return None
        makers: dict[str, Callable[[], Any]] = {
            "Tensor": self.tensor,
            "Operand": self.tensor if self.flip(0.6) else self.number,
            "Tensor[]": lambda: [self.tensor() for _ in range(self.rng.randrange(4))],
            "Scalar": self.number,
            "int": self.integer,
            "float": self.number,
            "bool": lambda: self.flip(0.5),
            "int[]": self.sequence,
            "str": lambda: self.rng.choice(WORDS),
            "dtype": lambda: self.rng.choice(_ALL),
            "device": lambda: self.rng.choice(("meta", self.device, "cpu:7", "nowhere")),
            "memory_format": lambda: self.rng.choice(("contiguous_format", pb.channels_last, 3)),
            "layout": lambda: self.rng.choice((None, pb.strided, pb.sparse_coo, "strided")),
        }
        return makers.get(kind.removesuffix("?"), self.anything)()


# ---- objects -------------------------------------------------------------------------------------


def raise_lie() -> Any:
    """Raise what an ordinary object would not."""
    raise Lie("asked")


class Answering:
    """An attribute of a class that answers anew each time, as a method or as a value."""

    def __init__(self, name: str, answer: Callable[[], Any]):
        self.is_value = name in VALUES
        self.answer = answer

    def __get__(self, instance: Any, kind: Any) -> Any:
        if instance is None:
            return self
        return self.answer() if self.is_value else lambda *args, **kwargs: self.answer()


class Index:
    """Stands for 1, and does something when it is asked."""

    def __init__(self, act: Callable[[], Any]):
        self.act = act

    def __index__(self) -> int:
        self.act()
        return 1


class Shrinking(list):
    """A list that its own elements change."""


class Long(tuple):
    """Says that it is longer than it is."""

    __slots__ = ()

    def __len__(self) -> int:
        return tuple.__len__(self) + 5


class Short(list):
    """Says that it is empty."""

    def __len__(self) -> int:
        return 0


class Raising(list):
    """Raises in the middle."""

    def __getitem__(self, key: Any) -> Any:
        raise Lie("item")

    def __iter__(self) -> Any:
        yield from list.__iter__(self)
        raise Lie("iteration")


class EndlessItems:
    """Has an item at every index, though not for ever."""

    def __init__(self, items: list[Any]):
        self.items = items or [1]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int) and key > ENDLESS:
            raise IndexError(key)
        return self.items[0]


class Sub(pb.Tensor):
    """A subclass that adds nothing."""


SPECIAL = (
    "__index__", "__int__", "__len__", "__hash__", "__float__", "__complex__", "__bool__",
    "__getitem__", "__iter__", "__array__", "__array_interface__", "__dlpack__",
    "__dlpack_device__", "__eq__", "__class__", "shape", "dtype", "item", "__torch_function__",
    "__repr__",
)  # fmt: skip
VALUES = ("__array_interface__", "__class__", "shape", "dtype")
INTERFACES: tuple[Any, ...] = (
    None, 3, {}, {"shape": (2,)}, {"shape": (2,), "typestr": "<f4", "version": 3},
    {"shape": (2,), "typestr": "<f4", "data": b"\0", "version": 3},
    {"shape": (-1,), "typestr": "<f4", "data": b"\0" * 8, "version": 3},
    {"shape": (2,), "typestr": "<q9", "data": b"\0" * 8, "version": 3},
    {"shape": (2**62, 8), "typestr": "<f4", "data": b"\0" * 8, "version": 3},
    {"shape": (2,), "typestr": "<f4", "data": b"\0" * 8, "version": 3},
    {"shape": (2,), "typestr": "<f4", "data": b"\0" * 8, "strides": (2**62,), "version": 3},
)  # fmt: skip
ODDITIES: tuple[Any, ...] = (
    None, ..., NotImplemented, slice(None), slice(2, -9, -1), {}, {"dim": 1}, {1, 2}, b"x",
    object(), print, int, pb.Tensor, pb.Size((2, 3)), float, pb.float32, range(3), bytearray(4),
    memoryview(b"abcd"), True, np.float16,
)  # fmt: skip
ARRAY_TYPES = ("f4", "f8", "f2", "i8", "u1", "?", "c8", ">f4", "O", "U3", "M8[s]", "u8", "g")


def nested(items: list[Any], depth: int) -> Any:
    """Return lists in lists; at the end they hold the first, at times."""
    found: Any = items
    for _ in range(depth):
        found = [found]
    if depth == 2:
        items.append(found)
    return found


# ---- odd tensors ---------------------------------------------------------------------------------


def expanded(values: Values, tensor: pb.Tensor) -> pb.Tensor:
    """Many elements in one memory cell."""
    return tensor.detach().unsqueeze(0).expand(values.rng.choice((0, 2, 3)), *tensor.shape)


def overlapping(values: Values, tensor: pb.Tensor) -> pb.Tensor:
    """Elements that share memory in part."""
    strides = values.rng.choice(((1, 1), (2, 1), (1, 2), (0, 1)))
    return values.filled((7,), tensor.dtype).as_strided((3, 3), strides)


def stale_dual(values: Values, tensor: pb.Tensor) -> pb.Tensor:
    """A dual tensor whose level has ended."""
    source = tensor.detach().to(pb.float32)
    with forward_ad.dual_level():
        return forward_ad.make_dual(source, source)


def stale_batched(values: Values, tensor: pb.Tensor) -> pb.Tensor:
    """A batched tensor whose level has ended."""
    escaped = []

    def keep(part: pb.Tensor) -> pb.Tensor:
        escaped.append(part)
        return part

    pb.func.vmap(keep)(pb.stack([tensor.detach()] * 2))
    return escaped[0]


def leaf(values: Values, tensor: pb.Tensor) -> pb.Tensor:
    """A tensor that requires grad, or the result of an op on one."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        tensor = tensor.to(pb.float32)
    made = tensor.detach().requires_grad_()
    return made * 1 if values.flip(0.5) else made


def freed(values: Values, tensor: pb.Tensor) -> pb.Tensor:
    """The result of an op whose graph was freed."""
    made = leaf(values, tensor.real if tensor.is_complex() else tensor).exp()
    made.sum().backward()
    return made


def readonly(values: Values, tensor: pb.Tensor) -> pb.Tensor:
    """Memory that may not be written."""
    array = np.ones((2, 3), np.float32)
    array.flags.writeable = False
    return pb.from_numpy(array)


def made_under_inference(values: Values, tensor: pb.Tensor) -> pb.Tensor:
    """A tensor of inference mode."""
    with pb.inference_mode():
        return tensor.clone()


def odd_bools(values: Values, tensor: pb.Tensor) -> pb.Tensor:
    """Bytes that are no bools, called bools."""
    return pb.from_numpy(np.array([2, 255, 0], np.uint8).view(np.bool_))


CHANGES: tuple[Callable[[Values, pb.Tensor], Any], ...] = (
    expanded, overlapping, stale_dual, stale_batched, leaf, leaf, freed, readonly,
    made_under_inference, odd_bools,
    lambda values, tensor: tensor.to("meta"),
    lambda values, tensor: tensor.to("meta"),
    lambda values, tensor: pb.empty((2**35, 2**18), dtype=tensor.dtype, device="meta"),
    lambda values, tensor: tensor.to("ref"),
    lambda values, tensor: tensor.mT if tensor.ndim > 1 else tensor[::2] if tensor.ndim else tensor,
    lambda values, tensor: tensor.as_subclass(Sub),
    lambda values, tensor: tensor.detach()[..., :0] if tensor.ndim else tensor,
    lambda values, tensor: tensor.resize_(0) if not tensor.requires_grad else tensor,
)  # fmt: skip
