"""Functions that write in place, and the transforms that programs apply to them."""

from __future__ import annotations


def bodies(m):
    """Return functions from a tensor to one of its shape, by name; most of them write in place."""

    def plain(a):
        return a * a.sin()

    def mul(a):
        return a.clone().mul_(a)

    def exp(a):
        return a.clone().exp_() * a

    def view(a):
        b = a * 1
        b.mT.tanh_() if b.dim() > 1 else b.view(-1).sigmoid_()
        return b * a

    def slice(a):
        b = (a * 1).contiguous()
        b.reshape(-1)[::2].mul_(a.sum())
        return b * b

    def copy(a):
        b = m.zeros_like(a)
        b.copy_(a * a)
        return b.add_(a, alpha=2)

    def fill(a):
        b = (a * a).contiguous()
        b.reshape(-1)[:1].fill_(0.5)
        return b.square_()

    def index(a):
        b = a.sin().reshape(-1)
        b[m.tensor([0])] = a.cos().sum()
        return b.view_as(a).pow_(2)

    def compare(a):
        b = a * 1
        b.gt_(0.012)
        return b * a

    def scatter(a):
        b = (a * a).contiguous().reshape(-1)
        b.scatter_add_(0, m.tensor([0, 0]), a.reshape(-1)[:1].expand(2))
        return b.view_as(a).mul_(a)

    def out(a):
        b = a.clone()
        b.lerp_(a * a, 0.25)
        b.div_(a * a + 1)
        return b

    def real(a):
        b = m.complex(a, a * a)
        b.imag.mul_(2)
        b.conj().mul_(1j)
        return b.real * b.imag

    return {name: function for name, function in locals().items() if name != "m"}


def transformed(m, how, body, x):
    """Return a transform of a function at `x`; where a scalar is differentiated, of its sum."""
    func = m.func
    ones = m.ones_like(x)

    def total(a):
        return body(a).sum()

    def push(function, a):
        try:
            return func.jvp(function, (a,), (m.ones_like(a),))[1]
        except RuntimeError as error:
            if "ZeroTensors are immutable" not in str(error):
                raise
        # torch cannot write to a tangent that is zero: there, the vjp of the vjp.
        value, pull = func.vjp(function, a)
        return func.vjp(lambda u: pull(u)[0], m.ones_like(value))[1](m.ones_like(a))[0]

    def by_jvp(function, a):
        return function(a), lambda tangent: func.jvp(function, (a,), (tangent,))[1]

    rows = {"vmap", "vmap-grad", "grad-vmap", "vmap-jvp"}
    if how in rows and x.dim() == 0:
        x = x.reshape(1)
    # torch's own linearize() takes what a function writes in place for a constant of the trace.
    linearize = func.linearize if m.__name__ == "pullback" else by_jvp
    return {
        "grad": lambda: func.grad(total)(x),
        "vjp": lambda: func.vjp(body, x)[1](ones)[0],
        "jvp": lambda: push(body, x),
        "linearize": lambda: linearize(body, x.detach())[1](ones),
        "jacrev": lambda: func.jacrev(body)(x),
        "jacfwd": lambda: func.jacfwd(body)(x),
        "hessian": lambda: func.hessian(total)(x),
        "vmap": lambda: func.vmap(body)(x),
        "vmap-grad": lambda: func.vmap(func.grad(total))(x),
        "grad-vmap": lambda: func.grad(lambda a: func.vmap(body)(a).sum())(x),
        "vmap-jvp": lambda: func.vmap(lambda a: push(body, a))(x),
        "jvp-grad": lambda: push(func.grad(total), x),
        "grad-jvp": lambda: func.grad(lambda a: push(body, a).sum())(x),
        "jvp-jvp": lambda: push(lambda a: push(body, a), x),
        "grad-grad": lambda: func.grad(lambda a: func.grad(total)(a).sum())(x),
    }[how]()


def pushed(m, body, x, tangent):
    """Return the tangent of a function's value by dual tensors."""
    forward = m.autograd.forward_ad
    with forward.dual_level():
        return forward.unpack_dual(body(forward.make_dual(x, tangent))).tangent.clone()
