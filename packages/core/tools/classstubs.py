"""Write the type stubs of modules and optimizers, from the signatures of the installed package.

    python classstubs.py      # src/pullback/nn/__init__.pyi and its like

Types follow from the names and the defaults of arguments; a class that needs more is in
``stubs/MODULE.pyi.in``, whose line ``# {classes}`` stands for the others.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
SOURCES = TOOLS.parent / "src"
MODULES = ("pullback.nn", "pullback.optim", "pullback.optim.lr_scheduler")

SIZES = {
    *("kernel_size", "stride", "dilation", "output_padding", "output_size", "normalized_shape"),
    *("unflattened_size", "size"),
}
# Arguments whose default is an int where any number may be given.
NUMBERS = {
    *("p", "margin", "weight_decay", "momentum", "dampening", "lr_decay", "lr", "k", "eps"),
    *("initial_accumulator_value", "min_lr", "threshold", "value", "d", "norm_type"),
}
BY_NAME = {
    "device": "_DeviceLike | None",
    "dtype": "_dtype | None",
    "params": "ParamsT",
    "optimizer": "Optimizer",
    "schedulers": "Sequence[LRScheduler]",
    "milestones": "Sequence[_int]",
    "lr_lambda": "Callable[[_int], _float] | Sequence[Callable[[_int], _float]]",
    "scale_fn": "Callable[[_float], _float] | None",
    "max_lr": "_float | Sequence[_float]",
    "base_lr": "_float | Sequence[_float]",
    "lr": "_float | Tensor",
    "padding": "_Sizes",
    "activation": "_str | Callable[[Tensor], Tensor]",
    "dim": "_int",
    "mode": "_str",
    "bias": "_bool",
    "cutoffs": "Sequence[_int]",
    "encoder_layer": "Module",
    "decoder_layer": "Module",
    "module": "Module",
    "gamma": "_float",
    "defaults": "dict[_str, Any]",
    "need_weights": "_bool",
}
WITHOUT_DEFAULT = {  # types of arguments whose default is None
    **dict.fromkeys(("foreach", "fused", "size_average", "reduce", "align_corners"), "_bool"),
    **dict.fromkeys(("recompute_scale_factor", "is_causal", "tgt_is_causal"), "_bool"),
    **dict.fromkeys(("memory_is_causal", "src_is_causal"), "_bool"),
    **dict.fromkeys(("dim", "kdim", "vdim", "padding_idx", "divisor_override"), "_int"),
    **dict.fromkeys(("max_eval", "total_steps", "epochs", "steps_per_epoch"), "_int"),
    **dict.fromkeys(("step_size_down", "ignore_index", "batch_chunk_size"), "_int"),
    **dict.fromkeys(("line_search_fn", "adjust_lr_fn"), "_str"),
    **dict.fromkeys(("max_norm", "min_value", "max_value", "eps", "momentum"), "_float"),
    **dict.fromkeys(("weight", "pos_weight", "_weight", "mask", "src_mask", "attn_mask"), "Tensor"),
    **dict.fromkeys(("tgt_mask", "memory_mask", "key_padding_mask", "offsets"), "Tensor"),
    **dict.fromkeys(("src_key_padding_mask", "tgt_key_padding_mask"), "Tensor"),
    **dict.fromkeys(("memory_key_padding_mask", "per_sample_weights", "hx"), "Tensor"),
}
RESULTS = {
    **dict.fromkeys(("RNN", "GRU"), "tuple[Any, Tensor]"),
    "LSTM": "tuple[Any, tuple[Tensor, Tensor]]",
    "LSTMCell": "tuple[Tensor, Tensor]",
    "MultiheadAttention": "tuple[Tensor, Tensor | None]",
    "AdaptiveLogSoftmaxWithLoss": "Any",
    "DataParallel": "Any",
}
STATES = dict.fromkeys(("LSTM", "LSTMCell"), "tuple[Tensor, Tensor] | None")
PACKED = ("RNN", "GRU", "LSTM")  # their input may be a PackedSequence


def type_of(name: str, default: Any, *, of_call: bool) -> str:
    """Return the type of an argument, by its name and default."""
    if default is None:
        if name in BY_NAME and BY_NAME[name].endswith("None"):
            return BY_NAME[name]
        inner = "_Sizes" if name in SIZES else WITHOUT_DEFAULT.get(name, "Any")
        return inner if inner == "Any" else f"{inner} | None"
    if of_call and default is inspect.Parameter.empty:
        return "Tensor"
    if name in BY_NAME:
        text = BY_NAME[name]
        return f"{text} | _str" if name == "padding" and isinstance(default, int) else text
    if name in SIZES:
        return "_Sizes"
    if isinstance(default, tuple) and default:
        return f"tuple[{', '.join(type_of('eps', item, of_call=False) for item in default)}]"
    if isinstance(default, bool):
        return "_bool"
    if isinstance(default, float) or name in NUMBERS:
        return "_float"
    if isinstance(default, int) or default is inspect.Parameter.empty:
        return "_int"
    if isinstance(default, str):
        return "_str"
    return "Any"


def argument(parameter: inspect.Parameter, *, of_call: bool) -> str:
    """Return one argument as a stub has it."""
    stars = ""
    if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind == inspect.Parameter.VAR_POSITIONAL else "**"
    if stars:
        inside = "Tensor" if of_call and stars == "*" else "Any"
        return f"{stars}{parameter.name}: {inside}"
    kind = type_of(parameter.name, parameter.default, of_call=of_call)
    if parameter.default is inspect.Parameter.empty:
        return f"{parameter.name}: {kind}"
    plain = isinstance(parameter.default, (bool, int, float, str, tuple, type(None)))
    return (
        f"{parameter.name}: {kind} = {parameter.default!r}"
        if plain
        else (f"{parameter.name}: {kind} = ...")
    )


def arguments(function: Any, *, of_call: bool = False) -> str:
    """Return the arguments of a method, ``self`` first."""
    parts = ["self"]
    star = False
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.name == "mode" and function.__qualname__ == "RNNBase.__init__":
            continue  # each of its classes has one of its own
        if parameter.kind == inspect.Parameter.VAR_POSITIONAL:
            star = True
        if parameter.kind == inspect.Parameter.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        parts.append(argument(parameter, of_call=of_call))
    return ", ".join(parts)


def constructor(owner: type) -> Any:
    """Return the ``__init__`` that says what a class takes."""
    for base in owner.__mro__:
        function = vars(base).get("__init__")
        if function is not None:
            names = list(inspect.signature(function).parameters.values())[1:]
            if not names or names[0].kind != inspect.Parameter.VAR_POSITIONAL:
                return function
    return owner.__init__  # type: ignore[misc]


def class_stub(owner: type, bases: dict[type, str]) -> Iterator[str]:
    """Yield the stub of a class; ``bases`` are those that a stub may name."""
    base = next(bases[parent] for parent in owner.__mro__[1:] if parent in bases)
    first = (inspect.getdoc(owner) or "").splitlines()[0].replace("\\", "\\\\")
    yield f"class {owner.__name__}({base}):"
    yield f'    """{first}"""'
    yield ""
    yield f"    def __init__({arguments(constructor(owner))}) -> None: ..."
    forward = getattr(owner, "forward", None)
    if forward is not None:
        given = arguments(forward, of_call=True)
        if owner.__name__ in STATES:
            given = given.replace("hx: Tensor | None", f"hx: {STATES[owner.__name__]}")
        if owner.__name__ in PACKED:
            given = given.replace("input: Tensor", "input: Tensor | PackedSequence")
        result = RESULTS.get(owner.__name__, "Tensor")
        for name in ("forward", "__call__"):
            yield f"    def {name}({given}) -> {result}: ..."
    yield ""


def public_classes(module: str) -> dict[str, type]:
    """Return the classes that a module shows, in order."""
    found = importlib.import_module(module)
    names = {name: getattr(found, name) for name in dir(found) if not name.startswith("_")}
    return {name: value for name, value in names.items() if isinstance(value, type)}


def make_stub(module: str) -> str:
    """Return the stub of a module."""
    text = (TOOLS / "stubs" / f"{module}.pyi.in").read_text()
    by_hand = set(re.findall(r"^class (\w+)", text, re.M))
    classes = public_classes(module)
    roots = ("Module", "Optimizer", "LRScheduler")
    bases = {owner: name for name, owner in classes.items() if name in roots}
    lines: list[str] = []
    aliases: list[str] = []
    for name, owner in classes.items():
        if name in by_hand or not any(base in bases for base in owner.__mro__):
            continue
        if owner.__name__ != name:
            aliases.append(f"{name} = {owner.__name__}")
        else:
            lines += class_stub(owner, bases)
    return text.replace("# {classes}\n", "\n".join([*lines, *aliases]) + "\n")


def path_of(module: str) -> Path:
    """Return the path of a module's stub in the sources."""
    return SOURCES.joinpath(*module.split("."), "__init__.pyi")


def main() -> int:
    """Write all stubs; returns the exit status."""
    for module in MODULES:
        path_of(module).write_text(make_stub(module))
    return 0


if __name__ == "__main__":
    sys.exit(main())
