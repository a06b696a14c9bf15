"""Compiled functions of tensors with a history, and code that runs in their backward passes."""

import contextlib
import typing
import warnings

import pytest

import pullback as pb


def results_of(run):
    """Return what a run gives with a function as it is, and compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(lambda function: function), run(pb.compile)


# ---- arguments with a history --------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, 2])
def test_argument_that_depends_on_a_leaf_of_the_function(order):
    def run(wrap):
        w = pb.tensor([2.0], requires_grad=True)
        step = wrap(lambda h: w * h)
        found = []
        for _ in range(4):
            y = step(w * 3).sum() + step(step(w)).sum()  # 3 w ** 2 + w ** 3
            (first,) = pb.autograd.grad(y, w, create_graph=order == 2)
            found.append(first.item())
            if order == 2:
                found.append(pb.autograd.grad(first, w)[0].item())
        return found

    eager, compiled = results_of(run)
    assert eager == compiled == [24, 18][:order] * 4


def test_recurrent_cell_that_is_called_in_a_loop():
    pb.manual_seed(0)
    cell, xs = pb.nn.RNNCell(3, 3), pb.randn(4, 2, 3)

    def run(wrap):
        step, h, found = wrap(cell), pb.zeros(2, 3), []
        for _ in range(3):
            cell.zero_grad()
            for x in xs:
                h = step(x, h)
            h.square().sum().backward()
            h = h.detach()
            found += [p.grad.clone() for p in cell.parameters()]
        return found

    for one, other in zip(*results_of(run)):
        pb.testing.assert_close(one, other)


def test_hooks_of_an_argument_run_once():
    def run(wrap):
        w, seen, found = pb.ones(2, requires_grad=True), [], []
        double = wrap(lambda h: h * 2)
        for scale in (1.0, 2.0, 3.0):
            h = w * 3
            h.retain_grad()
            h.register_hook(lambda grad: (seen.append(1), grad * scale)[1])  # noqa: B023
            w.grad = None
            double(h).sum().backward()
            found.append((w.grad.tolist(), h.grad.tolist(), len(seen)))
        return found

    eager, compiled = results_of(run)
    assert eager == compiled


def test_backward_pass_through_the_history_of_an_argument_runs_eagerly():
    def run(wrap):
        function, found = wrap(lambda x: (x * x).sum().backward()), []
        for number in range(6):
            w = pb.ones(2, requires_grad=True)
            function(w if number % 2 else w * 3)
            found.append(w.grad.tolist())
        return found

    eager, compiled = results_of(run)
    assert eager == compiled == [[18, 18], [2, 2]] * 3
    compiled = pb.compile(lambda x: (x * x).sum().backward(), fullgraph=True)
    with pytest.raises(RuntimeError, match="through the history of a tensor from outside"):
        compiled(pb.ones(2, requires_grad=True) * 3)


def test_gradient_of_an_argument_inside_the_function():
    slope = pb.compile(lambda x: pb.autograd.grad((x * x).sum(), x)[0], fullgraph=True)
    for value in (1.0, 2.0, 3.0):
        w = pb.full((2,), value, requires_grad=True)
        assert slope(w * 3).tolist() == [6 * value] * 2


# ---- code that runs in backward passes -----------------------------------------------------------


class Scaled(pb.autograd.Function):
    factor = 2.0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.factor = 3.0
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.factor + pb.zeros_like(x).sum()


class Logged(Scaled):
    log: typing.ClassVar = []

    @staticmethod
    def backward(ctx, grad):
        Logged.log.append(1)
        return grad * ctx.factor


class Steered(Scaled):
    @staticmethod
    def backward(ctx, grad):
        return grad * Steered.factor


class Noisy(Scaled):
    @staticmethod
    def backward(ctx, grad):
        return grad + pb.rand(2)


class Failing(Scaled):
    @staticmethod
    def backward(ctx, grad):
        raise ValueError("no gradient")


@pytest.mark.parametrize("function", [Scaled, Logged, Steered, Noisy, Failing])
def test_backward_of_a_custom_function_runs_when_it_is_asked_for(function):
    def run(wrap):
        pb.manual_seed(0)
        Logged.log.clear()
        apply, found = wrap(lambda x: function.apply(x).sum()), []
        for number in range(4):
            Steered.factor = 2.0 + number
            x = pb.ones(2, requires_grad=True)
            y = apply(x)
            found += [y.item(), len(Logged.log), pb.rand(1).item()]
            with contextlib.suppress(ValueError):
                y.backward()
                found += x.grad.tolist()
            found.append(pb.rand(1).item())
        return found

    eager, compiled = results_of(run)
    assert eager == compiled
    replayed = pb.compile(lambda x: function.apply(x).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            replayed(pb.ones(2, requires_grad=True))
    assert bool(replayed.entries[0].runs) == (function in (Scaled, Noisy))


@pytest.mark.parametrize("kind", ["module", "tensor", "inside", "retained"])
def test_hooks_in_a_backward_pass_run_when_it_is_asked_for(kind):
    def run(wrap):
        pb.manual_seed(0)
        layer, total, seen = pb.nn.Linear(2, 2), pb.zeros(2), []

        def function(x):
            y = layer(x)
            if kind == "tensor":
                y.register_hook(lambda grad: (total.add_(grad.sum(0)), grad)[1])
            elif kind == "inside":
                y.register_hook(lambda grad: grad * 2)
            elif kind == "retained":
                y.retain_grad()
            return y, y * 2

        if kind == "module":
            layer.register_full_backward_hook(lambda module, ins, outs: seen.append(outs[0].sum()))
        call, found = wrap(function), []
        for _ in range(4):
            layer.zero_grad()
            y, z = call(pb.ones(3, 2))
            (z * 5).sum().backward()
            found += [total.tolist(), len(seen), layer.bias.grad.tolist()]
            found.append(y.grad.tolist() if kind == "retained" else None)
        return found

    eager, compiled = results_of(run)
    assert eager == compiled


@pytest.mark.parametrize("name", ["register_hook", "register_post_accumulate_grad_hook"])
def test_what_hooks_of_leaves_refer_to_is_watched(name):
    def run(wrap):
        w, settings, calls = pb.ones(2, requires_grad=True), {"scale": 1.0}, [0]

        def hook(grad):
            calls[0] += 1
            return grad * settings["scale"]

        def step(leaf):
            calls[0] += 1
            with pb.no_grad():
                leaf.sub_(settings["scale"] * leaf.grad)
            leaf.grad = None

        getattr(w, name)(hook if name == "register_hook" else step)
        backward, found = wrap(lambda x: (w * x).sum().backward()), []
        for scale in (0.0, 1.0, 2.0, 3.0):
            settings["scale"] = scale
            backward(pb.ones(2))
            found += [w.tolist(), calls[0], None if w.grad is None else w.grad.tolist()]
        return found

    eager, compiled = results_of(run)
    assert eager == compiled


EFFECTS = {"log": [], "held": None}


def effect(kind):
    """Return a custom function whose backward pass has an effect, which that of EFFECTS shows."""

    class Function(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.log, ctx.add, ctx.items = EFFECTS["log"], EFFECTS["log"].append, iter([1.0, 2.0])
            ctx.held = EFFECTS["held"]
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            held = ctx.held
            if kind == "augmented":
                log = ctx.log
                log += [1]
            elif kind == "method":
                ctx.log.append(2)
                ctx.log.sort()
            elif kind == "call":
                ctx.add(1)
            elif kind == "getattr":
                getattr(ctx.log, "append")(1)  # noqa: B009
            elif kind == "dunder":
                ctx.log.__iadd__([1])
            elif kind == "iterator":
                return grad * sum(ctx.items)
            elif kind == "tensor":
                held += 1
            elif kind == "out":
                pb.add(held, 1, out=held)
            elif kind == "norm":
                pb.nn.functional.batch_norm(grad.expand(2, 2), held, pb.ones(2), training=True)
            return grad * 2

    return Function


class Inheriting(Logged):
    pass


@pytest.mark.parametrize(
    "kind",
    ["augmented", "method", "call", "getattr", "dunder", "iterator", "tensor", "out", "norm"]
    + ["inherited", "module", "unpack"],
)
def test_effects_of_a_backward_pass_come_with_it(kind):
    def run(wrap):
        EFFECTS["log"], EFFECTS["held"], found = [], pb.zeros(2), []
        Logged.log.clear()
        function = Inheriting if kind == "inherited" else effect(kind)
        norm = pb.nn.BatchNorm1d(2)

        def unpack(value):
            EFFECTS["log"].append(1)
            return value

        def call(x):
            if kind == "module":
                y = x * 1
                y.register_hook(lambda grad: norm(grad[:, None].expand(2, 2))[0])
                return y * 2
            if kind == "unpack":
                with pb.autograd.graph.saved_tensors_hooks(lambda value: value, unpack):
                    return x.exp()
            return function.apply(x)

        compiled = wrap(call)
        for _ in range(3):
            x = pb.ones(2, requires_grad=True)
            y = compiled(x).sum()
            found += [len(EFFECTS["log"]), EFFECTS["held"].tolist(), len(Logged.log)]
            found.append(norm.running_mean.tolist())
            y.backward()
            found += [len(EFFECTS["log"]), EFFECTS["held"].tolist(), len(Logged.log)]
            found += [norm.running_mean.tolist(), x.grad.tolist()]
        return found

    eager, compiled = results_of(run)
    assert eager == compiled


def test_number_that_changes_before_the_backward_pass():
    def function(x):
        y = x * 1
        y.register_hook(lambda grad: grad * SCALE)
        return y * 1

    compiled = pb.compile(function)
    global SCALE
    for scale in (2.0, 3.0, 3.0):
        SCALE = scale
        w = pb.ones(2, requires_grad=True)
        compiled(w).sum().backward()
        assert w.grad.tolist() == [scale] * 2
    y = compiled(pb.ones(2, requires_grad=True)).sum()
    SCALE = 5.0
    with pytest.raises(RuntimeError, match="was changed since its call"):
        y.backward()


SCALE = 1.0


# ---- which gradients -----------------------------------------------------------------------------


def test_gradients_go_to_the_arguments_of_a_call():
    def run(wrap):
        held = pb.ones(2, requires_grad=True)
        both, closed = wrap(lambda a, b: a * a * b), wrap(lambda a: a * a * held)
        inside, found = wrap(lambda a, b: (a * a * b).sum().backward()), []
        for number in (0, 0, 1, 1, 2, 0):
            p = pb.ones(2, requires_grad=True)
            q = [p, p.detach().requires_grad_(), pb.ones(2, requires_grad=True)][number]
            both(p, q).sum().backward()
            inside(p, q)
            found += [None if one.grad is None else one.grad.tolist() for one in (p, q)]
            q = [held, held.detach().requires_grad_(), q][number]
            held.grad = q.grad = None
            closed(q).sum().backward()
            found += [one.grad.tolist() for one in (held, q)]
            y = p * 1
            z = [y, y.view_as(y), p * 2][number]
            found += [one.tolist() for one in pb.autograd.grad(both(y, z).sum(), (y, z))]
        return found

    eager, compiled = results_of(run)
    assert eager == compiled


def test_hooks_of_leaves_run_once_with_create_graph():
    def run(wrap):
        cube, held = wrap(lambda a: a**3 * held), pb.ones(2, requires_grad=True)
        cube(pb.ones(2, requires_grad=True))
        held.register_hook(lambda grad: grad * 7)
        x = pb.ones(2, requires_grad=True)
        x.register_hook(lambda grad: grad * 10)
        cube(x).sum().backward(create_graph=True)
        return x.grad.tolist(), held.grad.tolist()

    eager, compiled = results_of(run)
    assert eager == compiled == ([30, 30], [7, 7])


@pytest.mark.parametrize("kind", ["hook", "retain_grad"])
@pytest.mark.parametrize("leaf", [False, True])
def test_hooks_that_the_function_sets_on_an_argument(kind, leaf):
    def run(wrap):
        def function(a):
            a.retain_grad() if kind == "retain_grad" else a.register_hook(lambda grad: grad * 10)
            return a * 3

        compiled, found = wrap(function), []
        for _ in range(3):
            w = pb.ones(2, requires_grad=True)
            a = w if leaf else w * 1
            compiled(a).sum().backward()
            found += [w.grad.tolist(), a.grad.tolist() if kind == "retain_grad" else None]
        return found

    eager, compiled = results_of(run)
    assert eager == compiled


@pytest.mark.parametrize("kind", ["outside", "argument", "list"])
def test_second_derivatives_of_what_was_changed_since_raise(kind):
    p, h = pb.ones(2, requires_grad=True), pb.ones(2, requires_grad=True) * 1
    given = [h] if kind == "list" else h
    compiled = pb.compile(lambda a: (a[0] if kind == "list" else a).exp() + p.exp())
    compiled(given)
    y = compiled(given).sum()
    with pb.no_grad():
        if kind == "list":
            given[0] = pb.ones(2, requires_grad=True) * 1
        else:
            (p if kind == "outside" else h).mul_(2)
    with pytest.raises(RuntimeError, match="was changed since"):
        pb.autograd.grad(y, p, create_graph=True)


@pytest.mark.parametrize("power", [1, 3])
def test_batches_and_tangents_of_gradients(power):
    function = pb.compile(lambda x: x**power * 3)
    function(pb.arange(3.0).requires_grad_())
    w = pb.arange(3.0).requires_grad_()
    y, expected = function(w), w**power * 3

    def batched(result):
        return pb.autograd.grad(result, w, pb.eye(3), is_grads_batched=True, retain_graph=True)[0]

    def mapped(result):
        one = lambda v: pb.autograd.grad(result, w, v, retain_graph=True)[0]  # noqa: E731
        return pb.func.vmap(one)(pb.eye(3))

    def tangent(result):
        one = lambda v: pb.autograd.grad(result, w, v, retain_graph=True)[0]  # noqa: E731
        return pb.func.jvp(one, (pb.ones(3),), (pb.full((3,), 2.0),))[1]

    for get in (batched, mapped, tangent):
        pb.testing.assert_close(get(y), get(expected))


def test_checkpoint_whose_result_requires_grad():
    net = pb.nn.Sequential(pb.nn.Linear(3, 3), pb.nn.Tanh())
    compiled = pb.compile(
        lambda x: pb.utils.checkpoint.checkpoint(
            net, x, use_reentrant=False, preserve_rng_state=False
        ),
        fullgraph=True,
    )
    for _ in range(3):
        x = pb.randn(2, 3)
        found = pb.autograd.grad(compiled(x).sum(), net.parameters())
        for one, other in zip(found, pb.autograd.grad(net(x).sum(), net.parameters())):
            pb.testing.assert_close(one, other)


def test_custom_function_that_gets_no_gradient_of_a_result():
    class Two(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.set_materialize_grads(False)
            ctx.factors = {"x": 2.0}
            return x * 2, y * 3

        @staticmethod
        def backward(ctx, first, second):
            return first * ctx.factors["x"], first * 0 + 7 if second is None else second * 3

    compiled = pb.compile(lambda x, y: Two.apply(x, y))
    for number in range(4):
        x, y = pb.ones(2, requires_grad=True), pb.ones(2, requires_grad=True)
        first, second = compiled(x, y)
        (first if number % 2 else first + second).sum().backward()
        assert (x.grad.tolist(), y.grad.tolist()) == ([2, 2], [7, 7] if number % 2 else [3, 3])
    assert compiled.entries[0].runs == 3


# ---- several results -----------------------------------------------------------------------------

TWO = {
    "apart": lambda x, w: ((x * 2).exp(), (w * 3).sin()),
    "one parameter": lambda x, w: ((x * w).exp(), (x * w * 3).sin()),
    "one after the other": lambda x, w: (lambda h: (h, (h * w).square().sum()))((x * w).sin()),
    "loss and prediction": lambda x, w: (lambda y: ((y - 1).square().mean(), y))(x @ w.outer(w)),
    "chain": lambda x, w: (lambda a: (lambda b: (a, b, b * a * w))(a.exp() * w))(x * w),
    "common part": lambda x, w: (lambda h: (h.sin(), h.cos() * w))((x * w).tanh()),
    "common part of one after the other": lambda x, w: (lambda h: (lambda a: (a, a * h))(h.sin()))(
        (x * w).tanh()
    ),
    "parts": lambda x, w: (x * w).chunk(2),
    "twice": lambda x, w: (lambda h: (h, h))(x * w),
    "view": lambda x, w: (lambda h: (h, h[:2] * w[:2]))(x * w),
    "written": lambda x, w: (lambda h: (h * 2, h.add_(1) * w))(x * w),
    "argument too": lambda x, w: (x, x * w, (x * w).sum()),
    "no graph": lambda x, w: ((x * w).detach(), x * w, w.sum()),
}
USES = {
    "one": lambda found: found[-1].sum().backward(),
    "each": lambda found: [one.sum().backward() for one in found if one.requires_grad],
    "each, kept": lambda found: [
        one.sum().backward(retain_graph=True) for one in found if one.requires_grad
    ],
    "together": lambda found: sum(one.square().sum() for one in found).backward(),
    "first": lambda found: found[0].sum().backward() if found[0].requires_grad else None,
    "hook": lambda found: (
        [one.register_hook(lambda grad: grad * 2) for one in found if one.requires_grad],
        sum(one.sum() for one in found).backward(),
    ),
    "kept gradients": lambda found: (
        [one.retain_grad() for one in found if one.requires_grad],
        sum(one.sum() for one in found).backward(),
    ),
    "of one another": lambda found: pb.autograd.grad(
        found[-1].sum(), [one for one in found[:-1] if one.requires_grad], allow_unused=True
    ),
    "written": lambda found: (found[0].detach().add_(1), found[-1].sum().backward()),
    "second": lambda found: [
        one if one is None else one.tolist()
        for one in pb.autograd.grad(
            pb.autograd.grad(found[-1].square().sum(), leaves, create_graph=True)[0].square().sum(),
            leaves,
            allow_unused=True,
        )
    ],
}
leaves = []


UNLIKE = {  # results with a common pass, and results that share memory
    *(
        ("common part of one after the other", use)
        for use in ("hook", "kept gradients", "of one another")
    ),
    ("parts", "written"),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", TWO)
def test_results_have_gradients_of_their_own(name, use):
    if (name, use) in UNLIKE:
        pytest.skip("documented")
    function = TWO[name]
    compiled = pb.compile(function)
    values = pb.randn(4), pb.randn(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            outcomes = []
            for call in (function, compiled):
                x, w = (one.clone().requires_grad_() for one in values)
                leaves[:] = [x, w]
                found = call(x, w)
                try:
                    outcome = USES[use](found)
                    outcome = (
                        [
                            one if one is None or not isinstance(one, pb.Tensor) else one.tolist()
                            for one in outcome or ()
                            if not callable(getattr(one, "remove", None))
                        ]
                        if use in ("of one another", "second")
                        else None
                    )
                except RuntimeError as error:
                    outcome = str(error)[:40]
                kept = [one.grad for one in found if use == "kept gradients" and one.retains_grad]
                outcomes.append([outcome, x.grad, w.grad, *kept])
            for one, other in zip(*outcomes):
                if isinstance(one, pb.Tensor) and isinstance(other, pb.Tensor):
                    pb.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)
                else:
                    assert one == other or type(one) is type(other) is list


@pytest.mark.parametrize("wrap", [lambda function: function, pb.compile])
def test_tensor_that_is_returned_twice_is_one_result(wrap):
    """It may be written, and each of its names has all of the gradient."""

    @wrap
    def function(x):
        h = x * 3
        return h, h.sin(), h.flatten()

    for _ in range(4):
        x = pb.ones(2, requires_grad=True)
        first, other, last = function(x)
        assert first is last and not first._is_view()
        (first.sum() + other.sum() + last.sum()).backward(retain_graph=True)
        assert pb.allclose(x.grad, (2 + pb.tensor(3.0).cos()) * 3)
        assert first.mul_(2).tolist() == [6, 6]


class Tripled(pb.autograd.Function):
    """Sees which results have a gradient."""

    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


def test_result_without_a_gradient_of_a_function_that_writes():
    """It cannot run again for the others alone, so it is not replayed."""
    total = pb.zeros(2)

    @pb.compile
    def function(x):
        h = Tripled.apply(x)
        total.add_(h.detach())
        return h, h.sin()

    with pytest.warns(UserWarning, match="several results behind a hook or function"):
        function(pb.ones(2, requires_grad=True))
    for number in range(2, 5):
        x = pb.ones(2, requires_grad=True)
        _, other = function(x)
        other.sum().backward()
        assert pb.allclose(x.grad, pb.tensor(3.0).cos() * 3)
        assert total.tolist() == [3 * number, 3 * number]


def test_pass_that_fails_on_its_way_to_a_leaf_of_the_function():
    def function(x):
        h = pb.ones(1, requires_grad=True) * 2
        product = h @ h
        h.sin_()
        return h, product, x * 2

    for call in (function, pb.compile(function)):
        for _ in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = call(pb.rand(1, requires_grad=True))
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                sum(found).sum().backward()


def test_hooks_of_results_without_a_gradient_do_not_run():
    def function(x):
        h = x * 2
        return h.sin(), h.exp()

    compiled = pb.compile(function)
    for call in (function, compiled, compiled, compiled):
        one, other = call(pb.ones(2, requires_grad=True))
        seen = []
        one.register_hook(seen.append)
        other.sum().backward()
        assert not seen


def test_second_derivative_by_another_result():
    def function(x):
        h = x * 3
        return h, (h**3).sum()

    compiled = pb.compile(function)
    for call in (function, compiled, compiled, compiled):
        x = pb.ones(2, requires_grad=True)
        h, y = call(x)
        (d,) = pb.autograd.grad(y, h, create_graph=True)
        found = pb.autograd.grad(d.sum(), [h, x])
        assert [one.tolist() for one in found] == [[18.0, 18.0], [54.0, 54.0]]


class Doubled(pb.autograd.Function):
    """Writes in place; its backward pass is code of the program."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_are_set_once_by_a_call_and_its_backward_pass(create_graph):
    def run(wrap):
        w = pb.tensor([1.0, 2.0], requires_grad=True)
        g = pb.tensor([1.0, 3.0])

        def function():
            y = w * 3
            y.backward(g, create_graph=create_graph, retain_graph=True)
            return y, Doubled.apply(y)

        function, found = wrap(function), []
        for _ in range(5):
            y, z = function()
            (y.sum() + z.sum()).backward()
            found.append(w.grad.tolist())
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(pb.compile) == run(lambda function: function)
