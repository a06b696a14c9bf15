"""Identity, sequences, powers and indices: dtypes, ends, out= and errors."""

import numpy as np
import pytest

import pullback as pb

REFUSED = {
    "eye": (lambda: pb.eye(-1), RuntimeError, "n must be greater or equal to 0, got -1"),
    "eye m": (lambda: pb.eye(1, -2), RuntimeError, "m must be greater or equal to 0"),
    "eye float": (lambda: pb.eye(2.5), TypeError, "must be int"),
    "eye grad": (
        lambda: pb.eye(2, dtype=pb.int64, requires_grad=True),
        RuntimeError,
        "can require gradients",
    ),
    "linspace steps": (lambda: pb.linspace(0, 1, -1), RuntimeError, "must be non-negative"),
    "linspace vector": (
        lambda: pb.linspace(pb.zeros(1), 1, 3),
        RuntimeError,
        "only supports 0-dimensional start and end",
    ),
    "linspace word": (lambda: pb.linspace("a", 1, 3), TypeError, "must be Number"),
    "linspace bool": (lambda: pb.linspace(0, 1, 3, dtype=pb.bool), NotImplementedError, "'Bool'"),
    "linspace complex": (
        lambda: pb.linspace(0, 1j, 3, dtype=pb.float32),
        RuntimeError,
        "can't be safely cast",
    ),
    "logspace": (lambda: pb.logspace(0, 1, 2.5), TypeError, "must be int"),
    "vander": (lambda: pb.vander(pb.ones(2, 2)), RuntimeError, "one-dimensional"),
    "vander N": (lambda: pb.vander(pb.ones(2), -1), RuntimeError, "N must be non-negative"),
    "empty_strided": (lambda: pb.empty_strided((2, 3), (1,)), RuntimeError, "must match dim"),
    "empty_permuted": (lambda: pb.empty_permuted((2, 3), (0, 0)), RuntimeError, "Duplicate dim"),
    "empty_permuted range": (
        lambda: pb.empty_permuted((2, 3), (0, -1)),
        RuntimeError,
        "expected to be between 0 and 1, but got -1",
    ),
    "tril_indices": (lambda: pb.tril_indices(-1, 2), RuntimeError, "row must be non-negative"),
    "tril_indices dtype": (
        lambda: pb.tril_indices(2, 2, dtype=pb.float32),
        NotImplementedError,
        "'Float'",
    ),
    "unravel floats": (lambda: pb.unravel_index(pb.ones(1), (2,)), TypeError, "integer dtype"),
    "unravel bools": (lambda: pb.unravel_index(pb.tensor(True), (2,)), TypeError, "integer dtype"),
    "unravel shape": (lambda: pb.unravel_index(pb.tensor(1), (2, -1)), ValueError, "negative"),
    "unravel sizes": (lambda: pb.unravel_index(pb.tensor(1), (2, 1.5)), TypeError, "only contain"),
}


@pytest.mark.parametrize("call, error, message", REFUSED.values(), ids=list(REFUSED))
def test_refused_calls(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_dtype_of_new_tensors():
    assert pb.eye(2).dtype == pb.linspace(0, 1, 2).dtype == pb.float32
    assert pb.linspace(0, 1j, 2).dtype == pb.logspace(0, 1j, 2).dtype == pb.complex64
    assert pb.vander(pb.ones(2, dtype=pb.bool)).dtype == pb.int64
    before = pb.get_default_dtype()
    pb.set_default_dtype(pb.float64)
    try:
        assert pb.eye(2).dtype == pb.linspace(0, 1, 2).dtype == pb.float64
    finally:
        pb.set_default_dtype(before)


def test_requires_grad_and_device():
    for made in (
        pb.eye(2, requires_grad=True),
        pb.linspace(0, 1, 3, requires_grad=True),
        pb.empty_strided((2,), (1,), requires_grad=True),
    ):
        assert made.requires_grad
        assert made.is_leaf
    for made in (
        pb.eye(2, device="meta"),
        pb.logspace(0, 1, 3, device="meta"),
        pb.tril_indices(3, 3, device="meta"),
        pb.randperm(3, device="meta"),
    ):
        assert made.device.type == "meta"


def test_out_receives_the_result():
    out = pb.zeros(2, 2, dtype=pb.float64)
    assert pb.eye(2, out=out) is out
    assert out.tolist() == [[1, 0], [0, 1]]
    line = pb.zeros(3, dtype=pb.float64)
    assert pb.linspace(0, 1, 3, out=line).tolist() == [0, 0.5, 1]
    with pytest.raises(RuntimeError, match="does not match dtype of out"):
        pb.linspace(0, 1, 3, out=line, dtype=pb.float32)


@pytest.mark.parametrize("dtype", [pb.float16, pb.bfloat16, pb.float32, pb.float64])
def test_linspace_ends_exactly_and_is_symmetric(dtype):
    for steps in (2, 7, 50):
        line = pb.linspace(-0.3, 0.3, steps, dtype=dtype)
        end = pb.tensor(0.3, dtype=dtype)
        assert line[-1] == end
        half = steps // 2  # the step is rounded: the middle may miss 0 by a little
        assert (line[:half] == -line.flip(0)[:half]).all()


def test_linspace_of_float32_rounds_the_step_and_each_number_once():
    for start, end, steps in ((0.1, 0.7, 50), (-3, 3, 1000), (1, 1000, 4097)):
        first, last = np.float32(start), np.float32(end)
        step = float((last - first) / np.float32(steps - 1))
        index = np.arange(steps)
        below, above = float(first) + index * step, float(last) - (steps - 1 - index) * step
        expected = np.where(index < steps // 2, below, above).astype(np.float32)
        assert pb.linspace(start, end, steps).tolist() == expected.tolist()


def test_linspace_of_integers_is_cut():
    assert pb.linspace(-3, 3, 6, dtype=pb.int64).tolist() == [-3, -1, 0, 0, 1, 3]
    assert pb.linspace(0.7, 9.9, 4, dtype=pb.int64).tolist() == [0, 3, 6, 9]
    assert pb.linspace(10, 0, 4, dtype=pb.uint8).tolist() == [10, 6, 3, 0]
    assert pb.linspace(pb.tensor(1), pb.tensor(2.0), 3).tolist() == [1, 1.5, 2]


def test_vander_is_differentiable():
    x = pb.tensor([2.0, 3.0], requires_grad=True)
    pb.vander(x, 3).sum().backward()
    assert x.grad.tolist() == [5, 7]


def test_strides_of_new_memory():
    assert pb.empty_strided((2, 3), (1, 2)).stride() == (1, 2)
    assert pb.ones(1, dtype=pb.int8).new_empty_strided((2, 3), (1, 2)).dtype == pb.int8
    assert pb.empty_permuted((2, 3, 4), (2, 0, 1)).stride() == (3, 1, 6)


@pytest.mark.parametrize("offset", [-5, -2, -1, 0, 1, 3, 7])
@pytest.mark.parametrize("rows, columns", [(3, 3), (4, 2), (2, 5), (0, 3), (3, 0)])
def test_triangle_indices_name_what_triangles_keep(rows, columns, offset):
    ones = pb.ones(rows, columns)
    for indices, triangle in ((pb.tril_indices, pb.tril), (pb.triu_indices, pb.triu)):
        found = indices(rows, columns, offset)
        assert found.tolist() == triangle(ones, offset).nonzero().t().tolist()
        assert found.is_contiguous()
    assert pb.tril_indices(3, 3, dtype=pb.int32).dtype == pb.int32


def test_coordinates():
    x = pb.tensor([[0, 2], [3, 0]])
    assert pb.argwhere(x).tolist() == x.argwhere().tolist() == [[0, 1], [1, 0]]
    assert pb.argwhere(pb.tensor(1)).shape == (1, 0)
    indices = pb.tensor([1, 3, 5], dtype=pb.int32)
    rows, columns = pb.unravel_index(indices, (2, 3))
    assert rows.tolist() == [0, 1, 1]
    assert columns.tolist() == [1, 0, 2]
    assert columns.dtype == pb.int64
    assert pb.unravel_index(pb.tensor(4), 6)[0] == 4
    assert pb.unravel_index(pb.tensor(4), ()) == ()


def test_fill_makes_a_copy():
    x = pb.ones(2, requires_grad=True)
    assert pb.fill(x, 3).tolist() == [3, 3]
    pb.fill(x, 3).sum().backward()
    assert x.tolist() == [1, 1]
    assert x.grad.tolist() == [0, 0]


def test_triangle_indices_of_a_huge_matrix():
    """Memory follows the result, not the matrix; no offset overflows."""
    n, far = 2**31, 2**63 - 1
    assert pb.tril_indices(n, n, 1 - n).tolist() == [[n - 1], [0]]
    assert pb.triu_indices(n, n, n - 1).tolist() == [[0], [n - 1]]
    assert pb.tril_indices(2, 2, far).tolist() == [[0, 0, 1, 1], [0, 1, 0, 1]]
    assert pb.triu_indices(2, 2, -far).tolist() == [[0, 0, 1, 1], [0, 1, 0, 1]]
    assert pb.triu_indices(2, 2, far).shape == pb.tril_indices(2, 2, -far).shape == (2, 0)
