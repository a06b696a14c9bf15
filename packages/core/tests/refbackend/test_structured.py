"""Values of the kernels that are not elementwise, against plain Python."""

import itertools
import math

import numpy as np
import pytest

from pullback.refbackend.plugin import KERNELS

inf, nan = math.inf, math.nan


def call(name, out, *operands, **params):
    KERNELS[name][1](out, *operands, **params)
    return out


class TestReductions:
    X = np.arange(24, dtype=np.float64).reshape(2, 3, 4) - 7

    @pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2), ()])
    def test_over_any_dims(self, axes):
        shape = [1 if axis in axes else size for axis, size in enumerate(self.X.shape)]
        expected_sum, expected_max = np.zeros(shape), np.full(shape, -inf)
        for position in itertools.product(*map(range, self.X.shape)):
            kept = tuple(0 if axis in axes else i for axis, i in enumerate(position))
            expected_sum[kept] += self.X[position]
            expected_max[kept] = max(expected_max[kept], self.X[position])
        np.testing.assert_allclose(call("sum", np.empty(shape), self.X), expected_sum)
        np.testing.assert_array_equal(call("amax", np.empty(shape), self.X), expected_max)

    @pytest.mark.parametrize(
        ("name", "dtype", "identity"),
        [
            ("sum", np.int64, 0),
            ("prod", np.float32, 1),
            ("amax", np.float16, -inf),
            ("amin", np.int8, 127),
            ("amax", np.uint8, 0),
        ],
    )
    def test_empty_range_gives_the_identity(self, name, dtype, identity):
        out = call(name, np.empty((2, 1), dtype), np.empty((2, 0), dtype))
        assert out.tolist() == [[identity]] * 2

    def test_sum_of_floats_is_accurate(self):
        out = call("sum", np.empty(1, np.float32), np.full(10**6, 0.1, np.float32))
        assert out[0] == np.float32(math.fsum([float(np.float32(0.1))] * 10**6))
        out = call("sum", np.empty(1, np.float16), np.full(4096, 1, np.float16))
        assert out[0] == 4096

    def test_sum_of_bfloat16(self, bfloat16):
        assert call("sum", np.empty(1, bfloat16), np.full(1000, 1, bfloat16))[0] == 1000

    def test_prod(self):
        assert call("prod", np.empty(1, np.int64), np.array([3, -4, 5]))[0] == -60

    def test_nan_wins(self):
        x = np.array([[1, nan, 3, nan]])
        for name in ("amax", "amin"):
            assert math.isnan(call(name, np.empty((1, 1)), x)[0, 0])
        for name in ("argmax", "argmin"):
            assert call(name, np.empty((1, 1), np.int64), x)[0, 0] == 1

    def test_arg_extreme_takes_the_first(self):
        x = np.array([[1, 3], [3, 0], [0, 3]])
        assert call("argmax", np.empty((1, 1), np.int64), x).tolist() == [[1]]
        assert call("argmax", np.empty((1, 2), np.int64), x).tolist() == [[1, 0]]
        assert call("argmin", np.empty((3, 1), np.int64), x).tolist() == [[0], [1], [0]]
        assert call("argmin", np.empty((1, 1), np.int64), x.T).tolist() == [[2]]

    def test_arg_extreme_of_nothing_raises(self):
        with pytest.raises(IndexError, match=r"argmax\(\): expected a reduced dim of non-zero"):
            call("argmax", np.empty((2, 1), np.int64), np.empty((2, 0)))
        assert call("argmax", np.empty((0, 1), np.int64), np.empty((0, 0))).size == 0

    def test_different_number_of_dims_raises(self):
        with pytest.raises(ValueError, match="expected an output with 2 dims, got 1"):
            call("sum", np.empty(1), np.empty((2, 2)))

    def test_cumsum(self):
        x = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
        assert call("cumsum", np.empty_like(x), x, dim=0).tolist() == [[1, 2], [4, 6], [9, 12]]
        assert call("cumsum", np.empty_like(x), x, dim=-1).tolist() == [[1, 3], [3, 7], [5, 11]]
        assert call("cumsum", np.empty(()), np.array(3.0), dim=0) == 3


class TestBmm:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64, np.complex64])
    def test_by_hand(self, dtype):
        x, y = np.arange(12).reshape(2, 2, 3), np.arange(6).reshape(1, 3, 2)
        y = np.broadcast_to(y, (2, 3, 2))
        out = call("bmm", np.empty((2, 2, 2), dtype), x.astype(dtype), y.astype(dtype))
        for b, i, j in itertools.product(range(2), repeat=3):
            assert out[b, i, j] == sum(int(x[b, i, k]) * int(y[b, k, j]) for k in range(3))

    def test_no_inner_elements_gives_zeros(self):
        out = call("bmm", np.ones((1, 2, 3)), np.empty((1, 2, 0)), np.empty((1, 0, 3)))
        assert not out.any()


class TestSolve:
    def test_by_hand(self):
        matrices = np.array([[[0.0, 2.0], [1.0, 0.0]], [[1.0, 1.0], [2.0, 2.0]]])
        out, info = np.empty((2, 2, 1)), np.empty(2, np.int32)
        KERNELS["solve"][1]((out, info), matrices, np.array([[[2.0], [3.0]], [[1.0], [1.0]]]))
        assert out[0].tolist() == [[3.0], [1.0]]
        assert info.tolist() == [0, 2] and np.isnan(out[1]).all()

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
    def test_agrees_with_numpy(self, dtype):
        rng = np.random.default_rng(5)
        imaginary = 1j if np.issubdtype(dtype, np.complexfloating) else 0
        matrices, right = (
            (rng.normal(size=shape) + imaginary * rng.normal(size=shape)).astype(dtype)
            for shape in ((3, 4, 4), (3, 4, 2))
        )
        out, info = np.empty_like(right), np.empty(3, np.int32)
        KERNELS["solve"][1]((out, info), matrices, right)
        assert not info.any()
        np.testing.assert_allclose(matrices @ out, right, atol=1e-4)


class TestSvd:
    def test_by_hand(self):
        matrices = np.array([[[0.0, 3.0], [-2.0, 0.0]], [[nan, 1.0], [1.0, 1.0]]])
        u, s, vh = np.empty((2, 2, 2)), np.empty((2, 2)), np.empty((2, 2, 2))
        info = np.empty(2, np.int32)
        KERNELS["svd"][1]((u, s, vh, info), matrices)
        assert s[0].tolist() == [3.0, 2.0]
        np.testing.assert_allclose(u[0] * s[0] @ vh[0], matrices[0], atol=1e-12)
        assert info[0] == 0 and info[1] != 0 and np.isnan(s[1]).all()

    def test_more_columns_are_asked_for_by_the_shapes(self):
        u, s, vh = np.empty((1, 3, 3)), np.empty((1, 1)), np.empty((1, 1, 1))
        KERNELS["svd"][1]((u, s, vh, np.empty(1, np.int32)), np.array([[[3.0], [0.0], [4.0]]]))
        assert s[0, 0] == pytest.approx(5)
        np.testing.assert_allclose(u[0].T @ u[0], np.eye(3), atol=1e-12)


class TestIndexing:
    X = np.arange(12.0).reshape(3, 4)

    def test_gather_reads_a_part(self):
        index = np.array([[2, 0], [1, 1]])
        out = call("gather", np.empty((2, 2)), self.X, index, dim=0)
        assert out.tolist() == [[8, 1], [4, 5]]
        out = call("gather", np.empty((2, 2)), self.X, index, dim=1)
        assert out.tolist() == [[2, 0], [5, 5]]

    def test_gather_and_scatter_take_0d(self):
        zero = np.array(0)
        assert call("gather", np.empty(()), np.array(7.0), zero, dim=0) == 7
        assert call("scatter", np.zeros(()), zero, np.array(7.0), dim=0) == 7
        assert call("scatter_add", np.ones(()), zero, np.array(7.0), dim=-1) == 8

    @pytest.mark.parametrize("bad", [-1, 3])
    def test_gather_and_scatter_out_of_range(self, bad):
        index = np.array([[0, bad]])
        message = f"index {bad} is out of bounds for dimension 0 with size 3"
        with pytest.raises(IndexError, match=message):
            call("gather", np.empty((1, 2)), self.X, index, dim=0)
        for name in ("scatter", "scatter_add"):
            with pytest.raises(IndexError, match=message):
                call(name, self.X.copy(), index, np.zeros((1, 2)), dim=0)

    def test_scatter_keeps_the_rest(self):
        out = call("scatter", np.full((2, 3), 9.0), np.array([[2], [0]]), self.X, dim=1)
        assert out.tolist() == [[9, 9, 0], [4, 9, 9]]

    def test_scatter_last_of_equal_indices_wins(self):
        out = call("scatter", np.zeros(2), np.array([1, 1, 1]), np.array([3.0, 4, 5]), dim=0)
        assert out.tolist() == [0, 5]

    def test_scatter_add_counts_equal_indices(self, bfloat16):
        for dtype in (np.int8, np.float16, bfloat16, np.complex64):
            src = np.array([3, 4, 5], dtype)
            out = call("scatter_add", np.ones(2, dtype), np.array([1, 1, 0]), src, dim=0)
            assert out.astype(np.complex64).tolist() == [6, 8]

    def test_index_of_the_leading_dims(self):
        i, j = np.broadcast_arrays(np.array([[0], [-1]]), np.array([1, -2]))
        assert call("index", np.empty((2, 2)), self.X, i, j).tolist() == [[1, 2], [9, 10]]
        assert call("index", np.empty((1, 4)), self.X, np.array([-3])).tolist() == [[0, 1, 2, 3]]

    @pytest.mark.parametrize("bad", [-4, 3])
    def test_index_out_of_range(self, bad):
        message = f"index {bad} is out of bounds for dimension 0 with size 3"
        with pytest.raises(IndexError, match=message):
            call("index", np.empty((1, 4)), self.X, np.array([bad]))
        with pytest.raises(IndexError, match=message):
            call("index_put", self.X.copy(), np.zeros((1, 4)), np.array([bad]), accumulate=0)

    def test_too_many_indices(self):
        zero = np.array([0])
        with pytest.raises(IndexError, match="too many indices for tensor of dimension 2"):
            call("index", np.empty(1), self.X, zero, zero, zero)

    def test_index_put(self):
        at, values = np.array([1, 1, -3]), np.ones((3, 4))
        out = call("index_put", np.zeros((3, 4)), values, at, accumulate=1)
        assert out[:, 0].tolist() == [1, 2, 0]
        out = call("index_put", np.zeros((3, 4)), values, at, accumulate=0)
        assert out[:, 0].tolist() == [1, 1, 0]

    def test_failed_write_changes_nothing(self):
        out = np.zeros(3)
        with pytest.raises(IndexError):
            call("index_put", out, np.ones(2), np.array([0, 5]), accumulate=1)
        assert not out.any()

    def test_nonzero_in_row_major_order(self):
        out = np.empty((3, 2), np.int64)
        call("nonzero", out, np.array([[0.0, nan], [2.0, -1.0]]))
        assert out.tolist() == [[0, 1], [1, 0], [1, 1]]
        assert call("nonzero", np.empty((1, 0), np.int64), np.array(3)).shape == (1, 0)

    def test_nonzero_needs_an_output_of_the_right_size(self):
        with pytest.raises(RuntimeError, match=r"expected an output of shape \(1, 1\)"):
            call("nonzero", np.empty((2, 1), np.int64), np.array([0, 1]))


class TestSort:
    def sort(self, x, descending):
        out = np.empty_like(x), np.empty(x.shape, np.int64)
        KERNELS["sort"][1](out, x, descending=descending)
        return out[0].astype(float).tolist(), out[1].tolist()

    def test_equal_elements_keep_their_order(self, bfloat16):
        for dtype in (np.int16, np.float32, bfloat16):
            x = np.array([[2, 1, 2, 1], [0, 3, 0, 3]], dtype)
            assert self.sort(x, 0)[1] == [[1, 3, 0, 2], [0, 2, 1, 3]]
            assert self.sort(x, 1)[1] == [[0, 2, 1, 3], [1, 3, 0, 2]]

    def test_nan_is_largest(self):
        x = np.array([nan, inf, nan, -1.0])
        assert self.sort(x, 0)[1] == [3, 1, 0, 2]
        assert self.sort(x, 1)[1] == [0, 2, 1, 3]

    def test_values_follow_the_indices(self):
        x = np.array([3.0, -2.0, 5.0])
        assert self.sort(x, 0) == ([-2, 3, 5], [1, 0, 2])

    def test_0d_and_empty(self):
        assert self.sort(np.array(4.0), 0) == (4.0, 0)
        assert self.sort(np.empty((2, 0)), 1) == ([[], []], [[], []])


class TestArange:
    @pytest.mark.parametrize(
        ("dtype", "start", "step", "expected"),
        [
            (np.int64, 5, -2, [5, 3, 1]),
            (np.uint8, 250, 5, [250, 255, 4]),
            (np.float32, 0.1, 0.1, [np.float32(0.1), np.float32(0.2), np.float32(0.1 + 2 * 0.1)]),
            (np.float16, 0, 0.5, [0, 0.5, 1]),
        ],
    )
    def test_values(self, dtype, start, step, expected):
        assert call("arange", np.empty(3, dtype), start=start, step=step).tolist() == expected

    def test_large_integers_are_exact(self):
        out = call("arange", np.empty(2, np.int64), start=2**53 + 1, step=2)
        assert out.tolist() == [2**53 + 1, 2**53 + 3]
