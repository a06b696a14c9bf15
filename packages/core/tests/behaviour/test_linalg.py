"""Products, inverses, distances and einsum: special values, overload forms, errors."""

import math

import pytest

import pullback as pb

F = pb.nn.functional
NAN, INF = math.nan, math.inf


def ones(*shape, dtype=pb.float32):
    return pb.ones(shape, dtype=dtype)


# beta and alpha


@pytest.mark.parametrize(
    "call",
    [
        lambda x: pb.addmm(x, ones(2, 3), ones(3, 4), beta=0),
        lambda x: pb.addmv(x[:, 0], ones(2, 3), ones(3), beta=0),
        lambda x: pb.addr(x, ones(2), 3 * ones(4), beta=0),
        lambda x: pb.baddbmm(x, ones(1, 2, 3), ones(1, 3, 4), beta=0),
        lambda x: pb.addbmm(x, ones(1, 2, 3), ones(1, 3, 4), beta=0),
    ],
    ids=["addmm", "addmv", "addr", "baddbmm", "addbmm"],
)
def test_beta_zero_ignores_nan(call):
    assert (call(pb.full((2, 4), NAN)) == 3).all()


def test_integer_factors_are_cut_but_not_those_of_addr():
    whole = ones(2, dtype=pb.int32)
    matrix = ones(2, 2, dtype=pb.int32)
    assert pb.addmv(whole, matrix, whole, alpha=1.5).tolist() == [3, 3]
    with pytest.raises(RuntimeError, match="For integral input tensors, argument alpha must not"):
        pb.addr(matrix, whole, whole, alpha=1.5)


def test_complex_factors_are_conjugated_in_gradients():
    x = pb.ones(1, 1, dtype=pb.complex64, requires_grad=True)
    y = pb.ones(1, 1, dtype=pb.complex64, requires_grad=True)
    g = pb.ones(1, 1, dtype=pb.complex64)
    grads = pb.autograd.grad(
        pb.addmm(x, y, ones(1, 1, dtype=pb.complex64), beta=1j, alpha=2j), (x, y), g
    )
    assert [grad.item() for grad in grads] == [-1j, -2j]
    assert pb.autograd.grad(pb.add(x, y, alpha=1j), y, g)[0].item() == -1j


def test_addr_promotes_but_not_in_place():
    whole = ones(2, 3, dtype=pb.int64)
    assert pb.addr(whole, ones(2), ones(3)).dtype == pb.float32
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        whole.addr_(ones(2), ones(3))


def test_in_place_result_of_another_shape_is_refused_before_writing():
    x = ones(1)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        x.addmv_(ones(2, 3), ones(3))
    assert x.tolist() == [1.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pb.addmv(ones(3), ones(2, 3), ones(3)), "size mismatch, got input"),
        (lambda: pb.addmv(ones(2, 2), ones(2, 3), ones(3)), r"vector \+ matrix @ vector expected"),
        (lambda: pb.addmv(ones(2), ones(2, 3, dtype=pb.float64), ones(3)), "must have the same"),
        (lambda: pb.addr(ones(2, 3), ones(2, 1), ones(3)), "Expected 1-D argument vec1"),
        (lambda: pb.baddbmm(ones(4), ones(2, 3), ones(2, 3, 4)), "batch1 must be a 3D tensor"),
        (lambda: pb.addbmm(ones(2, 4), ones(2, 2, 3), ones(3, 3, 4)), "same number of batches"),
        (lambda: pb.addbmm(ones(2, 4), ones(2, 2, 3), ones(2, 2, 4)), "Incompatible matrix sizes"),
        (lambda: pb.ger(ones(2), ones(2, 2)), "outer: Expected 1-D argument vec2, but got 2-D"),
        (lambda: pb.trace(ones(3)), "expected a matrix, but got tensor with dim 1"),
        (lambda: pb.tensordot(ones(2, 3), ones(3, 2)), "contracted dimensions need to match"),
        (lambda: pb.tensordot(ones(2), ones(2), -1), "dims >= 0, but got dims=-1"),
        (lambda: pb.tensordot(ones(2), ones(2), ([0], [])), "should have same length"),
        (lambda: pb.linalg.cross(ones(2, 2), ones(2, 2)), "must have length 3. Got 2 and 2"),
        (lambda: pb.linalg.multi_dot([ones(3)]), "expected at least 2 tensors but got 1"),
        (lambda: pb.matrix_power(ones(2, 3), 2), "but they are 2 by 3 matrices"),
    ],
)
def test_wrong_arguments_of_products(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()


def test_cross_without_dim_takes_the_first_of_three_and_warns():
    x, y = pb.eye(3)[:2], pb.eye(3)[1:]
    with pytest.warns(UserWarning, match="without specifying the dim arg is deprecated"):
        assert pb.cross(x, y).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_chain_matmul_warns_and_multiplies():
    with pytest.warns(UserWarning, match="chain_matmul is deprecated"):
        assert pb.chain_matmul(ones(2, 3), ones(3, 4), ones(4, 1)).tolist() == [[12.0]] * 2
    assert pb.linalg.multi_dot([ones(3), ones(3, 2), ones(2)]).item() == 6


# inverses and systems


def test_inverse_by_hand():
    x = pb.tensor([[2.0, 1.0], [1.0, 1.0]])
    assert pb.inverse(x).tolist() == [[1.0, -1.0], [-1.0, 2.0]]
    assert pb.matrix_power(x, -2).tolist() == [[2.0, -3.0], [-3.0, 5.0]]
    assert pb.linalg.solve(x, pb.tensor([3.0, 2.0])).tolist() == [1.0, 1.0]


def test_singular_matrices_are_errors_of_their_own_kind():
    assert issubclass(pb.linalg.LinAlgError, RuntimeError)
    with pytest.raises(pb.linalg.LinAlgError, match=r"linalg\.inv: The diagonal element 2 is zero"):
        pb.inverse(ones(2, 2))
    batch = pb.stack([pb.eye(2), pb.zeros(2, 2)])
    with pytest.raises(pb.linalg.LinAlgError, match=r"\(Batch element 1\): The diagonal element 1"):
        pb.inverse(batch)
    with pytest.raises(pb.linalg.LinAlgError, match="solver failed because the input matrix is si"):
        pb.linalg.solve(ones(2, 2), ones(2))
    found, info = pb.linalg.inv_ex(batch)
    assert info.tolist() == [0, 1] and found[0].tolist() == pb.eye(2).tolist()


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (pb.ones(2, 3), "must be batches of square matrices, but they are 2 by 3 matrices"),
        (pb.ones(2), "must have at least 2 dimensions"),
        (pb.ones(2, 2, dtype=pb.int64), "Expected a floating point or complex tensor"),
        (pb.ones(2, 2, dtype=pb.float16), "Low precision dtypes not supported"),
    ],
)
def test_wrong_arguments_of_inverse(matrix, message):
    with pytest.raises(RuntimeError, match=message):
        pb.inverse(matrix)


def test_nan_passes_through_inverse():
    assert pb.inverse(pb.full((2, 2), NAN)).isnan().all()


def test_solve_names_the_equation_that_does_not_fit():
    with pytest.raises(RuntimeError, match=r"equation AX = B \(2x2 and 3x1\)"):
        pb.linalg.solve(pb.eye(2), ones(3))
    with pytest.raises(RuntimeError, match=r"equation XA = B \(2x2 and 2x3\)"):
        pb.linalg.solve(pb.eye(2), ones(2, 3), left=False)


# einsum


def test_einsum_forms_agree():
    x, y = pb.randn(2, 3), pb.randn(3, 4)
    wanted = x @ y
    for found in (
        pb.einsum("ij,jk->ik", x, y),
        pb.einsum("ij,jk", [x, y]),
        pb.einsum(" i j , j k -> i k ", (x, y)),
        pb.einsum(x, [0, 1], y, [1, 2]),
        pb.einsum(x, [0, 1], y, [1, 2], [0, 2]),
    ):
        pb.testing.assert_close(found, wanted)


def test_einsum_without_output_sorts_labels_capitals_first():
    x = pb.randn(2, 3)
    assert pb.einsum("ba", x).tolist() == x.t().tolist()
    assert pb.einsum("bA", x).tolist() == x.t().tolist()


def test_einsum_broadcasts_sizes_of_one():
    x, y = pb.randn(2, 3), pb.randn(1, 3)
    pb.testing.assert_close(pb.einsum("ij,ij->i", x, y), (x * y).sum(1))
    pb.testing.assert_close(pb.einsum("i...,i...->...", x, pb.ones(2, 1)), x.sum(0))


def test_einsum_of_one_operand_is_a_view():
    x = pb.randn(3, 3)
    assert pb.einsum("ij->ji", x).data_ptr() == x.data_ptr()
    assert pb.einsum("ii->i", x)._base is x


def test_einsum_sums_integers_to_int64():
    x = ones(2, 3, dtype=pb.int32)
    assert pb.einsum("ij->i", x).dtype == pb.int64
    assert pb.einsum("ij,kj->ik", x, x).dtype == pb.int32


def test_einsum_multiplies_the_cheapest_pair_first():
    from pullback.ops.linalg.einsum import _greedy

    sizes = {"a": 2, "b": 100, "c": 100, "d": 1}
    assert _greedy([["a", "b"], ["b", "c"], ["c", "d"]], ["a", "d"], sizes)[0] == (1, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ij,jk", ones(2, 3)), "fewer operands were provided"),
        (("ij", ones(2, 3), ones(2)), "more operands were provided"),
        (("ij", ones(2, 3, 4)), r"equation \(2\) does not match the number of dimensions \(3\)"),
        (("...ijk", ones(2, 3)), r"equation \(3\) is more than the number of dimensions \(2\)"),
        (("ii", ones(2, 3)), "subscript i is repeated for operand 0 but the sizes don't match"),
        (("i1", ones(2, 3)), "invalid subscript given at index 1 in the equation string"),
        (("i.j", ones(2, 3)), "found '.' for operand 0 that is not part of any ellipsis"),
        (("...i...", ones(2, 3)), "for which an ellipsis was already found"),
        (("ij->ii", ones(2, 3)), "output subscript i appears more than once"),
        (("ij->k", ones(2, 3)), "output subscript k does not appear in the equation"),
        (("...i,...j", ones(2, 3), ones(4, 3)), "dimension 0 covered by ellipsis in operand 1 has"),
        (("ij,jk->ik", ones(2, 3), ones(4, 5)), "does not broadcast with previously seen size"),
    ],
)
def test_wrong_equations(arguments, message):
    with pytest.raises(RuntimeError, match=message):
        pb.einsum(*arguments)


def test_einsum_without_operands_is_a_value_error():
    with pytest.raises(ValueError, match="must specify the equation string and at least one"):
        pb.einsum("ij")


# distances


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, INF])
@pytest.mark.parametrize("mode", ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"])
def test_gradient_of_a_distance_of_zero_is_zero(p, mode):
    x = pb.ones(1, 2, dtype=pb.float64, requires_grad=True)
    pb.cdist(x, pb.ones(1, 2, dtype=pb.float64), p=p, compute_mode=mode).sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0]]


def test_equal_maxima_each_get_the_gradient_of_cdist_but_share_that_of_pairwise_distance():
    x, y = pb.zeros(1, 2, requires_grad=True), pb.tensor([[1.0, -1.0]])
    (of_all,) = pb.autograd.grad(pb.cdist(x, y, p=INF).sum(), x)
    (of_pairs,) = pb.autograd.grad(F.pairwise_distance(x, y, p=INF, eps=0).sum(), x)
    assert of_all.tolist() == [[-1.0, 1.0]] and of_pairs.tolist() == [[-0.5, 0.5]]


def test_pdist_is_the_upper_triangle_of_cdist():
    x = pb.randn(7, 3, dtype=pb.float64)
    whole = pb.cdist(x, x, p=3)
    wanted = [whole[i, j].item() for i in range(7) for j in range(i + 1, 7)]
    assert pb.pdist(x, 3).tolist() == pytest.approx(wanted)


def test_pairs_of_many_rows_are_numbered_right():
    x = pb.arange(200, dtype=pb.float64).unsqueeze(1)
    wanted = [float(j - i) for i in range(200) for j in range(i + 1, 200)]
    assert F.pdist(x, 1).tolist() == wanted


def test_cosine_similarity_of_tiny_vectors_keeps_a_gradient():
    x = pb.tensor([1e-10, 0.0], dtype=pb.float64, requires_grad=True)
    y = pb.tensor([1.0, 0.0], dtype=pb.float64)
    found = F.cosine_similarity(x, y, 0)
    assert found.item() == pytest.approx(0.01)
    assert pb.autograd.grad(found, x)[0].isfinite().all()
    with pytest.raises(RuntimeError, match="expected common dtype to be floating point"):
        F.cosine_similarity(ones(2, dtype=pb.int64), ones(2, dtype=pb.int64), 0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pb.cdist(ones(2, 3), ones(4, 2)), RuntimeError, "same number of columns. X1: 3"),
        (lambda: pb.cdist(ones(3), ones(4, 3)), RuntimeError, "at least 2D tensors, X1 got: 1D"),
        (lambda: pb.cdist(ones(2, 3), ones(2, 3), p=-1), RuntimeError, "non-negative p values"),
        (lambda: pb.cdist(ones(2, 3), ones(2, 3), compute_mode="x"), ValueError, "compute_mode"),
        (lambda: F.pdist(ones(3)), RuntimeError, "pdist only supports 2D tensors, got: 1D"),
        (lambda: F.normalize(ones(3)), IndexError, "Dimension out of range"),
    ],
)
def test_wrong_arguments_of_distances(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("power", [pb.matrix_power, pb.linalg.matrix_power])
def test_power_zero_has_the_derivative_zero(power):
    x = pb.ones(2, 3, 3, requires_grad=True)
    found = power(x, 0)
    assert found.requires_grad
    assert found.tolist() == pb.eye(3).expand(2, 3, 3).tolist()
    found.sum().backward()
    assert x.grad.tolist() == pb.zeros(2, 3, 3).tolist()
    assert power(pb.full((2, 2), math.nan), 0).tolist() == [[1.0, 0.0], [0.0, 1.0]]
