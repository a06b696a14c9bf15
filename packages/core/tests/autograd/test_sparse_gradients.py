"""Gradients in coordinate format: what makes and adds them, and optimizers that take them."""

import copy
import io
import math
import pickle

import pytest

import pullback as pb
from pullback.nn import functional as F

INDICES = [1, 3, 1]
WEIGHTS = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
DENSE = [[0.0, 0.0], [6.0, 8.0], [0.0, 0.0], [3.0, 4.0]]


def table():
    return pb.zeros(4, 2, requires_grad=True)


def look_up(weight, **options):
    return (
        F.embedding(pb.tensor(INDICES), weight, sparse=True, **options) * pb.tensor(WEIGHTS)
    ).sum()


def made():
    return pb.sparse_coo_tensor([INDICES], WEIGHTS, (4, 2))


def saved(value):
    file = io.BytesIO()
    pb.save(value, file)
    file.seek(0)
    return file


def test_embedding_with_sparse_gives_the_rows_that_were_taken():
    weight = table()
    look_up(weight).backward()
    grad = weight.grad
    assert grad.is_sparse and grad.layout is pb.sparse_coo and not grad.requires_grad
    assert grad.device == weight.device and grad.shape == (4, 2) and grad.dtype == pb.float32
    assert (grad._indices().tolist(), grad._values().tolist()) == ([INDICES], WEIGHTS)
    assert (grad._nnz(), grad.sparse_dim(), grad.dense_dim()) == (3, 1, 1)
    assert grad.to_dense().tolist() == DENSE
    padded = table()
    look_up(padded, padding_idx=1).backward()
    assert padded.grad._indices().tolist() == [[3]]
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported with sparse"):
        look_up(table(), scale_grad_by_freq=True).backward()


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("sum", {}, [0, 2, 0, 1]),
        ("mean", {}, [0, 1.5, 0, 0.5]),
        ("sum", {"padding_idx": 1}, [0, 0, 0, 1]),
    ],
)
def test_embedding_bag_with_sparse_gives_rows(mode, options, expected):
    bag = pb.nn.EmbeddingBag(4, 2, mode=mode, sparse=True, **options)
    bag(pb.tensor(INDICES), pb.tensor([0, 2])).sum().backward()
    assert bag.weight.grad.is_sparse
    assert bag.weight.grad.to_dense()[:, 0].tolist() == expected


def test_gather_with_sparse_grad_gives_elements():
    x = table()
    pb.gather(x, 0, pb.tensor([[1, 0], [1, 1]]), sparse_grad=True).sum().backward()
    assert x.grad._indices().tolist() == [[1, 0, 1, 1], [0, 1, 0, 1]]
    assert x.grad.to_dense().tolist() == [[0, 1], [2, 1], [0, 0], [0, 0]]
    number = pb.tensor(2.0, requires_grad=True)
    number.gather(0, pb.tensor(0), sparse_grad=True).backward()
    assert number.grad.sparse_dim() == 0 and number.grad.to_dense() == 1
    # with a history the gradient is dense
    (first,) = pb.autograd.grad(
        (x.gather(1, pb.tensor([[0]]), sparse_grad=True) ** 3).sum(), x, create_graph=True
    )
    assert not first.is_sparse and first.requires_grad


def test_gradient_of_one_row_is_coalesced():
    """As are all of fewer than two elements: nothing has to be added up."""
    weight = table()
    F.embedding(pb.tensor([2]), weight, sparse=True).sum().backward()
    assert weight.grad.is_coalesced()
    assert weight.grad.indices().tolist() == [[2]]
    assert weight.grad.values().tolist() == [[1.0, 1.0]]
    assert not made().is_coalesced()


def test_accumulation_of_sparse_and_dense_gradients():
    weight = table()
    look_up(weight).backward()
    first = weight.grad
    (2 * look_up(weight)).backward()
    assert weight.grad is first and first.to_dense().tolist() == (3 * pb.tensor(DENSE)).tolist()
    weight.sum().backward()  # a dense one makes the sum dense
    assert not weight.grad.is_sparse
    dense = weight.grad
    look_up(weight).backward()
    assert weight.grad is dense and dense.tolist() == (4 * pb.tensor(DENSE) + 1).tolist()
    # in one pass, in both orders
    for loss in (lambda w: look_up(w) + w.sum(), lambda w: w.sum() + look_up(w)):
        weight = table()
        loss(weight).backward()
        assert weight.grad.tolist() == (pb.tensor(DENSE) + 1).tolist()
    two = table()
    (look_up(two) + look_up(two)).backward()
    assert two.grad.is_sparse and two.grad.to_dense().tolist() == (2 * pb.tensor(DENSE)).tolist()


def test_sparse_gradients_in_hooks_formulas_and_anomaly_mode():
    weight, seen = table(), []
    weight.register_hook(lambda grad: seen.append(grad.is_sparse) or grad * 2)
    weight.register_post_accumulate_grad_hook(lambda w: seen.append(w.grad._nnz()))
    look_up(weight).backward()
    assert seen == [True, 3] and weight.grad.to_dense().tolist() == (2 * pb.tensor(DENSE)).tolist()
    inner = table()
    product = inner * 3  # its formula multiplies the sparse gradient
    product.retain_grad()
    look_up(product).backward()
    assert product.grad.to_dense().tolist() == DENSE
    assert inner.grad.is_sparse and inner.grad.to_dense()[1].tolist() == [18.0, 24.0]
    with pytest.raises(NotImplementedError, match="'pullback::mul' with arguments"):
        look_up(table().sin()).backward()
    with pytest.warns(UserWarning, match="Anomaly"), pb.autograd.detect_anomaly():
        assert pb.autograd.grad(look_up(weight), weight)[0].is_sparse
    (caught,) = pb.autograd.grad(look_up(weight), weight)
    assert caught.to_dense().tolist() == (2 * pb.tensor(DENSE)).tolist()
    weight.grad = made()
    with pytest.raises(RuntimeError, match="of size '\\[4\\]' to a tensor of size"):
        weight.grad = pb.sparse_coo_tensor([[0]], [1.0], (4,))


def test_gradients_under_batches_and_tangents_are_dense():
    def loss(weight):
        return look_up(weight)

    assert pb.func.grad(loss)(pb.zeros(4, 2)).to_dense().tolist() == DENSE
    assert pb.func.jvp(loss, (pb.zeros(4, 2),), (pb.ones(4, 2),))[1] == 21
    assert pb.vmap(pb.func.grad(loss))(pb.zeros(2, 4, 2))[1].tolist() == DENSE


def test_coo_tensor_computes_what_gradients_need():
    x = made()
    joined = x.coalesce()
    assert joined.is_coalesced() and not x.is_coalesced() and joined.coalesce() is joined
    assert joined.indices().tolist() == [[1, 3]]
    assert joined.values().tolist() == [[6.0, 8.0], [3.0, 4.0]]
    with pytest.raises(RuntimeError, match=r"Cannot get values on an uncoalesced tensor, please"):
        x.values()
    for name, value in {
        "sum": x + joined - x,
        "double": (x * 2) / 2,
        "left": 0.5 * x + x.div(2),
        "neg": x.neg().neg_(),
        "clone": x.clone().mul_(2).div_(2),
        "add": x.clone().zero_().add_(x, alpha=1),
        "pickle": pickle.loads(pickle.dumps(x)),
        "copy": copy.deepcopy(x),
        "file": pb.load(saved(x)),
        "detach": x.detach().double().float().to(x.device),
    }.items():
        assert value.is_sparse and value.to_dense().tolist() == DENSE, name
    assert (pb.ones(4, 2) + x).tolist() == (pb.ones(4, 2) - -x).tolist()
    assert pb.ones(4, 2).add_(x, alpha=-1)[1].tolist() == [-5.0, -7.0]
    assert math.isclose(x.norm(), math.sqrt(36 + 64 + 9 + 16), rel_tol=1e-6)
    cube = pb.sparse_coo_tensor([[1, 1, 0], [0, 0, 2]], [1.0, 2.0, 4.0], (2, 3))
    assert cube.coalesce().indices().tolist() == [[0, 1], [2, 0]]
    assert cube.to_dense().tolist() == [[0, 0, 4], [3, 0, 0]]
    assert len(x) == 4 and x.stride() == (0, 0)
    assert repr(pb.sparse_coo_tensor([[2]], [1.5], (3,), dtype=pb.float64)) == (
        "tensor(indices=tensor([[2]]),\n       values=tensor([1.5000]),\n"
        "       size=(3,), nnz=1, dtype=pullback.float64, layout=pullback.sparse_coo)"
    )


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (([[5]], [1.0], (3,)), "for dim 0, size is 3 but found index 5"),
        (([[-1]], [1.0]), "found negative index -1 for dim 0"),
        (([1], [1.0]), r"indices must be sparse_dim x nnz, but got: \[1\]"),
        (([[1]], [1.0, 2.0]), "nnz from indices: 1, nnz from values: 2"),
        (([[1]], [1.0], (3, 3)), r"len\(size\) = 2, sparse_dim = 1, dense_dim = 0"),
        (([[1]], [[1.0, 2.0]], (3, 3)), r"expected \[1, 3\], got \[1, 2\]"),
    ],
)
def test_sparse_coo_tensor_with_parts_that_do_not_fit(args, text):
    with pytest.raises(RuntimeError, match=text):
        pb.sparse_coo_tensor(*args)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: x.exp(), NotImplementedError, "'pullback::exp' .* 'SparseCPU' backend"),
        (lambda x: x @ x, NotImplementedError, "pullback::matmul"),
        (lambda x: x * pb.ones(4, 2), NotImplementedError, "pullback::mul"),
        (lambda x: pb.cat([x, x]), NotImplementedError, "pullback::cat"),
        (lambda x: x[0], NotImplementedError, "pullback::getitem"),
        (list, NotImplementedError, "pullback::unbind"),
        (lambda x: x + 1, RuntimeError, r"add\(sparse, dense\) is not supported"),
        (lambda x: pb.ones(2) + x, RuntimeError, "does not currently support broadcasting"),
        (lambda x: x.numpy(), TypeError, "can't convert Sparse layout tensor to numpy"),
        (lambda x: x.untyped_storage(), NotImplementedError, "Cannot access storage of Sparse"),
        (lambda x: x.data_ptr(), RuntimeError, "Cannot access data pointer"),
        (lambda x: x.requires_grad_(), RuntimeError, "gradients only"),
        (lambda x: pb.zeros(4, 2).copy_(x), RuntimeError, "between dense and sparse Tensors"),
        (lambda x: pb.nn.utils.clip_grad_norm_([holder(x)], 1.0), NotImplementedError, "norm"),
    ],
)
def test_other_operations_of_sparse_tensors_are_refused(call, error, text):
    with pytest.raises(error, match=text):
        call(made())


def holder(grad):
    weight = table()
    weight.grad = grad
    return weight


def test_optimizers_step_where_a_sparse_gradient_has_elements():
    weight = holder(made())
    pb.optim.SGD([weight], lr=0.5).step()
    assert weight.tolist() == (-0.5 * pb.tensor(DENSE)).tolist()
    weight = holder(made())
    pb.optim.Adagrad([weight], lr=0.5).step()  # g / |g| at first
    assert weight[:, 0].tolist() == [0, -0.5, 0, -0.5]
    weight = holder(made())
    optimizer = pb.optim.SparseAdam([weight], lr=0.5)
    optimizer.step()
    assert pb.allclose(weight[:, 1], pb.tensor([0, -0.5, 0, -0.5]))
    weight.grad = pb.sparse_coo_tensor([[0]], [[1.0, 1.0]], (4, 2))
    before = weight.detach().clone()
    optimizer.step()  # the averages of other rows do not decay, and their weights do not move
    assert weight[1:].tolist() == before[1:].tolist() and weight[0, 0] < 0
    state = optimizer.state[weight]
    assert state["step"] == 2 and math.isclose(state["exp_avg"][1, 0], 0.6, rel_tol=1e-6)
    optimizer.zero_grad(set_to_none=False)
    assert weight.grad.is_sparse and weight.grad._nnz() == 0


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("Adam", {}, "Adam does not support sparse gradients, please consider SparseAdam"),
        ("AdamW", {}, "Adam does not support sparse gradients, please consider SparseAdam"),
        ("RMSprop", {}, "RMSprop does not support sparse gradients"),
        ("Muon", {}, "Muon does not support sparse gradients"),
        ("SGD", {"fused": True}, "`_fused_sgd` does not support sparse gradients"),
        ("SGD", {"weight_decay": 0.1}, r"add\(sparse, dense\) is not supported"),
        ("Adagrad", {"weight_decay": 0.1}, "weight_decay option is not compatible with sparse"),
        ("Adagrad", {"fused": True}, "`fused` does not support sparse grad or complex param"),
    ],
)
def test_optimizers_refuse_sparse_gradients_as_torch_does(name, options, text):
    with pytest.raises(RuntimeError, match=text):
        getattr(pb.optim, name)([holder(made())], lr=0.1, **options).step()


def test_sparse_adam_refuses_dense_gradients_and_sparse_parameters():
    with pytest.raises(RuntimeError, match="does not support dense gradients, please consider"):
        pb.optim.SparseAdam([holder(pb.ones(4, 2))]).step()
    with pytest.raises(ValueError, match=r"Sparse params at indices \[\[0, 0\]\]"):
        pb.optim.SparseAdam([made()])


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize("dtype", [None, pb.float64])
@pytest.mark.parametrize("make", [pb.tensor, pb.as_tensor, pb.asarray])
def test_constructors_of_sparse_tensors(make, dtype):
    x = pb.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,))
    made = make(x, dtype=dtype)
    assert made.is_sparse and made.device == x.device
    assert made.dtype == (dtype or pb.float32) and made.to_dense().tolist() == [1, 0, 2]
    with pytest.raises(NotImplementedError, match="cannot access the storage of a SparseTensor"):
        pb.Tensor(x)
