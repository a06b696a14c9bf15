"""einops and opt_einsum work on tensors as they are, and are differentiable."""

import subprocess
import sys

import numpy as np
import pytest

import pullback as pb

einops = pytest.importorskip("einops")


def numbers(*shape, dtype=pb.float64, requires_grad=True):
    generator = pb.Generator().manual_seed(5)
    return pb.rand(shape, dtype=dtype, generator=generator).requires_grad_(requires_grad)


def check(function, *tensors):
    """Compare with einops on NumPy arrays, and the derivatives with finite differences."""
    result = function(*tensors)
    expected = function(*(tensor.detach().cpu().numpy() for tensor in tensors))
    assert isinstance(result, pb.Tensor)
    np.testing.assert_allclose(result.detach().cpu().numpy(), expected, rtol=1e-12)
    assert pb.autograd.gradcheck(function, tensors)


REARRANGED = [
    ("b h w c -> b c h w", {}),
    ("b h w c -> (b h) w c", {}),
    ("b (h h2) w c -> b h (w c) h2", {"h2": 2}),
    ("b h w c -> (b h w c)", {}),
    ("b ... c -> c ... b", {}),
    ("b h w c -> b 1 h w () c", {}),
    ("b h w c -> b h w c", {}),
]


@pytest.mark.parametrize("pattern, axes", REARRANGED, ids=[p for p, _ in REARRANGED])
def test_rearrange(pattern, axes):
    check(lambda x: einops.rearrange(x, pattern, **axes), numbers(2, 4, 3, 2))


@pytest.mark.parametrize("operation", ["min", "max", "sum", "mean", "prod"])
@pytest.mark.parametrize("pattern", ["b h w -> h", "b h w -> ", "b (h h2) w -> b 1 w h"])
def test_reduce(operation, pattern):
    axes = {"h2": 2} if "h2" in pattern else {}
    check(lambda x: einops.reduce(x, pattern, operation, **axes), numbers(2, 4, 3))


@pytest.mark.parametrize("operation", ["any", "all"])
def test_reduce_truth_values(operation):
    values = np.array([[True, False], [True, True], [False, False]])
    result = einops.reduce(pb.tensor(values), "a b -> a", operation)
    assert result.dtype == pb.bool
    assert result.tolist() == getattr(values, operation)(1).tolist()


def test_reduce_by_a_function():
    def largest(x, axes):
        return pb.amax(x, axes)

    x = numbers(2, 3)
    assert einops.reduce(x, "a b -> b", largest).tolist() == x.amax(0).tolist()


def test_mean_of_integers_is_refused():
    with pytest.raises(NotImplementedError, match="non-floating"):
        einops.reduce(pb.ones(2, 3, dtype=pb.int64), "a b -> a", "mean")


@pytest.mark.parametrize("pattern", ["a b -> a b n", "a b -> (n a) b", "a b -> a (b n) 1"])
def test_repeat(pattern):
    check(lambda x: einops.repeat(x, pattern, n=3), numbers(2, 3))


def test_list_of_tensors_gets_a_first_axis():
    check(lambda *xs: einops.rearrange(list(xs), "n a b -> b n a"), numbers(2, 3), numbers(2, 3))


def test_pack_and_unpack():
    parts = numbers(2, 3), numbers(2, 4, 5), numbers(2)
    packed, shapes = einops.pack(parts, "b *")
    assert packed.shape == (2, 24)
    assert [tuple(shape) for shape in shapes] == [(3,), (4, 5), ()]
    for part, again in zip(parts, einops.unpack(packed, shapes, "b *")):
        assert again.tolist() == part.tolist()
    assert pb.autograd.gradcheck(lambda *xs: einops.pack(xs, "b *")[0], parts)
    whole = numbers(2, 24)
    assert pb.autograd.gradcheck(lambda x: tuple(einops.unpack(x, shapes, "b *")), (whole,))


def test_einsum():
    check(lambda a, b: einops.einsum(a, b, "i k, k j -> j i"), numbers(2, 3), numbers(3, 2))


def test_rearrange_returns_a_view_where_it_can():
    x = pb.zeros(2, 6)
    view = einops.rearrange(x, "a (b c) -> b a c", b=3)
    assert view._base is x
    view[1, 1, 0] = 5
    assert x[1, 2] == 5


def test_parse_shape_and_asnumpy():
    x = numbers(2, 3, requires_grad=False)
    assert einops.parse_shape(x, "rows _") == {"rows": 2}
    assert einops.asnumpy(x).tolist() == x.tolist()


def test_wrong_pattern_is_einops_error():
    with pytest.raises(einops.EinopsError, match="Shape mismatch"):
        einops.rearrange(pb.zeros(2, 5), "a (b c) -> a b c", b=2)


def test_parameters_and_other_subclasses_are_tensors_too():
    class Marked(pb.Tensor):
        pass

    x = pb.zeros(2, 3).as_subclass(Marked)
    assert einops.rearrange(x, "a b -> b a").shape == (3, 2)


IMPORTS = {
    "pullback first": "import pullback, einops",
    "einops first": "import einops, pullback",
    "through another module": "import pullback, importlib; "
    "einops = importlib.import_module('einops')",
    "einops reloaded": "import pullback, einops, importlib; "
    "importlib.reload(einops._backends); importlib.reload(einops)",
}


@pytest.mark.parametrize("imports", IMPORTS.values(), ids=list(IMPORTS))
def test_order_of_imports_does_not_matter(imports):
    program = imports + (
        "; x = einops.rearrange(pullback.zeros(2, 3), 'a b -> b a'); print(tuple(x.shape))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "(3, 2)", done.stderr


def test_pullback_imports_no_einops():
    program = "import sys, pullback; print([name for name in sys.modules if 'einops' in name])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "['pullback._interop.einops']", done.stderr


def test_einops_is_imported_unchanged():
    program = (
        "import pullback, einops, inspect; backends = einops._backends; "
        "print(type(backends.__loader__).__name__, backends.__spec__.loader is backends.__loader__,"
        " 'class AbstractBackend' in inspect.getsource(backends))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "SourceFileLoader True True", done.stderr


def test_opt_einsum_contracts_tensors():
    contract = pytest.importorskip("opt_einsum").contract
    parts = [numbers(2, 3), numbers(3, 4), numbers(4, 2, requires_grad=False)]
    found = contract("ij,jk,kl->li", *parts)
    assert pb.allclose(found, (parts[0] @ parts[1] @ parts[2]).T)
    assert pb.autograd.gradcheck(lambda a, b: contract("ij,jk,kl->li", a, b, parts[2]), parts[:2])
