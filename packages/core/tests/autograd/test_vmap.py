"""vmap: placing batches, what it refuses, randomness, in-place writes, custom Functions."""

import functools

import pytest

import pullback as pb
from pullback.func import grad, jacfwd, jvp, vmap
from pullback.ops import ENTRIES
from pullback.testing.samples import accepts, op_of, samples_of

X = pb.arange(6.0).reshape(3, 2)
W = pb.tensor([[1.0, 2.0], [3.0, 4.0]])


def test_names():
    assert pb.vmap is pb.func.vmap is vmap


class TestPlaces:
    def test_first_dim(self):
        assert pb.equal(vmap(lambda a: a.sum())(X), X.sum(1))

    def test_other_dims(self):
        assert pb.equal(vmap(lambda a: a.sum(), in_dims=1)(X), X.sum(0))
        assert pb.equal(vmap(lambda a: a * 2, in_dims=-1, out_dims=1)(X), X * 2)

    def test_not_mapped(self):
        found = vmap(lambda a, b: a @ b, in_dims=(0, None))(X, W)
        pb.testing.assert_close(found, X @ W)

    def test_nests(self):
        def function(pair, options):
            return {"sum": pair[0] + options["k"], "same": [pair[1]]}

        found = vmap(function, in_dims=((0, None), {"k": 1}), out_dims={"sum": 1, "same": 0})(
            (X, W), {"k": X.t()}
        )
        assert pb.equal(found["sum"], (X + X).t())
        assert found["same"][0].shape == (3, 2, 2)

    def test_result_that_is_the_same_for_all(self):
        found = vmap(lambda a: pb.ones(2))(X)
        assert pb.equal(found, pb.ones(3, 2))

    def test_out_dims_none(self):
        assert vmap(lambda a: 3, out_dims=None)(X) == 3

    def test_keywords_are_not_mapped(self):
        assert pb.equal(vmap(lambda a, *, k: a + k.sum())(X, k=pb.ones(5)), X + 5)

    def test_chunks(self):
        sizes = []

        def function(a):
            sizes.append(pb._c.transforms.batching.batch_size(1))
            return a * 2, a.sum()

        double, total = vmap(function, chunk_size=2)(X)
        assert sizes == [2, 1]
        assert pb.equal(double, X * 2)
        assert pb.equal(total, X.sum(1))

    def test_empty_batch(self):
        assert vmap(lambda a: a.exp().sum())(pb.zeros(0, 2)).shape == (0,)
        assert vmap(lambda a: a.sort().values)(pb.zeros(0, 2)).shape == (0, 2)

    def test_nested(self):
        products = vmap(vmap(pb.mul, in_dims=(None, 0)), in_dims=(0, None))
        assert pb.equal(products(X[:, 0], X[:, 1]), X[:, :1] * X[:, 1])

    def test_zero_dims_do_not_promote(self):
        counts = pb.arange(3)
        found = vmap(lambda a, b: a * b)(pb.ones(3, dtype=pb.float64), pb.ones(3, 2))
        assert found.dtype == pb.float32
        assert vmap(lambda a, b: a * b)(counts, pb.ones(3, 2)).dtype == pb.float32

    @pytest.mark.parametrize("first", ["bool", "uint8", "int64", "float16", "float64", "complex64"])
    @pytest.mark.parametrize("second", ["bool", "uint8", "int64", "float32", "float64"])
    @pytest.mark.parametrize("shape", [(), (2,)])
    @pytest.mark.parametrize("pattern", [(0, 0), (0, None), (None, 0)])
    def test_promotion_is_that_of_elements(self, first, second, shape, pattern):
        a = pb.ones((), dtype=getattr(pb, first))
        b = pb.ones(shape, dtype=getattr(pb, second))
        batches = [x if on is None else pb.stack([x, x, x]) for x, on in zip((a, b), pattern)]
        for op in (pb.mul, pb.maximum) if first != "complex64" else (pb.mul,):
            found = vmap(op, in_dims=pattern)(*batches)
            assert found.dtype == op(a, b).dtype
            assert found.shape == (3, *shape)

    def test_inside_looks_like_one_element(self):
        def function(a):
            assert a.shape == (2,)
            assert a.device == X.device
            assert not a.requires_grad
            assert "BatchedTensor(lvl=1" in repr(a)
            return a

        vmap(function)(X)

    def test_history(self):
        x = X.clone().requires_grad_()
        y = vmap(lambda a: (a * a).sum())(x)
        y.sum().backward()
        assert pb.equal(x.grad, 2 * X)


REFUSED = {
    "item": (lambda: vmap(lambda a: a.item())(X[:, 0]), RuntimeError, r"calling \.item\(\)"),
    "tolist": (lambda: vmap(lambda a: a.tolist())(X), RuntimeError, r"calling \.tolist\(\)"),
    "truth": (lambda: vmap(lambda a: a or -a)(X[:, 0]), RuntimeError, "control flow"),
    "requires_grad_": (
        lambda: vmap(lambda a: a.requires_grad_())(X),
        RuntimeError,
        "requires_grad_",
    ),
    "backward": (
        lambda: vmap(lambda a: (a * W.clone().requires_grad_()).sum().backward())(X),
        RuntimeError,
        "use pullback.func.grad",
    ),
    "in place": (lambda: vmap(lambda a: pb.zeros(2).add_(a))(X), RuntimeError, "not possible"),
    "out": (
        lambda: vmap(lambda a: pb.add(a, 1, out=pb.zeros(2)))(X),
        NotImplementedError,
        "vmap with add_out",
    ),
    "shapes": (lambda: vmap(pb.nonzero)(X), RuntimeError, "dynamic shape"),
    "in_dim": (lambda: vmap(pb.sin, in_dims=2)(X), ValueError, "Got in_dim=2 for some input"),
    "in_dim text": (lambda: vmap(pb.sin, in_dims=("x",))(X), ValueError, "Got in_dim=x"),
    "in_dims": (lambda: vmap(pb.sin, in_dims=(0, 1))(X), ValueError, "in_dims is not compatible"),
    "in_dims None": (lambda: vmap(pb.sin, in_dims=None)(X), ValueError, "expected `in_dims`"),
    "none mapped": (lambda: vmap(pb.sin, in_dims=(None,))(X), ValueError, "Expected at least one"),
    "in_dims list": (lambda: vmap(pb.sin, in_dims=[0])(X), ValueError, "got: <class 'list'>"),
    "in_dims tree": (
        lambda: vmap(lambda a: a[0], in_dims=((0, {"x": 0}),))((X, X)),
        ValueError,
        r"TreeSpec\(tuple, None, \[TreeSpec\(tuple, None, \[\*,\n    TreeSpec\(dict, \['x'\], \[",
    ),
    "partial": (
        lambda: vmap(functools.partial(pb.add, other=1), in_dims="x")(X),
        ValueError,
        r"vmap\(functools.partial\(add, ...\), in_dims=x",
    ),
    "numpy": (lambda: vmap(lambda a: a.numpy())(X), RuntimeError, "doesn't have storage"),
    "indexed": (
        lambda: vmap(lambda a: pb.zeros(2).index_add_(0, pb.tensor([0]), a[:1]))(X),
        RuntimeError,
        r"vmap: index_add_\(self, \*extra_args\) is not possible because there exists a Tensor",
    ),
    "statistics": (
        lambda: vmap(pb.nn.BatchNorm1d(2))(pb.ones(3, 4, 2)),
        RuntimeError,
        "Batch norm got a batched tensor as input",
    ),
    "random out": (
        lambda: vmap(lambda a: pb.rand(2, out=pb.empty(2)), randomness="different")(X),
        RuntimeError,
        "calling out variants of random operations",
    ),
    "sizes": (
        lambda: vmap(lambda a, b: a)(X, pb.ones(2)),
        ValueError,
        "same size in the mapped dimension",
    ),
    "no tensor": (lambda: vmap(lambda a: a)(3), ValueError, "cannot vmap over non-Tensor"),
    "zero dims": (lambda: vmap(pb.sin)(pb.tensor(1.0)), ValueError, "dimensionality 0"),
    "no inputs": (lambda: vmap(lambda: 1)(), ValueError, "got no inputs"),
    "result": (lambda: vmap(lambda a: 3)(X), ValueError, "must only return Tensors"),
    "result None": (
        lambda: vmap(lambda a: a, out_dims=None)(X),
        ValueError,
        "can not return a BatchedTensor",
    ),
    "out_dim": (lambda: vmap(lambda a: a, out_dims=3)(X), IndexError, "Dimension out of range"),
    "out_dims": (
        lambda: vmap(lambda a: a, out_dims=(0, 1))(X),
        ValueError,
        "out_dims is not compatible",
    ),
    "out_dims text": (lambda: vmap(lambda a: a, out_dims="x")(X), ValueError, "must be an int"),
    "out_dims list": (
        lambda: vmap(lambda a: (a, a), out_dims=[0, 1])(X),
        ValueError,
        r"TreeSpec\(list, None, \[\*,\n  \*\]\) but outputs has structure TreeSpec\(tuple",
    ),
    "randomness": (
        lambda: vmap(pb.sin, randomness="x"),
        RuntimeError,
        "Only allowed values for randomness",
    ),
    "chunk_size": (lambda: vmap(pb.sin, chunk_size=0), ValueError, "greater than 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message):
        call()
    assert pb._c.graph.levels.level_count() == 0


def test_escaped_tensor():
    escaped = []
    vmap(lambda a: escaped.append(a) or a)(X)
    with pytest.raises(RuntimeError, match="escaped"):
        _ = escaped[0].requires_grad
    with pytest.raises(RuntimeError):
        escaped[0].item()
    with pytest.raises(RuntimeError, match="escaped"):
        vmap(lambda a: a + escaped[0])(X)
    assert (escaped[0] * 2).device.type == "meta"  # no memory: nothing to see


class TestRandomness:
    def test_error(self):
        for draw in (
            lambda a: pb.randn(2),
            lambda a: a.clone().normal_(),
            lambda a: pb.nn.functional.dropout(a),
        ):
            with pytest.raises(RuntimeError, match="randomness error mode"):
                vmap(draw)(X)

    def test_same(self):
        found = vmap(lambda a: a + pb.randn(2), randomness="same")(pb.zeros(3, 2))
        assert pb.equal(found[0], found[1])
        found = vmap(lambda a: a.clone().uniform_(), randomness="same")(X)
        assert pb.equal(found[0], found[2])

    def test_different(self):
        found = vmap(lambda a: a.clone().uniform_(), randomness="different")(X)
        assert not pb.equal(found[0], found[1])
        found = vmap(lambda a: pb.bernoulli(a * 0 + 0.5), randomness="different")(pb.zeros(3, 64))
        assert not pb.equal(found[0], found[1])

    @pytest.mark.parametrize(
        "draw",
        [
            lambda a: pb.bernoulli(a * 0 + 0.5),
            lambda a: pb.normal(a, 1.0),
            lambda a: pb.poisson(a.abs()),
            lambda a: pb.multinomial(a.abs() + 1, 2),
            lambda a: pb.zeros_like(a).bernoulli_(a * 0 + 0.5),
        ],
    )
    def test_same_draws_by_different_elements_are_refused(self, draw):
        with pytest.raises(RuntimeError, match="not currently support same randomness with a bat"):
            vmap(draw, randomness="same")(X)
        assert vmap(draw, randomness="different")(X).shape == X.shape

    def test_different_in_place_needs_a_batch(self):
        with pytest.raises(RuntimeError, match="different inplace randomness"):
            vmap(lambda a: pb.ones(2).uniform_(), randomness="different")(X)


class TestInPlace:
    def test_new_tensors_are_batched(self):
        def function(a):
            made = a.new_zeros(3)
            made[0] = a[1]
            made[1:].copy_(a[:1] * 2)
            return made

        assert pb.equal(vmap(function)(X), pb.stack([X[:, 1], 2 * X[:, 0], 2 * X[:, 0]], 1))

    def test_argument_is_written(self):
        x = X.clone()
        vmap(lambda a: a.mul_(2))(x)
        assert pb.equal(x, 2 * X)

    def test_views_of_elements(self):
        x = X.clone()
        vmap(lambda a: a[1:].zero_())(x)
        assert pb.equal(x[:, 1], pb.zeros(3))
        assert pb.equal(x[:, 0], X[:, 0])

    def test_scatter_into_what_is_the_same(self):
        index = pb.tensor([[0], [1], [0]])
        found = vmap(lambda i, s: pb.zeros(2).scatter(0, i, s))(index, X[:, :1])
        assert pb.equal(found, pb.tensor([[0.0, 0.0], [0.0, 2.0], [4.0, 0.0]]))


def product(rule):
    """Return a Function a * b of two vectors, and the sum of the first, with a rule for vmap."""

    class Product(pb.autograd.Function):
        generate_vmap_rule = rule is True

        @staticmethod
        def forward(a, b):
            return a * b, a.sum()

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g, h):
            a, b = ctx.saved_tensors
            return g * b + h, g * a

        @staticmethod
        def jvp(ctx, s, t):
            a, b = ctx.saved_tensors
            return s * b + a * t, s.sum()

    if callable(rule):
        Product.vmap = staticmethod(rule)
    return Product


class TestFunction:
    def test_generated(self):
        found, total = vmap(product(True).apply, in_dims=(0, None))(X, X[1])
        assert pb.equal(found, X * X[1])
        assert pb.equal(total, X.sum(1))

    def test_generated_derivatives(self):
        function = product(True)

        def of(a, b):
            found, total = function.apply(a, b)
            return found.sum() * total

        def plain(a, b):
            return (a * b).sum() * a.sum()

        mapped = {"in_dims": (0, None)}
        for transform in (lambda f: grad(f, (0, 1)), lambda f: jacfwd(f, (0, 1))):
            pb.testing.assert_close(
                vmap(transform(of), **mapped)(X, X[1]), vmap(transform(plain), **mapped)(X, X[1])
            )
        b = X[1].clone().requires_grad_()
        vmap(of, **mapped)(X, b).sum().backward()
        (expected,) = pb.autograd.grad((X * b).sum(1) @ X.sum(1), b)
        pb.testing.assert_close(b.grad, expected)

    def test_own_rule(self):
        seen = []

        def rule(info, in_dims, a, b):
            seen.append((info.batch_size, info.randomness, in_dims, a.shape))
            return (a * b, a.sum(1)), (0, 0)

        found, _ = vmap(product(rule).apply, in_dims=(0, None))(X, X[1])
        assert seen == [(3, "error", (0, None), (3, 2))]
        assert pb.equal(found, X * X[1])

    def test_no_rule(self):
        with pytest.raises(RuntimeError, match="does not have vmap support"):
            vmap(product(None).apply)(X, X)

    def test_two_rules(self):
        function = product(lambda info, in_dims, a, b: None)
        function.generate_vmap_rule = True
        with pytest.raises(RuntimeError, match="both generate_vmap_rule=True and"):
            vmap(function.apply)(X, X)

    def test_needs_setup_context(self):
        class Double(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return 2 * x

        with pytest.raises(RuntimeError, match="must override the setup_context"):
            vmap(Double.apply)(X)

    def test_backward_sees_batches_of_gradients(self):
        class Square(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                assert g.shape == x.shape
                return 2 * x * g

        x = pb.tensor([1.0, 2.0], requires_grad=True)
        (found,) = pb.autograd.grad(Square.apply(x), x, pb.eye(2), is_grads_batched=True)
        assert pb.equal(found, pb.diag(2 * x).detach())


def test_jvp_inside():
    found = vmap(lambda a: jvp(lambda b: b.clone().mul_(b), (a,), (a,))[1])(X)
    assert pb.equal(found, 2 * X * X)


def test_gradient_of_what_is_the_same_for_all():
    w = W.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="would be summed over it"):
        vmap(lambda a: pb.autograd.grad((a @ w).sum(), w)[0])(X)
    found = vmap(lambda a: grad(lambda v: (a @ v).sum())(w))(X)
    assert pb.equal(found.detach(), X.unsqueeze(2).expand(3, 2, 2))


def test_one_draw_for_the_batch_also_in_chunks():
    f = lambda x: x + pb.rand(())  # noqa: E731
    pb.manual_seed(3)
    whole = pb.func.vmap(f, randomness="same")(pb.zeros(4))
    pb.manual_seed(3)
    parts = pb.func.vmap(f, randomness="same", chunk_size=2)(pb.zeros(4))
    assert parts.tolist() == whole.tolist() == [whole[0].item()] * 4


def test_where_of_a_condition_gives_each_element_its_own_positions():
    f = pb.func.vmap(lambda a: pb.where(a > 0)[0])
    assert f(pb.tensor([[1.0, 0.0], [1.0, 0.0]])).tolist() == [[0], [0]]
    with pytest.raises(RuntimeError, match="dynamic shape"):
        f(pb.tensor([[1.0, 1.0], [1.0, 0.0]]))


def test_numbers_in_a_batch_broadcast_from_the_right():
    found = pb.func.vmap(pb.addmm)(pb.tensor([1.0, 2.0]), pb.zeros(2, 2, 1), pb.zeros(2, 1, 2))
    assert found.tolist() == [[[1.0, 1.0]] * 2, [[2.0, 2.0]] * 2]
    mask = pb.tensor([True, False, True])
    filled = pb.func.vmap(pb.masked_fill, in_dims=(0, None, 0))(
        pb.tensor([1.0, 2.0]), mask, pb.tensor([8.0, 9.0])
    )
    assert filled.tolist() == [[8.0, 1.0, 8.0], [9.0, 2.0, 9.0]]
    assert pb.func.vmap(lambda x: x.squeeze(0))(pb.ones(1)).shape == (1,)


@pytest.mark.parametrize("function", [pb.max, pb.median, pb.cumsum])
def test_results_of_a_batch_of_0_are_in_the_graph(function):
    x = pb.ones(0, 2, 2, requires_grad=True)
    arguments = (0,) if function is pb.cumsum else ()
    found = pb.func.vmap(lambda row: function(row, *arguments))(x)
    found.sum().backward()
    assert x.grad.shape == x.shape


def test_repeats_of_a_batch_whose_sums_are_equal():
    x, repeats = pb.tensor([[1.0, 2.0], [2.0, 1.0]]), pb.tensor([[1, 2], [2, 1]])
    found = pb.func.vmap(pb.repeat_interleave)(x, repeats)
    assert found.tolist() == [[1.0, 2.0, 2.0], [2.0, 2.0, 1.0]]
    with pytest.raises(RuntimeError, match="dynamic shape"):
        pb.func.vmap(pb.repeat_interleave)(x, pb.tensor([[1, 2], [2, 2]]))


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax"])
def test_gradients_of_in_place_ops_that_run_row_by_row(reduce):
    index = pb.tensor([0, 1, 0])

    def gradients(x, source):
        def total(x, source):
            return (x.clone().index_reduce_(0, index, source, reduce) * pb.arange(1.0, 3.0)).sum()

        return pb.func.grad(total, (0, 1))(x, source)

    x, source = pb.rand(4, 2), pb.rand(4, 3)
    rows = [gradients(*row) for row in zip(x, source)]
    for found, expected in zip(pb.vmap(gradients)(x, source), zip(*rows)):
        pb.testing.assert_close(found, pb.stack(expected))


@pytest.mark.parametrize("name", [name for name, entry in ENTRIES.items() if entry.view])
def test_a_write_to_a_view_of_an_element_changes_the_batch(name):
    entry = ENTRIES[name]
    dtype = pb.float64 if accepts(entry, pb.float64) else pb.complex128

    def write(sample, x):
        views = op_of(entry)(x, *sample.args[1:], **sample.kwargs)
        for view in views if isinstance(views, (tuple, list)) else (views,):
            if view.numel():
                view.zero_()
        return x

    for sample in samples_of(entry, dtype):
        x = sample.args[0].detach().clone() + 1
        try:
            rows = [write(sample, x.clone()), write(sample, x * 2)]
        except RuntimeError:  # it repeats elements, or has other sizes and strides
            continue
        found = pb.vmap(lambda x, sample=sample: write(sample, x))(pb.stack([x, x * 2]))
        pb.testing.assert_close(found, pb.stack(rows))


def test_a_batched_tensor_has_no_address():
    with pytest.raises(
        RuntimeError, match="Cannot access data pointer of Tensor that doesn't have"
    ):
        pb.vmap(lambda x: x.data_ptr() and x)(pb.ones(2))


def test_data_of_a_batched_tensor_is_detached():
    x = pb.ones(2, 3, requires_grad=True)
    for mapped in (
        pb.func.vmap(lambda v: v + v.data),
        pb.func.vmap(pb.func.vmap(lambda v: v + v.data)),
    ):
        y = mapped(x)
        assert y.device == x.device and pb.autograd.grad(y.sum(), x)[0].equal(pb.ones(2, 3))


def test_data_of_a_batched_tensor_cannot_be_assigned():
    def assign(v):
        v.data = pb.zeros(3)

    with pytest.raises(RuntimeError, match="assigning to `data` under vmap transform"):
        pb.func.vmap(assign)(pb.ones(2, 3))


def test_device_number_of_a_batched_tensor():
    x = pb.ones(2, 3)
    found = []
    pb.func.vmap(lambda v: found.append((v.get_device(), v.device)) or v)(x)
    assert found == [(x.get_device(), x.device)]
    assert pb.empty(1, device="meta").get_device() == -1
