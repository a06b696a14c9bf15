"""What scripts written for torch read from tensors: kinds, layouts, legacy methods, sizes."""

import copy
import gc
import pickle
import sys
import weakref

import numpy as np
import pytest

import pullback as pb


class Index:
    """Anything with ``__index__``."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


@pytest.mark.parametrize(
    "name",
    [
        *("is_sparse", "is_sparse_csr", "is_quantized", "is_nested", "is_mkldnn", "is_mps"),
        *("is_xla", "is_ipu", "is_xpu", "is_vulkan", "is_maia", "is_mtia", "is_meta", "is_cuda"),
    ],
)
def test_property_of_kinds_that_are_not_there_is_false(name):
    assert getattr(pb.ones(2, device=pb.get_default_device()), name) is False
    with pytest.raises(AttributeError):
        setattr(pb.ones(2), name, True)


# ---- layouts -------------------------------------------------------------------------------------


def test_layout_is_strided():
    x = pb.ones(2)
    assert x.layout is pb.strided and isinstance(pb.strided, pb.layout)
    names = ["strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]
    assert [repr(getattr(pb, name)) for name in names] == [f"pullback.{name}" for name in names]
    assert pickle.loads(pickle.dumps(pb.sparse_coo)) is pb.sparse_coo
    assert copy.deepcopy(pb.strided) is pb.strided
    with pytest.raises(TypeError, match=r"cannot create 'pullback\.layout' instances"):
        pb.layout()


@pytest.mark.parametrize(
    "make",
    [
        lambda **k: pb.zeros(2, **k),
        lambda **k: pb.full((2,), 1.0, **k),
        lambda **k: pb.empty(2, **k),
        lambda **k: pb.arange(2, **k),
        lambda **k: pb.linspace(0, 1, 2, **k),
        lambda **k: pb.rand(2, **k),
        lambda **k: pb.randint(3, (2,), **k),
        lambda **k: pb.eye(2, **k)[0],
        lambda **k: pb.ones_like(pb.ones(2), **k),
        lambda **k: pb.ones(1).new_zeros(2, **k),
    ],
)
def test_factory_takes_the_strided_layout_alone(make):
    assert make(layout=pb.strided).shape == make(layout=None).shape == (2,)
    with pytest.raises(NotImplementedError, match=r"layout=pullback\.sparse_coo is not supported"):
        make(layout=pb.sparse_coo)
    with pytest.raises(TypeError, match=r"argument 'layout' must be pullback\.layout, not str"):
        make(layout="strided")


def test_methods_of_sparse_layouts_refuse_dense_tensors():
    x = pb.ones(2, 3)
    assert (x.sparse_dim(), x.dense_dim(), x.to_dense() is x) == (0, 2, True)
    assert x.to_dense(pb.float64).dtype == pb.float64
    for name in ("is_coalesced", "coalesce", "indices"):
        with pytest.raises(RuntimeError, match=f"{name} expected sparse coordinate tensor layout"):
            getattr(x, name)()


@pytest.mark.parametrize(
    ("shape", "order"), [((2, 3, 4), (0, 1, 2)), ((2, 3, 4), (2, 0, 1)), ((3, 2), (1, 0)), ((), ())]
)
def test_dim_order_is_that_of_memory(shape, order):
    x = pb.empty([shape[d] for d in order]).permute(tuple(np.argsort(order)))
    assert x.shape == shape and x.dim_order() == order
    assert x.dim_order(ambiguity_check=True) == order


def test_dim_order_that_is_ambiguous_raises():
    x = pb.ones(1, 3, 4, 2)
    both = [pb.contiguous_format, pb.channels_last]
    assert x.dim_order() == x.dim_order(ambiguity_check=both) == (0, 1, 2, 3)
    assert x.to(memory_format=pb.channels_last).dim_order() == (0, 2, 3, 1)
    with pytest.raises(RuntimeError, match="does not have unique dim order"):
        x.dim_order(ambiguity_check=True)
    with pytest.raises(TypeError, match="must be a bool or a list of memory formats"):
        x.dim_order(ambiguity_check=5)


def test_is_set_to_compares_memory_sizes_and_strides():
    x = pb.ones(2, 2)
    found = [x.is_set_to(y) for y in (x, x.detach(), x[:], x.t(), x[0], x.clone(), x.view(4))]
    assert found == [True, True, True, False, False, False, False]
    assert not pb.empty(0).is_set_to(pb.empty(0))


# ---- legacy methods ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda x: x.new(), []),
        (lambda x: x.new([1, 2]), [1, 2]),
        (lambda x: x.new((1, 2)), [1, 2]),
        (lambda x: x.new(np.ones(1)), [1]),
        (lambda x: x.new(x), [5, 6]),
        (lambda x: pb.Tensor([3]), [3]),
        (lambda x: pb.Tensor(x), [5, 6]),
    ],
)
def test_legacy_constructor_takes_data(make, expected):
    made = make(pb.tensor([5.0, 6.0]))
    assert made.tolist() == expected and made.dtype == pb.float32


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.new(2, 3),
        lambda x: x.new(pb.Size([2, 3])),
        lambda x: x.new(size=(2, 3)),
        lambda x: x.new(Index(2), np.int64(3)),
        lambda x: pb.Tensor(2, 3),
        lambda x: pb.Tensor(pb.Size([2, 3])),
        lambda x: pb.Tensor(size=(2, 3)),
    ],
)
def test_legacy_constructor_takes_sizes(make):
    assert make(pb.ones(1)).shape == (2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x.new("a"), "invalid data type 'str'"),
        (lambda x: x.new(1.5), "data must be a sequence"),
        (lambda x: x.new(2, 1.5), "failed to unpack the object at pos 2"),
        (lambda x: x.new(pb.ones(1, dtype=pb.int64)), "expected pullback.FloatTensor"),
        (lambda x: pb.Tensor(None), "data must be a sequence"),
        (lambda x: x.apply_(lambda v: "a"), "must be real number, not str"),
        (lambda x: x.apply_(3), "not callable"),
        (lambda x: x.map_(3, max), "argument 'other' .position 1. must be Tensor, not int"),
        (lambda x: x.map_(x.double(), max), "expected pullback.FloatTensor for 'other'"),
        (lambda x: x.map2_(x, x.long(), max), "expected pullback.FloatTensor for argument 'y'"),
        (lambda x: x.is_set_to(1), "must be Tensor, not int"),
        (lambda x: pb.get_device(1), "must be Tensor, not int"),
    ],
)
def test_legacy_method_refuses_other_arguments(call, message):
    with pytest.raises(TypeError, match=message):
        call(pb.ones(2))


def test_resize_changes_the_shape_alone():
    x = pb.arange(6.0, requires_grad=True)
    with pytest.warns(UserWarning, match="non-inplace resize is deprecated"):
        y = x.resize(2, 3)
    with pytest.warns(UserWarning, match="deprecated"):
        z = x.resize_as(pb.ones(3, 2))
    (y.sum() + z.sum()).backward()
    assert (y.shape, z.shape, x.grad.tolist()) == ((2, 3), (3, 2), [2] * 6)
    with (
        pytest.warns(UserWarning, match="deprecated"),
        pytest.raises(RuntimeError, match=r"requested resize to 2x2 \(4 elements in total\)"),
    ):
        x.resize(2, 2)


@pytest.mark.parametrize("dtype", [pb.float32, pb.int16, pb.bool, pb.complex64, pb.bfloat16])
def test_functions_of_elements_write_in_place(dtype):
    x = pb.tensor([[1, 0], [2, 3]]).to(dtype)
    y = pb.tensor([1, 2]).to(dtype)
    kept = np.array(x.tolist()), np.array(y.tolist())
    version = x._version
    assert x.T.apply_(lambda a: a + a).storage_offset() == 0 and x._version == version + 1
    assert x.tolist() == (kept[0] + kept[0]).tolist()
    x.map_(y, lambda a, b: a * b)
    assert x.tolist() == ((kept[0] + kept[0]) * kept[1]).tolist()
    assert x.map2_(x, x, lambda a, b, c: b) is x


def test_functions_of_elements_refuse_recorded_tensors():
    x = pb.ones(2, requires_grad=True)
    for call in (lambda: x.apply_(abs), lambda: pb.ones(2).map_(x, max)):
        with pytest.raises(RuntimeError, match=r"on Variable that requires grad\. Use var\.detach"):
            call()


def test_module_load_copies_or_takes():
    x, y = pb.zeros(2, requires_grad=True), pb.ones(2)
    with pb.no_grad():
        copied = x.module_load(y)
    taken = x.module_load(y, assign=True)
    assert copied.is_set_to(x) and x.tolist() == [1, 1] and not copied.requires_grad
    assert taken.is_set_to(y)


def test_reversed_flips_all_dims():
    assert reversed(pb.tensor([[1, 2], [3, 4]])).tolist() == [[4, 3], [2, 1]]
    assert reversed(pb.tensor(3)).tolist() == 3


# ---- attributes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))]
)
def test_attributes_of_plain_tensors_are_copied(again):
    x = pb.ones(2)
    x.label = {"a": 1}
    made = again(x)
    assert type(made) is pb.Tensor and vars(made) == {"label": {"a": 1}}
    assert not hasattr(x + 1, "label") and not hasattr(x.clone(), "label")
    del x.label
    assert vars(x) == {}


# ---- Size ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dims", [[2, 3], (2, 3), iter((2, 3)), [np.int64(2), pb.tensor(3)], [Index(2), Index(3)]]
)
def test_size_takes_anything_with_index(dims):
    size = pb.Size(dims)
    assert size == (2, 3) and {type(dim) for dim in size} == {int}
    assert (repr(size), size.numel(), hash(size)) == ("pullback.Size([2, 3])", 6, hash((2, 3)))


def test_parts_and_sums_of_sizes_are_sizes():
    size = pb.Size([2, 3])
    found = [size[1:], size + (4,), (4,) + size, size * 2, 2 * size, size + size]
    assert {type(part) for part in found} == {pb.Size}
    assert found == [(3,), (2, 3, 4), (4, 2, 3), (2, 3, 2, 3), (2, 3, 2, 3), (2, 3, 2, 3)]
    assert type(pickle.loads(pickle.dumps(size))) is type(copy.deepcopy(size)) is pb.Size


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pb.Size([1.0]), TypeError, "takes an iterable of 'int' .item 0 is 'float'"),
        (lambda: pb.Size("ab"), TypeError, "item 0 is 'str'"),
        (lambda: pb.Size(5), TypeError, "'int' object is not iterable"),
        (lambda: pb.Size([1, 2**70]), ValueError, "Overflow when unpacking long long"),
        (
            lambda: pb.Size([1]) + [1],
            TypeError,
            "can only concatenate tuple .not list. to pullback",
        ),
    ],
)
def test_size_refuses_other_items(call, error, message):
    with pytest.raises(error, match=message):
        call()


# ---- the package ---------------------------------------------------------------------------------


def test_versions_are_told():
    assert pb.version.__version__ == pb.__version__
    assert pb.version.torch == "2.13.0" and pb.version.cuda is None


def test_legacy_names_are_those_of_others():
    assert pb.legacy_contiguous_format is pb.contiguous_format
    assert pb.get_device(pb.ones(2)) == pb.ones(2).get_device()
    assert pb.ones(2).const_data_ptr is not None
    assert pb.Tensor.__rdiv__(pb.tensor([2.0]), 1).tolist() == [0.5]


# ---- exchange of tensors -------------------------------------------------------------------------


def test_swap_exchanges_everything_but_the_objects():
    x = pb.nn.Parameter(pb.ones(2))
    y = pb.zeros(3, dtype=pb.float64)
    y.label = "y"
    x.grad = pb.ones(2)
    pb.utils.swap_tensors(x, y)
    assert (type(x), type(y)) == (pb.Tensor, pb.nn.Parameter)
    assert (x.tolist(), x.dtype, x.label, x.requires_grad, x.grad) == (
        *([0, 0, 0], pb.float64, "y", False, None),
    )
    assert (y.tolist(), y.requires_grad, y.grad.tolist()) == ([1, 1], True, [1, 1])
    (y * 2).sum().backward()
    assert y.grad.tolist() == [3, 3] and x.grad is None


def test_swap_keeps_what_a_graph_refers_to():
    x, y = pb.ones(2, requires_grad=True), pb.full((2,), 5.0)
    loss = (x * 3).sum()
    z = x * 2
    pb.utils.swap_tensors(x, y)
    loss.backward()
    assert y.grad.tolist() == [3, 3] and x.grad is None
    pb.utils.swap_tensors(z, x)
    assert x.grad_fn.name() == "MulBackward0" and z.is_leaf
    gc.collect()


def test_swap_refuses_what_it_cannot_exchange():
    class Slotted(pb.Tensor):
        __slots__ = ("extra",)

    x, y = pb.ones(1), pb.ones(2)
    alive = weakref.ref(y)
    with pytest.raises(RuntimeError, match="Cannot swap t2 because it has weakref"):
        pb.utils.swap_tensors(x, y)
    assert alive() is y
    with pytest.raises(RuntimeError, match="different slots"):
        pb.utils.swap_tensors(x, x.as_subclass(Slotted))
    with pytest.raises(TypeError, match="t2 must be Tensor, not int"):
        pb.utils.swap_tensors(x, 1)


def test_swapped_objects_are_freed():
    for _ in range(300):  # more than the list of free objects holds
        x, y = pb.nn.Parameter(pb.ones(2)), pb.zeros(3)
        pb.utils.swap_tensors(x, y)
        del x, y
    gc.collect()
    before = sys.getrefcount(pb.nn.Parameter)
    for _ in range(300):
        x, y = pb.nn.Parameter(pb.ones(2)), pb.zeros(3)
        pb.utils.swap_tensors(x, y)
        del x, y
    gc.collect()
    assert abs(sys.getrefcount(pb.nn.Parameter) - before) < 10


@pytest.fixture
def future():
    yield pb.__future__
    pb.__future__.set_swap_module_params_on_conversion(False)
    pb.__future__.set_overwrite_module_params_on_conversion(False)


def test_conversion_of_a_module_may_swap_or_overwrite_parameters(future):
    module = pb.nn.Linear(2, 2)
    weight = module.weight
    weight.grad = pb.ones(2, 2)
    future.set_swap_module_params_on_conversion(True)
    module.double()
    assert module.weight is weight and type(weight) is pb.nn.Parameter
    assert weight.dtype == weight.grad.dtype == pb.float64 and weight.requires_grad
    future.set_swap_module_params_on_conversion(False)
    future.set_overwrite_module_params_on_conversion(True)
    module.float()
    assert module.weight is not weight and module.weight.dtype == pb.float32
    assert module.weight.grad.tolist() == [[1, 1], [1, 1]]


@pytest.mark.parametrize("assign", [False, True])
def test_load_state_dict_may_swap_parameters(future, assign):
    module = pb.nn.Linear(2, 2)
    weight, state = module.weight, {"weight": pb.ones(2, 2).double(), "bias": pb.ones(2)}
    future.set_swap_module_params_on_conversion(True)
    module.load_state_dict(state, assign=assign)
    assert module.weight is weight and weight.tolist() == [[1, 1], [1, 1]]
    assert weight.dtype == (pb.float64 if assign else pb.float32) and weight.requires_grad
