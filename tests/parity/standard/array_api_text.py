"""What the text of the array API standard says: signatures, special cases, laws.

The package array-api has the standard's signatures and docstrings as classes. They are parsed, not
imported, and each sentence on special cases becomes Python expressions by the rules below: what the
operands ``x_i``, or their parts ``a`` and ``b``, must be, and what then holds for the value
``found``. A sentence that no rule knows becomes a case without expressions, which tests report.
"""

import __future__

import ast
import inspect
import itertools
import math
import re
import textwrap
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Entry(NamedTuple):
    """A name of the standard; ``signature`` is None for what is not called."""

    signature: inspect.Signature | None
    text: str


class Case(NamedTuple):
    """A sentence: of operands of the kinds (b, i, f, c) for which ``applies``, ``holds`` is true.

    Both are Python expressions, None where the sentence is not understood. ``open``: a later "In
    the remaining cases" also concerns these operands.
    """

    text: str
    kinds: str
    applies: str | None
    holds: str | None
    open: bool = False


class Law(NamedTuple):
    """Two expressions in ``x``, or ``x1`` and ``x2``, that are equal for all operands."""

    text: str
    kinds: str
    left: str
    right: str


# ---- the source ----------------------------------------------------------------------------------


def signature_of(function: ast.FunctionDef) -> inspect.Signature:
    """Return the signature without ``self``; annotations are text."""
    source, names = f"def f({ast.unparse(function.args)}): ...", {"inf": math.inf}
    exec(compile(source, "f", "exec", __future__.annotations.compiler_flag), names)
    signature = inspect.signature(names["f"])
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def read_standard() -> dict[str, dict[str, Entry]]:
    """Return the entries of the namespaces, of the array object and of its info, by name."""
    source = Path(find_spec("array_api._2024_12").origin).read_text("utf-8")
    source = re.sub(r"(?m)^class (\w+)\[.*\]\(", r"class \1(", source)  # a syntax of Python 3.12
    classes = {node.name: node for node in ast.parse(source).body if hasattr(node, "bases")}
    found = {}
    for name in ("ArrayNamespace", "LinalgNamespace", "FftNamespace", "Array", "Info"):
        entries = found[name] = {}
        for node, after in itertools.pairwise([*classes[name].body, None]):
            if isinstance(node, ast.FunctionDef) and node.name != "__init__":
                signature = None if node.decorator_list else signature_of(node)  # a property
                entries[node.name] = Entry(signature, ast.get_docstring(node) or "")
            elif isinstance(node, ast.AnnAssign) and node.target.id != "Device":  # a type
                kind = getattr(getattr(node.annotation, "value", None), "id", None)
                signature = signature_of(classes[kind].body[-1]) if kind else None
                entries[node.target.id] = Entry(signature, after.value.value if kind else "")
    return found


# ---- from English to Python ----------------------------------------------------------------------

NAME = r"``((?:abs\()?(?:x_i|x1_i|x2_i|min_i|max_i|self|[abcdN])\)?(?: - correction)?)``"
WHAT = {  # what an operand is, the last ones with a value
    "a finite number": "finite({0})",
    "a nonzero finite number": "finite({0}) and {0} != 0",
    "a nonzero number": "{0} != 0",
    "a positive finite number": "finite({0}) and {0} > 0",
    "a negative finite number": "finite({0}) and {0} < 0",
    "an odd integer value": "{0} % 2 == 1",
    "an integer value": "{0} % 1 == 0",
    "already integer-valued": "{0} % 1 == 0",
    "any value": "True",
    "greater than ": "{0} > {1}",
    "less than or equal to ": "{0} <= {1}",
    "less than ": "{0} < {1}",
    "equal to ": "{0} == {1}",
    "": "same({0}, {1})",
}
IS = "|".join(phrase + "``[^`]+``" * (phrase[-1:] in (" ", "")) for phrase in WHAT)
KINDS = {
    "both real-valued and complex floating-point": "fc",
    "real-valued floating-point": "f",
    "complex floating-point": "c",
    "floating-point": "f",
    "real-valued": "f",
    "boolean": "b",
    "all": "fc",
}
SCOPE = rf"For ({'|'.join(KINDS)}) operands"
PROSE = (  # sentences that say nothing which could be tested, or nothing more than others
    r"where (``cis\(v\)``|:math:)",  # definitions
    r"Hence, if ``z1",  # an example of the table of sums
    r"When at least one of",  # the sentence on finite numbers has the others
    r"In general, for complex floating-point operands, real-valued",  # of numbers with one part
    rf"{SCOPE}, (multiplication|division) is defined",  # tables with "special rules"
    rf"{SCOPE}, real-valued .*special cases (must|should) independently apply",  # see by_part
    rf"{SCOPE}, special cases should be .* ``exp\(x2\*log\(x1\)\)``",  # or "more carefully"
    r"Underflow may only occur",  # "conforming implementations may vary"
    r"If the determinant is",  # of slogdet, which has a test
    r".*``[^`]+`` must equal ``|.*as if the operation is implemented (as|by|using) ",  # laws
    rf"(Let ``N`` [^.]*\.)? ?({SCOPE})?,?( let .*?)?,?( and)?( if ``x1_i`` is not ``NaN``)?,?$",
)


def number(text: str) -> str:
    """Return a value of the text, such as ``-3π/4`` or ``+infinity``, as Python."""
    for old, new in (
        ("infinity", "inf"),
        ("NaN", "nan"),
        ("^±", ""),
        (r"(\d)π", r"\1*π"),
        ("π", "pi"),
        (r"\|(\w+)\|", r"abs(\1)"),
        (r"(?<![\w.])0(?![\w.])", "0.0"),
    ):
        text = re.sub(old, new, text.strip())
    return f"({text})"


def condition(text: str) -> str | None:
    """Return what follows an "If" as Python."""
    parts = []

    def keep(source):
        parts.append(f"({source})")
        return f"<{len(parts) - 1}>"

    def what(match):
        name, negated, *phrases = match.groups()
        found = []
        for phrase in filter(None, phrases):
            start = max((p for p in WHAT if phrase.startswith(p)), key=len)
            found.append(WHAT[start].format(name, number(phrase[len(start) :].strip("`"))))
        return keep(f"{'not ' * bool(negated)}({' or '.join(f'({one})' for one in found)})")

    def of_several(match):
        joiner = " and " if match[2] == "are all" else " or "
        return keep(joiner.join(f"isnan({name})" for name in re.findall(NAME, match[1])))

    several = NAME.replace("((?:abs", "(?:(?:abs")
    text = re.sub(r" \((?:i\.e\.|including)[^)]*\)|, including ``NaN``", "", text)
    for pattern, rule in (
        (rf"the sign bit of {NAME} is ``([01])``", lambda m: keep(f"signbit({m[1]}) == {m[2]}")),
        (rf"{NAME} and {NAME} have (the same|different) mathematical signs?",
         lambda m: keep(f"(signbit({m[1]}) == signbit({m[2]})) == {m[3] == 'the same'}")),
        ("are both nonzero finite numbers",
         lambda m: keep("finite(x1_i) and finite(x2_i) and x1_i != 0 and x2_i != 0")),
        (rf"two integers are equally close to {NAME}", lambda m: keep(f"{m[1]} % 1 == 0.5")),
        (rf"(?:either )?({several}(?:,? (?:or |and )?{several})+) (is|are all) ``NaN``",
         of_several),
        (rf"{NAME} equals {NAME}", lambda m: keep(f"{m[1]} == {m[2]}")),
        (rf"{NAME} does not equal {NAME}", lambda m: keep(f"{m[1]} != {m[2]}")),
        (rf"{NAME} (?:is )?(not )?(?:either )?({IS})(?: or ({IS})(?! is))?", what),
    ):  # fmt: skip
        text = re.sub(pattern, rule, text)
    if not re.fullmatch(r"<\d+>((,? and | or |, )<\d+>)*", text):
        return None
    text = re.sub(r",? and |, ", " and ", text)
    return re.sub(r"<(\d+)>", lambda m: parts[int(m[1])], text)


def value_test(value: str, free: str = "", eps: str = "0") -> str:
    """Return a test that ``found`` is a value; ``free`` names parts of any sign."""
    cis = re.fullmatch(r"(\S+) \* cis\(b\)( - 1\.0)?", value)
    pair = re.fullmatch(r"(\S+) ?([+±-]) ?(\S*) ?j(\S*)", value)
    if cis:
        parts = f"{number(cis[1])} * cos(b){cis[2] or ''}", f"{number(cis[1])} * sin(b)"
        signed = True, True
    elif pair:
        real, sign, imag, rest = pair.groups()
        parts = number(real), f"{'-' * (sign == '-')}{number(imag + rest)}"
        signed = (
            real[0] not in "±0" and "real" not in free,
            sign != "±" and value != "0 + 0j" and "imag" not in free,
        )
    else:
        return f"same(found, {number(value)}, {value != '0'}, {eps})"
    return " and ".join(
        f"same(found.{name}, {part}, {one}, {eps})"
        for name, part, one in zip(("real", "imag"), parts, signed)
    )


RESULTS = (  # results that are no values: how their sentences begin, and tests
    ("has a positive mathematical sign", "isnan(found) or not signbit(found)"),
    ("has a negative mathematical sign", "isnan(found) or signbit(found)"),
    ("is a signed infinity", "same(found, copysign(inf, x1_i) * sign(x2_i))"),
    ("is the integer part of ``self``", "found == trunc(self)"),
    ("is the even integer closest to ``x_i``", "same(found, rint(x_i))"),
    ("is implementation dependent", "True"),
    ("is the logical AND .*``a == c AND b == d``", "found == (a == c and b == d)"),
    ("is the logical OR .*``a != c OR b != d``", "found == (a != c or b != d)"),
    ("must be computed and rounded to the nearest.* IEEE", "same(found, {})"),
    ("must be computed and rounded to the greatest",
     "same(found, floor(x1_i / x2_i)) or same(found, exact_floor(x1_i, x2_i), 1, eps)"),
    ("must match that of the Python ``%`` operator",
     "same(found, float(x1_i) % float(x2_i), 1, 2 * eps)"),
    ("must be handled according to the rules of complex number division",  # of finite numbers
     "not hypot(a, b) < inf or near(found, complex(a, b) / hypot(a, b), 4 * eps)"),
)  # fmt: skip
STEPS = {"sum": "x1_i + x2_i", "product": "x1_i * x2_i", "quotient": "x1_i / x2_i"}


def result(text: str) -> str | None:
    """Return what follows the condition as a test of ``found``."""
    free = " ".join(re.findall(r"signs? of ([\w ]+?) components? (?:is|are) unspecified", text))
    other = re.search(r"libraries may return ``([^`]+)``", text)
    raised = re.match(r"raise ``(\w+)``", text)
    what = re.match(
        r"the (?:(real|imag)\w* component of the )?[\w ]+? (?:is|should be) "
        r"(an implementation-dependent approximation to |equivalent to |equal to )?"
        r"`{1,2}([^`]+)`{1,2}(?: with a sign bit of ``([01])``)?(\.|, even| \()",
        text,
    )
    if raised:
        return f"type(found) is {raised[1]}"
    if what:
        eps = "4 * eps" if what[2] or re.search("π|cis", what[3]) else "0"
        test = value_test(what[3], free, eps)
        test = test.replace("found", f"found.{what[1]}") if what[1] else test
        test += f" and signbit(found) == {what[4]}" if what[4] else ""
        return f"{test} or {value_test(other[1])}" if other else test
    for start, test in RESULTS:
        match = re.match(f"(?:the )?([a-z ]+) {start}", text)
        if match:
            return test.format(STEPS.get(match[1]))
    return None


FINITE = "finite(a) and finite(b) and finite(c) and finite(d)"
FORMULAS = (  # sentences on complex operands: their words, conditions and tests
    ("all finite .* multiplication of", FINITE, "near(found, product(a, b, c, d), 8 * eps)"),
    ("all finite .* division of", FINITE, "near(found, quotient(a, b, c, d), 8 * eps)"),
    ("addition is defined according to the following table", "True",
     "same(found.real, a + c) and same(found.imag, b + d)"),
    (r"logical OR of ``bool\(real\(self\)\)`` and", "True", "found == (bool(a) or bool(b))"),
)  # fmt: skip


# ---- sections ------------------------------------------------------------------------------------


def laws(name: str, entry: Entry) -> list[Law]:
    """Return what "must equal" something else, or is "as if implemented as" something else."""
    found = []
    called = f"{name}({', '.join(entry.signature.parameters)})"
    for line in entry.text.splitlines():
        scope = re.search(SCOPE, line)
        kinds = KINDS[scope[1]] if scope else "fc"
        kinds = "c" if "conj(" in line or "real(" in line else kinds
        equal = r"``([^`]+)`` must equal ((?:``[^`]+``(?:, and|,)? ?)+)"
        for left, rights in re.findall(equal, line.replace("-z", "-x").replace("(z)", "(x)")):
            for right in re.findall("``([^`]+)``", rights):
                right = right.replace(")))", "))")
                found.append(Law(f"{left} == {right}", kinds, left, right))
        as_if = re.search(r"must be handled as if the operation is implemented as ``(.*?)``", line)
        if as_if:
            right = re.sub(r"^-1j \* (.*)$", r"turn(\1, -1)", as_if[1])
            right = right.replace("x*1j", "turn(x, 1)")
            right = {"x * x": "multiply(x, x)", "1.0 / x": "divide(1.0, x)"}.get(right, right)
            kinds = "fc" if scope[1] == "floating-point" else kinds
            found.append(Law(f"as if {as_if[1]}", kinds, called, right))
        if "standard change of base formula" in line:
            base = int(name.removeprefix("log"))
            right = f"scale(log(x), {1 / math.log(base)})"
            found.append(Law(f"as if log(x) / log({base})", "c", called, right))
    return found


def cases(entry: Entry) -> list[Case]:
    """Return the sentences of the section on special cases."""
    section = re.search(
        r"\*\*Special [cC]ases\*\*\n(.*?)(?=\n\*\*Lazy|\nParameters\n|\Z)", entry.text, re.DOTALL
    )
    if not section:
        return []
    text = textwrap.dedent(section[1])
    by_part = re.search("to (the )?real and imaginary component", text)
    by_part = by_part and "In general, for complex" not in text
    text = re.sub(r"(?m)^\.\. .*\n?(?:\n|[ \t]+.*\n?)*", "", text)  # notes, formulas
    text = re.sub(r"(?m)^([+|].*|\*\*Raises.*|Notes|-----)$", "", text)  # tables, headings
    found, kinds = [], "if"
    for item in re.split(r"\n(?=-\s)|\n\s*\n", text):
        sentence = " ".join(item.split())
        scope = re.search(SCOPE, sentence)
        if scope and not sentence.startswith("- "):
            kinds = KINDS[scope[1]]
        found += of_sentence(sentence.removeprefix("- "), kinds, found)
    if by_part:
        found += [case for part in map(of_parts, found) for case in part]
    return found


def of_sentence(sentence: str, kinds: str, earlier: list[Case]) -> list[Case]:
    """Return the cases of a sentence: none if it names operands, or is a law or prose."""
    others = [f"not ({c.applies})" for c in earlier if c.kinds == kinds and not c.open]
    rest = re.match(r"In the remaining cases,(?: wh.*? involved,)?(?: and .*?,)? ", sentence)
    match = re.fullmatch(r"(?:Similarly, i|I)f (.*?),? ((?:the (?!si|same)|raise ).*)", sentence)
    if any(re.match(prose, sentence) for prose in PROSE):
        return []
    if rest:
        holds = result(sentence[rest.end() :])
        return [Case(sentence, kinds, " and ".join(others) or "True", holds)]
    if match:
        given = condition(match[1])
        if given and re.search(r"any value(?!,? \(?incl)", sentence):  # others come first
            given = " and ".join([given, *others])
        sign = "mathematical sign" in match[2] and "infinity" not in match[2]
        return [Case(sentence, kinds, given, result(match[2]), open=sign)]
    for pattern, given, holds in FORMULAS:
        if re.search(pattern, sentence):
            return [Case(sentence, "c", given, holds)]
    return [Case(sentence, kinds, None, None)]


def of_parts(case: Case) -> list[Case]:
    """Return the cases of the parts of complex operands for one of real operands."""
    if "f" not in case.kinds or case.holds is None:
        return []
    found = []
    for part, first, second in (("real", "a", "c"), ("imag", "b", "d")):
        names = {"x_i": first, "x1_i": first, "x2_i": second, "found": f"found.{part}"}
        sources = [
            re.sub(r"\b(x1?_i|x2_i|found)\b", lambda m, names=names: names[m[1]], source)
            for source in (case.applies, case.holds)
        ]
        found.append(Case(f"{part} part: {case.text}", "c", *sources))
    return found


# ---- what the expressions call -------------------------------------------------------------------


def same(found, expected, signed=True, eps=0.0) -> bool:
    """Compare real numbers: NaN is equal to NaN, zeros and infinities have their sign."""
    found, expected = float(found), float(expected)
    if math.isnan(expected) or math.isnan(found):
        return math.isnan(expected) and math.isnan(found)
    if not signed:
        found, expected = abs(found), abs(expected)
    if expected == 0 or math.isinf(expected) or math.isinf(found):
        return found == expected and math.copysign(1, found) == math.copysign(1, expected)
    return abs(found - expected) <= eps * abs(expected)


def near(found, expected, eps) -> bool:
    """Compare complex numbers, whose error is relative to their absolute value; of finite ones."""
    return not abs(expected) < math.inf or abs(found - expected) <= eps * abs(expected)


def product(a, b, c, d) -> complex:
    """Return (a + bj) * (c + dj) by the textbook."""
    return complex(a * c - b * d, b * c + a * d)


def quotient(a, b, c, d) -> complex:
    """Return (a + bj) / (c + dj) by the textbook, NaN for a divisor of zero."""
    square = c * c + d * d
    return complex((a * c + b * d) / square, (b * c - a * d) / square) if square else math.nan


def exact_floor(x1, x2):
    """Return floor(x1 / x2) of the exact quotient."""
    return type(x1)(Fraction(float(x1)) / Fraction(float(x2)) // 1)


FUNCTIONS = {
    **dict(same=same, near=near, product=product, quotient=quotient, exact_floor=exact_floor),
    **dict(finite=np.isfinite, inf=math.inf, nan=math.nan, pi=math.pi),
    **{name: getattr(np, name) for name in "copysign cos floor hypot isnan rint".split()},
    **{name: getattr(np, name) for name in "sign signbit sin trunc".split()},
}
