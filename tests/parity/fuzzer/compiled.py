"""Random programs as functions: compiled, each must give what it gives as it is, or run eagerly.

The tensors that a program makes from numbers are the arguments, or what is computed from them, or
the function has them from outside; what the program computes are the results. Statements that raise
are left out. Contexts that a program enters become ``with`` statements.

    PYTHONPATH=tests/parity python -m fuzzer.compiled --seed 0 --count 2000
"""

from __future__ import annotations

import argparse
import collections
import math
import re
import sys
import warnings

import pullback

from .draft import write_program
from .world import World

ARGUMENT = re.compile(r"(t\d+) = m\.tensor\(")
ENTER = re.compile(r"enter\((.*)\)$")
VARIABLE = re.compile(r"\b[a-z]\d+\b")
ROOM = {pullback.float32: 1e-5, pullback.complex64: 1e-5}  # of sums in another order
CALLS = (1.0, 1.0, 1.0, 0.75, 1.25)  # factors of the arguments
WAYS = ("arguments", "history", "outside")  # what the function gets, in turn


class Quiet(World):
    """A world whose hooks and functions keep no log."""

    def note(self, tag, *things):
        pass


class Program:
    """A program as a function, with what makes its arguments."""

    def __init__(self, seed):
        draft = write_program(pullback, seed)
        pullback.set_grad_enabled(True)
        self.seed, self.way = seed, WAYS[seed % len(WAYS)]
        done = [
            statement
            for statement, step in zip(draft.statements, draft.trace)
            if step["outcome"][0] == "ok"
        ]
        self.makers = [statement for statement in done if ARGUMENT.match(statement)]
        self.arguments = [ARGUMENT.match(statement)[1] for statement in self.makers]
        self.source = self.function_of([one for one in done if one not in self.makers], draft)
        self.names = Quiet(pullback).names

    def function_of(self, statements, draft):
        known, lines, depth = set(self.arguments), [], 1
        for statement in statements:
            text = "    " * depth
            context = ENTER.match(statement)
            if "'nothing'" in statement:
                continue  # a hook that stops a gradient before a part of the graph that was freed
            if statement == "leave()":
                depth = max(1, depth - 1)
                continue
            target, equals, rest = statement.partition(" = ")
            assigned = set(VARIABLE.findall(target)) if equals and "(" not in target else set()
            if not set(VARIABLE.findall(rest if assigned else statement)) - assigned <= known:
                continue  # it needs what a statement that raised would have made
            if assigned and not re.fullmatch(r"[a-z0-9, ]+", target):
                assigned = set()
            known |= assigned
            whole = f"with {context[1]}:" if context else statement
            lines.append(text + whole.replace("\n", f"\n{text}"))
            if context:
                depth += 1
                lines.append("    " * depth + "pass")
        tensors = [
            name
            for name, value in draft.world.names.items()
            if name in known and isinstance(value, pullback.Tensor)
        ]
        head = f"def program({', '.join(self.arguments)}):"
        if self.way == "outside":
            head = f"def program():\n    global {', '.join(self.arguments) or 'none'}"
        return "\n".join([head, *lines, f"    return ({''.join(f'{one}, ' for one in tensors)})"])

    def calls(self, wrap):
        """Yield what each call of the function gives."""
        names = dict(self.names)
        exec(compile(self.source, f"<program {self.seed}>", "exec"), names)
        function = wrap(names["program"])
        for number, factor in enumerate(CALLS):
            if number == 0 or self.way != "outside":
                for statement in self.makers:
                    exec(statement, names)
            tensors = [names[name] for name in self.arguments if name in names]
            with pullback.no_grad():
                for one in tensors:
                    if one.is_floating_point() or one.is_complex():
                        one.mul_(factor)
            if self.way == "outside":
                yield outcome(function, [], tensors)
            elif self.way == "history":
                given = [one * 1 if one.requires_grad else one for one in tensors]
                yield outcome(function, given, [*given, *tensors])
            else:
                yield outcome(function, tensors, tensors)


def seen(tensor):
    """Return what is compared of a tensor."""
    if tensor is None:
        return None
    resolved = tensor.detach().resolve_conj().resolve_neg()
    return tensor.dtype, tuple(tensor.shape), tensor.requires_grad, resolved.tolist()


def outcome(function, arguments, watched):
    """Return what a call gives: results, watched tensors, their gradients, those of a pass."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = function(*arguments)
            found.append(pullback.is_grad_enabled())
            pullback.set_grad_enabled(True)
            found += [seen(one) for one in (*results, *watched)]
            found += [seen(one.grad) for one in watched if one.is_leaf]
            roots = [one for one in results if one.requires_grad and not one.is_inference()]
            if roots:
                total = sum(one.abs().sum().to(pullback.float64) for one in roots)
                total.backward()
                found += [seen(one.grad) for one in watched if one.is_leaf]
        except Exception as error:
            found.append(type(error).__name__)
        finally:
            pullback.set_grad_enabled(True)
    return found


def is_alike(one, other):
    """Return True if two outcomes are the same, but for the order of sums."""
    if isinstance(one[-1], str) and isinstance(other[-1], str):
        return True  # two errors; gradients of a pass that fails may have been accumulated
    if len(one) != len(other):
        return False
    room = max((ROOM.get(a[0], 0) for a in one if isinstance(a, tuple)), default=0) or 1e-12
    for a, b in zip(one, other):
        if not isinstance(a, tuple) or not isinstance(b, tuple):
            if a != b:
                return False
        elif a[:3] != b[:3] or not are_near(a[3], b[3], room):
            return False
    return True


def are_near(one, other, room):
    if isinstance(one, list):
        return all(are_near(a, b, room) for a, b in zip(one, other))
    if isinstance(one, complex):
        return are_near(one.real, other.real, room) and are_near(one.imag, other.imag, room)
    if isinstance(one, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return both_nan or math.isclose(one, other, rel_tol=room, abs_tol=room)
    return one == other


def run(seed):
    """Return how a program ran, "replayed" or "eager", and its first difference or None."""
    program = Program(seed)
    made = []

    def compiled(function):
        made.append(pullback.compile(function))
        return made[0]

    pairs = zip(program.calls(lambda function: function), program.calls(compiled))
    for number, (expected, found) in enumerate(pairs):
        if not is_alike(expected, found):
            unlike = [(a, b) for a, b in zip(expected, found) if not is_alike([a], [b])]
            lengths = [(len(expected), len(found))]
            return "different", f"call {number}: {(unlike or lengths)[0]}\n{program.source}"
        if isinstance(expected[-1], str) and program.way == "outside":
            break  # later calls go on from there
    return ("replayed" if len(made[0].entries) else "eager"), None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed")
    parser.add_argument("--count", type=int, default=2000, help="how many programs")
    options = parser.parse_args()
    counts = collections.Counter()
    for seed in range(options.seed, options.seed + options.count):
        how, difference = run(seed)
        counts[how] += 1
        if difference:
            print(f"seed {seed}: {difference}\n")
    print(dict(counts))
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
