"""How a gradient lands in ``.grad``: identity, strides, dtype, stealing, aliasing."""

import pytest

import pullback as pb


def transposed_leaf():
    return pb.zeros(3, 2).t().requires_grad_()


def test_first_grad_takes_the_strides_of_a_dense_leaf():
    x = transposed_leaf()
    (x * 2).backward(pb.ones(2, 3))
    assert x.grad.stride() == x.stride() == (1, 2)


def test_first_grad_of_permuted_leaf():
    x = pb.zeros(2, 3, 4).permute(2, 0, 1).requires_grad_()
    (x + 1).sum().backward()
    assert x.grad.stride() == x.stride()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: pb.zeros(3).expand(2, 3), id="expanded"),
        pytest.param(lambda: pb.zeros(2, 6)[:, ::2], id="gaps"),
    ],
)
def test_first_grad_of_other_leaves_is_row_major(make):
    x = make().requires_grad_()
    (x * 2).backward(pb.ones(3, 2).t())
    assert x.grad.stride() == (3, 1)
    assert x.grad.tolist() == [[2.0] * 3] * 2


def test_later_grads_are_added_in_place():
    x = transposed_leaf()
    x.grad = pb.ones(3, 2).t()
    kept, pointer, stride = x.grad, x.grad.data_ptr(), x.grad.stride()
    (x * 2).sum().backward()
    assert x.grad is kept
    assert (x.grad.data_ptr(), x.grad.stride()) == (pointer, stride)
    assert kept.tolist() == [[3.0] * 3] * 2
    assert kept._version == 1


def test_create_graph_replaces_the_grad():
    x = pb.tensor([3.0], requires_grad=True)
    (x * x).backward()
    old = x.grad
    (x * x).backward(create_graph=True)
    assert x.grad is not old
    assert old.tolist() == [6.0]
    assert x.grad.tolist() == [12.0]
    x.grad = None


def test_grad_of_one_leaf_used_twice_as_root_is_not_shared():
    x = pb.ones(2, requires_grad=True)
    y = pb.ones(2, requires_grad=True)
    seed = pb.ones(2)
    pb.autograd.backward([x, y, x + y], [seed, seed, seed])
    assert x.grad.tolist() == y.grad.tolist() == [2.0, 2.0]
    assert x.grad.data_ptr() != y.grad.data_ptr()
    assert seed.tolist() == [1.0, 1.0]


def test_grad_keeps_its_own_memory_when_a_hook_holds_the_gradient():
    x, held = pb.ones(2, requires_grad=True), []
    x.register_hook(held.append)
    (x * 3).sum().backward()
    (x * 4).sum().backward()
    assert held[0].tolist() == [3.0, 3.0]
    assert x.grad.tolist() == [7.0, 7.0]


def test_expanded_gradient_becomes_ordinary_memory():
    x = pb.ones(2, 3, requires_grad=True)
    x.sum().backward()
    assert x.grad.stride() == (3, 1)
    x.grad[0, 0] = 9.0
    assert x.grad.tolist() == [[9.0, 1.0, 1.0], [1.0, 1.0, 1.0]]


@pytest.mark.parametrize("dtype", [pb.float16, pb.bfloat16, pb.float32, pb.float64])
def test_grad_has_the_dtype_of_the_leaf(dtype):
    x = pb.ones(2, dtype=dtype, requires_grad=True)
    (x * pb.ones(2, dtype=pb.float64)).sum().backward()
    assert x.grad.dtype == dtype


def test_grad_dtype_casts_what_accumulates():
    x = pb.ones(2, dtype=pb.float32, requires_grad=True)
    assert x.grad_dtype == pb.float32
    x.grad_dtype = pb.float64
    (x * 3).sum().backward()
    assert x.grad.dtype == pb.float64
    assert x.grad.tolist() == [3.0, 3.0]
    x.grad = None
    x.grad_dtype = None
    x.grad = pb.ones(2, dtype=pb.float16)
    assert x.grad.dtype == pb.float16


def test_complex_gradient_of_real_leaf_is_its_real_part():
    x = pb.tensor([2.0], requires_grad=True)
    z = x * pb.tensor([3 + 4j])
    z.backward(pb.tensor([1 + 1j]))
    assert x.grad.dtype == pb.float32
    assert x.grad.tolist() == [7.0]


def test_layout_policy_nests_and_decorates():
    policy = pb.autograd.enforce_grad_layout_policy
    x = transposed_leaf()
    with policy(True):
        (x * 2).sum().backward()
    assert x.grad.stride() == x.stride()

    @policy(False)
    def run():
        x.grad = None
        (x * 2).sum().backward()
        return x.grad.tolist()

    assert run() == [[2.0] * 3] * 2


def test_accumulator_is_shared_by_all_uses_and_made_lazily():
    x = pb.ones(2, requires_grad=True)
    first, second = x * 2, x + 1
    node = first.grad_fn.next_functions[0][0]
    assert node is second.grad_fn.next_functions[0][0]
    assert node.variable is x


def test_gradient_whose_elements_share_memory_is_replaced():
    x = pb.ones(3, requires_grad=True)
    x.grad = pb.ones(1).expand(3)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0, 3.0]
