"""vmap on the same programs as torch: which draws are one draw, what is refused, and the texts."""

import warnings

import pytest

import pullback as pb

torch = pytest.importorskip("torch")

DRAWS = {
    "rand": lambda m, x: m.rand(50),
    "randn_like": lambda m, x: m.randn_like(x),
    "randint": lambda m, x: m.randint(0, 1000, (50,)),
    "randperm": lambda m, x: m.randperm(50),
    "bernoulli": lambda m, x: m.bernoulli(x * 0 + 0.5),
    "bernoulli of what is the same": lambda m, x: m.bernoulli(m.full((50,), 0.5)),
    "normal": lambda m, x: m.normal(0.0, 1.0, (50,)),
    "normal of means": lambda m, x: m.normal(x, 1.0),
    "normal of deviations": lambda m, x: m.normal(0.0, m.ones(50)),
    "poisson": lambda m, x: m.poisson(x * 0 + 30),
    "multinomial": lambda m, x: m.multinomial(x.abs() + 1, 20),
    "multinomial of what is the same": lambda m, x: m.multinomial(m.ones(50), 20),
    "dropout": lambda m, x: m.nn.functional.dropout(x, 0.5),
    "dropout of what is the same": lambda m, x: m.nn.functional.dropout(m.ones(50), 0.5),
    "dropout in evaluation": lambda m, x: m.nn.functional.dropout(x, 0.5, False),
    "dropout of channels": lambda m, x: m.nn.functional.dropout1d(x.reshape(1, 50, 1), 0.5),
    "alpha_dropout": lambda m, x: m.nn.functional.alpha_dropout(x, 0.5, True),
    "gumbel_softmax": lambda m, x: m.nn.functional.gumbel_softmax(x),
    "normal_": lambda m, x: x.clone().normal_(),
    "normal_ of what is the same": lambda m, x: m.empty(50).normal_(),
    "uniform_": lambda m, x: x.clone().uniform_(),
    "bernoulli_": lambda m, x: x.clone().bernoulli_(0.5),
    "bernoulli_ of what is the same": lambda m, x: m.empty(50).bernoulli_(0.5),
    "random_": lambda m, x: x.clone().random_(1000),
    "exponential_": lambda m, x: x.clone().exponential_(),
    "out": lambda m, x: m.rand(50, out=m.empty(50)),
}
REFUSED = {
    "in_dims text": lambda m, v, x: v(m.sin, in_dims="a")(x),
    "in_dims list": lambda m, v, x: v(m.sin, in_dims=[0])(x),
    "in_dims None": lambda m, v, x: v(m.sin, in_dims=None)(x),
    "in_dims of others": lambda m, v, x: v(m.sin, in_dims=(0, 0))(x),
    "in_dims nested": lambda m, v, x: v(lambda a: a, in_dims=((0, 0, {"k": 0}),))((x, x)),
    "in_dims not whole": lambda m, v, x: v(m.add, in_dims=(0, 0.5))(x, x),
    "in_dims too large": lambda m, v, x: v(m.sin, in_dims=-3)(x),
    "0-d": lambda m, v, x: v(m.sin)(m.tensor(1.0)),
    "number": lambda m, v, x: v(m.add)(x, 3),
    "no arguments": lambda m, v, x: v(m.sin)(),
    "sizes": lambda m, v, x: v(m.add)(x, x.t()),
    "out_dims text": lambda m, v, x: v(lambda a: a, out_dims="a")(x),
    "out_dims None": lambda m, v, x: v(lambda a: a, out_dims=None)(x),
    "out_dims of others": lambda m, v, x: v(lambda a: (a, a), out_dims=(0,))(x),
    "out_dims list": lambda m, v, x: v(lambda a: (a, a), out_dims=[0, 1])(x),
    "out_dims of a dict": lambda m, v, x: v(lambda a: {"q": a}, out_dims={"z": 1})(x),
    "out_dims inside": lambda m, v, x: v(lambda a: (a, a), out_dims=(0, "a"))(x),
    "result": lambda m, v, x: v(lambda a: (a, "s"))(x),
    "randomness": lambda m, v, x: v(m.sin, randomness="x"),
    "chunk_size": lambda m, v, x: v(m.sin, chunk_size=0),
    "parameters": lambda m, v, x: m.func.functional_call(m.nn.Linear(2, 2), 3, (x,)),
    "path": lambda m, v, x: m.func.functional_call(m.nn.Linear(2, 2), {"": x}, (x,)),
    "missing": lambda m, v, x: m.func.functional_call(m.nn.Linear(2, 2), {}, (x,), strict=True),
    "models": lambda m, v, x: m.func.stack_module_state([]),
    "modes": lambda m, v, x: m.func.stack_module_state([m.nn.ReLU(), m.nn.ReLU().eval()]),
}


def seen(library, draw, randomness):
    """Return (whether the rows of a batch of equal elements are equal), or the error's class."""
    draw = DRAWS[draw]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = library.func.vmap(lambda x: draw(library, x), randomness=randomness)(
                library.zeros(4, 50)
            )
        except RuntimeError as error:
            return str(error).partition(".")[0].partition(", by whose")[0]
    return tuple(found.shape), bool((found == found[0]).all())


@pytest.mark.parametrize("randomness", ["error", "same", "different"])
@pytest.mark.parametrize("draw", DRAWS)
def test_draws_are_one_or_many_as_in_torch(draw, randomness):
    assert seen(pb, draw, randomness) == seen(torch, draw, randomness)


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_have_torchs_class_and_text(name):
    found = []
    for library in (torch, pb):
        with pytest.raises(Exception) as caught:
            REFUSED[name](library, library.func.vmap, library.zeros(2, 3))
        text = str(caught.value).replace("pullback", "torch")
        found.append((caught.type, text.replace("Got in_dim=0 for an input but the input", "")))
    assert found[0] == found[1]


def shown(library, in_dims=0, nested=False):
    lines = []

    def show(x):
        lines.extend([repr(x), str(x)])
        return x

    inner = library.func.vmap(show, in_dims=0) if nested else show
    library.func.vmap(inner, in_dims=in_dims)(library.arange(6.0).reshape(2, 3, 1)[:, :, 0])
    return lines


@pytest.mark.parametrize("nested", [False, True])
def test_batched_tensors_print_as_torchs(nested):
    assert shown(pb, nested=nested) == shown(torch, nested=nested)
