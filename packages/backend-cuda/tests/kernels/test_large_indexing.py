"""Sorts, indexing, windows and convolutions of sizes that need many blocks, on tensors.

On a device the sizes are those that fill all its multiprocessors; results must be the same every
time.
"""

import numpy as np
import pytest

import pullback as pb


@pytest.fixture
def many(cuda):
    """How many elements are many."""
    return 20_000 if cuda is not None else 1 << 22


def twice(function, *operands):
    """Return the results of a function on the device, as arrays; they must not change."""
    results = []
    for _ in range(2):
        made = function(*(pb.tensor(operand).to("cuda") for operand in operands))
        made = made if isinstance(made, tuple) else (made,)
        results.append([part.cpu().numpy() for part in made])
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)
    return results[0]


def numbers(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def random_indices(count, length, seed=0):
    return np.random.default_rng(seed).integers(0, length, count)


def assert_near(actual, expected, tolerance=1e-5):
    scale = np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale)


def test_sort_of_one_row(many):
    for values in (numbers(many), random_indices(many, 1000), random_indices(many, 2**62)):
        order = np.argsort(values, kind="stable")
        ordered, found = twice(lambda x: tuple(pb.sort(x)), values)
        np.testing.assert_array_equal(found, order)
        np.testing.assert_array_equal(ordered, values[order])


@pytest.mark.parametrize("width", [16, 100, 1000, 4000, 10_000])
def test_sort_of_many_rows(many, width):
    values = np.round(numbers((max(many // width, 2), width)), 1)
    found = twice(lambda x: tuple(pb.sort(x, -1)), values)[1]
    np.testing.assert_array_equal(found, np.argsort(values, -1, kind="stable"))
    found = twice(lambda x: tuple(pb.sort(x, 0)), values)[1]
    np.testing.assert_array_equal(found, np.argsort(values, 0, kind="stable"))


@pytest.mark.parametrize("count", [1, 50, 2000])
def test_largest_elements(many, count):
    values = np.round(numbers((2, many)), 2)
    found = twice(lambda x: tuple(pb.topk(x, count)), values)[1]
    expected = np.argsort(-values, -1, kind="stable")[:, :count]
    np.testing.assert_array_equal(found, expected)


def test_positions_in_sorted_rows(many):
    bounds, values = np.sort(numbers(many // 4)), numbers(many, 1)
    found = twice(lambda b, x: pb.searchsorted(b, x), bounds, values)[0]
    np.testing.assert_array_equal(found, np.searchsorted(bounds, values))


def test_nonzero_elements(many):
    values = np.maximum(numbers((many // 100, 100)), 0)
    np.testing.assert_array_equal(twice(pb.nonzero, values)[0], np.argwhere(values))


@pytest.mark.parametrize("length", [3, 1000, 10**6])
def test_sums_at_repeated_indices(many, length):
    values, index = numbers(many), random_indices(many, length)
    expected = np.bincount(index, values.astype(np.float64), length)
    zeros = np.zeros(length, np.float32)
    assert_near(twice(lambda z, i, x: z.scatter_add(0, i, x), zeros, index, values)[0], expected)
    counts = twice(
        lambda z, i: z.scatter_add(0, i, pb.ones_like(i)), np.zeros(length, np.int64), index
    )[0]
    np.testing.assert_array_equal(counts, np.bincount(index, minlength=length))


def test_last_of_repeated_indices(many):
    values, index = numbers(many), random_indices(many, many // 3)
    expected = np.zeros(many // 3, np.float32)
    expected[index] = values
    zeros = np.zeros_like(expected)
    for function in (
        lambda z, i, x: z.scatter(0, i, x),
        lambda z, i, x: pb.index_put(z, (i,), x),
    ):
        np.testing.assert_array_equal(twice(function, zeros, index, values)[0], expected)


@pytest.mark.parametrize("width", [1, 3, 64, 257])
def test_rows_and_their_gradients(many, width):
    table, index = numbers((500, width)), random_indices(max(many // width, 10), 500)
    index[::3] = 7  # a row that occurs very often
    np.testing.assert_array_equal(twice(lambda t, i: t[i], table, index)[0], table[index])
    values, expected = numbers((len(index), width), 1), np.zeros((500, width))
    np.add.at(expected, index, values.astype(np.float64))
    assert_near(
        twice(lambda z, i, x: pb.index_put(z, (i,), x, True), 0 * table, index, values)[0],
        expected,
    )


def test_elements_along_a_dim(many):
    values = numbers((many // 50, 50))
    index = np.argsort(values, -1)
    found = twice(lambda x, i: pb.gather(x, 1, i), values, index)[0]
    np.testing.assert_array_equal(found, np.take_along_axis(values, index, 1))


@pytest.mark.parametrize("channels", [(3, 8), (32, 64), (130, 130)])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolution(many, channels, stride):
    c, o = channels
    side = max(4, round((many / (2 * max(c, o))) ** 0.5))
    image, weight = numbers((2, c, side, side)), numbers((o, c, 3, 3), 1)

    def run(x, w):
        x, w = x.requires_grad_(), w.requires_grad_()
        made = pb.nn.functional.conv2d(x, w, stride=stride, padding=1)
        made.backward(pb.ones_like(made))
        return made.detach(), x.grad, w.grad

    expected = run(*(pb.tensor(part.astype(np.float64)).to("ref") for part in (image, weight)))
    for actual, wanted in zip(twice(run, image, weight), expected, strict=True):
        assert_near(actual, wanted.cpu().numpy(), 1e-4)
