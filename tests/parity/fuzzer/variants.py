"""The statements that programs are made of: complex, mixed dtypes, scatters, ties, transforms."""

from __future__ import annotations

from .instructions import GROUPS, fits_into, group, methods

__all__ = ["GROUPS"]  # with those of this module

DTYPES = "float64 float32 complex128 complex64 int64 bool"

# ---- complex numbers -----------------------------------------------------------------------------


@group("complex")
@group("complex")
def create_complex(d):
    grad = d.choose("", 1, ", requires_grad=True", 2)
    return f"{d.new()} = {d.literal(d.shape(), 'complex128')[:-1]}{grad})"


group(
    "complex",
    *methods("{new} = {complex}", "conj conj conj resolve_conj conj_physical abs angle sgn"),
    *methods("{new} = {complexmatrix}", "adjoint t"),
    *["{new} = {complexmatrix}.mH", "{new} = {complexmatrix}.H"],
    "{new} = m.real({complex})",
    "{new} = {complex}.imag",
    "{new} = {complex}.conj().imag",
    "{new} = {complex}.conj().real",
    "{new} = m.view_as_real({complex})",
    "{new} = m.view_as_real({complex}.resolve_conj())",
    "{new} = m.complex({real}, {same})",
    "{new} = m.polar({real}.abs(), {same})",
    "{new} = {float} + 0.5j",
    "{new} = {complex} * {complex}.conj()",
    "{new} = {complexmatrix} @ {complexmatrix}.mH",
    "{new} = {complex}.conj().resolve_conj()",
    "{new} = {complex}.conj().sum({dim})",
    "{new} = {real}.resolve_neg()",
    *methods("{complex}", "conj_physical_ neg_ sin_"),
    "{complex}.conj().mul_(0.5j)",
    "{complex}.mul_(0.5j)",
    "{complex}.real.mul_(2)",
    "{complex}.imag.add_(1)",
    "{complex}.conj().imag.add_(1)",
    "m.view_as_real({complex}).mul_(0.5)",
    "{complex}.real = 0.5",
)


@group("complex")
def complex_write(d):
    x = d.tensor(complex=True)
    y = x and d.partner(x, into=True)
    if y is None or d.share_memory(x, y):
        return None
    form = d.pick(
        [
            "{x}.copy_({y}.conj())",
            "{x}.conj().copy_({y})",
            "{x}.mul_({y}.conj())",
            "{x}.conj().add_({y})",
            "{x}[...] = {y}.conj()",
            "{x}.real.copy_({y}.real)" if d[y].is_complex() else "{x}.real.copy_({y})",
            "{x}.imag = {y}.imag" if d[y].is_complex() else "{x}.imag = {y}",
        ]
    )
    return form.format(x=x, y=y)


# ---- dtypes beside each other --------------------------------------------------------------------


@group("mixed")
@group("mixed")
def create_any_dtype(d):
    dtype = d.pick(DTYPES.split())
    grad = ", requires_grad=True" if dtype[0] in "fc" and d.chance(0.6) else ""
    return f"{d.new()} = {d.literal(d.shape(), dtype)[:-1]}{grad})"


@group("mixed")
def cast(d):
    x = d.tensor()
    return x and f"{d.new()} = {x}.to(m.{d.pick(DTYPES.split())})"


@group("mixed")
def mixed_binary(d):
    left = d.tensor()
    right = left and d.partner(left, float=False, any_dtype=True)
    if right is None:
        return None
    form = d.pick(
        [
            *["{a} + {b}", "{a} * {b}", "{a} - {b} * 0.5", "m.where({a} != 0, {a}, {b})"],
            *["m.add({a}, {b}, alpha=2)", "m.addcmul({a}, {a}, {b})", "m.mul({a}, {b})"],
            *["{a} == {b}", "{a} != {b}"],
        ]
    )
    return f"{d.new()} = {form.format(a=left, b=right)}"


@group("mixed")
@group("mixed")
def mixed_write(d):
    """Write values of one dtype into memory of another; integers then have no history."""
    x = d.tensor()
    y = x and d.partner(x, float=False, into=True, any_dtype=True)
    if y is None or d.share_memory(x, y) or (d[y].is_complex() and not d[x].is_complex()):
        return None
    form = d.pick(
        [
            *["{x}.copy_({y})", "{x}[...] = {y}", "{x}.mul_({y})", "{x}.add_({y})"],
            *["{x}.eq_({y})", "{x}.ne_({y})"],
        ]
    )
    return form.format(x=x, y=y)


group(
    "mixed",
    "{real}.gt_(0.012)",
    "{real}.le_(0.012)",
    "{new} = {real} // 2",
    "{new} = {real}.floor()",
    "{real}.trunc_()",
    "{real}.sign_()",
)

# ---- scatters and index_put ----------------------------------------------------------------------


def index_for(d, shape, limit):
    """Return the text of an index tensor, whose numbers may repeat."""

    def rows(sizes):
        if not sizes:
            return d.random.randrange(limit)
        return [rows(sizes[1:]) for _ in range(sizes[0])]

    return f"m.tensor({rows(list(shape))})"


def scattered(d):
    """Return a target, a dim, an index into it, and values of the index's shape, or None."""
    x = d.tensor(float=True, min_dims=1, fits=lambda t: t.numel() > 0)
    if x is None:
        return None
    dim = d.random.randrange(d[x].dim())
    shape = [d.random.randint(1, size) for size in d[x].shape]
    shape[dim] = d.random.randint(1, 3)
    like = d.tensor(
        float=True,
        fits=lambda t: tuple(t.shape) == tuple(shape) and t.dtype == d[x].dtype,
    )
    if like is None or d.share_memory(x, like) or d.chance(0.3):
        grad = d.choose("", 1, ", requires_grad=True", 1)
        dtype = str(d[x].dtype).rpartition(".")[2]
        like = f"{d.literal(tuple(shape), dtype)[:-1]}{grad})"
    return x, dim, index_for(d, shape, d[x].shape[dim]), like


@group("scatter")
@group("scatter")
@group("scatter")
def scatter(d):
    found = scattered(d)
    if found is None:
        return None
    x, dim, index, source = found
    real = not d[x].is_complex()
    reduce = d.pick(["sum", "prod", "mean", "amax", "amin"])
    apart = index_for(d, (1,) * d[x].dim(), d[x].shape[dim])  # one element: who wins is no question
    value = d.literal((1,) * d[x].dim(), str(d[x].dtype).rpartition(".")[2])
    form = d.pick(
        [
            "{new} = {x}.scatter({dim}, {apart}, {value})",
            "{x}.scatter_({dim}, {apart}, {value})",
            "{x}.scatter_({dim}, {index}, 0.5)",
            "{new} = {x}.scatter_add({dim}, {index}, {source})",
            "{x}.scatter_add_({dim}, {index}, {source})",
            "{new} = {x}.gather({dim}, {index})",
            "{new} = m.take_along_dim({x}, {index}, {dim})",
            *(
                [
                    "{new} = {x}.scatter_reduce({dim}, {index}, {source}, '{reduce}')",
                    "{x}.scatter_reduce_({dim}, {index}, {source}, '{reduce}')",
                    "{new} = {x}.scatter_reduce({dim}, {index}, {source}, '{reduce}', "
                    "include_self=False)",
                ]
                if real
                else []
            ),
        ]
    )
    return form.format(
        new=d.new() if "{new}" in form else "",
        x=x,
        dim=dim,
        index=index,
        source=source,
        reduce=reduce,
        apart=apart,
        value=value,
    )


@group("scatter")
@group("scatter")
def put(d):
    x = d.tensor(float=True, min_dims=1, fits=lambda t: t.numel() > 0)
    if x is None:
        return None
    size = d[x].shape[0]
    rows = f"m.tensor({d.random.sample(range(size), d.random.randint(1, size))})"
    again = index_for(d, (d.random.randint(1, 3),), size)
    numbers = index_for(d, (2,), d[x].numel())
    value = d.tensor(float=True, fits=lambda t: t.dim() == 0 and t.dtype == d[x].dtype)
    value = value or f"m.tensor(0.5, dtype={d[x].dtype})".replace("torch.", "m.")
    form = d.pick(
        [
            "{x}.index_put_(({rows},), {value})",
            "{x}.index_put_(({again},), {value}, accumulate=True)",
            "{new} = {x}.index_put(({again},), {value}, accumulate=True)",
            "{x}.index_copy_(0, {rows}, {x}.detach()[{rows}] * 2)",
            "{new} = {x}.index_add(0, {again}, {x}[{again}], alpha=0.5)",
            "{x}.put_({numbers}, {numbers}.to({x}.dtype), accumulate=True)",
            "{x}[{rows}, ...] = {value}",
            "{new} = {x}[{again}, ...]",
            "{x}[None, {rows}] = {value}",
            "{x}[{rows}] *= 2",
            "{x}[{rows}] += {value}",
            "{x}.masked_scatter_({x}.detach().abs() > 0.412, {x}.detach() * 2)",
            "{new} = {x}[{x}.detach().abs() > 0.412]",
            "{x}[{x}.detach().abs() > 0.412] = {value}",
        ]
    )
    new = d.new() if "{new}" in form else ""
    return form.format(new=new, x=x, rows=rows, again=again, value=value, numbers=numbers)


# ---- ties and zeros ------------------------------------------------------------------------------


@group("ties")
@group("ties")
def create_with_ties(d):
    shape = d.shape()
    if 0 in shape:
        return None
    kinds = [0.0, 0.5, 1.0, 1.0, -1.0]

    def numbers(sizes):
        if not sizes:
            return d.pick(kinds)
        return [numbers(sizes[1:]) for _ in range(sizes[0])]

    return f"{d.new()} = m.tensor({numbers(shape)}, dtype=m.float64, requires_grad=True)"


group(
    "ties",
    *methods("{new} = {real}", "prod max min relu abs sign amax amin"),
    "{new} = {real}.prod({dim})",
    "{new} = {real}.cumprod({dim})",
    "{new} = {real}.amin({dim})",
    "{new} = {real}.amax({dim}, keepdim=True)",
    "{new}, {new} = {array}.sort(dim={dim}, stable=True)",
    "{new} = {real}.clamp(0, 1)",
    "{new} = {real}.clamp_min(0.5)",
    "{new} = {real}.clamp_max(1.0)",
    "{new} = m.maximum({real}, {same})",
    "{new} = m.minimum({real}, {same} * 1)",
    "{new} = {real}.norm(1)",
    "{new} = m.nn.functional.leaky_relu({real})",
    "{new} = m.nn.functional.hardtanh({real})",
    "{new} = {real}.round()",
    "{new} = {real} * 0",
    "{real}.relu_()",
    "{real}.clamp_(0, 1)",
    "{real}.abs_()",
)

# ---- transforms, checkpoints ---------------------------------------------------------------------

BODIES = "plain mul exp view slice copy fill index compare scatter out real".split()
TRANSFORMS = (
    "grad vjp jvp jacrev jacfwd hessian vmap vmap-grad grad-vmap jvp-grad grad-jvp jvp-jvp "
    "vmap-jvp grad-grad linearize"
).split()


@group("transform")
@group("transform")
def transform(d):
    """Transform a function that writes in place; see `World.transform`."""
    x = d.tensor(float=True, fits=lambda t: 0 < t.numel() <= 6 and not t.is_complex())
    if x is None:
        return None
    how, body = d.pick(TRANSFORMS), d.pick(BODIES)
    return f"{d.new()} = transform('{how}', '{body}', {x})"


@group("transform")
def checkpoint(d):
    x = d.tensor(float=True, fits=lambda t: not t.is_complex())
    reentrant = d.choose("False", 3, "True", 1)
    return x and (
        f"{d.new()} = m.utils.checkpoint.checkpoint(body('{d.pick(BODIES)}'), {x}, "
        f"use_reentrant={reentrant})"
    )


@group("transform")
def dual(d):
    """Forward mode over what a program does in place."""
    x = d.tensor(real=True, fits=lambda t: t.numel() > 0)
    y = x and d.tensor(
        fits=lambda t: t.dtype == d[x].dtype and fits_into(tuple(t.shape), tuple(d[x].shape))
    )
    if y is None:
        return None
    tangent = f"{y}.detach().expand_as({x}).clone()"
    return f"{d.new()} = dual('{d.pick(BODIES)}', {x}.detach(), {tangent})"
