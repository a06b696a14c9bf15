"""Shapes, strides, offsets, aliasing: which operations give views, and of what."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import pullback as pb


def matrix():
    x = pb.zeros(2, 3)
    x[:] = pb.arange(6.0).reshape(2, 3)
    return x


VIEWS = [
    pytest.param(lambda x: x.view(3, 2), (3, 2), (2, 1), 0, id="view"),
    pytest.param(lambda x: x.view(-1), (6,), (1,), 0, id="view-inferred"),
    pytest.param(lambda x: x.view((1, 6, 1)), (1, 6, 1), (6, 1, 1), 0, id="view-tuple"),
    pytest.param(lambda x: x.t().view(3, 2), (3, 2), (1, 3), 0, id="view-of-transposed"),
    pytest.param(lambda x: x.reshape(6), (6,), (1,), 0, id="reshape"),
    pytest.param(lambda x: x.t(), (3, 2), (1, 3), 0, id="t"),
    pytest.param(lambda x: x.transpose(0, -1), (3, 2), (1, 3), 0, id="transpose"),
    pytest.param(lambda x: x.permute(1, 0), (3, 2), (1, 3), 0, id="permute"),
    pytest.param(lambda x: x.permute((-1, 0)), (3, 2), (1, 3), 0, id="permute-tuple"),
    pytest.param(lambda x: x.expand(4, 2, 3), (4, 2, 3), (0, 3, 1), 0, id="expand"),
    pytest.param(lambda x: x[:1].expand(4, -1), (4, 3), (0, 1), 0, id="expand-size-one"),
    pytest.param(lambda x: x.unsqueeze(1), (2, 1, 3), (3, 3, 1), 0, id="unsqueeze"),
    pytest.param(lambda x: x.unsqueeze(-1), (2, 3, 1), (3, 1, 1), 0, id="unsqueeze-last"),
    pytest.param(lambda x: x[:1].squeeze(), (3,), (1,), 0, id="squeeze"),
    pytest.param(lambda x: x[:1].squeeze(0), (3,), (1,), 0, id="squeeze-dim"),
    pytest.param(lambda x: x.squeeze(0), (2, 3), (3, 1), 0, id="squeeze-nothing"),
    pytest.param(lambda x: x[:1, :1].squeeze((0, 1)), (), (), 0, id="squeeze-dims"),
    pytest.param(lambda x: x.select(0, 1), (3,), (1,), 3, id="select"),
    pytest.param(lambda x: x.select(1, -1), (2,), (3,), 2, id="select-last"),
    pytest.param(lambda x: x.narrow(1, 1, 2), (2, 2), (3, 1), 1, id="narrow"),
    pytest.param(lambda x: x.narrow(0, -1, 1), (1, 3), (3, 1), 3, id="narrow-negative"),
    pytest.param(lambda x: x[1], (3,), (1,), 3, id="index"),
    pytest.param(lambda x: x[1, 2], (), (), 5, id="index-element"),
    pytest.param(lambda x: x[:, ::2], (2, 2), (3, 2), 0, id="step"),
    pytest.param(lambda x: x[None, 1:], (1, 1, 3), (6, 3, 1), 3, id="none"),
    pytest.param(lambda x: x[:, 1:][1:, 1:], (1, 1), (3, 1), 5, id="view-of-view"),
    pytest.param(lambda x: x.unbind(1)[2], (2,), (3,), 2, id="unbind"),
    pytest.param(lambda x: x.split(2, 1)[1], (2, 1), (3, 1), 2, id="split"),
    pytest.param(lambda x: x.chunk(2)[1], (1, 3), (3, 1), 3, id="chunk"),
]


@pytest.mark.parametrize(("op", "shape", "stride", "offset"), VIEWS)
def test_strides_and_aliasing_of_views(op, shape, stride, offset):
    x = matrix()
    y = op(x)
    assert (y.shape, y.stride(), y.storage_offset()) == (shape, stride, offset)
    assert y.data_ptr() == x.data_ptr() + 4 * offset
    assert y._is_view()
    assert y._base is x
    x.add_(10)
    assert y.sum().item() == op(x.clone()).sum().item()
    assert y._version == x._version


@pytest.mark.parametrize(("op", "shape", "stride", "offset"), VIEWS)
def test_gradient_through_views(op, shape, stride, offset):
    x = matrix().requires_grad_()
    counts = np.zeros(6)
    np.add.at(counts, op(pb.arange(6).reshape(2, 3)).reshape(-1).numpy(), 1)
    op(x).sum().backward()
    assert_array_equal(x.grad, counts.reshape(2, 3))


@pytest.mark.parametrize(
    "op",
    [
        pytest.param(lambda x: x.t().reshape(6), id="reshape-of-transposed"),
        pytest.param(lambda x: x.expand(2, 2, 3).reshape(12), id="reshape-of-expanded"),
        pytest.param(lambda x: x.t().contiguous(), id="contiguous"),
        pytest.param(lambda x: x.clone(), id="clone"),
        pytest.param(lambda x: x.to(pb.float64), id="to"),
        pytest.param(lambda x: x.to(pb.float32, copy=True), id="to-copy"),
        pytest.param(lambda x: x[pb.tensor([0, 1])], id="advanced"),
        pytest.param(lambda x: x[x > -1], id="mask"),
        pytest.param(lambda x: x + 0, id="arithmetic"),
        pytest.param(lambda x: pb.cat([x]), id="cat"),
    ],
)
def test_copies_do_not_alias(op):
    x = matrix()
    y = op(x)
    before = y.tolist()
    x.zero_()
    assert y.tolist() == before
    assert not y._is_view()
    assert y._base is None
    assert y._version == 0


def test_no_copy_where_none_is_needed():
    x = matrix()
    assert x.contiguous() is x
    assert x.to(pb.float32) is x
    assert x.to(x.device) is x
    assert x.reshape(3, 2).data_ptr() == x.data_ptr()


def test_base_is_the_root_of_a_chain():
    x = matrix()
    y = x[0][1:]
    assert y._base is x
    assert x._base is None
    assert not x._is_view()


def test_detach_aliases_but_is_no_view():
    x = matrix()
    y = x.detach()
    assert y.data_ptr() == x.data_ptr()
    assert not y._is_view()
    assert y._base is None


def test_view_outlives_its_base():
    y = matrix()[1]
    assert y.tolist() == [3.0, 4.0, 5.0]
    assert y._base.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_view_under_no_grad_is_a_view():
    with pb.no_grad():
        assert matrix()[0]._is_view()


def test_metadata():
    x = matrix()
    assert (x.dim(), x.ndim, x.numel(), x.nelement(), len(x)) == (2, 2, 6, 6, 2)
    assert (x.size(), x.size(0), x.size(-1)) == (x.shape, 2, 3)
    assert (x.stride(), x.stride(0), x.stride(-1)) == ((3, 1), 3, 1)
    assert (x.element_size(), x.itemsize, x.nbytes) == (4, 4, 24)
    assert isinstance(x.shape, tuple)
    assert x.shape.numel() == 6
    assert repr(x.shape) == f"{pb.__name__}.Size([2, 3])"
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.size(2)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.stride(-3)


@pytest.mark.parametrize(
    ("make", "contiguous"),
    [
        (lambda x: x, True),
        (lambda x: x.t(), False),
        (lambda x: x[:, :2], False),
        (lambda x: x[1:], True),
        (lambda x: x[:1].t(), True),
        (lambda x: x.expand(2, 2, 3), False),
        (lambda x: x[:0].t(), True),
        (lambda x: x[0, 0], True),
    ],
)
def test_is_contiguous(make, contiguous):
    y = make(matrix())
    assert y.is_contiguous() is contiguous
    assert y.contiguous().is_contiguous()
    assert_array_equal(y.contiguous(), y)


@pytest.mark.parametrize(
    ("make", "stride"),
    [
        (lambda x: x.t(), (1, 3)),
        (lambda x: x.expand(2, 2, 3), (6, 3, 1)),
        (lambda x: x[:, ::2], (2, 1)),
        (lambda x: x.unsqueeze(0).permute(2, 0, 1), (1, 6, 3)),
    ],
)
def test_clone_keeps_dense_strides_only(make, stride):
    y = make(matrix())
    copy = y.clone()
    if 1 not in y.shape:
        assert copy.stride() == stride
    assert_array_equal(copy, y)
    assert y.clone(memory_format=pb.contiguous_format).is_contiguous()


@pytest.mark.parametrize("op", [lambda x: x + 1, lambda x: x.exp(), lambda x: x * x])
def test_elementwise_results_keep_dense_strides(op):
    assert op(matrix().t()).stride() == (1, 3)
    assert op(matrix()[:, ::2]).stride() == (2, 1)


# Refused shapes


@pytest.mark.parametrize(
    ("op", "error", "fragment"),
    [
        (lambda x: x.view(4), RuntimeError, r"shape '\[4\]' is invalid for input of size 6"),
        (lambda x: x.view(-1, 4), RuntimeError, "is invalid for input of size 6"),
        (lambda x: x.view(-1, -1), RuntimeError, "only one dimension can be inferred"),
        (lambda x: x.view(-2), RuntimeError, "invalid shape dimension -2"),
        (lambda x: x[:0].view(-1, 0), RuntimeError, "cannot reshape tensor of 0 elements"),
        (lambda x: x.t().view(6), RuntimeError, "view size is not compatible with input tensor's"),
        (lambda x: x.view("a"), TypeError, None),
        (lambda x: x.view(6.0), TypeError, None),
        (lambda x: x.reshape(4), RuntimeError, r"shape '\[4\]' is invalid for input of size 6"),
        (lambda x: x.reshape(2**62, 4), RuntimeError, "is invalid for input of size 6"),
        (lambda x: x.reshape(()), RuntimeError, "is invalid for input of size 6"),
        (lambda x: x.transpose(0, 2), IndexError, "Dimension out of range"),
        (lambda x: x.permute(0), RuntimeError, "number of dimensions"),
        (lambda x: x.permute(0, 0), RuntimeError, "duplicate dims are not allowed"),
        (lambda x: x.permute(0, 5), IndexError, "Dimension out of range"),
        (
            lambda x: x.expand(4, 3),
            RuntimeError,
            r"The expanded size of the tensor \(4\) must match",
        ),
        (
            lambda x: x.expand(3),
            RuntimeError,
            "must be greater or equal to the number of dimensions",
        ),
        (
            lambda x: x.expand(-1, 2, 3),
            RuntimeError,
            r"expanded size of the tensor \(-1\) isn't allo",
        ),
        (lambda x: x.squeeze(2), IndexError, "Dimension out of range"),
        (lambda x: x.unsqueeze(3), IndexError, "Dimension out of range"),
        (lambda x: x.unsqueeze(-4), IndexError, "Dimension out of range"),
        (lambda x: x.select(2, 0), IndexError, "Dimension out of range"),
        (lambda x: x.select(0, 2), IndexError, "out of range"),
        (lambda x: x.narrow(0, 0, 3), RuntimeError, "exceeds dimension size"),
        (lambda x: x.narrow(0, 0, -1), RuntimeError, "length must be non-negative"),
        (lambda x: x[None].t(), RuntimeError, "expects a tensor with <= 2 dimensions"),
        (lambda x: x.unbind(2), IndexError, "Dimension out of range"),
        (lambda x: x.split(0), RuntimeError, "split_size"),
        (lambda x: x.split(-1), RuntimeError, "non-negative"),
        (lambda x: x.split([1, 1], 1), RuntimeError, "sum exactly to 3"),
        (lambda x: x.chunk(0), RuntimeError, "greater than 0"),
    ],
)
def test_refused_shapes(op, error, fragment):
    x = matrix()
    with pytest.raises(error, match=fragment):
        op(x)


def test_shapes_of_scalars_and_empty_tensors():
    scalar, empty = pb.tensor(1.0), pb.zeros(0, 3)
    assert scalar.reshape(1, 1).shape == (1, 1)
    assert scalar.expand(2, 2).stride() == (0, 0)
    assert scalar.t().shape == scalar.squeeze().shape == ()
    assert empty.reshape(3, 0).shape == (3, 0)
    assert empty.view(-1, 3).shape == (0, 3)
    assert empty.unbind(0) == ()
    assert empty.expand(0, 3).shape == (0, 3)
    with pytest.raises(IndexError):
        scalar.unbind()


# Joining and splitting


def test_split_and_chunk_sizes():
    x = pb.arange(7)
    assert [p.tolist() for p in x.split(3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [p.tolist() for p in x.split([2, 5])] == [[0, 1], [2, 3, 4, 5, 6]]
    assert [len(p) for p in x.chunk(3)] == [3, 3, 1]
    assert [len(p) for p in pb.chunk(x, 10)] == [1] * 7
    assert isinstance(x.split(3), tuple)
    assert isinstance(x.unbind(), tuple)


def test_cat_and_stack():
    a, b = pb.tensor([[1, 2]]), pb.tensor([[3, 4]])
    assert pb.cat([a, b]).tolist() == [[1, 2], [3, 4]]
    assert pb.cat((a, b), dim=1).tolist() == [[1, 2, 3, 4]]
    assert pb.stack([a, b], -1).tolist() == [[[1, 3], [2, 4]]]
    assert pb.cat([a, pb.zeros(0, dtype=pb.int64)]).tolist() == [[1, 2]]


def test_gradient_of_cat_and_stack_reaches_every_part():
    a = pb.ones(1, 2, requires_grad=True)
    b = pb.ones(2, 2, dtype=pb.float64, requires_grad=True)
    weight = pb.arange(6.0).reshape(3, 2)
    (pb.cat([a, b, a])[:3] * weight).sum().backward()
    assert a.grad.tolist() == [[0.0, 1.0]]
    assert (b.grad.dtype, b.grad.tolist()) == (pb.float64, [[2.0, 3.0], [4.0, 5.0]])
    a.grad = None
    (pb.stack([a[0], b[0]], 1) * weight[:2]).sum().backward()
    assert a.grad.tolist() == [[0.0, 2.0]]


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (lambda x: pb.cat([]), (ValueError, RuntimeError)),
        (lambda x: pb.cat([x, 3]), TypeError),
        (lambda x: pb.cat(x), TypeError),
        (lambda x: pb.cat([x, x[0]]), RuntimeError),
        (lambda x: pb.cat([x, x[:, :2]]), RuntimeError),
        (lambda x: pb.cat([x[0, 0]]), RuntimeError),
        (lambda x: pb.cat([x, x], 2), IndexError),
        (lambda x: pb.stack([]), (ValueError, RuntimeError)),
        (lambda x: pb.stack([x, x[0]]), RuntimeError),
        (lambda x: pb.stack([x, x], 3), IndexError),
    ],
)
def test_refused_joins(op, error):
    with pytest.raises(error):
        op(matrix())


def test_movedim_of_a_tensor_without_dims():
    x = pb.tensor(1.0)
    for source, destination in ((0, -1), (-1, 0), ((0,), (0,)), ((), ())):
        assert pb.movedim(x, source, destination).shape == ()
    with pytest.raises(IndexError, match="Dimension out of range"):
        pb.movedim(x, 0, 1)
    with pytest.raises(RuntimeError, match=r"repeated dim in `source` \(\[0, 0\]\)"):
        pb.movedim(x, (0, 0), (0, 0))
    with pytest.raises(TypeError):
        pb.movedim(matrix(), 1.5, 0)


# Arguments that are ints


WRONG_INTS = {
    "unsqueeze": lambda dim: pb.unsqueeze(pb.ones(2, 2), dim),
    "transpose": lambda dim: pb.transpose(pb.ones(2, 2), dim, 0),
    "glu": lambda dim: pb.nn.functional.glu(pb.ones(2, 2), dim),
    "cat": lambda dim: pb.cat([pb.ones(2)], dim),
    "chunk": lambda dim: pb.chunk(pb.ones(2), 2, dim),
    "cumsum": lambda dim: pb.cumsum(pb.ones(2), dim),
    "index_select": lambda dim: pb.index_select(pb.ones(2), dim, pb.tensor([0])),
    "tril": lambda dim: pb.tril(pb.ones(2, 2), dim),
    "topk": lambda k: pb.topk(pb.ones(2), k),
    "flatten": lambda dim: pb.flatten(pb.ones(2, 2), dim),
    "argmax": lambda dim: pb.argmax(pb.ones(2), dim),
    "pixel_shuffle": lambda factor: pb.nn.functional.pixel_shuffle(pb.ones(1, 4, 2, 2), factor),
}


@pytest.mark.parametrize("name", WRONG_INTS)
@pytest.mark.parametrize("value", [1.5, "a", (0,), True])
def test_ints_of_another_type_are_refused(name, value):
    where = rf"argument '\w+' \(position {3 if name == 'chunk' else 2}\)"
    wanted = rf"^{name}\(\): {where} must be int, not {type(value).__name__}"
    with pytest.raises(TypeError, match=wanted):
        WRONG_INTS[name](value)


def test_none_stands_for_an_int_only_where_it_may():
    assert pb.argmax(pb.tensor([[1, 2]]), None).item() == 1
    with pytest.raises(TypeError, match=r"^glu\(\): argument 'dim' .* must be int, not NoneType"):
        pb.nn.functional.glu(pb.ones(2), None)
    with pytest.raises(TypeError, match=r"argument 'correction' must be int, not float"):
        pb.cov(pb.ones(2), correction=0.5)


def test_ints_may_be_numbers_of_numpy_and_tensors_without_dims():
    for dim in (np.int64(1), np.uint8(1), pb.tensor(1), pb.tensor(1, dtype=pb.uint8)):
        assert pb.unsqueeze(pb.ones(2, 2), dim).shape == (2, 1, 2)
        assert pb.narrow(pb.arange(3.0), 0, dim, 1).tolist() == [1.0]
    for wrong in (pb.tensor([1]), pb.tensor(1.0), pb.tensor(True), np.float32(1)):
        with pytest.raises(TypeError, match="must be int"):
            pb.unsqueeze(pb.ones(2, 2), wrong)


@pytest.mark.beyond_torch
@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda n: pb.ones(2).unsqueeze(n), "unsqueeze.*'dim'"),
        (lambda n: pb.ones(2, 2).transpose(0, n), "transpose.*'dim1'"),
        (lambda n: pb.ones(2).softmax(n), "softmax.*'dim'"),
        (lambda n: pb.ones(2).sum(n), "sum.*'dim'"),
        (lambda n: pb.ones(2).sum((0, n)), "sum.*'dim'"),
        (lambda n: pb.ones(2).expand(n), "expand.*'size'"),
    ],
)
def test_ints_beyond_64_bits_are_refused(call, name):
    for number in (10**20, -(10**20)):
        with pytest.raises((ValueError, RuntimeError), match=rf"{name}.*not fit in 64 bits"):
            call(number)


def test_permute_by_one_dim():
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    (x.permute(0) * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_items_of_a_size_are_ints():
    size = pb.Size((1, pb.tensor(3), np.int64(2), True))
    assert [type(n) for n in size] == [int] * 4
    assert size == (1, 3, 2, 1)
    with pytest.raises(TypeError, match="item 1 is 'float'"):
        pb.Size((1, 2.5))
