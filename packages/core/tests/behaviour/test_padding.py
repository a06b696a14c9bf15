"""``nn.functional.pad``, ``constant_pad_nd``, and elements moved between channels and positions."""

import math

import pytest
from numpy.testing import assert_allclose

import pullback as pb

F = pb.nn.functional
gradcheck, gradgradcheck = pb.autograd.gradcheck, pb.autograd.gradgradcheck


def counted(*shape, dtype=pb.float64):
    return pb.arange(math.prod(shape), dtype=dtype).reshape(shape)


def draw(*shape, dtype=pb.float64):
    return pb.randn(*shape, dtype=dtype).requires_grad_()


# padding


def test_constant_padding_counts_from_the_last_dim():
    x = pb.tensor([[1, 2], [3, 4]])
    assert F.pad(x, (1, 2)).tolist() == [[0, 1, 2, 0, 0], [0, 3, 4, 0, 0]]
    assert F.pad(x, (0, 1, 1, 0), value=9).tolist() == [[9, 9, 9], [1, 2, 9], [3, 4, 9]]
    assert F.pad(x, (0, 0, -1, 0)).tolist() == [[3, 4]]
    assert F.pad(x, (1, -1)).tolist() == [[0, 1], [0, 3]]
    assert pb.constant_pad_nd(x, [1, 0], 5).tolist() == [[5, 1, 2], [5, 3, 4]]


def test_value_is_cast():
    assert F.pad(pb.tensor([2]), (1, 0), value=1.7).tolist() == [1, 2]
    assert F.pad(pb.tensor([False]), (1, 0), value=2.0).tolist() == [True, False]
    out = pb.constant_pad_nd(pb.tensor([1j]), [1, 0], 2 + 1j)
    assert out.tolist() == [2 + 1j, 1j]


def test_result_is_a_copy():
    x = counted(2, 3)
    for pad, mode in (((0, 0), "constant"), ((), "constant"), ((0, 0), "reflect")):
        out = F.pad(x, pad, mode)
        out[0, 0] = 7
        assert x[0, 0] == 0


@pytest.mark.parametrize(
    ("mode", "pad", "expected"),
    [
        ("reflect", (2, 1), [2, 1, 0, 1, 2, 3, 2]),
        ("replicate", (2, 1), [0, 0, 0, 1, 2, 3, 3]),
        ("circular", (2, 1), [2, 3, 0, 1, 2, 3, 0]),
        ("reflect", (-1, 2), [1, 2, 3, 2, 1]),
        ("replicate", (2, -2), [0, 0, 0, 1]),
        ("circular", (-1, 2), [1, 2, 3, 1, 2]),
        ("circular", (4, 4), [0, 1, 2, 3] * 3),
    ],
)
def test_modes(mode, pad, expected):
    assert F.pad(counted(1, 4), pad, mode).tolist() == [expected]


def test_modes_of_two_and_three_dims():
    x = counted(1, 2, 2)
    assert F.pad(x, (1, 0, 0, 1), "circular").tolist() == [[[1, 0, 1], [3, 2, 3], [1, 0, 1]]]
    assert F.pad(x, (1, 1, 1, 1), "reflect").shape == (1, 4, 4)
    assert F.pad(counted(1, 2, 2, 2), (1, 1, 1, 1, 1, 1), "replicate")[0, 0, 0].tolist() == [
        0,
        0,
        1,
        1,
    ]


@pytest.mark.parametrize("dtype", [pb.float64, pb.complex128])
def test_gradients_of_padding(dtype):
    for mode in ("constant", "reflect", "replicate", "circular"):
        x = draw(1, 3, 4, dtype=dtype)
        assert gradcheck(lambda t, mode=mode: F.pad(t, (2, 1, 1, -1), mode), (x,))
        assert gradgradcheck(lambda t, mode=mode: F.pad(t, (2, 1, 1, -1), mode), (x,))


def test_node_names():
    x = draw(1, 2, 3)
    assert F.pad(x, (1, 1)).grad_fn.name() == "ConstantPadNdBackward0"
    assert F.pad(x, (1, 1, 1, 0), "reflect").grad_fn.name() == "ReflectionPad2DBackward0"
    assert F.pad(x, (1, 1), "replicate").grad_fn.name() == "ReplicationPad1DBackward0"


REFUSED = {
    "odd": (
        RuntimeError,
        "Padding length must be divisible by 2",
        lambda: F.pad(counted(2, 3), (1,)),
    ),
    "too many": (
        RuntimeError,
        "less than or equal to two times the input dimension",
        lambda: F.pad(counted(3), (1, 1, 1, 1)),
    ),
    "nothing left": (
        RuntimeError,
        "length must be non-negative",
        lambda: F.pad(counted(1, 4), (-3, -2)),
    ),
    "mode": (
        NotImplementedError,
        "Unrecognised padding mode foo",
        lambda: F.pad(counted(1, 4), (1, 1), "foo"),
    ),
    "value": (
        RuntimeError,
        'Padding mode "reflect" doesn\'t take in value argument',
        lambda: F.pad(counted(1, 4), (1, 1), "reflect", 1.0),
    ),
    "reflect too far": (
        RuntimeError,
        "Padding size should be less than the corresponding input",
        lambda: F.pad(counted(1, 4), (4, 0), "reflect"),
    ),
    "wrapped twice": (
        RuntimeError,
        "wrapping around more than once",
        lambda: F.pad(counted(1, 4), (5, 0), "circular"),
    ),
    "rank": (
        NotImplementedError,
        "Padding size 2 is not supported for 4D input tensor",
        lambda: F.pad(counted(1, 1, 2, 3), (1, 1), "reflect"),
    ),
    "empty": (
        RuntimeError,
        "possibly 0 batch size and other non-zero dimensions",
        lambda: F.pad(counted(2, 3, 0), (1, 1), "replicate"),
    ),
    "int": (TypeError, "must be tuple of ints, not int", lambda: F.pad(counted(2), 1)),
    "float": (TypeError, "must be tuple of ints", lambda: F.pad(counted(2), (1.5, 1))),
    "constant_pad_nd": (
        RuntimeError,
        "Length of pad must be even",
        lambda: pb.constant_pad_nd(counted(2), [1]),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    kind, message, call = REFUSED[name]
    with pytest.raises(kind, match=message):
        call()


# pixels and channels


def test_pixel_shuffle_interleaves():
    x = counted(1, 4, 1, 2)
    expected = [[[[0, 2, 1, 3], [4, 6, 5, 7]]]]
    assert F.pixel_shuffle(x, 2).tolist() == expected
    assert pb.pixel_unshuffle(F.pixel_shuffle(x, 2), 2).tolist() == x.tolist()
    assert F.pixel_shuffle(counted(2, 3, 9, 1, 1), 3).shape == (2, 3, 1, 3, 3)


def test_channel_shuffle_interleaves_groups():
    x = counted(1, 6, 1)
    assert F.channel_shuffle(x, 2)[0, :, 0].tolist() == [0, 3, 1, 4, 2, 5]
    assert pb.channel_shuffle(x, 3)[0, :, 0].tolist() == [0, 2, 4, 1, 3, 5]


def test_gradients_of_shuffles():
    for function in (F.pixel_shuffle, F.pixel_unshuffle, F.channel_shuffle):
        x = draw(1, 4, 2, 4)
        assert gradcheck(lambda t, function=function: function(t, 2), (x,))
        assert gradgradcheck(lambda t, function=function: function(t, 2), (x,))
    x = draw(1, 6, 1)
    weight = counted(1, 6, 1)
    (F.channel_shuffle(x, 2) * weight).sum().backward()
    assert_allclose(x.grad[0, :, 0].numpy(), [0, 2, 4, 1, 3, 5])


@pytest.mark.parametrize(
    ("message", "call"),
    [
        ("divisible by the square of upscale_factor", lambda x: F.pixel_shuffle(x, 2)),
        ("expects a positive upscale_factor", lambda x: F.pixel_shuffle(x, 0)),
        ("expects input to have at least 3 dimensions", lambda x: F.pixel_shuffle(x[0, 0], 1)),
        ("height to be divisible by downscale_factor", lambda x: F.pixel_unshuffle(x, 2)),
        ("Number of channels must be divisible by groups", lambda x: F.channel_shuffle(x, 4)),
        ("must be positive", lambda x: F.channel_shuffle(x, 0)),
        ("expects input with > 2 dims", lambda x: F.channel_shuffle(x[0, 0], 1)),
    ],
)
def test_refused_shuffles(message, call):
    with pytest.raises(RuntimeError, match=message):
        call(counted(1, 6, 3, 4))


@pytest.mark.parametrize("mode", ["constant", "replicate"])
def test_huge_padding_is_refused_before_anything_is_made(mode):
    x = pb.ones(1, 1, 4)
    for pad in ((2**40, 1), (1, 2**40), (2**62, 2**62)):
        with pytest.raises(RuntimeError):
            F.pad(x, pad, mode)
    assert F.pad(x.to("meta"), (2**40, 1), mode).shape == (1, 1, 2**40 + 5)
