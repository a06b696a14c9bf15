"""Write the examples that ``help`` shows: ``python examplegen.py``, with pullback-cpu installed.

An example is the smallest useful sample call of an op's entry, with round numbers, and what it
returns on the devices cpu and ref. Ops in ``BY_HAND`` have an example of their own.
"""

from __future__ import annotations

import json
import sys
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb
from pullback.ops import ENTRIES
from pullback.ops.table.samples import Case, Draw, Dtype
from pullback.testing.draw import draw_array
from pullback.testing.samples import accepts, cases_of

TARGET = Path(__file__).resolve().parents[1] / "src/pullback/_help/examples.json"
DTYPES = (pb.float32, pb.int64, pb.bool, pb.complex64)
LINES, WIDTH = 6, 88  # of an example's result, at most
DEVICES = ("ref", "cpu")
REFUSALS = (AttributeError, RuntimeError, TypeError, ValueError, IndexError, Warning)


MATRIX = "A = pullback.tensor([[2.0, 0.0], [0.0, -3.0]])"
IMAGE = "x = pullback.arange(4.0).reshape(1, 1, 2, 2)"
IMAGES = "x = pullback.randn(1, 3, 8, 8)"
BY_HAND = {
    "conv2d": [
        "x = pullback.randn(1, 3, 8, 8)",
        "weight = pullback.randn(16, 3, 3, 3)",
        "pullback.nn.functional.conv2d(x, weight, padding=1).shape",
    ],
    "einsum": [
        "x = pullback.tensor([[1.0, 2.0], [3.0, 4.0]])",
        "y = pullback.tensor([1.0, -1.0])",
        "pullback.einsum('ij,j->i', x, y)",
    ],
    "embedding": [
        "weight = pullback.tensor([[0.1, 0.2], [1.1, 1.2], [2.1, 2.2]])",
        "pullback.nn.functional.embedding(pullback.tensor([2, 0]), weight)",
    ],
    "embedding_bag": [
        "weight = pullback.tensor([[0.1, 0.2], [1.1, 1.2], [2.1, 2.2]])",
        "indices, offsets = pullback.tensor([2, 0, 1]), pullback.tensor([0, 2])",
        "pullback.nn.functional.embedding_bag(indices, weight, offsets, mode='sum')",
    ],
    "empty": ["pullback.empty(2, 3).shape"],
    "empty_strided": ["pullback.empty_strided((2, 3), (1, 2)).stride()"],
    "float_power_": [
        "x = pullback.tensor([2.0, 3.0], dtype=pullback.float64)",
        "x.float_power_(2)",
    ],
    "grid_sample": [
        IMAGE,
        "grid = pullback.tensor([[[[0.0, 0.0], [-1.0, -1.0]]]])",
        "pullback.nn.functional.grid_sample(x, grid, align_corners=True)",
    ],
    "is_nonzero": ["pullback.is_nonzero(pullback.tensor(2.0))"],
    "linalg_multi_dot": ["x = pullback.eye(2)", "pullback.linalg.multi_dot([x, 2 * x, 3 * x])"],
    "linalg_solve": [MATRIX, "pullback.linalg.solve(A, pullback.tensor([2.0, 6.0]))"],
    "linalg_inv": [MATRIX, "pullback.linalg.inv(A)"],
    "linalg_svd": [MATRIX, "pullback.linalg.svd(A).S"],
    "svd": [MATRIX, "pullback.svd(A).S"],
}
VOLUMES = "x = pullback.randn(1, 3, 8, 8, 8)"
CELL = [
    "x, state = pullback.randn(5, 3), (pullback.zeros(5, 4), pullback.zeros(5, 4))",
    "w_ih, w_hh = pullback.randn(16, 3), pullback.randn(16, 4)",
    "pullback.lstm_cell(x, state, w_ih, w_hh)[0].shape",
]
BY_HAND["lstm_cell"] = CELL
SYMMETRIC = "A = pullback.tensor([[2.0, 1.0], [1.0, 2.0]])"
BY_HAND["linalg_eig"] = [MATRIX, "pullback.linalg.eig(A).eigenvalues.real"]
BY_HAND["linalg_eigvals"] = [MATRIX, "pullback.linalg.eigvals(A).real"]
BY_HAND["linalg_eigh"] = [SYMMETRIC, "pullback.linalg.eigh(A).eigenvalues"]
BY_HAND["linalg_ldl_factor"] = [SYMMETRIC, "pullback.linalg.ldl_factor(A).LD.shape"]
BY_HAND["linalg_ldl_factor_ex"] = [SYMMETRIC, "pullback.linalg.ldl_factor_ex(A).info"]
FACTORS = "LU, pivots = pullback.linalg.lu_factor(A)"
RIGHT = "B = pullback.tensor([[2.0], [6.0]])"
BY_HAND["linalg_lu_solve"] = [MATRIX, RIGHT, FACTORS, "pullback.linalg.lu_solve(LU, pivots, B)"]
BY_HAND["lu_unpack"] = [MATRIX, FACTORS, "pullback.lu_unpack(LU, pivots)[2]"]
LOW = "A = pullback.ones(5, 1) @ pullback.arange(4.0).reshape(1, 4)"
BY_HAND["svd_lowrank"] = [LOW, "[part.shape for part in pullback.svd_lowrank(A, q=2)]"]
BY_HAND["pca_lowrank"] = [LOW, "[part.shape for part in pullback.pca_lowrank(A, q=2)]"]
BY_HAND["lobpcg"] = [
    "A = pullback.diag(pullback.arange(1.0, 10.0))",
    "[part.shape for part in pullback.lobpcg(A, k=1)]",
]
SIGNAL = "x = pullback.arange(16.0)"
BY_HAND["istft"] = [
    SIGNAL,
    "window = pullback.hann_window(8)",
    "frames = pullback.stft(x, 8, window=window, return_complex=True)",
    "pullback.istft(frames, 8, window=window).shape",
]
WEIGHTS = "weights = [pullback.zeros(n, 2) for n in ({gates}, {gates})]"
for name, gates, state in (
    ("lstm", 8, "[pullback.zeros(1, 1, 2), pullback.zeros(1, 1, 2)]"),
    ("gru", 6, "pullback.zeros(1, 1, 2)"),
    ("rnn_tanh", 2, "pullback.zeros(1, 1, 2)"),
    ("rnn_relu", 2, "pullback.zeros(1, 1, 2)"),
):
    BY_HAND[name] = [
        "x = pullback.ones(3, 1, 2)",
        WEIGHTS.format(gates=gates),
        f"state = {state}",
        f"pullback.{name}(x, state, weights, False, 1, 0.0, False, False, False)[0].shape",
    ]
BY_HAND["native_batch_norm"] = [
    "x = pullback.tensor([[1.0], [3.0]])",
    "pullback.native_batch_norm(x, None, None, None, None, True, 0.1, 0.0)[0]",
]
LEFT = "x = pullback.tensor([[1.0, 2.0], [3.0, 4.0]])"
VECTOR = "vec = pullback.tensor([1.0, -1.0])"
BY_HAND["mm"] = [LEFT, "mat2 = pullback.tensor([[5.0], [6.0]])", "pullback.mm(x, mat2)"]
BY_HAND["addmm"] = [LEFT, "pullback.addmm(pullback.ones(2), x, x, alpha=2)"]
BY_HAND["addmv"] = [LEFT, VECTOR, "pullback.addmv(pullback.tensor([10.0, 20.0]), x, vec)"]
BY_HAND["matmul"] = [LEFT, VECTOR, "pullback.matmul(x, vec)"]
BY_HAND["bmm"] = [
    "x = pullback.arange(4.0).reshape(2, 1, 2)",
    "mat2 = pullback.arange(8.0).reshape(2, 2, 2)",
    "pullback.bmm(x, mat2)",
]
BY_HAND["baddbmm"] = [*BY_HAND["bmm"][:2], "pullback.baddbmm(pullback.ones(2), x, mat2, beta=3)"]
for name, part in (
    *(("bartlett", ""), ("hamming", ""), ("hann", "")),
    *(("blackman", "[1:]"), ("kaiser", "[1:]")),
):
    BY_HAND[f"{name}_window"] = [f"pullback.{name}_window(4){part}"]
for ending in ("", "_with_indices"):
    name = f"fractional_max_pool2d{ending}"
    BY_HAND[name] = [IMAGES, f"pullback.nn.functional.{name}(x, 2, (4, 4))[0].shape"]
    name = f"fractional_max_pool3d{ending}"
    BY_HAND[name] = [VOLUMES, f"pullback.nn.functional.{name}(x, 2, (4, 4, 4))[0].shape"]


class Unsuitable(Exception):
    """The case makes no example."""


def random_of(draw: Draw) -> str:
    """Return a call that makes a tensor of a case that is too large to be written down."""
    size = ", ".join(map(str, draw.shape))
    if draw.kind == "int64":
        return f"pullback.randint({draw.low or 0}, {draw.high}, ({size},))"
    if draw.kind not in ("tested", "real") or 0 in draw.shape:
        raise Unsuitable
    if draw.low is not None and draw.low >= 0:
        return (
            f"pullback.rand({size})" if draw.high in (None, 1) else f"pullback.rand({size}) + 0.1"
        )
    return f"pullback.randn({size})"


def literal_of(draw: Draw, dtype: Any, rng: np.random.Generator) -> str:
    """Return a tensor of a case as Python writes it."""
    if draw.kind not in ("tested", "real"):
        dtype = getattr(pb, draw.kind)
    elif draw.kind == "real" and dtype.is_complex:
        dtype = pb.float32
    count = int(np.prod(draw.shape))
    if not 1 <= count <= 12:
        raise Unsuitable
    if draw.values is not None:
        elements = np.array(draw.values, dtype=complex if dtype.is_complex else float)
        if not np.isfinite(elements).all():
            raise Unsuitable
        whole = dtype.is_floating_point or dtype.is_complex
        elements = elements.reshape(draw.shape) if whole else elements.astype(int)
        return f"pullback.tensor({elements.reshape(draw.shape).tolist()})"
    values = draw_array(draw.shape, dtype, rng, draw.low, draw.high, draw.step)
    if dtype.is_floating_point:
        values = np.round(values.astype(np.float64), 1) + 0.0
        low = -np.inf if draw.low is None else draw.low
        high = np.inf if draw.high is None else draw.high
        if not ((values >= low) & (values < high)).all():
            raise Unsuitable
    elif dtype.is_complex:
        values = np.round(values.astype(np.complex128), 1)
    return f"pullback.tensor({values.tolist()})"


def expression_of(value: Any, dtype: Any, rng: np.random.Generator) -> str:
    """Return an argument of a case as Python writes it."""
    if isinstance(value, Draw):
        return literal_of(value, dtype, rng)
    if isinstance(value, Dtype):
        if value.name == "tested":
            raise Unsuitable
        return f"pullback.{value.name}"
    if isinstance(value, (tuple, list)):
        parts = [expression_of(item, dtype, rng) for item in value]
        inner = ", ".join(parts) + ("," if len(parts) == 1 and isinstance(value, tuple) else "")
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, (float, complex)) and not np.isfinite(value):
        raise Unsuitable
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return repr(value)
    if isinstance(value, pb.dtype):
        return f"pullback.{value.name}"
    raise Unsuitable


def function_of(entry: Any) -> str | None:
    """Return the function's public name; None for a method."""
    name = entry.function if isinstance(entry.function, str) else entry.name
    if not entry.function:
        return None
    for namespace, prefix in (
        ("", "pullback"),
        ("functional", "pullback.nn.functional"),
        ("linalg", "pullback.linalg"),
        ("special", "pullback.special"),
        ("fft", "pullback.fft"),
    ):
        if namespace in entry.namespaces:
            name = name.removeprefix("linalg_") if namespace == "linalg" else name
            return f"{prefix}.{name}"
    return None


def lines_of(entry: Any, case: Case, dtype: Any, large: bool) -> list[str]:
    """Return the statements of a call; the last is the call."""
    rng = np.random.default_rng(zlib.crc32(entry.name.encode()))
    lines, given = [], []
    names = [argument.name for argument in entry.arguments]
    count = sum(isinstance(value, Draw) for value in case.args)
    for position, value in enumerate(case.args):
        many = large and isinstance(value, Draw) and value.values is None
        text = random_of(value) if many else expression_of(value, dtype, rng)
        if isinstance(value, Draw):
            name = names[min(position, len(names) - 1)].rstrip("_")
            if entry.varargs and position + 1 >= len(names) and count > 1:
                name = f"{name}{position}".replace("tensors", "x").replace("operands", "x")
            name = {"self": "x", "other": "y", "tensors": "x"}.get(name, name)
            lines.append(f"{name} = {text}")
            text = name
        given.append(text)
    keywords = [f"{name}={expression_of(value, dtype, rng)}" for name, value in case.kwargs.items()]
    function = function_of(entry)
    if function is None:
        if not given:
            raise Unsuitable
        method = entry.method if isinstance(entry.method, str) else entry.name
        return [*lines, f"{given[0]}.{method}({', '.join(given[1:] + keywords)})"]
    return [*lines, f"{function}({', '.join(given + keywords)})"]


def result_of(lines: list[str], device: str) -> Any:
    """Return the value of the last of some statements."""
    scope: dict[str, Any] = {"pullback": pb}
    with warnings.catch_warnings(), pb.device(device):
        warnings.simplefilter("error")
        for line in lines[:-1]:
            exec(line, scope)
        return eval(lines[-1], scope)


def run(lines: list[str], device: str) -> str:
    """Return what the last of some statements shows."""
    return repr(result_of(lines, device)).replace(f", device='{device}'", "")


def shown(lines: list[str], large: bool) -> list[str]:
    """Return the statements of an example and what the last one shows, the same on every device."""
    if large:
        of_one, of_many = f"{lines[-1]}.shape", f"[part.shape for part in {lines[-1]}]"
        single = isinstance(result_of(lines, DEVICES[0]), pb.Tensor)
        lines = [*lines[:-1], of_one if single else of_many]
    found = {run(lines, device) for device in DEVICES for _ in range(2)}
    if len(found) > 1:
        lines = ["pullback.manual_seed(0)", *lines]
        lines[0] = f"_ = {lines[0]}"
        found = {run(lines, device) for device in DEVICES}
    if len(found) > 1:
        lines = [*lines[1:-1], f"{lines[-1]}.shape"]
        found = {run(lines, device) for device in DEVICES}
    if len(found) > 1:
        raise Unsuitable
    result = [line or "<BLANKLINE>" for line in found.pop().splitlines()]
    if len(result) > LINES or "nan" in "".join(result) or "device=" in "".join(result):
        raise Unsuitable
    if any(len(line) > WIDTH for line in (*result, *lines)):
        raise Unsuitable
    return [*(f">>> {line}" for line in ("import pullback", *lines)), *result]


def size_of(case: Case) -> tuple[int, int]:
    """Return how far a case is from an example's size, and its number of arguments."""
    draws = [value for value in case.args if isinstance(value, Draw)]
    count = sum(int(np.prod(draw.shape)) for draw in draws)
    return (abs(count - 6), len(case.args) + len(case.kwargs))


def candidates(entry: Any) -> Iterator[tuple[Case, Any, bool]]:
    """Yield cases with a dtype, and whether their tensors are random ones; the best first."""
    for dtype in DTYPES:
        if accepts(entry, dtype):
            cases = [case for case in cases_of(entry) if case.only >> dtype.code & 1]
            for large in (False, True):
                yield from ((case, dtype, large) for case in sorted(cases, key=size_of))


def example_of(entry: Any) -> str | None:
    """Return the example of an entry, or None where no sample call makes one."""
    if entry.name in BY_HAND:
        return "\n".join(shown(BY_HAND[entry.name], False))
    for case, dtype, large in candidates(entry):
        try:
            return "\n".join(shown(lines_of(entry, case, dtype, large), large))
        except (*REFUSALS, Unsuitable):
            continue
    return None


def main() -> int:
    """Write the file; returns the exit status."""
    made, missing = {}, []
    for name, entry in sorted(ENTRIES.items()):
        if entry.method or entry.function:
            text = example_of(entry)
            if text is None:
                missing.append(name)
            else:
                made[name] = text
    TARGET.write_text(json.dumps(made, indent=0, ensure_ascii=False) + "\n")
    print(f"{len(made)} examples; none for {', '.join(missing) or 'no op'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
