"""Custom Functions of the programs: one for each thing that a Function may do."""

from __future__ import annotations


def custom_functions(m, note):
    """Return the Functions of a module, by name; `note` is called from their backward."""
    Function = m.autograd.Function
    found = {}

    def function(cls):
        found[cls.__name__] = cls
        return cls

    @function
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            note("Square", g, ctx.needs_input_grad)
            (x,) = ctx.saved_tensors
            return 2 * x * g

    @function
    class Exp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return y * g

    @function
    class Product(Function):
        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            note("Product", g, ctx.needs_input_grad)
            x, y = ctx.saved_tensors
            return (g * y).sum_to_size(x.shape), (g * x).sum_to_size(y.shape)

    @function
    class Write(Function):
        @staticmethod
        def forward(ctx, x):
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def vjp(ctx, g):
            note("Write", g)
            return g * 2

    @function
    class WriteFirst(Function):
        @staticmethod
        def forward(ctx, x, y):
            x.add_(y)
            ctx.mark_dirty(x)
            ctx.save_for_backward(y)
            return x, y.sin()

        @staticmethod
        def backward(ctx, g, h):
            note("WriteFirst", g, h)
            (y,) = ctx.saved_tensors
            return g, g.sum_to_size(y.shape) + h * y.cos()

    @function
    class DirtyLost(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    @function
    class Parts(Function):
        @staticmethod
        def forward(ctx, x):
            mask = x.detach() * 0 + 1
            ctx.mark_non_differentiable(mask)
            return x * 3, mask, 5, None

        @staticmethod
        def backward(ctx, g, none, five, nothing):
            note("Parts", g, none, five, nothing)
            return g * 3

    @function
    class Same(Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            note("Same", g)
            return g * 1.5

    @function
    class SameBeside(Function):
        @staticmethod
        def forward(ctx, x):
            return x, x + 1

        @staticmethod
        def backward(ctx, g, h):
            return g + h

    @function
    class View(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.view(-1)

        @staticmethod
        def backward(ctx, g):
            return g.reshape(ctx.shape)

    @function
    class Sparse(Function):
        """Leaves undefined gradients undefined."""

        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, g, h):
            note("Sparse", g, h)
            return g if h is None else h if g is None else g + h

    @function
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin(), x.cos()

        @staticmethod
        def backward(ctx, g, h):
            note("Two", g, h)
            (x,) = ctx.saved_tensors
            return g * x.cos() - h * x.sin()

    @function
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @m.autograd.function.once_differentiable
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            note("Once", g, x)
            return g * 2 * x

    @function
    class Inner(Function):
        """Differentiates inside of backward."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            with m.enable_grad():
                y = x.detach().requires_grad_()
                (inner,) = m.autograd.grad((y * y).sum(), [y])
            return g * inner

    @function
    class Unused(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y.detach()

        @staticmethod
        def backward(ctx, g):
            return g, None

    @function
    class BadCount(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g, g

    @function
    class ExtraNone(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2, None

    @function
    class BadShape(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return m.ones(7, dtype=g.dtype)

    @function
    class Broadcast(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g.unsqueeze(0).expand(2, *g.shape)

    @function
    class Cast(Function):
        @staticmethod
        def forward(ctx, x):
            return x.to(m.float32)

        @staticmethod
        def backward(ctx, g):
            return g

    @function
    class Raises(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise LookupError("Raises")

    @function
    class NoBackward(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    @function
    class SaveMany(Function):
        """Saves an input, an output, None and something of its own."""

        @staticmethod
        def forward(ctx, x):
            y = x * x
            ctx.save_for_backward(x, y, None, x + 1)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y, nothing, more = ctx.saved_tensors
            note("SaveMany", g, x, y, nothing, more)
            return g * 2 * x + 0 * y

    @function
    class Transposed(Function):
        """Its gradient has other strides than the input."""

        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return (g * 2).mT.contiguous().mT if g.dim() > 1 else g * 2

    @function
    class Expanded(Function):
        """Its gradient has one element in memory."""

        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x.sum()

        @staticmethod
        def backward(ctx, g):
            return g.expand(ctx.shape)

    @function
    class Strided(Function):
        """Its gradient leaves gaps in memory."""

        @staticmethod
        def forward(ctx, x):
            return x * 3

        @staticmethod
        def backward(ctx, g):
            return m.stack([g * 3, g], -1)[..., 0]

    @function
    class DirtyView(Function):
        """Writes to a part of its argument."""

        @staticmethod
        def forward(ctx, x):
            x.view(-1)[:1].mul_(2) if x.is_contiguous() else x.mul_(1)
            ctx.part = x.is_contiguous()
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            g = g.clone(memory_format=m.contiguous_format)
            if ctx.part:
                g.view(-1)[:1].mul_(2)
            return g

    @function
    class Slice(Function):
        """Returns part of the input as a view."""

        @staticmethod
        def forward(ctx, x):
            ctx.shape = x.shape
            return x[:1] if x.dim() else x.view(1)

        @staticmethod
        def backward(ctx, g):
            whole = m.zeros(ctx.shape, dtype=g.dtype)
            if whole.dim():
                whole[:1] = g
            else:
                whole = whole + g.sum()
            return whole

    @function
    class Conj(Function):
        """Returns a conj view of a result, and of its gradient."""

        @staticmethod
        def forward(ctx, x):
            return (x * 2).conj()

        @staticmethod
        def backward(ctx, g):
            return (g * 2).conj()

    return found
