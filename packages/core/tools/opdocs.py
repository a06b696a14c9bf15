"""Write the documentation's pages on ops: ``python opdocs.py DIR``, with the packages installed.

DIR/ops.md lists the ops by family, DIR/ops-by-module.md by public name; DIR/ops/NAME.md has one op:
signature, arguments, an example that is run, derivatives and kinks, dtypes, the kernels of the
installed devices, and the lines of its entry. The page of an op is made from its entry and from
what ``help`` shows of it.
"""

from __future__ import annotations

import argparse
import ast
import doctest
import functools
import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from opformulas import Formula, formula_of

SOURCES = Path(__file__).resolve().parents[1] / "src" / "pullback"
FAMILIES = {
    "elementwise": "Elementwise",
    "reductions": "Reductions, cumulative operations and sorting",
    "indexing": "Indexing, gather and scatter",
    "shape": "Shapes, views and joins",
    "creation": "New tensors and random numbers",
    "linalg": "Linear algebra",
    "fft": "Fourier transforms",
    "nn": "Neural networks",
    "optim": "Steps of optimizers",
}
BUILDING_BLOCKS = "Building blocks"
NAMESPACES = {
    "": "pullback",
    "fft": "pullback.fft",
    "functional": "pullback.nn.functional",
    "linalg": "pullback.linalg",
    "special": "pullback.special",
}
LONGEST_SIGNATURE = 80  # in characters; a longer one has a line for each argument
ORDERS = 3  # derivatives that are computed for each page
REFUSALS = (NotImplementedError, RuntimeError, ValueError, TypeError, IndexError)

Entry = Any  # pullback.ops.Entry


class Place(NamedTuple):
    """Where an entry stands: a file of ``ops``, and the first line of the statement."""

    file: str  # relative to SOURCES
    line: int


# -- the table -------------------------------------------------------------------------------------


def load_with_places() -> tuple[Mapping[str, Entry], dict[str, Place]]:
    """Import the package; return the entries, and where each was declared."""
    places: dict[str, Place] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame.f_code.co_name != "op":
            return
        if not frame.f_code.co_filename.endswith(os.path.join("table", "schema.py")):
            return
        name = frame.f_locals["signature"].partition("(")[0].strip()
        caller = frame.f_back
        while caller is not None and caller.f_code.co_name != "<module>":
            caller = caller.f_back
        if caller is not None:
            module = caller.f_globals["__name__"].split(".")[1:]
            places[name] = Place("/".join(module) + ".py", caller.f_lineno)

    sys.setprofile(note)
    try:
        entries = importlib.import_module("pullback.ops").ENTRIES
    finally:
        sys.setprofile(None)
    return entries, places


def family_of(entry: Entry, place: Place) -> str:
    """Return the heading under which an op is listed."""
    if not (entry.method or entry.function):
        return BUILDING_BLOCKS
    return FAMILIES[place.file.split("/")[1]]


# -- facts of an entry -----------------------------------------------------------------------------


def names_of(entry: Entry) -> list[str]:
    """Return the names under which an op is called: functions, methods, in-place forms, aliases."""
    found = []
    if entry.function:
        own = entry.function if isinstance(entry.function, str) else entry.name
        for space in entry.namespaces:
            prefix = f"{space}_" if space in ("linalg", "fft", "special") else ""
            found += [
                f"{NAMESPACES[space]}.{name.removeprefix(prefix)}" for name in (own, *entry.aliases)
            ]
    for path in entry.elsewhere:
        space, _, name = path.rpartition(".")
        found.append(f"{NAMESPACES.get(space, f'pullback.{space}')}.{name}")
    if entry.method:
        own = entry.method if isinstance(entry.method, str) else entry.name
        found += [f"Tensor.{name}" for name in (own, *entry.aliases)]
        if entry.inplace is True:
            found += [f"Tensor.{name}_" for name in (own, *entry.aliases)]
    return list(dict.fromkeys(found))


def dtypes_of(entry: Entry) -> str:
    """Return the dtypes of operands that an op takes."""
    import pullback as pb
    from pullback.testing.samples import accepts

    known = pb._dtypes()
    names = [dtype.name for dtype in known if accepts(entry, dtype)]
    if len(names) == len(known):
        return "every dtype"
    return ", ".join(f"`{name}`" for name in names)


def formulas_of(entry: Entry) -> list[Formula]:
    """Return the formulas of an entry that have a source."""
    found = (formula_of(arguments, function) for arguments, function in entry.vjp.items())
    return [formula for formula in found if formula is not None]


def orders_of(entry: Entry) -> tuple[int, str] | None:
    """Return how often the first sample call of an op was differentiated, and what ended that.

    None where no sample call has an operand with derivatives.
    """
    import pullback as pb
    from pullback.testing.certify.points import ordinary

    points = (ordinary(entry, dtype, "ref") for dtype in (pb.float64, pb.complex128))
    firsts = [next((p for p in found if p.inputs()), None) for found in points]
    answers = [orders_at(point) for point in firsts if point is not None]
    return max(answers, key=lambda answer: answer[0], default=None)


def orders_at(point: Any) -> tuple[int, str]:
    """Return how often a call was differentiated, and what ended that."""
    import pullback as pb

    inputs = [tensor.requires_grad_() for tensor in point.inputs()]
    order = 0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results = point.function()(*inputs)
        for order in range(ORDERS + 1):
            results = [result for result in results if result is not None and result.requires_grad]
            if order == ORDERS or not results:
                break
            total = sum((result * result.conj()).real.sum() for result in results)
            results = pb.autograd.grad(total, inputs, create_graph=True, allow_unused=True)
    except REFUSALS as error:
        return order, str(error).splitlines()[0]
    return (ORDERS if order else 0), ""


# -- pages -----------------------------------------------------------------------------------------


def page_of(entry: Entry, place: Place, file: Path) -> Iterator[str]:
    """Yield the lines of an op's page."""
    from pullback._help.ops import signature_of
    from pullback.ops.table.schema import split_arguments

    public = bool(entry.method or entry.function)
    yield from ("---", "orphan: true", "---", f"# `{entry.name}`", "")
    family = family_of(entry, place)
    anchor = family.lower().replace(",", "").replace(" ", "-")
    yield f"[Operations](../ops.md): [{family}](../ops.md#{anchor})"
    yield ""
    signature = f"{entry.name}{signature_of(entry)}"
    if len(signature) > LONGEST_SIGNATURE:
        *_, arguments = signature.partition("(")
        given, _, result = arguments.rpartition(")")
        lines = [f"    {argument}," for argument in split_arguments(given)]
        signature = "\n".join([f"{entry.name}(", *lines, f"){result}"])
    yield from ("```{code-block} python", signature, "```", "")
    yield from (*doc_lines(entry), "")
    if public:
        yield from ("Names: " + ", ".join(f"`{name}`" for name in names_of(entry)) + ".", "")
    else:
        yield from ("A building block of derivatives and of other operations, without a name.", "")
    yield from arguments_of(entry)
    yield from example_of(entry)
    yield from derivatives_of(entry)
    yield from kinks_of(entry)
    yield from ("## Dtypes", "", f"Operands: {dtypes_of(entry)}.", "")
    yield from kernels_of(entry)
    yield from source_of(place, file)


def doc_lines(entry: Entry) -> list[str]:
    """Return the text of an entry as Markdown: its indented parts become blocks of code."""
    text, inside = [], False
    for line in entry.doc.splitlines():
        indented = line.startswith("    ")
        if indented != inside and line.strip():
            text.append("```text" if indented else "```")
            inside = indented
        text.append(line.replace("``", "`") if not inside else line[4:])
    return [*text, "```"] if inside else text


def arguments_of(entry: Entry) -> Iterator[str]:
    """Yield what the arguments mean."""
    from pullback._help.arguments import meaning_of
    from pullback._help.ops import signature_of

    parameters = signature_of(entry).parameters
    if not parameters:
        return
    yield from ("## Arguments", "")
    for name, parameter in parameters.items():
        declared = next((a for a in entry.arguments if a.name == name), None)
        meaning = meaning_of(entry.name, name, declared.type if declared else "")
        default = parameter.default
        shown = "" if default in (parameter.empty, None) else f"; default `{default!r}`"
        yield f"- `{name}` ({parameter.annotation})" + (f": {meaning}" if meaning else "") + shown
    yield ""


def example_of(entry: Entry) -> Iterator[str]:
    """Yield the example of an op, after running it. Raises: ValueError if it shows otherwise."""
    from pullback._help.ops import examples

    text = examples().get(entry.name)
    if text is None:
        return
    test = doctest.DocTestParser().get_doctest(text, {}, entry.name, None, 0)
    said: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    if results.failed:
        raise ValueError(f"the example of {entry.name} gives something else:\n{''.join(said)}")
    yield from ("## Example", "", "```python", *text.splitlines(), "```", "")


def derivatives_of(entry: Entry) -> Iterator[str]:
    """Yield the formulas of an op, and how often it can be differentiated."""
    yield from ("## Derivative", "")
    formulas = formulas_of(entry)
    shown = [formula for formula in formulas if formula.tex is not None]
    if formulas:
        signs = ["`g` is the gradient of the result"]
        signs += ["`x` the argument `input`"] if any("x" in f.tex for f in shown if f.tex) else []
        signs += ["`y` the result"] if any(f.reads_result for f in shown) else []
        yield from (", ".join(signs) + ".", "")
    for formula in formulas:
        named = " and ".join(f"`{'input' if n == 'self' else n}`" for n in formula.arguments)
        where = ", for real numbers" if formula.tex is not None and formula.real else ""
        yield from (f"The gradient of {named}{where}:", "")
        if formula.tex is not None:
            yield from ("```{math}", formula.tex, "```", "")
        else:
            yield from ("```python", formula.code, "```", "")
    if not entry.vjp and entry.composite is not None:
        yield from ("The operations that it is written in are differentiated.", "")
    yield orders_text(entry)
    yield ""


def orders_text(entry: Entry) -> str:
    """Return a sentence on the orders of derivatives."""
    if not entry.vjp and entry.composite is None:
        return "It has no derivative."
    found = orders_of(entry)
    if found is None:
        return "No sample call of it has an operand with a derivative."
    order, reason = found
    if reason:
        return f"Orders: {order or 'none'}. The next one raises an error: *{reason}*"
    if not order:
        return "Its results have no derivative."
    return (
        f"Orders: any. Derivatives of order 1 to {order} of a sample call were computed when this "
        "page was built. [](../certainty.md) says how they were checked."
    )


def kinks_of(entry: Entry) -> Iterator[str]:
    """Yield the conventions at kinks."""
    if not entry.kinks:
        return
    yield from ("## Kinks", "", "| at | gradient | why |", "| --- | --- | --- |")
    for kink in entry.kinks:
        at = ", ".join(shown(value) for value in kink.args)
        at += "".join(f", {name}={shown(value)}" for name, value in kink.kwargs.items())
        gradients = ", ".join(shown(value) for value in kink.gradients)
        why = "; ".join(text for text in (kink.outside, kink.differs) if text)
        yield f"| `{at}` | `{gradients}` | {why} |"
    yield ""


def shown(value: Any) -> str:
    """Return an argument of a kink as Python writes it."""
    return repr(getattr(value, "values", value)).replace("|", "\\|")


def kernels_of(entry: Entry) -> Iterator[str]:
    """Yield how the installed devices run an op."""
    import pullback as pb

    yield from ("## Kernels", "", "| device | computed by |", "| --- | --- |")
    for device in dict.fromkeys(("ref", *pb.backend.installed())):
        try:
            text = pb.backend.explain(entry.name, device).partition(": ")[2]
        except RuntimeError as error:
            text = f"cannot be used here: {str(error).splitlines()[0]}"
        yield f"| `{device}` | {text} |".replace("'", "`")
    yield ""


def source_of(place: Place, file: Path) -> Iterator[str]:
    """Yield the lines of the statement that declares an op."""
    source = SOURCES / place.file
    first, last = statement_at(source, place.line)
    yield from ("## Source", "")
    yield f"```{{literalinclude}} {os.path.relpath(source, file.parent)}"
    yield f":caption: pullback/{place.file}, line {first}"
    yield from (":language: python", f":lines: {first}-{last}", ":lineno-match:", "```")


def statement_at(source: Path, line: int) -> tuple[int, int]:
    """Return the first and last line of the statement of a module that a line belongs to."""
    for first, last in statements_of(source):
        if first <= line <= last:
            return first, last
    raise ValueError(f"{source} has no statement at line {line}")


@functools.cache
def statements_of(source: Path) -> list[tuple[int, int]]:
    """Return the first and last lines of a module's statements."""
    body = ast.parse(source.read_text(encoding="utf-8")).body
    return [(node.lineno, node.end_lineno or node.lineno) for node in body]


def index_of(entries: Mapping[str, Entry], places: Mapping[str, Place]) -> Iterator[str]:
    """Yield the lines of the page that lists the ops by family."""
    listed: dict[str, list[Entry]] = {name: [] for name in (*FAMILIES.values(), BUILDING_BLOCKS)}
    for name in sorted(entries):
        listed[family_of(entries[name], places[name])].append(entries[name])
    count = len(entries) - len(listed[BUILDING_BLOCKS])
    yield from ("# Operations", "")
    yield f"The {count} operations of the op table by family, and the building blocks of "
    yield "derivatives. The page of each has its arguments, an example, its derivative, its dtypes "
    yield "and its kernels."
    for heading, found in listed.items():
        yield from ("", f"## {heading}", "")
        if heading == BUILDING_BLOCKS:
            yield "They have no public name, but their nodes can be seen in a graph."
            yield ""
        yield "| op | what it does |"
        yield "| --- | --- |"
        for entry in found:
            link = f"[`{entry.name}`](ops/{entry.name}.md)"
            first = entry.doc.splitlines()[0].replace("|", "\\|").replace("``", "`")
            yield f"| {link} | {first} |"


def modules_of(entries: Mapping[str, Entry]) -> Iterator[str]:
    """Yield the lines of the page that lists public names by module, each with a link to its op."""
    listed: dict[str, dict[str, str]] = {}
    for name, entry in entries.items():
        for public in names_of(entry):
            module, _, own = public.rpartition(".")
            listed.setdefault(module, {})[own] = name
    yield from ("# Functions and methods by module", "")
    yield "The public names of the operations, aliases included. Each leads to the page of its op."
    for module in sorted(listed, key=lambda module: (module == "Tensor", module)):
        links = [f"[`{own}`](ops/{name}.md)" for own, name in sorted(listed[module].items())]
        yield from ("", f"## `{module}`", "", ", ".join(links))


# -- command line ----------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", metavar="DIR", type=Path, help="write DIR/ops.md and DIR/ops/")
    parser.add_argument("--op", metavar="NAME", action="append", help="write the pages of some ops")
    given = parser.parse_args(arguments)
    entries, places = load_with_places()
    unknown = sorted(set(given.op or ()) - entries.keys())
    if unknown:
        parser.error(f"the op table has no entry {', '.join(unknown)}")
    pages = given.folder / "ops"
    pages.mkdir(parents=True, exist_ok=True)
    if not given.op:
        for left in pages.glob("*.md"):
            left.unlink()
        write(given.folder / "ops.md", index_of(entries, places))
        write(given.folder / "ops-by-module.md", modules_of(entries))
    for name in given.op or sorted(entries):
        file = pages / f"{name}.md"
        write(file, page_of(entries[name], places[name], file))
    return 0


def write(file: Path, lines: Iterator[str]) -> None:
    """Write a page."""
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
