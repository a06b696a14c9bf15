"""Proofs, for one program, that Pullback is right where it differs from torch.

Each runs the program again, in a way in which the cause of the difference is gone.
"""

from __future__ import annotations

import re

import torch

import pullback

from .compare import compare
from .world import World

FLAGS = ("view", "base")
HOOKS = re.compile(r"enter\(m\.autograd\.graph\.(saved_tensors|save_on_cpu|disable_saved).*\)$")


def run_program(m, statements, observed):
    """Return the trace of a program: one observation per statement, and one of the end."""
    world = World(m, observed)
    trace = [world.run(statement) for statement in statements]
    return [*trace, world.finish()]


def reset():
    """Undo what a program may leave switched."""
    for m in (torch, pullback):
        m.set_grad_enabled(True)


def proved(reason, statements, observed, ours, found):
    """Return True if a difference with this reason needs no proof, or there is one."""
    proof = PROOFS.get(reason)
    if proof is None:
        return True
    reset()
    return proof(statements, observed, ours, found)


def nothing_saved_was_overwritten(statements, observed, ours, found):
    """Pullback gives the same where nothing that was saved can be overwritten.

    So what torch refuses because a saved value changed, or could have, is right here. Hooks of the
    program, which would replace those that keep copies, are left out of both runs.
    """
    plain = [
        HOOKS.sub("enter(m.autograd.set_multithreading_enabled(True))", statement)
        for statement in statements
    ]
    if plain != list(statements):
        statements, ours = plain, run_program(pullback, plain, observed)
        reset()
    with pullback.autograd.graph.allow_mutation_on_saved_tensors():
        safe = run_program(pullback, statements, observed)
    other = compare(statements, safe, ours)
    return other is None or other.step > found.step or other.path in ("outcome", "error")


def torch_agrees_on_a_copy(statements, observed, ours, found):
    """torch gives Pullback's values if the operand of the transform has memory of its own."""
    copied = list(statements)
    copied[found.step] = re.sub(r"(\w+)\)$", r"\1.clone())", found.statement)
    theirs = run_program(torch, copied, observed)[found.step]
    result = found.statement.partition(" = ")[0]
    if theirs["outcome"][0] != "ok" or ours[found.step]["outcome"][0] != "ok":
        return False
    parts = [only(step["seen"].get(result), "value") for step in (theirs, ours[found.step])]
    blank = {"outcome": ["ok"], "calls": [], "bumps": {}}
    steps = [[{**blank, "seen": {result: part}}] for part in parts]
    return compare([found.statement], *steps) is None


def the_rest_is_the_same(statements, observed, ours, found):
    """Without the flags that differ, the whole program is the same, or differs as is meant."""
    from .meant import accepted

    theirs = run_program(torch, statements, observed)
    traces = [
        [{**step, "seen": without(step["seen"], FLAGS)} for step in trace]
        for trace in (theirs, ours)
    ]
    other = compare(statements, *traces)
    return other is None or accepted(other) is not None


def without_what_failed(statements, observed, ours, found):
    """Without the passes that failed, both give the same up to there, or differ as is meant."""
    from .meant import accepted

    theirs = run_program(torch, statements, observed)
    kept = [
        k
        for k, statement in enumerate(statements)
        if not (
            "backward(" in statement and "error" in (theirs[k]["outcome"][0], ours[k]["outcome"][0])
        )
    ]
    rest = [statements[k] for k in kept]
    reset()
    theirs = run_program(torch, rest, observed)
    reset()
    other = compare(rest, theirs, run_program(pullback, rest, observed))
    end = [*kept, len(statements)]
    return other is None or end[other.step] > found.step or accepted(other) is not None


def only(seen, key):
    return {key: seen[key]} if isinstance(seen, dict) and key in seen else seen


def without(seen, keys):
    """Return what was seen without some entries, however deep."""
    if isinstance(seen, dict):
        return {key: without(value, keys) for key, value in seen.items() if key not in keys}
    return [without(value, keys) for value in seen] if isinstance(seen, list) else seen


PROOFS = {
    "a tangent of a tensor that overlaps itself has memory of its own": torch_agrees_on_a_copy,
    "a pass that fails may fail later": without_what_failed,
    "a written view of all of a base that nothing else holds is no view": the_rest_is_the_same,
    **dict.fromkeys(
        (
            "what a restricted pass does not need may have been modified",
            "a saved view has the history that it had when it was saved",
            "a saved tensor may be detached in place",
            "backward(inputs=) does not run the node of a non-leaf",
            "formulas save less",
            "x.data = y leaves the version counter to the tensors that keep the old memory",
        ),
        nothing_saved_was_overwritten,
    ),
}
