"""The statements that programs are made of: saved tensors, hooks, Functions, backward passes."""

from __future__ import annotations

from . import variants
from .instructions import group
from .world import plain

ALL_GROUPS = variants.GROUPS  # with those of this module

group(
    "saving",
    "enter(m.autograd.graph.saved_tensors_hooks(pack('{tag}', 'see'), unpack('{tag}', 'see')))",
    "enter(m.autograd.graph.saved_tensors_hooks(pack('{tag}', 'copy'), unpack('{tag}', 'see')))",
    "enter(m.autograd.graph.saved_tensors_hooks(pack('{tag}', 'tuple'), unpack('{tag}', 'see')))",
    "enter(m.autograd.graph.saved_tensors_hooks(pack('{tag}', 'raise'), unpack('{tag}', 'see')))",
    "enter(m.autograd.graph.saved_tensors_hooks(pack('{tag}', 'see'), unpack('{tag}', 'raise')))",
    "enter(m.autograd.graph.saved_tensors_hooks(pack('{tag}', 'see'), unpack('{tag}', 'number')))",
    "enter(m.autograd.graph.saved_tensors_hooks(pack('{tag}', 'inplace'), unpack('{tag}', 'see')))",
    "enter(m.autograd.graph.disable_saved_tensors_hooks('{tag}'))",
    "enter(m.autograd.graph.save_on_cpu())",
    "leave()",
    "leave()",
    "leave()",
)


@group("saving")
def read_saved(d):
    x = d.root()
    return x and f"{d.new()} = {x}.grad_fn._saved_{d.pick(['self', 'result'])}.detach()"


# ---- hooks ---------------------------------------------------------------------------------------


@group("hook")
def tensor_hook(d):
    x = d.tensor(grad=True) if d.chance(0.95) else d.tensor()
    if x is None:
        return None
    tag = d.new("h")
    kinds = ("see", 6, "scale", 5, "replace", 1, "nograd", 1, "backward", 1, "raise", 0.5)
    kinds += ("expand", 1, "transpose", 1, "conj", 1, "view", 1)
    bad = ("shape", 0.4, "dtype", 0.4, "number", 0.4, "remove", 1, "add", 1)
    kind = d.choose(*kinds, *bad)
    extra = ""
    if kind == "remove":
        extra = f", '{d.variable('h') or tag}'"
    if kind == "add":
        extra = f", '{d.tensor(grad=True)}'"
    return f"{tag} = {x}.register_hook(hook('{tag}', '{kind}'{extra}))"


@group("hook")
def node_hook(d):
    x = d.tensor(grad=True)
    if x is None:
        return None
    below = f"next(n for n, _ in {x}.grad_fn.next_functions if n)"
    node = d.pick([f"{x}.grad_fn", f"{x}.grad_fn", below])
    tag = d.new("h")
    kind = d.choose("see", 6, "scale", 4, "short", 0.5, "single", 0.7, "nothing", 0.7, "raise", 0.4)
    if d.chance(0.5):
        return f"{tag} = {node}.register_prehook(prehook('{tag}', '{kind}'))"
    return f"{tag} = {node}.register_hook(node_hook('{tag}', '{kind}'))"


@group("hook")
def after_hook(d):
    x = d.tensor(leaf=True, grad=True) if d.chance(0.9) else d.tensor()
    if x is None:
        return None
    tag = d.new("h")
    kind = d.choose("see", 4, "drop", 2, "step", 1, "value", 0.4, "raise", 0.4)
    return f"{tag} = {x}.register_post_accumulate_grad_hook(after('{tag}', '{kind}'))"


@group("hook")
def multi_hook(d):
    names = [d.tensor(grad=True) for _ in range(d.random.randint(1, 3))]
    if None in names:
        return None
    tag = d.new("h")
    mode = d.choose("all", 2, "any", 1)
    listed = ", ".join(names)
    return (
        f"{tag} = m.autograd.graph.register_multi_grad_hook([{listed}], multi('{mode} {tag}'), "
        f"mode='{mode}')"
    )


@group("hook")
def remove_hook(d):
    handle = d.variable("h")
    return handle and f"{handle}.remove()"


# ---- custom Functions ----------------------------------------------------------------------------


@group("function")
def custom(d):
    one = ("Square", 2, "Exp", 1, "Write", 3, "Same", 2, "View", 2, "Once", 1, "Inner", 1)
    bad = ("BadCount", 0.3, "BadShape", 0.3, "Broadcast", 0.6, "ExtraNone", 0.5, "Raises", 0.3)
    more = ("NoBackward", 0.2, "DirtyLost", 0.2, "Cast", 0.7, "SaveMany", 1)
    strided = ("Transposed", 1, "Expanded", 1, "Strided", 1, "DirtyView", 1, "Slice", 1, "Conj", 1)
    x = d.tensor(float=True)
    return x and f"{d.new()} = F.{d.choose(*one, *bad, *more, *strided)}.apply({x})"


@group("function")
def custom_several(d):
    x = d.tensor(real=True)
    if x is None:
        return None
    kind = d.choose("Two", 3, "Parts", 2, "Sparse", 3, "SameBeside", 1)
    names = f"{d.new()}, {d.new()}" + (", x0, x1" if kind == "Parts" else "")
    return f"{names} = F.{kind}.apply({x})"


@group("function")
def custom_binary(d):
    x = d.tensor(real=True)
    y = x and d.partner(x, into=True, real=True)
    if y is None or (x != y and d.share_memory(x, y)):
        return None
    kind = d.choose("Product", 3, "WriteFirst", 2, "Unused", 1)
    if kind == "WriteFirst":
        return f"{d.new()}, {d.new()} = F.WriteFirst.apply({x}, {y})"
    return f"{d.new()} = F.{kind}.apply({x}, {y})"


# ---- differentiation -----------------------------------------------------------------------------


def seed_of(d, root, word, batch=None):
    """Return the text of the argument that gives a root's gradient, or ''."""
    t = d[root]
    if batch is None and t.numel() == 1 and not t.is_complex() and d.chance(0.6):
        return ""
    if d.chance(0.04):
        return "" if d.chance(0.7) else f"{word}{d.literal((7,), 'float64')}"
    if batch is None and d.chance(0.15):
        same = d.tensor(
            float=True,
            fits=lambda s: (
                s.shape == t.shape and s.dtype == t.dtype and (not s.requires_grad or d.chance(0.3))
            ),
        )
        if same:
            return f"{word}{same}"
    shape = tuple(t.shape) if batch is None else (batch, *t.shape)
    return f"{word}{d.literal(shape, plain(t.dtype))}"


def keywords(d, *choices):
    """Return the text of optional keyword arguments: (text, probability) pairs."""
    return "".join(f", {text}" for text, chance in choices if d.chance(chance))


def inputs_of(d, most, leaves=0.6):
    """Return the texts of tensors and edges to differentiate with respect to."""
    count = d.random.randint(1, most)
    found = []
    for _ in range(count):
        edge = d.variable("e")
        if edge and d.chance(0.2):
            found.append(edge)
        else:
            leaf = True if d.chance(leaves) else None
            name = d.tensor(grad=True, leaf=leaf) if d.chance(0.97) else d.tensor()
            if name:
                found.append(name)
    return found


@group("backward")
@group("backward")
def backward(d):
    root = d.root()
    if root is None:
        return None
    arguments = seed_of(d, root, "gradient=")
    rest = keywords(
        d,
        (d.pick(["retain_graph=True"] * 4 + ["retain_graph=False"]), 0.6),
        ("create_graph=True", 0.25),
    )
    if d.chance(0.25):
        names = inputs_of(d, 3, leaves=0.9)
        rest += f", inputs=[{', '.join(names)}]" if names or d.chance(0.1) else ""
    text = (arguments + rest).removeprefix(", ")
    return f"{root}.backward({text})"


@group("backward")
def backward_several(d):
    roots = [d.root(), d.root()]
    if None in roots:
        return None
    seeds = ", ".join(seed_of(d, root, "") or "None" for root in roots)
    edge = d.variable("e")
    if edge and d.chance(0.3):
        roots[0] = edge
    rest = keywords(d, ("retain_graph=True", 0.6), ("create_graph=True", 0.2))
    return f"m.autograd.backward([{', '.join(roots)}], [{seeds}]{rest})"


@group("grad")
@group("grad")
@group("grad")
def grad(d):
    root = d.root()
    inputs = root and inputs_of(d, 3)
    if not inputs:
        return None
    names = "".join(f"{d.new()}, " for _ in inputs)
    batch = 2 if d.chance(0.12) else None
    seed = seed_of(d, root, ", grad_outputs=", batch)
    rest = keywords(
        d,
        (d.pick(["retain_graph=True"] * 3 + ["retain_graph=False"]), 0.6),
        ("create_graph=True", 0.4),
        (d.pick(["allow_unused=True"] * 5 + ["allow_unused=False"]), 0.5),
        ("materialize_grads=True", 0.12),
    )
    rest += ", is_grads_batched=True" if batch else ""
    return f"{names[:-1]} = own(m.autograd.grad({root}, [{', '.join(inputs)}]{seed}{rest}))"


@group("grad")
def grad_several(d):
    roots = [d.root(), d.root()]
    inputs = inputs_of(d, 2)
    if None in roots or not inputs:
        return None
    names = "".join(f"{d.new()}, " for _ in inputs)
    seeds = ", ".join(seed_of(d, root, "") or "None" for root in roots)
    rest = keywords(
        d, ("retain_graph=True", 0.6), ("create_graph=True", 0.3), ("allow_unused=True", 0.6)
    )
    return (
        f"{names[:-1]} = own(m.autograd.grad([{', '.join(roots)}], [{', '.join(inputs)}], "
        f"[{seeds}]{rest}))"
    )


@group("edge")
def edge(d):
    x = d.tensor(grad=True) if d.chance(0.95) else d.tensor()
    return x and f"{d.new('e')} = m.autograd.graph.get_gradient_edge({x})"
