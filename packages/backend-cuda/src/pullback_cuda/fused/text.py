"""The CUDA text of a generated kernel, made of the structs of the elementwise kernels' texts."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

from pullback_cuda.fused.find import Operand, Operation, Run

KERNELS = Path(__file__).parents[1] / "kernels"
NAME = "fused"
# By pb_dtype. A bool is a byte in memory and in the text.
TYPES = (
    *("uint8_t", "uint8_t", "int8_t", "int16_t", "int32_t", "int64_t", "half", "bfloat16"),
    *("float", "double", "complex<float>", "complex<double>"),
)


@functools.lru_cache(None)
def operations(family: str) -> tuple[str, ...]:
    """Return the text of a family's operations in a namespace, after the headers that it needs."""
    (path,) = KERNELS.rglob(f"{family}.cu")
    text = path.read_text()
    headers = re.findall(r'^#include "[^"]+"$', text, re.MULTILINE)
    body = re.sub(r'^#include "[^"]+"$', "", text, flags=re.MULTILINE)
    macros = dict.fromkeys(re.findall(r"^#define (\w+)", body, re.MULTILINE))
    return (*headers, f"namespace {family} {{", body, "}", *(f"#undef {name}" for name in macros))


def family_of(text: str) -> str:
    """Return the name under which a text's image is kept."""
    return f"{NAME}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def is_moved(operation: Operation) -> bool:
    """Tell whether an operation only moves elements; numbers come to it as they are stored."""
    return operation.family in ("", "where")


def text_of(run: Run) -> str:
    """Return the text of a run's kernel."""
    families = dict.fromkeys(
        call.operation.family for call in run.calls if not is_moved(call.operation)
    )
    scalars = max(len(run.scalars), 1)
    operands = [*run.loaded, *run.stored]
    lines = [
        '#include "kernels/common/kernel.cuh"',
        "#define PULLBACK_OPERATIONS_ONLY",
        '#include "fused/fused_driver.cuh"',
    ]
    texts = [line for family in families for line in operations(family)]
    lines += [line for line in texts if line.startswith("#include")]
    lines += [line for line in texts if not line.startswith("#include")]
    lines += [
        f"typedef fused_arguments<{len(operands)}, {scalars}> arguments;",
        f"KERNEL({NAME}, arguments) {{",
        f"    fused_place<{len(operands)}> place;",
        "    if (!place.find(args))",
        "        return;",
    ]
    for k, one in enumerate(operands):
        lines.append(f"    {TYPES[one.dtype]} m{k}[FUSED_ELEMENTS];")
        if k < len(run.loaded):
            lines.append(f"    place.load(args, {k}, m{k});")
    lines += ["#pragma unroll", "    for (int i = 0; i < FUSED_ELEMENTS; ++i) {"]
    lines.append("        if (i >= place.left)")
    lines.append("            break;")
    lines += [f"        {line}" for line in _statements(run)]
    lines.append("    }")
    for k in range(len(run.loaded), len(operands)):
        lines.append(f"    place.store(args, {k}, m{k});")
    return "\n".join([*lines, "}", ""])


def _statements(run: Run) -> list[str]:
    """Return the statements that compute one element."""
    lines = []
    scalar = 0

    def value_of(one: Operand, position: int) -> str:
        """Return the variable that has an operand's element."""
        for before in range(position - 1, -1, -1):
            if one.is_same(run.calls[before].out):
                return f"v{before}"
        (k,) = (k for k, known in enumerate(run.loaded) if one.is_same(known))
        return f"m{k}[i]"

    for position, call in enumerate(run.calls):
        operation, out = call.operation, call.out
        struct = f"o{position}"
        if not is_moved(operation):
            lines.append(f"typedef {operation.family}::{operation.name}_operation {struct};")
            lines.append(f"elementwise_arguments a{position};")
            for name, value in (
                ("in_type", call.operands[-1].dtype),
                ("out_type", out.dtype),
                ("option", 0),
                ("failure", "nullptr"),
            ):
                lines.append(f"a{position}.{name} = {value};")
        values = []
        for place, one in enumerate(call.operands[1:]):
            number = 1 - place if operation.exchanged else place
            stored = TYPES[one.dtype]
            compute = (
                stored
                if is_moved(operation)
                else (
                    f"typename {struct}::{'First' if number == 0 else 'Rest'}::compute"
                ).removeprefix("typename ")
            )
            if one.host:
                values.append(f"scalar_of<{compute}>(args.scalar[{scalar}])")
                scalar += 1
            elif is_moved(operation):
                values.append(value_of(one, position))
            else:
                found = value_of(one, position)
                values.append(f"conversion<{compute}, {stored}>::in({found})")
        if operation.exchanged:
            values.reverse()
        stored = TYPES[out.dtype]
        if operation.family == "":
            result = values[0]
        elif operation.family == "where":
            result = f"{values[0]} ? {values[1]} : {values[2]}"
        else:
            computed = f"{struct}::of({', '.join([f'a{position}', *values])})"
            result = f"rounded(conversion<{struct}::Out::compute, {stored}>::out({computed}))"
        lines.append(f"const {stored} v{position} = {result};")
    for k, one in enumerate(run.stored):
        last = max(p for p, call in enumerate(run.calls) if call.out.is_same(one))
        lines.append(f"m{len(run.loaded) + k}[i] = v{last};")
    return lines
