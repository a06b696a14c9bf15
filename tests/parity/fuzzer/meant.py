"""Differences from torch that are meant: improvements, and what torch does not promise.

Each has its reason; docs/start/from-torch.md has those that users can notice. Where a
reason could hide a mistake, `proofs` shows for each program that it does not.
"""

from __future__ import annotations

import re


def accepted(difference):
    """Return why a difference is meant, or None."""
    for reason, holds in MEANT.items():
        if holds(difference):
            return reason
    return None


# What torch saves as tensors: indices, masks, numbers, results that our formulas do without.
SAVED_BY_TORCH_ALONE = (
    *(
        "[m.tensor(",
        "(m.tensor(",
        "masked_select",
        ".prod(",
        " > 0.012]",
        "maximum",
        " * 2",
        " / 2",
    ),
    *("mul_(2)", "*= 0.5", "** 2", " * 3", ".norm(", ".cumprod("),
    *("m.complex(", ".scatter_reduce(", ".scatter_reduce_(", ".gather("),
)


def saves_less(d):
    """Return True if torch raised for a saved value that our formula does not need."""
    raised = str(d.torch)
    missing = re.search(
        "a second time|modified by an inplace|saved tensor unpack_hook|ValueError: s", raised
    )
    return missing and any(other in d.program for other in SAVED_BY_TORCH_ALONE)


def writes_a_stale_view(d):
    """Return True if torch takes a view for a leaf because its history was not asked for yet."""
    target = d.statement.partition("[")[0]
    seen = d.torch_step["seen"].get(target, {"view": True})
    if d.path == "outcome" and "you can only change requires_grad flags" in d.pullback:
        return True
    return (
        seen["view"]
        and "a leaf Variable that requires grad" in str(d.torch)
        and (d.pullback == "no error")
    )


def is_rest(ours, theirs):
    """Return True if a hook of a node was given what torch's was, without some of it."""
    return (
        isinstance(ours, list)
        and isinstance(theirs, list)
        and len(ours) < len(theirs)
        and all(gradient in theirs for gradient in ours)
    )


# Functions of a transform whose derivative is linear, or constant but for jumps.
QUADRATIC = re.compile(
    r"'(hessian|jvp-grad|grad-jvp|jvp-jvp|grad-grad)', '(mul|copy|compare|fill)'|'\S+', 'compare'"
)


def has_constant_derivative(d):
    """Return True if torch gives a derivative that does not depend on x a history all the same."""
    linear = "create_graph" in d.program and any(
        power in d.program for power in (".square(", "** 2", "** 3", "pow_", "'prod'")
    )
    return (linear or QUADRATIC.search(d.program)) and (
        (d.path.endswith("requires_grad") and d.torch is True)
        or (
            re.search(
                "does not require grad|doesn't require grad|requires_grad=False|'NoneType'",
                str(d.pullback),
            )
            and (d.torch == "no error" or d.path.startswith("message"))
        )
        or ("inside a custom Function" in str(d.torch) and d.pullback == "no error")
    )


# A hook of the program raises s0, s1, ..., or gives a number.
HOOKED = "Error: s|saved tensor unpack_hook expected"
STALE = "its base or another view of its base has been modified inplace"


MEANT = {
    "of two reasons to refuse the other is given": lambda d: (
        d.path.startswith(("message", "error"))
        and "RuntimeError" in str(d.torch)
        and re.search("RuntimeError|IndexError: Dimension", str(d.pullback))
        and re.search(f"{STALE}|is being modified inplace|that is a view of another Tensor", str(d))
    ),
    "what a restricted pass does not need may have been modified": lambda d: (
        "modified by an inplace operation" in str(d.torch)
        and d.pullback == "no error"
        and ("autograd.grad(" in d.statement or "inputs=[" in d.statement)
    ),
    "a saved view has the history that it had when it was saved": lambda d: (
        (
            STALE in str(d.torch)
            and d.pullback == "no error"
            and re.search(r"backward\(|autograd\.grad\(", d.statement)
        )
        or (d.torch == "unreadable" and ".conj()" in d.program)
    ),
    "a gradient that goes nowhere is not computed": lambda d: (
        d.path.startswith("calls[")
        and d.torch is not None
        and (d.pullback is None or is_rest(d.pullback, d.torch))
    ),
    "a seed is passed on without its own history unless that is recorded": lambda d: (
        d.path.startswith("calls[")
        and d.path.endswith("requires_grad")
        and "create_graph" not in d.statement
    ),
    "comparisons leave a tensor of integers without a derivative": lambda d: (
        re.search(r"\.(eq|ne|lt|le|gt|ge)_\(", d.statement)
        and d.path.endswith("requires_grad")
        and d.torch is True
    ),
    "without create_graph gradients do not require grad, for any seed": lambda d: (
        d.path.endswith("requires_grad")
        and d.torch is True
        and "autograd.grad(" in (d.program if d.statement == "(end)" else d.statement)
        and "create_graph" not in d.statement
    ),
    "the derivative of a linear function does not require grad": has_constant_derivative,
    "a view written before its base was made to require grad stays a leaf": lambda d: (
        (d.path.endswith(".leaf") or ".graph" in d.path)
        and re.search(r"\.requires_grad(_\(\)| = True)", d.program)
    ),
    "a view of a base that was detached and written is a leaf": lambda d: (
        re.search(r"\.detach_\(\)|\.requires_grad(_\(| = )False", d.program)
        and (d.path.endswith("requires_grad") or ".graph" in d.path or ".leaf" in d.path)
    ),
    "grad() gives the gradient after hooks also where the pass goes on": lambda d: (
        ".value" in d.path
        and re.search(r"\w+, \w+, = own\(", d.program)
        and ".register_hook(hook(" in d.program
    ),
    "whether a reshape copies depends on strides of a result, which are no promise": lambda d: (
        (
            d.path.endswith(".view")
            and re.search(
                r"\.(flatten|reshape|contiguous)\(",
                d.program if d.statement == "(end)" else d.statement,
            )
        )
        or ("'s stride[" in d.path and ".unfold(" in d.program)
        or re.search("view size is not compatible|with stride 1", f"{d.torch} {d.pullback}")
    ),
    "a pass that fails may fail later": lambda d: (
        (d.path == "calls" or ".grad" in d.path)
        and (d.torch_step["outcome"][0] == "error" or d.failed)
    ),
    "a value is expanded by a node of its own to what it is assigned to": lambda d: (
        d.path.startswith("calls") and ".shape" in d.path and re.search(r"\] .?= ", d.program)
    ),
    "the order of what a custom Function writes and reads": lambda d: (
        "F.WriteFirst" in d.statement and ".graph" in d.path
    ),
    "a gradient in .grad never shares memory with the seed": lambda d: (
        (d.path.startswith("bumps") and "backward(" in d.statement and not d.pullback)
        or (
            (".grad.value" in d.path or re.match(r"calls.*\.value", d.path))
            and re.search(r"backward\(gradient=t\d", d.program)
        )
    ),
    "a write by a custom Function under no_grad leaves requires_grad as it was": lambda d: (
        re.search("F.(Write|Dirty)", d.program)
        and (
            (d.path.endswith("requires_grad") and d.torch is False)
            or (".graph" in d.path and "m.no_grad()" in d.program)
            or ".grad.value" in d.path
            or (d.pullback == "no error" and "does not require grad" in str(d.torch))
        )
    ),
    "a gradient with a history can be copied with its leaf": lambda d: (
        "deepcopy" in d.statement and d.pullback == "no error"
    ),
    "gradients of a batch in .grad are of no use outside": lambda d: (
        "vmap: " in str(d.torch)
        or (
            "is_grads_batched" in d.program
            and ("retain_grad()" in d.program or "escaped" in str(d.pullback))
            and ".grad" in d.path
        )
    ),
    "a batch of gradients must be given": lambda d: (
        "every grad_output must be given" in str(d.pullback)
    ),
    "_saved_ attributes are what our formulas save": lambda d: (
        "grad_fn._saved_" in d.statement and d.path in ("outcome", "error")
    ),
    "a saved tensor may be detached in place": lambda d: (
        "a saved tensor that has been detached in-place" in str(d.torch)
    ),
    "hooks are not called without a gradient": lambda d: (
        (d.path == "calls" and "[None]]" in str(d.torch))
        or "NoneType" in str(d.torch)
        or "can't replace a None gradient" in str(d.torch)
        or (d.path.startswith("calls") and d.torch is None and "mode='any'" in d.program)
        or (d.path.startswith("calls") and str(d.torch).startswith("any "))
    ),
    "a write to memory that overlaps itself is refused by every operation": lambda d: (
        "more than one element of the written-to tensor" in f"{d.torch} {d.pullback}"
    ),
    "a write whose source shares its memory writes what the source was": lambda d: (
        "some elements of the input tensor and the written-to tensor" in str(d.torch)
    ),
    "a gradient of another shape than its root is reported first": lambda d: (
        d.path.startswith(("error", "message")) and "Mismatch in shape" in d.pullback
    ),
    "backward(inputs=) keeps gradients of non-leaves for this call only": lambda d: (
        d.path.endswith(".retains") and d.torch is True
    ),
    "backward(inputs=) does not run the node of a non-leaf": lambda d: (
        "inputs=[" in d.statement
        and d.pullback == "no error"
        and re.search("a second time|ValueError: s", d.torch)
    ),
    "a hook over several tensors counts roots of the pass too": lambda d: (
        d.path == "multi-grad hooks"
        or "AssertionError: Expected gradient function" in str(d.torch)
        or "A leaf node was passed to _will_engine_execute_node" in str(d.torch)
    ),
    "a stale view is no leaf for retain_grad()": lambda d: (
        d.path.endswith(".retains") and d.torch is False and ".retain_grad()" in d.program
    ),
    "edges and is_grads_batched exclude each other": lambda d: (
        "does not support GradientEdge" in str(d.pullback)
    ),
    "x.data = y leaves the version counter to the tensors that keep the old memory": lambda d: (
        (
            d.path.startswith(("bumps", "outcome", "calls"))
            or ".graph" in d.path
            or ".value" in d.path
            or d.path.endswith(".leaf")
        )
        and ".data = " in d.program
    ),
    "sgn() of complex numbers is composed of other operations": lambda d: (
        (".graph" in d.path and ".sgn(" in d.program and "SgnBackward0" in str(d.torch))
        or (".sgn(" in d.statement and re.search(HOOKED, str(d.pullback)))
    ),
    "how far a version goes up is no promise, only that it does": lambda d: (
        d.path.startswith("bumps.") and d.torch and d.pullback
    ),
    "formulas save less": saves_less,
    "by an intermediate result a second derivative depends on the formula": lambda d: (
        d.path == "seen" and ".prod(" in d.program and "create_graph" in d.program
    ),
    "a view whose history is not up to date is no leaf": writes_a_stale_view,
    "a hook after accumulation must return None": lambda d: (
        "post accumulate grad hook" in str(d.pullback)
    ),
    "transforms work under saved-tensor hooks": lambda d: (
        "don't yet support saved tensor hooks" in str(d.torch)
        or ("transform('linearize'" in d.statement and re.search(HOOKED, str(d.pullback)))
        or (d.path == "error" and re.search(HOOKED, f"{d.torch} {d.pullback}"))
    ),
    "a written view of all of a base that nothing else holds is no view": lambda d: (
        (
            d.path.endswith((".view", ".base"))
            and d.torch
            and not d.pullback
            and re.search(r"\w_\(", d.statement)
        )
        or (d.path.endswith(".view") and re.search(r"body\('(index|scatter)'\)", d.program))
    ),
    "a view of a view that is made anew is one as_strided()": lambda d: (
        ".graph" in d.path
        and "AsStridedBackward0" in f"{d.torch} {d.pullback}"
        and re.search(r"view_as_|\.imag|\.real", d.program)
    ),
    "a deep copy of a conjugate is one, over the memory of the copied base": lambda d: (
        re.search(r"\.(conj|neg|view|base)$", d.path) and "copy.deepcopy" in d.program
    ),
    "floor_divide has the derivative 0": lambda d: (
        "derivative for aten::floor_divide is not implemented" in str(d.torch)
        or (" // " in d.program and ".grad" in d.path and d.torch is None)
    ),
    "batches of gradients go through formulas that ask for numbers": lambda d: (
        "Batching rule not implemented" in str(d.torch)
    ),
    "a tangent of a tensor that overlaps itself has memory of its own": lambda d: (
        ".value" in d.path
        and ".unfold(" in d.program
        and re.search(r"transform\('(jacfwd|hessian|jvp|vmap-jvp|linearize)", d.statement)
    ),
    "zeros that torch keeps without memory can be read": lambda d: (
        d.torch == "unreadable" and not re.search("[1-9]", str(d.pullback["value"]))
    ),
    "the derivative of polar() where the absolute value is 0 needs the angle": lambda d: (
        "It was saved by PolarBackward0" in str(d.pullback)
    ),
    "torch's own assertion fails": lambda d: "please report" in str(d.torch),
    "a pack hook that fails leaves a node without what it was to save": lambda d: (
        "Expected a proper Tensor but got None" in str(d.torch)
        or ("'raise'" in d.program and "not enough values to unpack" in str(d.torch))
        or ("'inplace'" in d.program and re.match("bumps|outcome|error|message|.*value", d.path))
    ),
}
