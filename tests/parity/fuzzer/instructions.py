"""The statements that programs are made of: tensors, operations, views, writes, flags, modes.

An instruction is a template, or a function of the `Draft`, which knows the variables so far; it
returns a statement or None if nothing fits. Instructions are in groups, which every program weighs
differently.
"""

from __future__ import annotations

import math

GROUPS: dict[str, list] = {}
SHAPES = [(), (1,), (2,), (3,), (2, 3), (2, 3), (3, 2), (1, 3), (2, 1), (2, 2), (4,), (2, 1, 3)]
RARE_SHAPES = [(0,), (0, 3), (2, 2, 2), (6,), (1, 1), (3, 1, 2)]


def group(name, *templates):
    """Put a function or templates into a group."""
    members = GROUPS.setdefault(name, [])
    if templates:
        members.extend(templates)
        return None

    def add(function):
        members.append(function)
        return function

    return add


def methods(start, names):
    """Return templates that call methods without arguments."""
    return [f"{start}.{name}()" for name in names.split()]


# ---- making tensors ------------------------------------------------------------------------------


@group("create")
def create(d):
    dtype = d.choose("float64", 8, "float32", 2, "complex128", 1, "int64", 1)
    shape = d.shape()
    grad = ", requires_grad=True" if dtype != "int64" and d.chance(0.65) else ""
    return f"{d.new()} = {d.literal(shape, dtype)[:-1]}{grad})"


@group("create")
def create_filled(d):
    shape = ", ".join(map(str, d.shape())) or "()"
    grad = d.choose("", 3, ", requires_grad=True", 1)
    return f"{d.new()} = m.{d.choose('zeros', 1, 'ones', 1)}({shape}, dtype=m.float64{grad})"


group(
    "create",
    "{new} = m.zeros_like({any})",
    "{new} = m.ones_like({float}, requires_grad=True)",
    "{new} = copy.deepcopy({any})",
)

# ---- operations ----------------------------------------------------------------------------------

group(
    "unary",
    *methods("{new} = {float}", "sin cos tanh exp clone square neg"),
    *methods("{new} = {real}", "abs relu sigmoid atan"),
    "{new} = {float} * 2",
    "{new} = {float} + 1",
    "{new} = 1 - {float}",
    "{new} = {float} / 2",
    "{new} = {real} ** 2",
    "{new} = {real} ** 3",
    "{new} = {real}.clamp(-1, 1)",
    "{new} = {float}.contiguous()",
    "{new} = {any}.to(m.float64)",
    "{new} = {real}.float()",
    "{new} = {real}.double()",
    "{new} = {float}.flip(0)",
    "{new} = {float}.tril()",
    "{new} = (-{float}).exp().sum()",
)

group(
    "reduce",
    *methods("{new} = {float}", "sum sum sum mean prod"),
    "{new} = {float}.sum({dim})",
    "{new} = {float}.sum({dim}, keepdim=True)",
    "{new} = {float}.mean({dim})",
    "{new} = {real}.amax({dim})",
    "{new} = {real}.max()",
    "{new}, {new} = {real}.max({dim})",
    "{new} = {float}.cumsum({dim})",
    "{new} = {real}.logsumexp({dim})",
    "{new} = {real}.softmax({dim})",
    "{new} = {real}.log_softmax({dim})",
    "{new} = {real}.norm()",
    "{new} = {float}.var()",
)


@group("binary")
def binary(d):
    left = d.tensor(float=True)
    right = left and d.partner(left)
    if right is None:
        return None
    op = d.choose("+", 3, "-", 2, "*", 6)
    return f"{d.new()} = {left} {op} {right}"


@group("binary")
def binary_named(d):
    left = d.tensor(real=True)
    right = left and d.partner(left, real=True)
    if right is None:
        return None
    form = d.pick(
        [
            "m.maximum({a}, {b})",
            "m.where({a} > 0.012, {a}, {b})",
            "{a} / ({b}.abs() + 1)",
            "m.atan2({a}, {b} + 3)",
            "m.addcmul({a}, {a}, {b}, value=0.5)",
            "m.lerp({a}, {b}, 0.25)",
            "m.add({a}, {b}, alpha=2)",
            "m.sub({a}, {b}, alpha=3)",
            "{a}.masked_fill({b} > 0.012.012, 0.5)",
        ]
    )
    return f"{d.new()} = {form.format(a=left, b=right)}"


@group("binary")
def join(d):
    left = d.tensor(float=True, min_dims=1)
    right = left and d.partner(left, same=True, float=True)
    if right is None:
        return None
    return f"{d.new()} = m.{d.choose('cat', 2, 'stack', 1)}([{left}, {right}], {d.dim(left)})"


@group("binary")
def product(d):
    left = d.tensor(float=True, fits=lambda t: t.dim() in (1, 2))
    if left is None:
        return None
    right = d.tensor(
        float=True,
        fits=lambda t: (
            t.dim() in (1, 2) and t.shape[0] == d[left].shape[-1] and t.dtype == d[left].dtype
        ),
    )
    return right and f"{d.new()} = {left} @ {right}"


# ---- views ---------------------------------------------------------------------------------------


@group("view")
def reshape(d):
    x = d.tensor()
    if x is None:
        return None
    numel = d[x].numel()
    shapes = [(numel,), (1, numel), (-1,), (numel, 1), tuple(d[x].shape)]
    shapes += [(k, numel // k) for k in (2, 3) if numel % k == 0]
    return f"{d.new()} = {x}.{d.choose('view', 3, 'reshape', 1)}{d.pick(shapes)}"


@group("view")
def expand(d):
    x = d.tensor(fits=lambda t: t.dim() < 3 and t.numel() < 12)
    if x is None:
        return None
    sizes = [d.pick([2, 3]) if size == 1 and d.chance(0.7) else size for size in d[x].shape]
    sizes = d.pick([[2, *sizes], sizes, sizes]) or [2]
    return f"{d.new()} = {x}.expand({', '.join(map(str, sizes))})"


@group("view")
def permute(d):
    x = d.tensor(min_dims=2)
    if x is None:
        return None
    order = list(range(d[x].dim()))
    d.random.shuffle(order)
    return f"{d.new()} = {x}.permute({', '.join(map(str, order))})"


@group("view")
def narrow(d):
    x = d.tensor(min_dims=1)
    if x is None:
        return None
    dim = d.random.randrange(d[x].dim())
    size = d[x].shape[dim]
    start = d.random.randint(0, size)
    return f"{d.new()} = {x}.narrow({dim}, {start}, {d.random.randint(0, size - start)})"


@group("view")
def as_strided(d):
    x = d.tensor(fits=lambda t: t.numel() >= 2)
    if x is None:
        return None
    form = d.pick(["(2,), (1,)", "(1,), (1,)", "(2, 2), (1, 0)", "(2, 2), (0, 1)", "(2,), (1,), 0"])
    return f"{d.new()} = {x}.as_strided({form})"


def index_of(d, x, depth=2):
    """Return the text of a basic index into a tensor."""
    parts = []
    for size in list(d[x].shape)[: d.random.randint(1, depth)]:
        start, stop = sorted((d.random.randint(0, size), d.random.randint(0, size)))
        number = str(d.random.randint(-size, size - 1)) if size else ":"
        part = ":" if stop - start == size else f"{start}:{stop}"
        parts.append(d.pick([number, number, part, ":", "::2" if size > 1 else ":", "None"]))
    if d.chance(0.1):
        parts.insert(0, "...")
    return ", ".join(parts) or "..."


@group("view")
def slices(d):
    x = d.tensor(min_dims=1)
    return x and f"{d.new()} = {x}[{index_of(d, x)}]"


@group("view")
def complex_view(d):
    x = d.tensor(complex=True)
    if x is None:
        return None
    form = d.pick(["m.view_as_real({x})", "{x}.real", "{x}.imag", "m.real({x})"])
    return f"{d.new()} = {form.format(x=x)}"


@group("view")
def complex_from_real(d):
    x = d.tensor(real=True, fits=lambda t: t.dim() and t.shape[-1] == 2 and t.stride(-1) == 1)
    return x and f"{d.new()} = m.view_as_complex({x})"


group(
    "view",
    "{new} = {any}.t()",
    "{new} = {matrix}.transpose(0, 1)",
    "{new} = {matrix}.diagonal()",
    "{new} = {any}.unsqueeze({dim})",
    "{new} = {any}.squeeze()",
    "{new} = {any}.squeeze({dim})",
    "{new} = {array}.select({dim}, 0)",
    "{new} = {array}.flatten()",
    "{new} = {any}.view_as({any})",
    "{new} = {any}.expand_as({any})",
    "{new} = {matrix}.mT",
    "{new} = {array}.unfold({dim}, 2, 1)",
    "{new} = {any}[...]",
    "{new} = {array}.movedim(0, -1)",
)


@group("multiview")
def parts(d):
    x = d.tensor(min_dims=1)
    if x is None:
        return None
    dim = d.random.randrange(d[x].dim())
    size = d[x].shape[dim]
    if size not in (2, 3):
        return None
    names = ", ".join(d.new() for _ in range(size))
    form = d.pick(["{x}.unbind({dim})", "{x}.split(1, {dim})", f"{{x}}.chunk({size}, {{dim}})"])
    return f"{names} = {form.format(x=x, dim=dim)}"


# ---- indexing with tensors -----------------------------------------------------------------------


@group("index")
def advanced_index(d):
    x = d.tensor(min_dims=1, fits=lambda t: t.shape[0] > 0)
    if x is None:
        return None
    size = d[x].shape[0]
    numbers = [d.random.randrange(size) for _ in range(d.random.randint(1, 3))]
    rows = f"m.tensor({numbers})"
    form = d.pick(
        [
            "{new} = {x}[{rows}]",
            "{new} = {x}.index_select(0, {rows})",
            "{x}[{rows}] = {value}",
            "{x}.index_fill_(0, {rows}, 0.5)",
            "{new} = {x}.take({rows})",
            "{x}.index_add_(0, {rows}, {x}[{rows}])",
            "{new} = {x}[{x} > 0.012]",
            "{x}[{x} > 0.012] = 0.25",
            "{new} = {x}.masked_select({x} < 0.5)",
        ]
    )
    value = d.tensor(float=True, fits=lambda t: t.dim() == 0) or "0.5"
    return form.format(new=d.new() if "{new}" in form else "", x=x, rows=rows, value=value)


# ---- in-place ------------------------------------------------------------------------------------

group(
    "inplace",
    *methods("{float}", "zero_ sin_ tanh_ exp_ neg_ square_ sigmoid_ relu_"),
    "{float}.mul_(2)",
    "{float}.mul_(2)",
    "{float}.add_(1)",
    "{any}.fill_(0.5)",
    "{real}.clamp_(-1, 1)",
    "{float}.pow_(2)",
    "{float} += 1",
    "{float} *= 0.5",
    "{real}.masked_fill_({real} > 0.012, 0.5)",
    "{float}.detach().mul_(2)",
    "m.autograd.graph.increment_version({any})",
)


@group("inplace")
@group("inplace2")
def inplace_binary(d):
    left = d.tensor(float=True)
    right = left and d.partner(left, into=True)
    if right is None or (left != right and d.share_memory(left, right)):
        return None  # what an operation reads from what it has written is undefined in torch
    form = d.pick(
        [
            "{a}.add_({b})",
            "{a}.mul_({b})",
            "{a}.copy_({b})",
            "{a}.sub_({b}, alpha=2)",
            "{a} *= {b}",
            "{a} += {b}",
            "{a}.add_({b})",
            "{a}.copy_({b})",
            "{a}.addcmul_({b}, {b})",
            "{a}.lerp_({b}, 0.5)",
            "{a}.div_({b}.abs() + 1)",
            "m.sin({b}, out={a})" if d[left].shape == d[right].shape else "{a}.add_({b})",
        ]
    )
    return form.format(a=left, b=right)


@group("inplace2")
def set_item(d):
    x = d.tensor(float=True, min_dims=1)
    if x is None:
        return None
    index = index_of(d, x)
    try:
        part = d.m.ones(d[x].shape)[eval(f"slice_it[{index}]", {"slice_it": _Indexer()})]
    except IndexError:
        return None
    value = d.tensor(
        float=True,
        fits=lambda t: d.fits_into(t, part) and not t.is_complex(),
    )
    if value and d.share_memory(x, value) and x != value:
        return None
    operator = d.choose("=", 6, "*=", 1, "+=", 2)
    return f"{x}[{index}] {operator} {value if value and d.chance(0.8) else '0.5'}"


class _Indexer:
    def __getitem__(self, index):
        return index


# ---- what autograd knows of a tensor -------------------------------------------------------------

group(
    "flags",
    "{new} = {any}.detach()",
    "{new} = {any}.data",
    "{any}.detach_()",
    "{any}.requires_grad_()",
    "{any}.requires_grad_(False)",
    "{any}.requires_grad = True",
    "{any}.requires_grad = False",
    "{any}.retain_grad()",
    "{grad}.retain_grad()",
    "{grad}.retain_grad()",
    "{any}.grad = None",
    "del {any}.grad",
    "{any}.grad = m.ones_like({any})",
    "{leaf}.grad = m.ones_like({leaf})",
    "{new} = {leaf}.grad",
    "{leaf}.grad.zero_()",
    "{leaf}.data = m.ones_like({same})",
    "{leaf}.data = {same}",
    "{new} = {any}.detach().clone().requires_grad_()",
    "{new} = {any}.clone().detach_()",
    "del {any}",
    "del {any}",
    "{new} = m.autograd.Variable({any})",
)

group(
    "modes",
    *(["enter(m.no_grad())", "enter(m.enable_grad())", "leave()", "leave()"] * 2),
    "m.set_grad_enabled(False)",
    "m.set_grad_enabled(True)",
    "enter(m.set_grad_enabled(False))",
    "enter(m.autograd.set_detect_anomaly(True))",
    "enter(m.autograd.set_detect_anomaly(True, check_nan=False))",
    "enter(m.autograd.set_multithreading_enabled(False))",
    "with m.no_grad():\n    {new} = {any}[...]",
    "with m.no_grad():\n    {float}.mul_(2)",
    "with m.no_grad():\n    {new} = {array}.select(0, 0)",
    "with m.enable_grad():\n    {new} = {float} * 3",
)

group(
    "inference",
    "enter(m.inference_mode())",
    "enter(m.inference_mode(False))",
    "leave()",
    "with m.inference_mode():\n    {new} = {float} * 2",
    "with m.inference_mode():\n    {new} = {any}[...]",
    "with m.inference_mode():\n    {float}.mul_(2)",
)


def fits_into(small, large):
    """Return True if one shape broadcasts to the other."""
    if len(small) > len(large):
        return False
    return all(a in (1, b) for a, b in zip(reversed(small), reversed(large)))


def broadcast(a, b):
    """Return True if two shapes broadcast together."""
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b)))


def literal_values(random, shape):
    """Return nested lists of numbers."""
    if not shape:
        return random.randint(-20, 20) / 10
    return [literal_values(random, shape[1:]) for _ in range(shape[0])]


def numel(shape):
    """Return the number of elements."""
    return math.prod(shape)
