"""Entries of the op table and their signatures.

A signature reads like an annotated Python function::

    sum(self: Tensor, dim: int[]? = None, keepdim: bool = False, *, dtype: dtype? = None) -> Tensor

``Tensor``, ``Tensor?`` (may be None), ``Operand`` (a tensor or a number) and ``Tensor[]`` take part
in recording. An ``int`` or ``float`` arrives as a Python number (with ``?`` or as None); every
other type is looked at by the entry's own code and documents itself. ``Tensor[]!`` is a list whose
tensors the op writes in place.
This package is data: it imports only its own modules, and without compiled code.
"""

import ast
import functools
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

BOOL = 0x001
UNSIGNED = 0x7002
INTEGRAL = 0x703E
HALF = 0x0C0
FLOATING = 0x3C0
FLOAT64 = 0x200
COMPLEX = 0x8C00
ALL = 0xFFFF
NUMBERS = INTEGRAL | FLOATING | COMPLEX
REAL = BOOL | INTEGRAL | FLOATING
FLOAT_COMPLEX = FLOATING | COMPLEX
OPTIONAL = 0xF000  # uint16, uint32, uint64, complex32: few kernels of a backend have them

_OPERANDS = frozenset(("Tensor", "Tensor?", "Tensor[]", "Operand", "Operand?"))
AUTOCAST = (None, "lower", "float32", "dtype", "promote", "off")


class Argument(NamedTuple):
    """One argument of a signature."""

    name: str
    type: str
    default: Any
    required: bool
    keyword_only: bool
    written: bool = False


class Entry(NamedTuple):
    """Everything that defines one op."""

    name: str
    arguments: tuple[Argument, ...]
    returns: str
    forward: str | Callable | None
    composite: str | Callable | None
    compiled: str | None
    kernel: str | None
    results: type | None
    promote: str
    dtypes: int
    vjp: dict
    jvp: str | None
    save: dict | None
    reads_out: Callable | None
    node: str | Callable
    inplace_node: str | Callable | None
    inplace: bool | str
    inplace_function: bool | None
    out: bool
    out_dtype: str
    out_overlap: bool
    view: bool
    overlap: bool
    batch: str
    varargs: bool
    overload: str | None
    operators: tuple[str, ...]
    bool_error: str
    method: bool | str
    function: bool | str
    namespaces: tuple[str, ...]
    aliases: tuple[str, ...]
    elsewhere: tuple[str, ...]
    ref: str | Callable | None
    samples: Callable | Sequence | str | None
    kinks: Sequence
    mpmath: str | Callable | None
    nonderivative_at: Callable | None
    overwrites: bool
    constant: bool
    devices: str
    autocast: tuple[str | Callable | None, str | Callable | None]
    doc: str
    signature: str

    def cases(self) -> Sequence | None:
        """Return the sample calls, which most entries make when asked; None if it lists none."""
        return self.samples() if callable(self.samples) else self.samples


ENTRIES: dict[str, Entry] = {}


def split_arguments(text: str) -> list[str]:
    """Split an argument list at its top-level commas."""
    if "(" not in text and "{" not in text and text.count("[") == text.count("[]"):
        # nearly all; the loop below takes ten times as long
        return [part.strip() for part in text.split(",") if part.strip()]
    parts, depth, current = [], 0, ""
    for character in text:
        depth += character in "([{"
        depth -= character in ")]}"
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    if current.strip():
        parts.append(current.strip())
    return parts


_WORDS = {"None": None, "True": True, "False": False}  # most defaults; a look-up takes a tenth


def _default_of(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if text.removeprefix("-").isdecimal():
        return int(text)
    if text[-1].isdecimal():
        return float(text)
    word = text[1:-1]
    if word.isidentifier() and text in (f"'{word}'", f'"{word}"'):
        return word
    return ast.literal_eval(text)


@functools.cache  # most arguments are those of other ops too
def _parse_argument(text: str, keyword_only: bool) -> Argument:
    declared, equals, default = text.partition("=")
    name, _, kind = declared.partition(":")
    value = _default_of(default.strip()) if equals else None
    kind, written, _ = kind.strip().partition("!")
    return Argument(name.strip(), kind, value, not equals, keyword_only, bool(written))


@functools.cache  # as are many lists of arguments
def _parse_arguments(text: str) -> tuple[Argument, ...]:
    arguments = []
    keyword_only = False
    for part in split_arguments(text):
        if part == "*":
            keyword_only = True
        else:
            arguments.append(_parse_argument(part, keyword_only))
    return tuple(arguments)


def parse_signature(signature: str) -> tuple[str, tuple[Argument, ...], str]:
    """Return name, arguments and result type of a signature."""
    head, _, returns = signature.rpartition("->")
    name, _, rest = head.partition("(")
    return name.strip(), _parse_arguments(rest.rstrip().removesuffix(")")), returns.strip()


def _show_results(self: Any) -> str:
    lines = [f"{name}={value!r}" for name, value in zip(self._fields, self)]
    return f"{type(self).__module__}.{type(self).__name__}(\n" + ",\n".join(lines) + ")"


class result_type:
    """Makes several named results: a namedtuple in ``return_types``, made at first use."""

    made: ClassVar[dict[str, "result_type"]] = {}

    def __init__(self, name: str, *fields: str) -> None:
        self.name, self.fields = name, fields
        self.made[name] = self

    @functools.cached_property
    def type(self) -> Any:
        make: Any = namedtuple
        made = make(self.name, self.fields, module="pullback.return_types")
        made.__repr__ = _show_results
        return made

    def __call__(self, *values: Any) -> Any:
        return self.type(*values)


def camel(name: str) -> str:
    """Return the node name torch gives an op: ``log_softmax`` gives ``LogSoftmaxBackward0``."""
    words = name.partition(".")[0].split("_")
    return "".join([word[:1].upper() + word[1:] for word in words]) + "Backward0"


def op(
    signature: str,
    *,
    forward=None,
    composite=None,
    compiled=None,
    kernel=None,
    results=None,
    promote="default",
    dtypes=ALL,
    vjp=None,
    jvp=None,
    save=None,
    reads_out=None,
    node=None,
    inplace=False,
    inplace_node=None,
    inplace_function=None,
    out=False,
    out_dtype="cast",
    out_overlap=False,
    view=False,
    overlap=False,
    batch=None,
    varargs=False,
    overload=None,
    operators=(),
    bool_error="",
    method=True,
    function=True,
    namespace=("",),
    aliases=(),
    elsewhere=(),
    ref=None,
    samples=None,
    kinks=(),
    mpmath=None,
    nonderivative_at=None,
    overwrites=False,
    constant=False,
    devices="same",
    autocast=None,
    doc="",
):
    """Declare one op; see ``docs/howto/add-an-op.md`` for every field.

    ``forward`` and ``composite`` are Python functions, or name compiled ones; ``compiled`` names
    one that takes the common calls and leaves the rest to the Python function. ``node`` is a name,
    or a function of kept values (named as in formulas) where torch has several names for one op.
    """
    name, arguments, returns = parse_signature(signature)
    if name in ENTRIES:
        raise ValueError(f"the op table has two entries for {name!r}")
    if not function and namespace != ("",):
        raise ValueError(
            f"{name!r} is no function, so it has no namespace {namespace!r}: leave "
            f"out function=False, or name it as `elsewhere`"
        )
    if devices not in ("same", "any"):
        raise ValueError(f"{name!r} has devices={devices!r}: it is 'same' or 'any'")
    if kernel is not None and forward is None and composite is None:
        forward = "elementwise"
    if jvp is None and view:
        jvp = "linear"
    if jvp is None and forward == "elementwise":
        jvp = "pointwise"
    if batch is None:
        batch = "pointwise" if jvp == "pointwise" else "each"
    if "pin_memory:" in signature:
        composite, forward = (
            pinning(name, make, arguments) if callable(make) else make
            for make in (composite, forward)
        )
    if inplace_function is None and inplace is True:  # torch has few of them as functions
        inplace_function = sum([argument.type in _OPERANDS for argument in arguments]) == 1
    ENTRIES[name] = Entry(
        name,
        arguments,
        returns,
        forward,
        composite,
        compiled,
        kernel,
        results,
        promote,
        dtypes,
        vjp or {},
        jvp,
        save,
        reads_out,
        node or camel(name),
        inplace_node,
        inplace,
        inplace_function,
        out,
        out_dtype,
        out_overlap,
        view,
        overlap,
        batch,
        varargs,
        overload,
        operators,
        bool_error,
        method,
        function,
        (namespace,) if isinstance(namespace, str) else tuple(namespace),
        tuple(aliases),
        tuple(elsewhere),
        ref,
        samples,
        tuple([kink._replace(op=name) for kink in kinks]) if kinks else (),
        mpmath,
        nonderivative_at,
        overwrites,
        constant,
        devices,
        autocast_policies(name, autocast, arguments),
        doc.strip(),
        signature,
    )
    return ENTRIES[name]


def autocast_policies(op_name, wanted, arguments):
    """Return the policies of autocast for an op: on the host, and on other devices.

    One policy is that of both. A function of all arguments returns a call's policy.
    """
    if wanted is None:
        return None, None
    policies = wanted if isinstance(wanted, tuple) else (wanted, wanted)
    for policy in policies:
        if callable(policy):
            continue
        if policy not in AUTOCAST and not policy.startswith("error: "):
            raise ValueError(
                f"{op_name!r} has autocast={wanted!r}: a policy is one of "
                f"{', '.join(str(known) for known in AUTOCAST)}, or begins with 'error: '"
            )
        if policy == "dtype" and "dtype" not in [argument.name for argument in arguments]:
            raise ValueError(f"{op_name!r} has autocast='dtype', but no argument 'dtype'")
    return policies


def pinning(op_name, make, arguments):
    """Return what makes a tensor as ``make`` does, in pinned memory where ``pin_memory`` is true.

    As in torch, it says nothing of memory that is there: of ``out``.
    """
    names = [argument.name for argument in arguments]
    pin_memory = names.index("pin_memory")
    requires_grad, out = (
        names.index(name) if name in names else None for name in ("requires_grad", "out")
    )

    def make_there(*values):
        if values[pin_memory] is None:
            return make(*values)
        from pullback.ops.table.compiled import compiled

        compiled("base.errors", "require_bool")(op_name, "pin_memory", values[pin_memory])
        if not values[pin_memory] or (out is not None and values[out] is not None):
            return make(*values)
        plain = list(values)
        if requires_grad is not None:
            plain[requires_grad] = False
        made = compiled("interop.pinned_tensors", "pinned_new")(make(*plain))
        if requires_grad is None or not values[requires_grad]:
            return made
        return compiled("python.tensor_methods", "require_grad_of_new")(made)

    return make_there


class Ops:
    """Ops by name, for entries written in other ops. Filled when the table is bound."""

    def __getattr__(self, name):
        raise AttributeError(f"the op table has no entry {name!r}, or is not bound yet")


ops = Ops()
