"""How sample calls are made from what entries write down."""

import numpy as np
import pytest

import pullback as pb
from pullback.ops import ENTRIES
from pullback.ops.table.samples import Dtype, T, at, case, fixed, mask, real
from pullback.ops.table.schema import FLOATING
from pullback.testing import assert_close
from pullback.testing.checks import basic as checks
from pullback.testing.checks.basic import check_grad
from pullback.testing.draw import LAYOUTS, draw_array, lay_out
from pullback.testing.runner import run_check
from pullback.testing.samples import accepts, samples_of


def entry_with(*cases, name="add", **fields):
    return ENTRIES[name]._replace(samples=list(cases), **fields)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (2, 1, 3), (0, 3)])
def test_layout_keeps_the_values(layout, shape):
    values = np.arange(float(np.prod(shape))).reshape(shape)
    made = lay_out(values, pb.float64, None, layout)
    assert made.is_leaf
    assert made.shape == shape
    if layout != "expanded":
        assert made.tolist() == values.tolist()
    else:
        assert made.tolist() == np.broadcast_to(values[:1] if shape else values, shape).tolist()


def test_layouts_differ_in_memory():
    values = np.arange(6.0).reshape(2, 3)
    strides = {name: lay_out(values, pb.float32, None, name).stride() for name in LAYOUTS}
    assert strides["contiguous"] == (3, 1)
    assert strides["transposed"] == (1, 2)
    assert strides["strided"] == (7, 2)
    assert strides["expanded"] == (0, 1)


def test_elements_lie_between_the_bounds():
    rng = np.random.default_rng(0)
    floats = draw_array((100,), pb.float64, rng, 0.5, 2)
    assert floats.min() >= 0.5
    assert floats.max() < 2
    assert set(draw_array((100,), pb.int64, rng, 0.5, 3)) == {1, 2}
    assert set(draw_array((100,), pb.uint8, rng, -3, 3)) == {0, 1, 2}
    assert draw_array((100,), pb.bool, rng, 0.5, 3).all()
    assert set(draw_array((100,), pb.float64, rng, -1, 1, 1)) == {-1, 0, 1}
    assert np.iscomplexobj(draw_array((1,), pb.complex64, rng))


def test_samples_have_the_dtypes_that_the_case_names():
    entry = entry_with(case(T(2), real(2), [at(3, high=4), mask(1)], dtype=Dtype("float64"), n=1))
    (sample,) = samples_of(entry, pb.complex64)
    tested, counterpart, (index, flag) = sample.args
    assert tested.dtype == pb.complex64
    assert counterpart.dtype == pb.float32
    assert index.dtype == pb.int64
    assert index.max() < 4
    assert flag.dtype == pb.bool
    assert sample.kwargs == {"dtype": pb.float64, "n": 1}


def test_fixed_values_are_taken_as_they_are():
    (sample,) = samples_of(entry_with(case(fixed((1, 2, 3, 4), shape=(2, 2)))), pb.float32)
    assert sample.args[0].tolist() == [[1, 2], [3, 4]]


def test_cases_are_left_out_where_they_do_not_apply():
    entry = entry_with(
        case(T(1), only=FLOATING),
        case(T(2), skip={"grad": "kinks"}),
        case(T(3), skip={"strided": "gaps"}),
    )

    def shapes(dtype, **options):
        return [tuple(sample.args[0].shape) for sample in samples_of(entry, dtype, **options)]

    assert shapes(pb.float32) == [(1,), (2,), (3,)]
    assert shapes(pb.int64) == [(2,), (3,)]
    assert shapes(pb.float32, checks=("grad",)) == [(1,), (3,)]
    assert shapes(pb.float32, layout="strided") == [(1,), (2,)]


def test_samples_are_the_same_every_time():
    first, again = (list(samples_of(ENTRIES["add"], pb.float32)) for _ in range(2))
    for one, other in zip(first, again):
        assert_close(one.args, other.args, rtol=0, atol=0, equal_nan=True)


def test_only_floating_tensors_require_grad():
    entry = entry_with(case(T(2), at(2, high=2)))
    (sample,) = samples_of(entry, pb.float64, requires_grad=True)
    assert [tensor.requires_grad for tensor in sample.tensors()] == [True, False]


def test_promoted_integers_are_accepted():
    assert accepts(ENTRIES["exp"], pb.int64)
    assert not accepts(ENTRIES["bitwise_and"], pb.float32)


# The checks must be able to fail: a wrong reference, formula or form has to be noticed.


def test_wrong_reference_is_noticed():
    wrong = ENTRIES["add"]._replace(ref="numpy.subtract")
    assert run_check("value", wrong).failures


def test_wrong_shape_of_the_reference_is_noticed():
    wrong = ENTRIES["sum"]._replace(ref=lambda np, self, *rest, **options: np.zeros((1, 1, 1)))
    totals = run_check("value", wrong)
    assert len(totals.failures) == totals.samples


def test_refusal_of_an_accepted_dtype_is_noticed():
    wrong = ENTRIES["add"]._replace(dtypes=FLOATING)
    assert run_check("refusal", wrong).failures


def test_lost_derivative_is_noticed():
    # detach() is an op whose derivative is lost on purpose; its cases say so.
    lost = ENTRIES["detach"]._replace(samples=[case(T(3))])
    assert run_check("value", lost).failures == []
    (sample,) = samples_of(lost, pb.float64, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"[Nn]umerical"):
        check_grad(sample)


def test_formula_that_compiles_to_something_else_is_noticed():
    (sample,) = samples_of(
        ENTRIES["add"]._replace(samples=[case(T(3), T(3))]), pb.float64, requires_grad=True
    )
    derivatives = iter([[pb.ones(3)], [pb.ones(3) + 1e-7]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "derivatives", lambda sample: next(derivatives))
        with pytest.raises(AssertionError, match="compiled and plain"):
            checks.check_compiled(sample)
