"""Sparse gradients beside torch's: the gradients, what is computed with them, optimizers."""

import pytest

import pullback

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

SETUP = """
indices = lib.tensor([1, 3, 1])
seed = lib.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

def taken(**options):
    weight = lib.arange(8.0).reshape(4, 2).requires_grad_()
    (lib.nn.functional.embedding(indices, weight, sparse=True, **options) * seed).sum().backward()
    return weight

def stepped(name, **options):
    weight = taken()
    optimizer = getattr(lib.optim, name)([weight], lr=0.1, **options)
    for _ in range(3):
        optimizer.step()
    return weight.detach()

def bag(**options):
    weight = lib.zeros(4, 2, requires_grad=True)
    offsets = lib.tensor([0, 2])
    out = lib.nn.functional.embedding_bag(indices, weight, offsets, sparse=True, **options)
    (out * seed[:2]).sum().backward()
    return weight.grad

def gathered(dim):
    x = lib.zeros(3, 2, requires_grad=True)
    lib.gather(x, dim, lib.tensor([[1, 0], [0, 1]]), sparse_grad=True).cumsum(0).sum().backward()
    return x.grad

def scaled():
    x = lib.ones(4, 2, requires_grad=True)
    lib.nn.functional.embedding(indices, x * 2, sparse=True).sum().backward()
    return x.grad

x = lib.sparse_coo_tensor([[1, 0, 1]], seed, (3, 2))
dense = lib.ones(3, 2)
"""
EXPRESSIONS = (
    "taken().grad",
    "taken(padding_idx=1).grad",
    "taken(scale_grad_by_freq=True)",
    "bag(mode='sum')",
    "bag(mode='mean')",
    "bag(mode='sum', padding_idx=3)",
    "gathered(0)",
    "gathered(-1)",
    "scaled()",
    "x.coalesce()",
    "x.coalesce().indices(), x.coalesce().values()",
    "x.values()",
    "x * 2, x / 2, -x, x.norm(), x.norm(1), x.sum()",
    "x + x, x - x, dense + x, dense - x",
    "dense.clone().add_(x, alpha=2)",
    "x.clone().zero_(), lib.zeros_like(x), x.double(), x.isnan()",
    "x.shape, x.dim(), x.numel(), x.is_sparse, x.requires_grad, x.is_leaf, len(x), x.stride()",
    "x + dense",
    "x.exp()",
    "x == x",
    "x.view(6)",
    "x.numpy()",
    "x.untyped_storage()",
    "x.data_ptr()",
    "dense.copy_(x)",
    "lib.sparse_coo_tensor([[1], [0]], 2.0)",
    "lib.sparse_coo_tensor([[0, 1], [2, 0]], [1, 2])",
    "lib.sparse_coo_tensor((2, 3))",
    "lib.sparse_coo_tensor([1], [1.0])",
    "lib.sparse_coo_tensor([[1]], [1.0], (3, 3))",
    "lib.sparse_coo_tensor([[5]], [1.0], (3,), check_invariants=True)",
    "lib.nn.utils.clip_grad_norm_([taken()], 1.0)",
    *(f"stepped({name!r})" for name in ("SGD", "Adagrad", "SparseAdam")),
    "stepped('SGD', momentum=0.9), stepped('SGD', maximize=True)",
    "stepped('SparseAdam', maximize=True), stepped('Adagrad', lr_decay=0.1)",
    *(f"stepped({name!r})" for name in ("Adam", "AdamW", "RMSprop", "NAdam", "ASGD", "Muon")),
    "stepped('SGD', fused=True)",
    "stepped('Adagrad', weight_decay=0.1)",
)


def outcome(lib, expression):
    """Return comparable values of an expression, or the class and the text of its error."""
    names = {"lib": lib}
    exec(SETUP, names)
    try:
        found = eval(expression, names)
    except Exception as error:
        return type(error).__name__, str(error).split("'aten")[0].split("'pullback")[0].split(
            "Found"
        )[0]
    return tuple(plain(item) for item in (found if type(found) is tuple else (found,)))


def plain(value):
    if getattr(value, "is_sparse", False):
        return repr(value).replace("torch.", "pullback.")
    if hasattr(value, "tolist"):
        return tuple(float(f"{number:.5g}") for number in value.reshape(-1).tolist())
    return value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_sparse_gradients_as_torch(expression):
    assert outcome(pullback, expression) == outcome(torch, expression)
