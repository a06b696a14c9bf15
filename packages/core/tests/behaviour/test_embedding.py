"""Embeddings, bags of them, one_hot and attention."""

import math

import pytest

import pullback as pb

F = pb.nn.functional
TABLE = pb.arange(12, dtype=pb.float32).reshape(4, 3)


def indices(*values):
    return pb.tensor(values, dtype=pb.int64)


def gradient(function, weight=TABLE):
    weight = weight.clone().requires_grad_()
    return pb.autograd.grad(function(weight).sum(), weight)[0].tolist()


def test_padding_gets_no_gradient_and_frequency_divides_it():
    found = gradient(lambda w: F.embedding(indices(1, 1, 2), w, padding_idx=-2))
    assert found == [[0] * 3, [2] * 3, [0] * 3, [0] * 3]
    found = gradient(lambda w: F.embedding(indices(1, 1, 2), w, scale_grad_by_freq=True))
    assert found == [[0] * 3, [1] * 3, [1] * 3, [0] * 3]


def test_a_sparse_gradient_has_the_elements_of_the_dense_one():
    def sparse(function):
        table = TABLE.clone().requires_grad_()
        function(table).sum().backward()
        return table.grad.to_dense().tolist()

    dense = pb.zeros_like(TABLE).index_add(0, indices(1, 1, 2), pb.ones(3, TABLE.shape[1])).tolist()
    assert sparse(lambda w: F.embedding(indices(1, 1, 2), w, sparse=True)) == dense
    assert sparse(lambda w: pb.embedding(w, indices(1, 1, 2), sparse=True)) == dense
    bags = indices(1, 1, 2).unsqueeze(0)
    assert sparse(lambda w: F.embedding_bag(bags, w, mode="sum", sparse=True)) == dense


def test_max_norm_scales_taken_rows_in_place():
    table = TABLE.clone().requires_grad_()
    out = F.embedding(indices(1, 3), table, max_norm=1.0)
    assert out.norm(dim=1).tolist() == pytest.approx([1.0, 1.0])
    assert table[0].tolist() == [0, 1, 2] and table[2].tolist() == [6, 7, 8]
    assert table[1].tolist() == out[0].tolist()
    assert out.grad_fn.name() == "EmbeddingBackward0"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: F.embedding(indices(4), TABLE), IndexError, "index out of range in self"),
        (lambda: F.embedding(indices(-1), TABLE), IndexError, "index out of range in self"),
        (lambda: F.embedding(TABLE, indices(1)), RuntimeError, "'weight' must be 2-D"),
        (lambda: F.embedding(pb.ones(2), TABLE), RuntimeError, "scalar types: Long, Int; but got"),
        (lambda: F.embedding(indices(1), TABLE, 4), AssertionError, "within num_embeddings"),
        (lambda: F.embedding_bag(indices(1), TABLE), ValueError, "a 1D Tensor but got None"),
        (lambda: F.embedding_bag(indices(1), TABLE, indices(1)), RuntimeError, "has to be 0"),
        (lambda: F.embedding_bag(indices(1), TABLE, indices(0, 2)), RuntimeError, "greater than"),
        (
            lambda: F.embedding_bag(indices(1, 4), TABLE, indices(0)),
            RuntimeError,
            r"Index 1 of input takes value 4 which is not in the valid range \[0, 4\)",
        ),
        (lambda: F.embedding_bag(indices(1), TABLE, indices(0), mode="min"), ValueError, "mode"),
        (
            lambda: F.embedding_bag(indices(1), TABLE, indices(0), per_sample_weights=pb.ones(1)),
            NotImplementedError,
            "only supported for mode='sum'",
        ),
        (
            lambda: F.embedding_bag(indices(1), TABLE, indices(0), padding_idx=4),
            RuntimeError,
            "-4 through 3, but got 4",
        ),
        (lambda: F.one_hot(indices(-1)), RuntimeError, "Class values must be non-negative"),
        (lambda: F.one_hot(indices(1), 1), RuntimeError, "must be smaller than num_classes"),
        (lambda: F.one_hot(indices()), RuntimeError, "Can not infer total number of classes"),
        (lambda: F.one_hot(pb.ones(2)), RuntimeError, "index tensor of type LongTensor"),
    ],
)
def test_wrong_arguments(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("sum", [[3, 5, 7], [0] * 3, [9, 10, 11]]),
        ("mean", [[1.5, 2.5, 3.5], [0] * 3, [9, 10, 11]]),
        ("max", [[3, 4, 5], [0] * 3, [9, 10, 11]]),
    ],
)
def test_bags(mode, expected):
    found = F.embedding_bag(indices(0, 1, 3), TABLE, indices(0, 2, 2), mode=mode)
    assert found.tolist() == expected
    found = F.embedding_bag(indices(0, 1, 2, 3), TABLE, indices(0, 2, 2), mode=mode, padding_idx=2)
    assert found.tolist() == expected
    found = F.embedding_bag(
        indices(0, 1, 3), TABLE, indices(0, 2, 2, 3), mode=mode, include_last_offset=True
    )
    assert found.tolist() == expected


def test_the_first_of_equal_maxima_gets_the_gradient():
    found = gradient(
        lambda w: F.embedding_bag(indices(2, 1, 2), w, indices(0), mode="max"),
        pb.tensor([[9.0, 9.0], [1.0, 2.0], [1.0, 0.0]]),
    )
    assert found == [[0, 0], [0, 1], [1, 0]]


def test_weights_of_samples_have_gradients():
    weights = pb.ones(3, requires_grad=True)
    found = F.embedding_bag(
        indices(0, 1, 3), TABLE, indices(0, 2), mode="sum", per_sample_weights=weights
    )
    assert pb.autograd.grad(found.sum(), weights)[0].tolist() == [3, 12, 30]


def test_one_hot():
    assert F.one_hot(indices(1, 0)).tolist() == [[0, 1], [1, 0]]
    assert F.one_hot(indices(1), 3).dtype == pb.int64
    assert F.one_hot(indices(), 3).shape == (0, 3)


# attention


def test_attention_averages_what_a_query_may_see():
    q, k = pb.zeros(2, 4), pb.zeros(3, 4)
    v = pb.tensor([[0.0], [3.0], [6.0]])
    attend = F.scaled_dot_product_attention
    assert attend(q, k, v).tolist() == [[3.0], [3.0]]
    assert attend(q, k, v, is_causal=True).tolist() == [[0.0], [1.5]]
    mask = pb.tensor([[True, False, True], [False, False, False]])
    assert attend(q, k, v, mask).tolist() == [[3.0], [0.0]]


def test_a_query_that_sees_nothing_has_gradients_of_zero():
    q, k, v = (pb.randn(2, 2, dtype=pb.float64, requires_grad=True) for _ in range(3))
    mask = pb.tensor([[0.0, 0.0], [-math.inf, -math.inf]], dtype=pb.float64)
    out = F.scaled_dot_product_attention(q, k, v, mask)
    grads = pb.autograd.grad(out.sum(), (q, k, v))
    assert all(grad.isfinite().all() for grad in grads)
    assert out[1].tolist() == [0.0, 0.0] and grads[0][1].tolist() == [0.0, 0.0]


def test_grouped_queries_share_keys():
    q, k, v = pb.randn(1, 4, 2, 3), pb.randn(1, 2, 5, 3), pb.randn(1, 2, 5, 3)
    found = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    wanted = F.scaled_dot_product_attention(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    pb.testing.assert_close(found, wanted)
    with pytest.raises(RuntimeError, match="Number of heads in key and value must divide"):
        F.scaled_dot_product_attention(q[:, :3], k, v, enable_gqa=True)


@pytest.mark.parametrize("shape", [(3, 300, 700), (2, 60, 90, 50), (1, 1, 2)])
def test_attention_is_the_same_whether_it_is_recorded(shape):
    *lead, rows, columns = shape
    q, k = pb.randn(*lead, rows, 4, dtype=pb.float64), pb.randn(*lead, columns, 4, dtype=pb.float64)
    v = pb.randn(*lead, columns, 3, dtype=pb.float64)
    found = F.scaled_dot_product_attention(q, k, v)
    q.requires_grad_()
    recorded = F.scaled_dot_product_attention(q, k, v)
    assert recorded.requires_grad and not found.requires_grad
    pb.testing.assert_close(found, recorded.detach())
    weights = (q.detach() @ k.transpose(-2, -1) / 2).softmax(-1)
    pb.testing.assert_close(found, weights @ v)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"attn_mask": pb.ones(2, 3), "is_causal": True}, "should not be set when is_causal=True"),
        ({"attn_mask": pb.ones(2, 3, dtype=pb.int64)}, "attn_mask dtype to be bool or float"),
        ({"dropout_p": 1.5}, "dropout probability has to be between 0 and 1"),
    ],
)
def test_wrong_arguments_of_attention(options, message):
    with pytest.raises(RuntimeError, match=message):
        F.scaled_dot_product_attention(pb.ones(2, 4), pb.ones(3, 4), pb.ones(3, 2), **options)


@pytest.mark.parametrize("dtype", [pb.float16, pb.bfloat16])
def test_frequencies_are_counted_beyond_what_16_bits_count(dtype):
    weight = pb.zeros(2, 1, dtype=dtype, requires_grad=True)
    indices = pb.zeros(3000, dtype=pb.int64)
    F.embedding(indices, weight, scale_grad_by_freq=True).float().sum().backward()
    assert abs(weight.grad[0, 0].item() - 1) < 0.02


def test_bags_without_any_index_have_the_gradient_0():
    for mode in ("sum", "mean", "max"):
        w = pb.ones(3, 2, requires_grad=True)
        F.embedding_bag(pb.zeros((0, 3), dtype=pb.int64), w, mode=mode).sum().backward()
        assert w.grad.tolist() == [[0.0, 0.0]] * 3
