"""Dtypes that plugins define: what is stored, what is computed, what is refused."""

import copy
import io
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.backend import define_primitive, define_storage_dtype
from pullback.library.storage_dtypes import StoredTensor


def int8_rows(x):
    scale = x.abs().amax(-1, True).clamp(min=1e-30) / 127
    return (x / scale).round().to(pb.int8), scale


def halves_of_bytes(x):
    """Codes of four bits, two in a byte: integers from -8 to 7."""
    codes = (x.reshape(-1).round().clamp(-8, 7) + 8).to(pb.uint8)
    return codes[::2] * 16 + codes[1::2]


@pytest.fixture(scope="session")
def rows():
    return define_storage_dtype(
        "tests_storage::rows", int8_rows, lambda codes, scale: codes * scale
    )


@pytest.fixture(scope="session")
def nibbles():
    both = define_primitive(
        "tests_storage::unpack",
        "(Tensor codes) -> Tensor",
        lambda codes: pb.stack([codes // 16, codes % 16], -1).to(pb.float32) - 8,
    )
    return define_storage_dtype(
        "tests_storage::nibbles", halves_of_bytes, lambda codes: both(codes).reshape(4, -1)
    )


def rows_by_numpy(x):
    scale = (np.abs(x).max(-1, keepdims=True) / np.float32(127)).astype(np.float32)
    return np.round(x / scale) * scale


@pytest.fixture
def x():
    return pb.from_numpy(np.random.default_rng(3).standard_normal((4, 6)).astype(np.float32))


# ---- what is stored ------------------------------------------------------------------------------


def test_values_are_those_of_the_codes(rows, x):
    stored = rows.store(x)
    assert type(stored) is StoredTensor and stored.storage_dtype is rows
    assert [part.dtype for part in stored.parts] == [pb.int8, pb.float32]
    assert stored.stored_bytes == 4 * 6 + 4 * 4
    assert (stored.shape, stored.dtype, stored.device) == (x.shape, x.dtype, x.device)
    np.testing.assert_allclose(stored.numpy(), rows_by_numpy(x.numpy()), rtol=1e-6)
    assert rows.store(stored).tolist() == stored.tolist()


def test_a_part_may_have_another_shape(nibbles):
    values = pb.arange(-8.0, 8.0).reshape(4, 4)
    stored = nibbles.store(values)
    assert stored.parts[0].shape == (8,) and stored.stored_bytes == 8
    assert stored.equal(values) and (stored + 0.5).tolist() == (values + 0.5).tolist()


def test_text_names_the_dtype(nibbles):
    text = str(nibbles.store(pb.ones(4, 2)).requires_grad_())
    assert text.splitlines() == [
        "StoredTensor([[1., 1.],",
        *["              [1., 1.],"] * 2,
        "              [1., 1.]], storage_dtype=tests_storage::nibbles, requires_grad=True)",
    ]
    assert repr(nibbles) == "<storage dtype tests_storage::nibbles>"


KEPT = [
    lambda stored: stored.detach(),
    lambda stored: stored.clone(),
    lambda stored: stored.contiguous(),
    lambda stored: stored.data,
    lambda stored: stored.to(stored.device),
    lambda stored: stored.to(pb.float32, copy=True),
    lambda stored: stored.to(pb.float32, False, True),
    lambda stored: copy.copy(stored),
    lambda stored: copy.deepcopy(stored),
    lambda stored: pickle.loads(pickle.dumps(stored)),
    lambda stored: pb.nn.Parameter(stored, requires_grad=False),
    lambda stored: pb.nn.Buffer(stored),
]


@pytest.mark.parametrize("keep", KEPT)
def test_copies_stay_stored(rows, x, keep):
    stored = rows.store(x)
    kept = keep(stored)
    assert type(kept) is StoredTensor and kept.storage_dtype is rows
    assert kept.equal(stored) and kept.stored_bytes == stored.stored_bytes
    assert kept.requires_grad == stored.requires_grad


def test_other_dtypes_and_devices(rows, x):
    stored = rows.store(x)
    assert type(stored.to(pb.float64)) is pb.Tensor and type(stored.half()) is pb.Tensor
    elsewhere = stored.to("meta")
    assert type(elsewhere) is StoredTensor and elsewhere.device.type == "meta"
    assert (elsewhere * 2).is_meta and stored.to(x) is stored is stored.contiguous()
    assert stored.clone().parts[0].data_ptr() != stored.parts[0].data_ptr()


def test_saved_values_are_stored(rows, x):
    leaf = x.clone().requires_grad_()
    with pb.autograd.graph.saved_tensors_hooks(rows.store, rows.load):
        leaf.square().sum().backward()
    assert leaf.grad.equal(2 * rows.store(x))


# ---- what is computed ----------------------------------------------------------------------------

COMPUTED = {
    "operators": lambda v: (v * 2 - v / 3).sum(0),
    "reflected": lambda v: 2 - v + pb.ones(4) @ v,
    "products": lambda v: v @ v.T + v.mT.mean(),
    "items": lambda v: v[1:, ::2].exp() * v[0, 0],
    "in a list": lambda v: pb.cat([v, v * v]).amax(1),
    "functions": lambda v: pb.nn.functional.linear(v, v).softmax(-1),
    "shapes": lambda v: v.reshape(2, -1).transpose(0, 1).cumsum(0),
    "complex": lambda v: pb.complex(v, v).abs().real,
}


@pytest.mark.parametrize("name", COMPUTED)
def test_operations_compute_with_the_values(rows, x, name):
    stored = rows.store(x).requires_grad_()
    values = rows.load(stored).detach().requires_grad_()
    result, expected = COMPUTED[name](stored), COMPUTED[name](values)
    assert type(result) is pb.Tensor and result.equal(expected)
    result.sum().backward()
    expected.sum().backward()
    assert type(stored.grad) is pb.Tensor and stored.grad.equal(values.grad)


def test_numbers_and_arrays_are_those_of_the_values(rows):
    stored = rows.store(pb.tensor([[127.0]]))
    assert (stored.item(), float(stored), bool(stored), len(stored)) == (127.0, 127.0, True, 1)
    assert np.asarray(stored).tolist() == stored.tolist() == [[127.0]]
    assert f"{stored.sum():.1f}" == "127.0" and [row.item() for row in stored] == [127.0]


def test_gradients_pass_the_store_unchanged(rows, x):
    leaf = x.clone().requires_grad_()
    stored = rows.store(leaf * 3)
    assert type(stored) is StoredTensor and not stored.is_leaf
    stored.square().sum().backward()
    np.testing.assert_allclose(leaf.grad, 6 * rows_by_numpy(3 * x.numpy()), rtol=1e-5)


def test_second_derivatives_and_transforms(rows, x):
    stored, values = rows.store(x), rows.store(x) * 1

    def cube(v):
        return (v**3).sum()

    assert pb.func.grad(cube)(stored).equal(pb.func.grad(cube)(values))
    assert pb.func.hessian(cube)(stored[0]).equal(pb.func.hessian(cube)(values[0]))
    assert pb.vmap(lambda v: v.square().sum())(stored).allclose(values.square().sum(1))
    assert pb.vmap(lambda v: v * 2, in_dims=1)(stored).equal(values.T * 2)
    made, tangent = pb.func.jvp(lambda v: rows.store(v) * v, (x,), (pb.ones(4, 6),))
    assert made.equal(values * x) and tangent.equal(x + values)
    compiled = pb.compile(cube)
    assert compiled(stored).equal(cube(values)) and compiled(stored * 2).equal(cube(values * 2))


def test_gradients_of_and_from_stored_tensors(rows, x):
    stored = rows.store(x).requires_grad_()
    assert pb.autograd.grad((stored * 2).sum(), stored)[0].equal(pb.full((4, 6), 2.0))
    assert pb.autograd.grad((stored * 2).sum(), [stored])[0].equal(pb.full((4, 6), 2.0))
    leaf = pb.ones(4, 6, requires_grad=True)
    (leaf * 2).backward(rows.store(x))
    assert leaf.grad.equal(2 * rows.load(rows.store(x)))
    assert pb.autograd.grad(leaf * 2, leaf, rows.store(x))[0].equal(leaf.grad)
    weight = pb.nn.Parameter(rows.store(x))
    compiled = pb.compile(lambda v: (v * weight).sum())
    for _ in range(3):
        weight.grad = None
        compiled(pb.ones(4, 6)).backward()
        assert weight.grad.equal(pb.ones(4, 6))


def test_inference_mode(rows, x):
    before = rows.store(x)
    with pb.inference_mode():
        inside = rows.store(x)
        inside.mul_(2)
        before.mul_(2)
        assert (inside + 0).equal(before + 0) and inside.clone().equal(inside)
    np.testing.assert_allclose(before.numpy(), rows_by_numpy(2 * rows_by_numpy(x.numpy())), 1e-6)


def test_plain_tensors_take_the_values_of_stored_ones(rows, x):
    stored, values = rows.store(x), rows.load(rows.store(x))
    assert pb.as_tensor(stored).equal(values) and x.new_tensor(stored.tolist()).equal(values)
    weight = pb.nn.Parameter(pb.zeros(4, 6))
    weight.data = stored
    assert type(weight) is pb.nn.Parameter and weight.equal(values)


def test_unary_plus_and_formats_of_memory(rows):
    stored = rows.store(pb.ones(1, 2, 2, 2))
    assert (+stored).equal(pb.ones(1, 2, 2, 2))
    assert type(stored.to(memory_format=pb.channels_last)) is StoredTensor


# ---- what is written -----------------------------------------------------------------------------

WRITES = [
    lambda v: v.mul_(2),
    lambda v: v.__setitem__((slice(None), 0), 5.0),
    lambda v: v.copy_(pb.ones(4, 6)),
    lambda v: v.__iadd__(1),
    lambda v: pb.add(pb.ones(4, 6), 1, out=v),
    lambda v: pb.nn.init.constant_(v, 3.0),
]


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_writes_are_stored(rows, x, write, requires_grad):
    stored, values = rows.store(x), rows.store(x) * 1
    view = stored.detach()
    stored.requires_grad_(requires_grad)
    with pb.no_grad():
        result = write(stored)
        write(values)
    expected = rows_by_numpy(values.numpy())
    np.testing.assert_allclose(stored.detach().numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(view.numpy(), expected, rtol=1e-6)
    assert result is None or result is stored


def test_writes_with_history_are_refused_and_change_nothing(rows, x):
    stored = rows.store(x).requires_grad_()
    before = stored.tolist()
    message = (
        "^mul_: a tensor stored as tests_storage::rows cannot be written where gradients of it"
    )
    with pytest.raises(RuntimeError, match=message):
        stored.mul_(2)
    with pytest.raises(RuntimeError, match=message.replace("mul_", "add_")):
        rows.store(x).add_(pb.ones(6, requires_grad=True))
    with pytest.raises(RuntimeError, match=r"unsqueeze_: .* cannot get another shape"):
        rows.store(x).unsqueeze_(0)
    assert stored.tolist() == before


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_optimizers_write_parameters_that_stay_stored(rows, name):
    pb.manual_seed(0)
    layer = pb.nn.Linear(6, 4)
    layer.weight = pb.nn.Parameter(rows.store(layer.weight.detach()))
    assert [n for n, _ in layer.named_parameters()] == ["weight", "bias"]
    assert isinstance(layer.weight, pb.nn.Parameter) and layer.weight.is_leaf
    optimizer = getattr(pb.optim, name)(layer.parameters(), lr=0.05)
    x, y = pb.randn(32, 6), pb.randn(32, 4)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = pb.nn.functional.mse_loss(layer(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert type(layer.weight) is StoredTensor and layer.weight.grad.shape == (4, 6)


def test_state_dicts_and_files(rows, x):
    layer = pb.nn.Linear(6, 4, bias=False)
    layer.weight = pb.nn.Parameter(rows.store(x))
    state = layer.state_dict()
    assert type(state["weight"]) is StoredTensor
    other = pb.nn.Linear(6, 4, bias=False)
    other.load_state_dict(state)
    assert type(other.weight) is pb.nn.Parameter and other.weight.equal(layer.weight)
    file = io.BytesIO()
    pb.save(state, file)
    file.seek(0)
    loaded = pb.load(file)["weight"]
    assert type(loaded) is StoredTensor and loaded.equal(layer.weight)
    with pb.no_grad():
        layer.weight.zero_()
    layer.load_state_dict({"weight": loaded})
    assert type(layer.weight) is StoredTensor and layer.weight.equal(rows.store(x))
    layer.double()
    assert layer.weight.dtype == pb.float64


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(-8, 7, width=32), min_size=8, max_size=8))
def test_every_code_comes_back(nibbles, numbers):
    stored = nibbles.store(pb.tensor(numbers).reshape(4, 2))
    assert stored.reshape(-1).tolist() == [float(round(number)) for number in numbers]
    assert nibbles.store(stored).parts[0].equal(stored.parts[0])


AGAIN = [copy.copy, copy.deepcopy, lambda weight: pickle.loads(pickle.dumps(weight))]


@pytest.mark.parametrize("again", AGAIN)
def test_copies_of_parameters_are_parameters(rows, x, again):
    weight = pb.nn.Parameter(rows.store(x))
    weight.note = "kept"
    made = again(weight)
    assert isinstance(made, pb.nn.Parameter) and made.requires_grad and made.note == "kept"
    assert not isinstance(weight.detach(), pb.nn.Parameter)
    layer = pb.nn.Linear(6, 4)
    layer.weight = weight
    layer(pb.ones(1, 6)).sum().backward()
    twin = copy.deepcopy(layer)
    assert twin.weight.grad.equal(layer.weight.grad) and len(list(twin.parameters())) == 2
    twin.weight = twin.weight
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        copy.deepcopy(rows.store(pb.ones(2, requires_grad=True)))


def test_initializers_write_parameters(rows, x):
    layer = pb.nn.Linear(6, 4)
    layer.weight = pb.nn.Parameter(rows.store(x))
    layer.reset_parameters()
    assert not layer.weight.equal(rows.store(x)) and layer.weight.abs().max() <= 1
    pb.nn.init.ones_(layer.weight)
    assert layer.weight.equal(pb.ones(4, 6)) and layer.weight.is_leaf


def test_parts_may_change_their_sizes():
    def encode(x):
        flat = x.reshape(-1)
        return flat.nonzero()[:, 0], flat[flat != 0]

    few = define_storage_dtype(
        "tests_storage::few", encode, lambda at, v: pb.zeros(4).index_put((at,), v).reshape(2, 2)
    )
    stored = few.store(pb.tensor([[0.0, 1.0], [0.0, 2.0]]))
    other = stored.detach()
    stored.add_(1)
    assert stored.tolist() == other.tolist() == [[1, 2], [1, 3]] and len(other.parts[0]) == 4


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize("dtype", [None, pb.float64])
@pytest.mark.parametrize("make", [pb.tensor, pb.as_tensor, pb.asarray, pb.ones(1).new_tensor])
def test_constructors_read_the_values(rows, x, make, dtype):
    stored = rows.store(x)
    made = make(stored, dtype=dtype)
    assert made.dtype == dtype or dtype is None
    assert made.to(pb.float32).equal(rows.load(stored))


def test_shared_memory(rows, x):
    layer = pb.nn.Linear(6, 4, bias=False)
    layer.weight = pb.nn.Parameter(rows.store(x))
    assert not layer.weight.is_shared()
    layer.share_memory()
    assert layer.weight.is_shared() and all(part.is_shared() for part in layer.weight.parts)
    assert layer.weight.equal(rows.store(x))


# ---- what is refused -----------------------------------------------------------------------------


def test_the_legacy_constructor_refuses(rows, x):
    with pytest.raises(NotImplementedError, match="cannot access the storage of a StoredTensor"):
        pb.Tensor(rows.store(x))


@pytest.mark.parametrize(
    "ask",
    [
        lambda v: v.data_ptr(),
        lambda v: v.untyped_storage(),
        lambda v: v.set_(pb.ones(2)),
    ],
)
def test_memory_is_refused(rows, x, ask):
    with pytest.raises(RuntimeError, match="a tensor stored as tests_storage::rows has no memory"):
        ask(rows.store(x))
    assert not hasattr(rows.store(x), "__array_interface__")
    with pytest.raises(BufferError, match="StoredTensor overrides calls"):
        memoryview(rows.store(x))


def test_definitions_are_checked(rows):
    same = pb.Tensor.clone
    with pytest.raises(ValueError, match="expected a name such as 'mine::float6', got 'float6'"):
        define_storage_dtype("float6", same, same)
    with pytest.raises(TypeError, match="argument 'decode' must be callable, not NoneType"):
        define_storage_dtype("tests_storage::none", same, None)
    with pytest.raises(RuntimeError, match="'tests_storage::rows' is defined already"):
        define_storage_dtype("tests_storage::rows", same, same)
    with pytest.raises(TypeError, match="argument 'tensor' must be Tensor, not float"):
        rows.store(1.0)
    with pytest.raises(RuntimeError, match="no define_storage_dtype"):
        pickle.loads(pickle.dumps(rows).replace(b"tests_storage::rows", b"tests_storage::gone"))


@pytest.fixture(scope="session")
def wrong():
    return [
        define_storage_dtype("tests_storage::number", lambda x: 3, lambda part: part),
        define_storage_dtype("tests_storage::meta", lambda x: x.to("meta"), lambda part: part),
        define_storage_dtype("tests_storage::nested", lambda x: StoredTensor(2), lambda part: part),
        define_storage_dtype("tests_storage::shape", lambda x: x, lambda part: part[0]),
        define_storage_dtype("tests_storage::nothing", lambda x: x, lambda part: None),
    ]


def test_results_of_encode_and_decode_are_checked(wrong, x):
    number, meta, nested, shape, nothing = wrong
    with pytest.raises(RuntimeError, match=r"encode\(\) must return plain tensors on .*, got int"):
        number.store(x)
    with pytest.raises(RuntimeError, match="got one on meta"):
        meta.store(x)
    with pytest.raises(RuntimeError, match="got StoredTensor"):
        nested.store(x)
    with pytest.raises(RuntimeError, match=r"must return a tensor of shape \[4, 6\], got \[6\]"):
        shape.store(x) + 1
    with pytest.raises(RuntimeError, match="got NoneType"):
        nothing.store(x) + 1


def test_a_store_of_the_values_themselves_is_written_once(wrong):
    same = define_storage_dtype("tests_storage::same", lambda x: x, lambda part: part)
    values = pb.ones(2, 2)
    stored = same.store(values)
    result = stored + 0
    result.add_(5)
    assert stored.tolist() == [[1.0, 1.0]] * 2 and values.tolist() == [[1.0, 1.0]] * 2
    stored.mul_(3)
    assert stored.tolist() == [[3.0, 3.0]] * 2 and values.tolist() == [[1.0, 1.0]] * 2
