"""Texts of tensors. The expected ones were printed by torch 2.13 (its dtypes renamed)."""

import math

import pytest

import pullback as pb
from pullback._printing import format_tensor, get_printoptions, printoptions

inf, nan = math.inf, math.nan


@pytest.fixture(autouse=True)
def default_options():
    """Start each test with the default options and leave them behind."""
    pb.set_printoptions(profile="default")
    yield
    pb.set_printoptions(profile="default")


def lines(*parts):
    return "\n".join(parts)


# Values, dtype, text. A dtype of None leaves the choice to `tensor`.
VALUES = [
    (3, None, "tensor(3)"),
    (True, None, "tensor(True)"),
    (-2.5, None, "tensor(-2.5000)"),
    (4.0, None, "tensor(4.)"),
    (1e-5, None, "tensor(1.0000e-05)"),
    (nan, None, "tensor(nan)"),
    (1 - 2j, None, "tensor(1.-2.j)"),
    ([1, -20, 300], None, "tensor([  1, -20, 300])"),
    ([True, False], None, "tensor([ True, False])"),
    ([1, 2], "uint8", "tensor([1, 2], dtype=pullback.uint8)"),
    ([-(2**63)], "int64", "tensor([-9223372036854775808])"),
    ([1.0, 2.0, -3.0], None, "tensor([ 1.,  2., -3.])"),
    ([1.0, 2.5, -30.125], None, "tensor([  1.0000,   2.5000, -30.1250])"),
    ([0.0, -0.0], None, "tensor([0., -0.])"),
    ([0.0, 0.5], None, "tensor([0.0000, 0.5000])"),
    ([nan, inf, -inf], None, "tensor([nan, inf, -inf])"),
    ([1.0, nan, -inf], None, "tensor([1., nan, -inf])"),
    ([0.5, nan, -inf], None, "tensor([0.5000,    nan,   -inf])"),
    ([1e-3, 1.0], None, "tensor([0.0010, 1.0000])"),
    ([1e-3, 1.01], None, "tensor([1.0000e-03, 1.0100e+00])"),
    ([1e8], None, "tensor([100000000.])"),
    ([1e9, 0.0, inf], None, "tensor([1.0000e+09, 0.0000e+00,        inf])"),
    ([5e-5, 0.0, nan], None, "tensor([5.0000e-05, 0.0000e+00,        nan])"),
    ([1.0, 1000.0], None, "tensor([   1., 1000.])"),
    ([1.0, 1001.0], None, "tensor([1.0000e+00, 1.0010e+03])"),
    ([0.1, 0.2], "float64", "tensor([0.1000, 0.2000], dtype=pullback.float64)"),
    ([0.1, 0.2], "float16", "tensor([0.1000, 0.2000], dtype=pullback.float16)"),
    ([0.1, 0.2], "bfloat16", "tensor([0.1001, 0.2002], dtype=pullback.bfloat16)"),
    ([1 + 2j, -0.5 - 1e-3j], None, "tensor([ 1.0000+2.0000e+00j, -0.5000-1.0000e-03j])"),
    ([1 + 2j, -3 - 4j], "complex128", "tensor([ 1.+2.j, -3.-4.j], dtype=pullback.complex128)"),
    ([complex(0.0, -0.0), complex(nan, inf)], None, "tensor([0.-0.j, nan+infj])"),
    ([[1, 2], [3, 40]], None, lines("tensor([[ 1,  2],", "        [ 3, 40]])")),
    ([[True], [False]], None, lines("tensor([[ True],", "        [False]])")),
    ([[[1, 2]], [[3, 4]]], None, lines("tensor([[[1, 2]],", "", "        [[3, 4]]])")),
    ([[[[0.0]]]], None, "tensor([[[[0.]]]])"),
    ([], None, "tensor([])"),
    ([], "int64", "tensor([], dtype=pullback.int64)"),
    ([[], []], None, "tensor([], size=(2, 0))"),
    ([[], []], "bool", "tensor([], size=(2, 0), dtype=pullback.bool)"),
]


@pytest.mark.parametrize(("values", "dtype", "text"), VALUES)
def test_values(values, dtype, text):
    tensor = pb.tensor(values, dtype=dtype and getattr(pb, dtype))
    assert format_tensor(tensor) == text
    assert repr(tensor) == text
    assert str(tensor) == text


def test_strides_do_not_matter():
    x = pb.arange(6).reshape(2, 3)
    assert repr(x.t()) == lines("tensor([[0, 3],", "        [1, 4],", "        [2, 5]])")
    assert repr(x[:, 1]) == "tensor([1, 4])"
    assert repr(pb.tensor(7).expand(3)) == "tensor([7, 7, 7])"


class TestLongRows:
    def test_broken_at_the_line_width(self):
        assert repr(pb.arange(20.0) / 8) == lines(
            "tensor([0.0000, 0.1250, 0.2500, 0.3750, 0.5000, 0.6250, 0.7500, 0.8750, 1.0000,",
            "        1.1250, 1.2500, 1.3750, 1.5000, 1.6250, 1.7500, 1.8750, 2.0000, 2.1250,",
            "        2.2500, 2.3750])",
        )

    def test_nested(self):
        x = pb.arange(120).reshape(2, 3, 20) * 10
        text = repr(x)
        assert text.startswith(
            lines(
                "tensor([[[   0,   10,   20,   30,   40,   50,   60,   70,   80,   90,  100,",
                "           110,  120,  130,  140,  150,  160,  170,  180,  190],",
                "         [ 200,  210,",
            )
        )
        assert text.count("\n\n") == 1

    def test_complex(self):
        x = pb.tensor([complex(k, -k / 2) for k in range(6)])
        row = "[0.+0.0000j, 1.-0.5000j, 2.-1.0000j, 3.-1.5000j, 4.-2.0000j, 5.-2.5000j]"
        assert repr(x) == f"tensor({row})"

    def test_line_width_of_zero_puts_one_value_in_a_line(self):
        pb.set_printoptions(linewidth=0)
        assert repr(pb.arange(3)) == lines("tensor([0,", "        1,", "        2])")


class TestSummary:
    def test_one_dim(self):
        assert repr(pb.arange(1001)) == "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
        assert "..." not in repr(pb.arange(1000))

    def test_short_dims_are_shown_in_full(self):
        assert repr(pb.arange(2000).reshape(2, 1000)) == lines(
            "tensor([[   0,    1,    2,  ...,  997,  998,  999],",
            "        [1000, 1001, 1002,  ..., 1997, 1998, 1999]])",
        )

    def test_two_dims(self):
        assert repr(pb.arange(1600).reshape(40, 40)) == lines(
            "tensor([[   0,    1,    2,  ...,   37,   38,   39],",
            "        [  40,   41,   42,  ...,   77,   78,   79],",
            "        [  80,   81,   82,  ...,  117,  118,  119],",
            "        ...,",
            "        [1480, 1481, 1482,  ..., 1517, 1518, 1519],",
            "        [1520, 1521, 1522,  ..., 1557, 1558, 1559],",
            "        [1560, 1561, 1562,  ..., 1597, 1598, 1599]])",
        )

    def test_three_dims(self):
        pb.set_printoptions(threshold=5, edgeitems=1)
        assert repr(pb.arange(36).reshape(3, 4, 3)) == lines(
            "tensor([[[ 0,  ...,  2],",
            "         ...,",
            "         [ 9,  ..., 11]],",
            "",
            "        ...,",
            "",
            "        [[24,  ..., 26],",
            "         ...,",
            "         [33,  ..., 35]]])",
        )

    def test_hidden_values_have_no_say_in_the_format(self):
        x = pb.zeros(1001)
        x[500] = 0.25
        assert repr(x) == "tensor([0., 0., 0.,  ..., 0., 0., 0.])"

    def test_no_edge_items(self):
        pb.set_printoptions(edgeitems=0, threshold=2)
        assert repr(pb.arange(3)) == "tensor([...], size=(3,))"
        assert repr(pb.zeros(2, 2)) == "tensor([...], size=(2, 2))"
        assert repr(pb.zeros(2)) == "tensor([0., 0.], size=(2,))"


class TestNotes:
    def test_leaf_and_graph(self):
        x = pb.ones(2, requires_grad=True)
        assert repr(x) == "tensor([1., 1.], requires_grad=True)"
        assert repr(x * 2) == "tensor([2., 2.], grad_fn=<MulBackward0>)"
        assert repr(x.detach()) == "tensor([1., 1.])"
        assert (
            repr(x.double().sum()) == "tensor(2., dtype=pullback.float64, grad_fn=<SumBackward0>)"
        )

    def test_custom_function(self):
        class Twice(pb.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * 2

        y = Twice.apply(pb.ones(2, requires_grad=True))
        assert repr(y) == "tensor([2., 2.], grad_fn=<TwiceBackward>)"

    def test_new_line_when_the_row_is_full(self):
        x = pb.full((9,), 0.125, requires_grad=True)
        row = "[0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250, 0.1250]"
        assert repr(x) == lines(f"tensor({row},", "       requires_grad=True)")
        assert repr(x * 1) == lines(f"tensor({row},", "       grad_fn=<MulBackward0>)")

    def test_meta(self):
        assert repr(pb.zeros(2, 3, device="meta")) == "tensor(..., device='meta', size=(2, 3))"
        assert (
            repr(pb.zeros(2, dtype=pb.int64, device="meta"))
            == "tensor(..., device='meta', size=(2,), dtype=pullback.int64)"
        )
        assert (
            repr(pb.zeros(2, device="meta", requires_grad=True))
            == "tensor(..., device='meta', size=(2,), requires_grad=True)"
        )

    def test_dtype_is_left_out_when_it_is_the_default(self):
        pb.set_default_dtype(pb.float64)
        try:
            assert repr(pb.ones(2)) == "tensor([1., 1.])"
            single = pb.ones(2, dtype=pb.float32)
            assert repr(single) == "tensor([1., 1.], dtype=pullback.float32)"
            z = pb.ones(1, dtype=pb.complex64)
            assert repr(z) == "tensor([1.+0.j], dtype=pullback.complex64)"
            assert repr(pb.ones(1, dtype=pb.complex128)) == "tensor([1.+0.j])"
        finally:
            pb.set_default_dtype(pb.float32)

    def test_tangent(self):
        forward_ad = pb.autograd.forward_ad
        with forward_ad.dual_level():
            x = forward_ad.make_dual(pb.ones(2), pb.tensor([3.0, 4.5]))
            assert repr(x) == "tensor([1., 1.], tangent=tensor([3.0000, 4.5000]))"

    def test_printing_records_nothing(self):
        x = pb.ones(2, requires_grad=True)
        version = x._version
        repr(x)
        assert x._version == version
        assert x.grad_fn is None
        assert pb.is_grad_enabled()


class TestOptions:
    X = (0.123456789, 100.0)

    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"precision": 2}, "tensor([  0.12, 100.00])"),
            ({"precision": 0}, "tensor([  0, 100])"),
            ({"precision": 7}, "tensor([  0.1234568, 100.0000000])"),
            ({"sci_mode": True}, "tensor([1.2346e-01, 1.0000e+02])"),
            ({"sci_mode": True, "precision": 1}, "tensor([1.2e-01, 1.0e+02])"),
            ({"profile": "short"}, "tensor([  0.12, 100.00])"),
            ({"profile": "short", "precision": 3}, "tensor([  0.123, 100.000])"),
        ],
    )
    def test_effect(self, options, text):
        pb.set_printoptions(**options)
        assert repr(pb.tensor(self.X)) == text

    def test_scientific_notation_can_be_forbidden(self):
        pb.set_printoptions(sci_mode=False)
        assert repr(pb.tensor([1e-6, 1e6])) == "tensor([      0.0000, 1000000.0000])"
        assert repr(pb.tensor([1e12])) == "tensor([999999995904.])"
        pb.set_printoptions(sci_mode=True)
        assert repr(pb.tensor([1.0, 2.0])) == "tensor([1.0000e+00, 2.0000e+00])"

    def test_sci_mode_returns_to_automatic_with_the_next_call(self):
        pb.set_printoptions(sci_mode=True)
        pb.set_printoptions(precision=3)
        assert repr(pb.tensor([1.5])) == "tensor([1.500])"

    def test_full_profile_shows_everything(self):
        pb.set_printoptions(profile="full")
        assert "..." not in repr(pb.arange(1001))

    def test_get_and_restore(self):
        before = get_printoptions()
        assert before == {
            "precision": 4,
            "threshold": 1000,
            "edgeitems": 3,
            "linewidth": 80,
            "sci_mode": None,
        }
        with printoptions(precision=1, sci_mode=False):
            assert repr(pb.tensor([0.25])) == "tensor([0.2])"
        assert get_printoptions() == before

    @pytest.mark.beyond_torch
    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"precision": "4"}, TypeError, "expected precision to be an int, got str"),
            ({"precision": -1}, ValueError, "expected precision >= 0, got -1"),
            ({"edgeitems": 1.5}, TypeError, "expected edgeitems to be an int, got float"),
            ({"linewidth": -5}, ValueError, "expected linewidth >= 0, got -5"),
            ({"threshold": "all"}, TypeError, "expected threshold to be a number, got str"),
            ({"profile": "long"}, ValueError, "expected profile to be one of"),
            ({"sci_mode": "yes"}, TypeError, "expected sci_mode to be a bool or None, got str"),
        ],
    )
    def test_bad_options_change_nothing(self, options, error, message):
        before = get_printoptions()
        with pytest.raises(error, match=message):
            pb.set_printoptions(**{"precision": 1, **options})
        assert get_printoptions() == before
