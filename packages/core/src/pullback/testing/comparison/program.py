"""Python programs that show the difference of one op or node."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import inspect
import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from pullback.func._tree import leaves, tree_map
from pullback.testing.comparison.measure import Tolerances, Value, value_of
from pullback.testing.comparison.sides import Seeds, Side
from pullback.testing.comparison.watch import Snapshot

LITERAL = 64  # elements of a tensor that are written as numbers
SEEDS = 3  # that are tried for larger tensors

UNVERIFIED = (
    "Unverified: it ran once before it was shown, on equal inputs, and did not show a difference."
)
PROGRAM = '''"""{title} {does} {second} than on {first}."""

{imports}


def run({parameters}):
{body}


expected = run({of_first})
{call_second}
print("{first}:", expected)
print("{second}:", actual)
pb.testing.assert_close(
    actual, expected, rtol={rtol!r}, atol={atol!r},
    equal_nan=True, check_device=False, check_dtype=False,
)
'''


@dataclasses.dataclass(frozen=True)
class Kept:
    """An operand of an op: the elements of the memory that it spans, its sizes and strides."""

    flat: Value
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # None: row after row
    requires_grad: bool


@dataclasses.dataclass(frozen=True)
class Position:
    """Where a generator stood."""

    seed: int
    offset: int


def kept(value: Any) -> Any:
    """Return an argument with its tensors and generators as they are now."""
    return tree_map(_kept, value)


def _kept(leaf: Any) -> Any:
    if isinstance(leaf, pb.Generator):
        return Position(leaf.initial_seed(), leaf.get_offset())
    if not isinstance(leaf, pb.Tensor):
        return leaf
    if leaf.is_sparse or leaf.device.type == "meta":
        return Kept(value_of(leaf), tuple(leaf.shape), None, False)
    plain = leaf.detach().resolve_conj().resolve_neg()
    shape, strides = tuple(plain.shape), tuple(plain.stride())
    if plain.is_contiguous() or 0 in shape or min(strides, default=0) < 0:
        return Kept(_flat(value_of(plain)), shape, None, leaf.requires_grad)
    span = 1 + sum((size - 1) * step for size, step in zip(shape, strides))
    memory = plain.as_strided((span,), (1,), plain.storage_offset())
    return Kept(value_of(memory), shape, strides, leaf.requires_grad)


def _flat(value: Value) -> Value:
    return value._replace(array=value.array.reshape(-1))


class OpProgram:
    """Writes the program that runs one op on both sides."""

    def __init__(self, sides: tuple[Side, Side], tolerances: Tolerances, number: int):
        self.first, self.second = sides
        self.tolerances = tolerances
        self.snapshot = Snapshot(number, kept)
        self.gradients: list[Value | None] = []
        self.overwrites = False  # its inputs, and that is what the program shows

    def text(self) -> str:
        """Return the program; large inputs are drawn from a seed if that shows the difference.

        It runs once before: one that shows no difference here says so in its first lines.
        """
        tensors = [leaf for leaf in leaves(self.snapshot.args) if isinstance(leaf, Kept)]
        large = [tensor.flat for tensor in tensors if tensor.flat.array.size > LITERAL]
        large += [g for g in self.gradients if g is not None and g.array.size > LITERAL]
        if large and all(value.dtype.is_floating_point for value in large):
            for seed in range(SEEDS):
                text = self.written(seed)
                if _fails(text):
                    return text
        text = self.written(None)
        return text if _fails(text) else text.replace('."""', f'.\n\n{UNVERIFIED}\n"""', 1)

    def written(self, seed: int | None) -> str:
        """Return the program with large inputs drawn from a seed, or without one as saved."""
        writer = _Writer(self.first, self.second, seed)
        arguments = [writer.argument(value) for value in self.snapshot.args]
        body = self.body(writer, _call(self.snapshot.op, arguments, self.snapshot.args))
        if self.snapshot.draws:
            body = ["pb.manual_seed(0)", *body]
        text = "\n".join(f"    {line}" for line in [*writer.lines, *body])
        of_first, of_second = (_arguments_of(side) for side in (self.first, self.second))
        call_second = f"actual = run({of_second})"
        if self.second.compiled:
            call_second = (
                f"compiled = pb.compile(run)\ncompiled({of_second})  # is captured\n"
                f"actual = compiled({of_second})  # is replayed"
            )
        rtol, atol = self.tolerances.of(*writer.dtypes)
        return PROGRAM.format(
            title=self.title(),
            does="leaves other inputs on" if self.overwrites else "computes something else on",
            first=self.first.label,
            second=self.second.label,
            imports=_imports(text),
            parameters="device, dtype" if self.first.dtype is not None else "device",
            body=text,
            of_first=of_first,
            call_second=call_second,
            rtol=rtol,
            atol=atol,
        )

    def title(self) -> str:
        """Return what the program is about."""
        return str(self.snapshot.op.name)

    def body(self, writer: _Writer, call: str) -> list[str]:
        """Return the lines that follow those of the tensors."""
        if self.snapshot.returns_none or self.overwrites:  # it writes lists, or its inputs
            return [call, f"return {', '.join(writer.tensors)}"]
        return [f"return {call}"]


class NodeProgram(OpProgram):
    """Writes the program that runs the backward of one op on both sides."""

    def title(self) -> str:
        """Return what the program is about."""
        return f"The backward of {self.snapshot.op.name}"

    def body(self, writer: _Writer, call: str) -> list[str]:
        """Return the lines that run the op and its backward."""
        wanted = [name for name, tensor in writer.tensors.items() if tensor.requires_grad]
        if self.snapshot.op.is_inplace:  # which no leaf may be written by
            call = re.sub(r"\bt0\b", "t0.clone()", call, count=1)
        gradients = [
            "None"
            if value is None
            else writer.tensor(Kept(_flat(value), value.array.shape, None, False))
            for value in self.gradients
        ]
        return [
            f"wanted = [{', '.join(f'{name}.requires_grad_()' for name in wanted)}]",
            f"results = {call}",
            "results = [results] if isinstance(results, pb.Tensor) else results",
            f"gradients = [{', '.join(gradients)}]",
            "pairs = [(r, g) for r, g in zip(results, gradients) if g is not None]",
            "results, gradients = zip(*pairs)",
            "return pb.autograd.grad(results, wanted, gradients)",
        ]


class _Writer:
    """Writes arguments; tensors become variables ``t0``, ``t1`` and so on."""

    def __init__(self, first: Side, second: Side, seed: int | None):
        self.first = first
        self.second = second
        self.seed = seed
        self.lines: list[str] = []
        self.tensors: dict[str, Kept] = {}
        self.dtypes: list[Any] = []

    def argument(self, value: Any) -> str:
        """Return the text of an argument."""
        if isinstance(value, Kept):
            name = f"t{len(self.tensors)}"
            self.lines.append(f"{name} = {self.tensor(value)}")
            self.tensors[name] = value
            return name
        if isinstance(value, Position):
            self.lines.append("generator = pb.Generator()")
            self.lines.append(f"generator.set_position({value.seed}, {value.offset})")
            return "generator"
        if isinstance(value, tuple | list):
            items = ", ".join(map(self.argument, value))
            if isinstance(value, list):
                return f"[{items}]"
            return f"({items},)" if len(value) == 1 else f"({items})"
        if isinstance(value, pb.device):
            return "device" if value == self.first.device else f"pb.device({str(value)!r})"
        if isinstance(value, float | complex) and not np.isfinite(value):
            return f"{type(value).__name__}({str(value)!r})"
        return re.sub(r"^pullback\.", "pb.", repr(value))

    def tensor(self, tensor: Kept) -> str:
        """Return the expression that makes a tensor."""
        array, dtype, kind_of_tensor = tensor.flat
        self.dtypes.append(dtype)
        if kind_of_tensor == "meta tensor":
            return f'pb.empty({tensor.shape}, dtype=pb.{dtype.name}, device="meta")'
        kind = f"pb.{dtype.name}"
        if self.first.dtype is not None and dtype == self.first.dtype:
            kind = "dtype"
        elif self.first.dtype is not None and dtype == self.first.dtype.to_complex():
            kind = "dtype.to_complex()"
        made = f", dtype={kind}, device=device)"
        if array.size <= LITERAL:
            shaped = array if tensor.strides is not None else array.reshape(tensor.shape)
            text = f"pb.tensor({_numbers(shaped)}{made}"
        else:
            if self.seed is not None and dtype.is_floating_point:
                draw = f"np.random.default_rng([{self.seed}, {len(self.dtypes)}])"
                text = f"pb.tensor({draw}.standard_normal({array.size}){made}"
            else:
                file = io.BytesIO()
                pb.save(pb.tensor(array, dtype=dtype, device=self.first.device), file)
                saved = base64.b85encode(file.getvalue()).decode()
                text = f'pb.load(io.BytesIO(base64.b85decode("{saved}"))).to(device, {kind})'
            if tensor.strides is None:
                text += f".reshape({tensor.shape})"
        if tensor.strides is not None:
            text += f".as_strided({tensor.shape}, {tensor.strides})"
        return text


def _numbers(array: np.ndarray) -> str:
    """Return numbers as nested lists."""
    if array.dtype.kind not in "biu":
        array = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    return _nested(array.tolist())


def _nested(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_nested, value))}]"
    if isinstance(value, complex) and not np.isfinite(value):
        return f"complex({str(value)!r})"
    return repr(value)


def _imports(body: str) -> str:
    """Return the lines that a program begins with."""
    lines = ["import pullback as pb"]
    if "op_by_name(" in body:
        lines.append("from pullback._c.graph.op import op_by_name")
    if "np." in body:
        lines.insert(0, "import numpy as np\n")
    if "base64." in body:
        lines.insert(0, "import base64\nimport io\n")
    lines += [
        f'{name} = float("{name}")' for name in ("nan", "inf") if re.search(rf"\b{name}\b", body)
    ]
    return "\n".join(lines)


def _arguments_of(side: Side) -> str:
    dtype = "" if side.dtype is None else f", pb.{side.dtype.name}"
    return f'"{side.device}"{dtype}'


def _call(op: Any, texts: list[str], values: tuple[Any, ...]) -> str:
    """Return the call of an op, without the arguments that have their default."""
    given = [
        f"{n}={texts[i]}"
        for i, n in enumerate(op.arg_names)
        if i and not _is_default(op, i, values[i])
    ]
    return f"{_path(op)}({', '.join([texts[0], *given])})"


def _is_default(op: Any, position: int, value: Any) -> bool:
    try:
        default = list(inspect.signature(op).parameters.values())[position].default
    except (ValueError, IndexError):
        return False
    return (
        type(default) is type(value)
        and isinstance(value, int | float | str | type(None))
        and default == value
    )


def _path(op: Any) -> str:
    """Return an expression for an op: its public name, or a look-up."""
    homes = {
        "pb": pb,
        "pb.Tensor": pb.Tensor,
        "pb.nn.functional": pb.nn.functional,
        "pb.special": pb.special,
    }
    wanted = op.name
    for name, home in homes.items():
        if getattr(home, wanted, None) is op:
            return f"{name}.{wanted}"
    return f"op_by_name({wanted!r})"


def compiled_op(op: Any, args: tuple[Any, ...]) -> Callable[..., Any]:
    """Return an op as a compiled function of the tensors among its arguments."""

    def call(*tensors: pb.Tensor) -> Any:
        given = iter(tensors)
        values = tree_map(lambda x: next(given) if isinstance(x, pb.Tensor) else x, list(args))
        return op(values[0], **dict(zip(op.arg_names[1:], values[1:])))

    return pb.compile(call)


def _fails(text: str) -> bool:
    """Run a program; returns whether it ends with the difference that it is to show."""
    seeds = Seeds()
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            warnings.catch_warnings(),
            pb.inference_mode(False),
            pb.enable_grad(),
        ):
            warnings.simplefilter("ignore")
            exec(compile(text, "<reproducer>", "exec"), {"__name__": "reproducer"})
    except AssertionError:
        return True
    except Exception:
        return False
    finally:
        seeds.restore()
    return False
