"""Where two runs of a program differ."""

from __future__ import annotations

import cmath
import re
from dataclasses import dataclass, field

# What messages must have in common: users match on these.
FRAGMENTS = [
    "you can only change requires_grad flags of leaf variables",
    "Can't detach views in-place",
    "can't retain_grad on Tensor that has requires_grad=False",
    "cannot register a hook on a tensor that doesn't require gradient",
    "post accumulate grad hooks cannot be registered on non-leaf tensors",
    "assigned grad expected to be a Tensor or None",
    "attempting to assign a gradient of size",
    "attempting to assign a gradient with dtype",
    "can't assign Variable as its own grad",
    "Only Tensors created explicitly by the user",
    "Only Tensors of floating point and complex dtype can require gradients",
    "only Tensors of floating point dtype can require gradients",
    "It is not possible to get the gradient edge",
    "argument to `grad()` cannot be empty",
    "argument to `backward()` cannot be empty",
    "does not require grad and does not have a grad_fn",
    "One of the differentiated Tensors does not require grad",
    "grad can be implicitly created only for",
    "only for real scalar outputs",
    "Mismatch in shape: grad_output",
    "For complex Tensors, both grad_output and output are required to have the same dtype",
    "Expected allow_unused to be True or not passed",
    "appears to not have been used in the graph",
    "If `is_grads_batched=True`",
    "Trying to backward through the graph a second time",
    "returned an incorrect number of gradients",
    "returned an invalid gradient at index",
    "expected Variable or None",
    "has been modified by an inplace operation",
    "a leaf Variable that requires grad is being used in an in-place operation",
    "a view of a leaf Variable that requires grad is being used in an in-place operation",
    "This view is the output of a function that returns multiple views",
    "A view was created in no_grad mode and is being modified inplace with grad mode enabled",
    "A view was created in inference mode and is being modified inplace in normal mode",
    "This view was created inside a custom Function",
    "more than one element of the written-to tensor refers to a single memory location",
    "Inplace update to inference tensor outside InferenceMode is not allowed",
    "Inference tensors cannot be saved for backward",
    "A saved tensor pack hook is modifying its input in place",
    "Output of saved tensor unpack_hook expected to be a Tensor",
    "contexts cannot be nested",
    "has changed the size of value",
    "has changed the type of value",
    "expected Variable, but hook returned",
    "has returned an incorrect number of values",
    "Some elements marked as dirty",
    "a leaf Variable that requires grad has been used in an in-place operation",
    "trying to differentiate twice a function that was marked with @once_differentiable",
    "You must implement either the backward or vjp method",
    "out= arguments don't support automatic differentiation",
]


# Messages that stand for each other: which of two reasons comes first is no promise.
EQUIVALENT = [
    {
        "a leaf Variable that requires grad is being used in an in-place operation",
        "a view of a leaf Variable that requires grad is being used in an in-place operation",
    },
    {
        "A view was created in no_grad mode and is being modified inplace with grad mode enabled",
        "This view is the output of a function that returns multiple views",
        "This view was created inside a custom Function",
    },
    {
        "Trying to backward through the graph a second time",
        "has been modified by an inplace operation",
    },
    {
        "grad can be implicitly created only for",
        "does not require grad and does not have a grad_fn",
        "If `is_grads_batched=True`",
    },
    {
        "has been modified by an inplace operation",
        "appears to not have been used in the graph",
    },
    {
        "can't retain_grad on Tensor that has requires_grad=False",
        "One of the differentiated Tensors does not require grad",
    },
]


@dataclass
class Difference:
    """The first step at which two traces differ."""

    step: int
    statement: str
    path: str
    torch: object
    pullback: object
    program: str = field(repr=False)
    torch_step: dict = field(repr=False)
    failed: bool = False  # a backward pass before it failed

    def key(self):
        """Return what differences with one cause share, roughly."""
        statement = re.sub(r"\b[a-z]\d+\b", "x", self.statement)
        statement = re.sub(r"m\.tensor\(.*?dtype=m\.\w+\)", "tensor", statement)
        path = re.sub(r"\b[a-z]\d+\b", "x", re.sub(r"\[\d+\]", "[]", self.path))
        return f"{path} after {statement}"

    def __str__(self):
        return (
            f"step {self.step}: {self.statement}\n"
            f"  {self.path}\n    torch:    {self.torch}\n    pullback: {self.pullback}"
        )


def near(a, b, scale):
    """Return True if two numbers are equal up to rounding."""
    if cmath.isnan(a) or cmath.isnan(b):
        return cmath.isnan(a) and cmath.isnan(b)
    return a == b or abs(a - b) <= 1e-7 * max(abs(a), abs(b), 0.1) * scale


def first_difference(theirs, ours, path="", scale=1):
    """Return (path, theirs, ours) of the first difference between two observations, or None."""
    numbers = (int, float, complex)
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if any("derivative" in str(side.get("graph")) for side in (theirs, ours)):
            theirs, ours = ({**side, "graph": None} for side in (theirs, ours))
        for key in theirs if theirs.keys() == ours.keys() else ():
            found = first_difference(theirs[key], ours[key], f"{path}.{key}", scale)
            if found:
                return found
        return None if theirs.keys() == ours.keys() else (path, list(theirs), list(ours))
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            return path, theirs, ours
        for k, (a, b) in enumerate(zip(theirs, ours)):
            found = first_difference(a, b, f"{path}[{k}]", scale)
            if found:
                return found
        return None
    if isinstance(theirs, bool) or isinstance(ours, bool) or type(theirs) is not type(ours):
        same = theirs is ours or (type(theirs) is type(ours) and theirs == ours)
    elif isinstance(theirs, numbers):
        same = near(theirs, ours, scale)
    else:
        same = theirs == ours
    return None if same else (path, theirs, ours)


def compare_outcomes(theirs, ours):
    """Compare whether a statement raised, and what."""
    if theirs[0] != ours[0]:
        return "outcome", shorten(theirs), shorten(ours)
    if theirs[0] == "ok":
        return None
    if theirs[1][0] not in ours[1]:
        return "error", shorten(theirs), shorten(ours)
    found = [{fragment for fragment in FRAGMENTS if fragment in side[2]} for side in (theirs, ours)]
    if found[0] == found[1] or any(all(side & group for side in found) for group in EQUIVALENT):
        return None
    return f"message '{next(iter(found[0] ^ found[1]))}'", shorten(theirs), shorten(ours)


def shorten(outcome):
    """Return an outcome in one line."""
    if outcome[0] == "ok":
        return "no error"
    return f"{outcome[1][0]}: {outcome[2].splitlines()[0] if outcome[2] else ''}"


def compare_calls(theirs, ours, scale):
    """Compare the calls that a statement led to."""
    found = first_difference(theirs, ours, "calls", scale)
    if found is None or not any(call[0].startswith("all ") for call in [*theirs, *ours]):
        return found
    # Without hooks over several tensors the rest must be the same.
    theirs, ours = ([c for c in calls if not c[0].startswith("all ")] for calls in (theirs, ours))
    return first_difference(theirs, ours, "calls", scale) or ("multi-grad hooks", *found[1:])


def compare(statements, theirs, ours):
    """Return the first difference between two traces of a program, or None."""
    text = "\n".join(statements)
    scale = 1000 if re.search(r"float32|float\(\)|complex64|F\.Cast", text) else 1
    failed = False
    for step, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        statement = statements[step] if step < len(statements) else "(end)"
        found = (
            compare_outcomes(a["outcome"], b["outcome"])
            or compare_calls(a["calls"], b["calls"], scale)
            or first_difference(a["bumps"], b["bumps"], "bumps")
            or first_difference(a["seen"], b["seen"], "seen", scale)
        )
        if found:
            program = "\n".join(statements[: step + 1])
            return Difference(step, statement, *found, program, a, failed)
        failed = failed or ("backward(" in statement and a["outcome"][0] == "error")
    return None
