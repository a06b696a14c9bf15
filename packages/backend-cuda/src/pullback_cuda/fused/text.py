"""The CUDA text of a generated kernel, made of the structs of the elementwise kernels' texts."""

from __future__ import annotations

import functools
import hashlib
import re
from pathlib import Path

from pullback_cuda.fused.fusion import FusionGroup, Operation

KERNELS = Path(__file__).parents[1] / "kernels"
NAME = "fused"
# By pb_dtype. A bool is a byte in memory and in the text.
TYPES = (
    *("uint8_t", "uint8_t", "int8_t", "int16_t", "int32_t", "int64_t", "half", "bfloat16"),
    *("float", "double", "complex<float>", "complex<double>"),
)


@functools.cache
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


def text_of(group: FusionGroup) -> str:
    """Return the text of a fusion group's kernel."""
    families = dict.fromkeys(
        call.operation.family for call in group.calls if not is_moved(call.operation)
    )
    scalars = max(len(group.scalars), 1)
    operands = [*group.loaded, *group.stored]
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
        if k < len(group.loaded):
            lines.append(f"    place.load(args, {k}, m{k});")
    lines += ["#pragma unroll", "    for (int i = 0; i < FUSED_ELEMENTS; ++i) {"]
    lines.append("        if (i >= place.left)")
    lines.append("            break;")
    lines += [f"        {line}" for line in _statements(group)]
    lines.append("    }")
    for k in range(len(group.loaded), len(operands)):
        lines.append(f"    place.store(args, {k}, m{k});")
    return "\n".join([*lines, "}", ""])


def _statements(group: FusionGroup) -> list[str]:
    """Return the statements that compute one element."""
    lines = []
    scalar = 0
    variables = {one.key: f"m{k}[i]" for k, one in enumerate(group.loaded)}  # with each element
    for position, call in enumerate(group.calls):
        operation, out = call.operation, call.out
        struct, moved = f"o{position}", is_moved(operation)
        if not moved:
            lines += [
                f"typedef {operation.family}::{operation.name}_operation {struct};",
                f"elementwise_arguments a{position};",
                f"a{position}.in_type = {call.operands[-1].dtype};",
                f"a{position}.out_type = {out.dtype};",
                f"a{position}.option = 0;",
                f"a{position}.failure = nullptr;",
            ]
        values = []
        for place, one in enumerate(call.operands[1:]):
            stored = TYPES[one.dtype]
            first = place == (1 if operation.exchanged else 0)
            compute = stored if moved else f"{struct}::{'First' if first else 'Rest'}::compute"
            if one.host:
                values.append(f"scalar_of<{compute}>(args.scalar[{scalar}])")
                scalar += 1
            elif moved:
                values.append(variables[one.key])
            else:
                values.append(f"conversion<{compute}, {stored}>::in({variables[one.key]})")
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
        variables[out.key] = f"v{position}"
    for k, one in enumerate(group.stored, len(group.loaded)):
        lines.append(f"m{k}[i] = {variables[one.key]};")
    return lines
