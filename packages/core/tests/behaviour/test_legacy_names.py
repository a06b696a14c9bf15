"""Names that old code still uses."""

import pickle
import warnings

import pytest

import pullback as pb


def test_variable_makes_and_recognises_tensors():
    x = pb.autograd.Variable(pb.ones(2), requires_grad=True)
    assert isinstance(x, pb.Tensor)
    assert x.requires_grad
    assert isinstance(pb.ones(2), pb.autograd.Variable)
    assert not isinstance(3, pb.autograd.Variable)
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_variable_function_is_refused():
    with pytest.raises(RuntimeError):
        pb.autograd.variable(pb.ones(2))


def test_legacy_function_classes_exist():
    function = pb.autograd.function
    assert issubclass(function.InplaceFunction, function.Function)
    assert issubclass(function.NestedIOFunction, function.Function)


def test_mark_shared_storage_is_a_deprecated_no_op():
    class Old(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            ctx.mark_shared_storage((x, y))
            return y

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = pb.ones(2, requires_grad=True)
    with pytest.warns(FutureWarning):
        y = Old.apply(x)
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("name", ["add", "sub", "addcmul", "addcdiv"])
@pytest.mark.parametrize("ending", ["", "_"])
def test_factor_before_the_operands_is_deprecated(name, ending):
    factor = "value" if name.startswith("addc") else "alpha"
    others = [pb.tensor([2.0, 4.0]), pb.tensor([5.0, 8.0])][: 1 + (factor == "value")]
    call = f"{name}{ending}"
    wanted = getattr(pb.ones(2), call)(*others, **{factor: 3})
    with pytest.warns(UserWarning, match=rf"overload of {call} is deprecated:\n\t{call}\(Number "):
        result = getattr(pb.ones(2), call)(3, *others)
    assert result.tolist() == wanted.tolist()
    with pytest.raises(TypeError, match=rf"{call}\(\) takes \d positional arguments but"):
        getattr(pb.ones(2), call)(3, *others, others[0])
    with pytest.raises(TypeError, match=r"mul_\(\) takes 2 positional arguments but"):
        pb.ones(2).mul_(3, *others)


# ---- classes of a dtype and a device -------------------------------------------------------------

TYPES = {
    "HalfTensor": pb.float16,
    "BFloat16Tensor": pb.bfloat16,
    "FloatTensor": pb.float32,
    "DoubleTensor": pb.float64,
    "ByteTensor": pb.uint8,
    "CharTensor": pb.int8,
    "ShortTensor": pb.int16,
    "IntTensor": pb.int32,
    "LongTensor": pb.int64,
    "BoolTensor": pb.bool,
}


@pytest.mark.parametrize("name", TYPES)
def test_legacy_types_make_convert_and_recognise(name):
    kind, on_cuda = getattr(pb, name), getattr(pb.cuda, name)
    made = kind([[0, 1], [1, 0]])
    assert made.tolist() == [[0, 1], [1, 0]] and made.dtype == kind.dtype == TYPES[name]
    assert kind(2, 3).shape == kind(pb.Size((2, 3))).shape == kind(size=(2, 3)).shape == (2, 3)
    assert kind().shape == (0,) and kind(made).data_ptr() == made.data_ptr()
    assert isinstance(made, kind) and not isinstance(made, on_cuda) and not isinstance(1, kind)
    assert not issubclass(pb.Tensor, kind) and not isinstance(pb.ones(1, dtype=pb.cfloat), kind)
    assert (kind.is_cuda, on_cuda.is_cuda, kind.layout) == (False, True, pb.strided)
    assert made.type() == f"pullback.{name}" == pb.typename(made)
    for given in (kind, f"torch.{name}", f"pullback.{name}", TYPES[name]):
        assert pb.ones(1).type(given).dtype == TYPES[name]
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert made.new(2).dtype == made.new([1]).dtype == TYPES[name]
    with pytest.raises(TypeError, match="acceptable base type"):
        type("Sub", (kind,), {})


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pb.FloatTensor(1.5), TypeError, r"data must be a sequence \(got float\)"),
        (lambda: pb.FloatTensor("a"), TypeError, r"new\(\): invalid data type 'str'"),
        (lambda: pb.FloatTensor(2, 1.5), TypeError, "'size' failed to unpack the object at pos 2"),
        (lambda: pb.FloatTensor(-1), RuntimeError, "negative dimension -1"),
        (lambda: pb.FloatTensor([1], dtype=pb.int8), TypeError, r"new\(\).*'dtype'"),
        (lambda: pb.FloatTensor(2, size=(2,)), TypeError, "size="),
        (
            lambda: pb.LongTensor(pb.ones(2)),
            TypeError,
            r"pullback.LongTensor \(got pullback.FloatTensor\)",
        ),
        (lambda: pb.FloatTensor(2, device="meta"), RuntimeError, "device type: meta was passed"),
        (lambda: pb.Tensor(2, device="meta"), RuntimeError, "device type: meta was passed"),
        (lambda: pb.ones(2).type("foo"), ValueError, "^invalid type: 'foo'$"),
        (lambda: pb.ones(2).type(int), ValueError, "^invalid type: 'int'$"),
        (lambda: pb.ones(2).type(3), TypeError, "dtype must be a type, str, or dtype object"),
        (lambda: pb.ones(2).type(pb.int8, "x"), TypeError, "'non_blocking' must be bool, not str"),
        (lambda: pb.set_default_tensor_type(pb.LongTensor), TypeError, "only floating-point"),
    ],
)
def test_legacy_types_refuse(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.skipif(pb.cuda.is_available(), reason="there is a CUDA device")
def test_legacy_types_of_missing_devices_say_so():
    for call in (pb.cuda.FloatTensor, pb.ones(2).type, pb.set_default_tensor_type):
        given = (3,) if call is pb.cuda.FloatTensor else (pb.cuda.FloatTensor,)
        with pytest.raises(TypeError, match=r"type pullback\.cuda\.FloatTensor not available"):
            call(*given)


def test_legacy_types_share_memory_and_history():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = pb.FloatStorage([1, 2])
        with pytest.raises(RuntimeError, match=r"type Double .*got type Float"):
            pb.DoubleTensor(storage)
    shown = pb.FloatTensor(storage)
    shown[0] = 5
    assert storage[0] == 5 and pb.ByteTensor(storage.untyped()).shape == (8,)
    leaf = pb.ones(2, requires_grad=True)
    pb.FloatTensor(leaf * 3).sum().backward()
    assert leaf.grad.tolist() == [3, 3]
    assert pb.Tensor(pb.ones(1).long()).dtype == pb.int64
    assert pb.ones(1).to("meta").type() == "pullback.meta.FloatTensor"
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        pb.ones(1, device="meta").type("torch.DoubleTensor")


def test_default_tensor_type_takes_a_class():
    try:
        pb.set_default_tensor_type(pb.DoubleTensor)
        assert pb.ones(1).dtype == pb.Tensor(1).dtype == pb.float64
    finally:
        pb.set_default_tensor_type(pb.FloatTensor)
