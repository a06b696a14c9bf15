"""Programs that take a module with torch's API; both modules must give the same results.

Each returns a tuple of tensors: values, then gradients. Inputs are written out, because random
numbers differ between the two.
"""

from __future__ import annotations

PROGRAMS = {}


def program(function):
    """Register a program under its name."""
    PROGRAMS[function.__name__] = function
    return function


def leaf(m, *rows):
    """Return a float64 leaf."""
    return m.tensor(list(rows), dtype=m.float64, requires_grad=True)


def matrix(m):
    """Return a 2 x 3 leaf whose elements are positive and negative."""
    return leaf(m, [0.5, -1.25, 2.0], [3.5, 0.75, -0.125])


@program
def elementwise_chain(m):
    x = matrix(m)
    y = (x.tanh() * x.exp() + x.sigmoid() / (x.abs() + 1).sqrt() - (x * x + 1).log()).relu()
    return y, *m.autograd.grad(y.sum(), [x])


@program
def powers(m):
    x, e = leaf(m, 0.5, 1.5, 2.0), leaf(m, 2.0, -1.0, 0.5)
    y = x**e + x**3 + 2**e - x**-0.5
    return y, *m.autograd.grad(y.sum(), [x, e])


@program
def broadcasting(m):
    x, row, column = matrix(m), leaf(m, 1.0, 2.0, 3.0), leaf(m, [2.0], [0.5])
    y = (x + row) * column - row / column
    return y, *m.autograd.grad((y * y).sum(), [x, row, column])


@program
def reductions(m):
    x = matrix(m)
    y = x.sum(0).mean() + x.mean(1, keepdim=True).sum() + x.amax(1).sum() * x.sum((0, 1))
    return y, x.argmax(), x.argmax(1), *m.autograd.grad(y, [x])


@program
def amax_with_ties(m):
    x = leaf(m, [1.0, 2.0, 2.0], [3.0, 3.0, 3.0])
    y = x.amax(1)
    return y, *m.autograd.grad(y.sum(), [x])


@program
def products(m):
    a, b = matrix(m), leaf(m, [1.0, 0.5], [-2.0, 1.5], [0.25, 4.0])
    c = leaf(m, 1.0, -1.0)
    y = m.addmm(c, a, b, beta=0.5, alpha=2) + a @ b + m.mm(a, b) + m.matmul(a, b[:, 0])[:, None]
    return y, *m.autograd.grad((y * y).sum(), [a, b, c])


@program
def batched_products(m):
    a = matrix(m).view(2, 1, 3).expand(2, 4, 3)
    b = matrix(m).reshape(2, 3, 1) * m.ones(2, 3, 5, dtype=m.float64)
    y = m.bmm(a, b) + a @ b[1]
    x = matrix(m)
    return y, *m.autograd.grad((x[None] @ b).tanh().sum(), [x])


@program
def views(m):
    x = matrix(m)
    y = x.t().unsqueeze(1).expand(3, 4, 2).permute(2, 0, 1).reshape(6, 4).transpose(0, 1)
    y = y.narrow(1, 1, 3).select(0, 2) * x.reshape(-1)[::2] + x.unsqueeze(0).squeeze(0)[1]
    return y, *m.autograd.grad(y.exp().sum(), [x])


@program
def indexing(m):
    x = matrix(m)
    rows, columns = m.tensor([1, 0, 1]), m.tensor([2, 2, 0])
    y = (
        x[rows, columns].sum()
        + x[rows].sum() * x[..., -1].sum()
        + x[x > 0].sum()
        + x[None, 1:].sum()
    )
    return y, x[rows], x[x > 0], *m.autograd.grad(y, [x])


@program
def gathering(m):
    x = matrix(m)
    index = m.tensor([[0, 2], [1, 1]])
    y = x.gather(1, index) * x.index_select(1, m.tensor([2, 2])) + m.where(x > 0, x, -x)[:, :2]
    return y, *m.autograd.grad(y.sum(), [x])


@program
def joining(m):
    x, y = matrix(m), matrix(m)
    z = m.cat([x, y * 2, x], 1) * m.stack([x, y, x], 2).reshape(2, 9)
    return z, *m.autograd.grad(z.sum(), [x, y])


@program
def writing_in_place(m):
    x = matrix(m)
    y = x * 1
    y[0] = x[1] * 2
    y[:, 1].mul_(x[:, 0])
    y.add_(x, alpha=3).sub_(1).div_(2)
    return y, *m.autograd.grad((y * y).sum(), [x])


@program
def losses(m):
    functional = m.nn.functional
    x, target = matrix(m), m.tensor([2, 0])
    y = functional.cross_entropy(x, target) + functional.nll_loss(x.log_softmax(1), target)
    y = y + functional.cross_entropy(x, target, reduction="sum", label_smoothing=0.1)
    return y, x.softmax(1), *m.autograd.grad(y, [x])


@program
def second_derivatives(m):
    x = matrix(m)
    y = (x.tanh() * x.exp()).sum() + (x @ x.t()).sigmoid().sum()
    (first,) = m.autograd.grad(y, [x], create_graph=True)
    (second,) = m.autograd.grad((first * first).sum(), [x], create_graph=True)
    return first, second, *m.autograd.grad(second.sum(), [x])


@program
def accumulation(m):
    x = matrix(m)
    (x * x).sum().backward()
    (x.exp()).sum().backward()
    return (x.grad,)


@program
def hooks(m):
    x = matrix(m)
    x.register_hook(lambda g: g * 2)
    y = x * 3
    y.retain_grad()
    y.register_hook(lambda g: g + 1)
    (y * y).sum().backward()
    return x.grad, y.grad


@program
def custom_function(m):
    class Cube(m.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    x = matrix(m)
    (first,) = m.autograd.grad(Cube.apply(x).sum(), [x], create_graph=True)
    return first, *m.autograd.grad(first.sum(), [x])


@program
def complex_numbers(m):
    x = m.tensor([1 + 2j, -0.5 + 1j, 3 - 1j], requires_grad=True)
    y = x * x.exp() / (x + 2)
    return y, *m.autograd.grad(y.abs().sum(), [x])
