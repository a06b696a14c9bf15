"""``__torch_function__`` on the same programs as in torch: received calls, results, errors."""

import operator

import pytest

import pullback as pb

torch = pytest.importorskip("torch")

BINARY = [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
]
INTEGRAL = ["and_", "or_", "xor", "lshift", "rshift"]
PROGRAMS = [
    *(f"operator.{name}(x, y)" for name in BINARY),
    *(f"operator.{name}(y, x)" for name in BINARY),
    *(f"operator.{name}(x, 2)" for name in BINARY),
    *(f"operator.{name}(2, x)" for name in BINARY if name != "truediv"),
    *(f"operator.{name}(k, k)" for name in INTEGRAL),
    *(f"operator.{name}(2, k)" for name in INTEGRAL),
    *(f"operator.i{name}(x, y)" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod")),
    *(f"operator.i{name.strip('_')}(k, k)" for name in INTEGRAL),
    *(f"operator.{name}(x)" for name in ("neg", "pos", "abs")),
    "x @ y",
    "~k",
    "x[0]",
    "x[k % 2]",
    "y[k % 2]",
    "y[(k % 2,)]",
    "y.__setitem__(0, x[0])",
    "len(x)",
    "repr(x)",
    "bool(x[0])",
    "int(x[0])",
    "float(x[0])",
    "complex(x[0])",
    "1.0 in x",
    "f'{x}'",
    *(
        f"x.{name}"
        for name in ("shape", "dtype", "device", "grad", "requires_grad", "is_leaf", "grad_fn")
    ),
    *(f"x.{name}" for name in ("data", "ndim", "is_sparse", "layout", "itemsize", "is_cpu")),
    "setattr(x, 'requires_grad', True)",
    "setattr(x, 'data', y)",
    "setattr(x, 'grad', None)",
    *(f"x.{name}()" for name in ("size", "dim", "numel", "cpu", "float", "numpy", "tolist")),
    *(f"x.{name}()" for name in ("detach", "clone", "stride", "data_ptr", "is_contiguous")),
    *(f"x.{name}()" for name in ("unbind", "requires_grad_", "type", "new")),
    "x.sum().item()",
    "lib.nn.functional.relu(x)",
    "lib.nn.functional.linear(x, lib.ones(2, 2))",
    "lib.cat([y, x])",
    "lib.stack((y, x))",
    "lib.einsum('i,i', x, y)",
    "lib.allclose(x, y)",
    "lib.equal(x, y)",
    "lib.is_tensor(x)",
    "lib.tensor(x)",
    "lib.as_tensor(x)",
    "lib.zeros_like(x)",
    "lib.where(x > 0, x, y)",
    "lib.max(x, 0)",
    "lib.topk(x, 1)",
    "lib.numel(x)",
    "lib.is_floating_point(x)",
    "lib.split(x, 1)",
    "lib.linalg.norm(x)",
    "lib.index_put(y, (k % 2,), y)",
    "lib.add(y, y, out=x)",
    "x.as_subclass(type(x))",
    "lib.Tensor.shape.__get__(x)",
    "lib.Tensor.sin(x)",
]
# What torch's Python functions add: plain tensors among the types, and the defaults.
WITH_TENSORS = {"Tensor"}


def run(lib, program):
    """Return the received calls of a program, and what it gives."""
    received = []

    class Sub(lib.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            kinds = tuple(kind.__name__ for kind in types if kind.__name__ not in WITH_TENSORS)
            received.append((func.__name__, kinds, len(args)))
            return super().__torch_function__(func, types, args, kwargs)

    names = {
        "lib": lib,
        "operator": operator,
        "x": lib.tensor([1.0, 2.0]).as_subclass(Sub),
        "y": lib.tensor([3.0, 4.0]),
        "k": lib.tensor([1, 2]).as_subclass(Sub),
    }
    received.clear()
    result = eval(program, names)
    parts = result if isinstance(result, (tuple, list)) else (result,)
    return received, [type(part).__name__ for part in parts]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS)
def test_received_calls_and_classes_of_results_are_those_of_torch(program):
    assert run(pb, program) == run(torch, program)


REFUSALS = [
    "lib.sin(refused)",
    "lib.add(refused, foreign)",
    "lib.cat([refused, foreign])",
    "refused.sin()",
    "refused + 1",
    "1 - refused",
    "refused.shape",
    "lib.ones(2)[refused]",
    "lib.sin(foreign, 3)",
]


def refused(lib, program):
    def refuse(cls, func, types, args=(), kwargs=None):
        return NotImplemented

    override = {"__torch_function__": classmethod(refuse)}
    kind = type("Refusing", (lib.Tensor,), override)
    names = {
        "lib": lib,
        "refused": lib.Tensor._make_subclass(kind, lib.ones(2)),
        "foreign": type("Foreign", (), override)(),
    }
    with pytest.raises(TypeError) as error:
        eval(program, names)
    return str(error.value)


@pytest.mark.parametrize("program", REFUSALS)
def test_refused_calls_raise_torchs_texts(program):
    text = refused(torch, program).split("\n\nFor more")[0].replace("torch.Tensor.sin", "torch.sin")
    ours = refused(pb, program).replace(
        "takes 1 positional arguments", "takes 1 positional argument"
    )
    assert ours == text.replace("'torch.", "'pullback.")


ATTRIBUTES = [
    *(f"x.is_{kind}" for kind in ("sparse", "sparse_csr", "quantized", "nested", "mkldnn", "mps")),
    *(f"x.is_{kind}" for kind in ("xla", "ipu", "xpu", "meta", "cpu", "cuda")),
    "x.layout",
    "x.layout is lib.strided",
    "lib.sparse_coo",
    "lib.zeros(2, layout=lib.strided)",
    "lib.zeros(2, layout=1)",
    "lib.zeros_like(x, layout='strided')",
    "lib.arange(3, layout=lib.strided)",
    "lib.layout()",
    "x.new()",
    "x.new(2, 3).shape",
    "x.new([1, 2])",
    "x.new(lib.Size([2, 3])).shape",
    "x.new(x)",
    "x.new(1.5)",
    "x.new('a')",
    "k.new([1, 2])",
    "k.new([1.5])",
    "lib.Tensor(lib.Size([2, 3])).shape",
    "lib.Tensor(1.5)",
    "lib.Tensor('a')",
    "lib.Tensor(size=(2, 3)).shape",
    "x.dim_order()",
    "x.T.dim_order()",
    "lib.ones(1, 3, 1, 2).dim_order()",
    "lib.ones(1, 3, 4, 2).to(memory_format=lib.channels_last).dim_order()",
    "lib.ones(2, 3).expand(4, 2, 3).dim_order()",
    "lib.ones(2, 3).expand(4, 2, 3).dim_order(ambiguity_check=True)",
    "lib.ones(1, 3, 4, 2).dim_order(ambiguity_check=True)",
    "lib.ones(1, 3, 4, 2).dim_order(ambiguity_check=[lib.contiguous_format, lib.channels_last])",
    "lib.ones(2, 3, 4).permute(2, 0, 1).dim_order(ambiguity_check=True)",
    "x.dim_order(ambiguity_check=5)",
    "x.is_set_to(x), x.is_set_to(x[:]), x.is_set_to(x.T), x.is_set_to(x.clone())",
    "x.is_set_to(1)",
    "x.is_distributed()",
    "x.sparse_dim(), x.dense_dim()",
    "x.is_coalesced()",
    "x.indices()",
    "x.values()",
    "x.to_dense() is x",
    "x.resize(3, 2)",
    "x.resize(7)",
    "x.resize_as(lib.ones(3, 2))",
    "x.apply_(lambda v: 2 * v)",
    "x.T.apply_(lambda v: v + 1)",
    "k.apply_(lambda v: 2.5)",
    "x.apply_(lambda v: 'a')",
    "x.apply_(3)",
    "lib.ones(2, requires_grad=True).apply_(lambda v: v)",
    "x.map_(lib.arange(3.), lambda a, b: a + b)",
    "x.map_(k, lambda a, b: a)",
    "x.map_(3, lambda a, b: a)",
    "x.map2_(x, x, lambda a, b, c: a + b * c)",
    "x.map2_(k, x, lambda a, b, c: a)",
    "lib.get_device(x)",
    "lib.get_device(1)",
    "lib.legacy_contiguous_format",
    "lib.Size([1, 2]) + (3,)",
    "(3,) + lib.Size([1, 2])",
    "lib.Size([1]) + [1]",
    "2 * lib.Size([1, 2])",
    "lib.Size([1, 2, 3])[1:]",
    "lib.Size([1.5])",
    "lib.Size('ab')",
    "lib.Size([2**70])",
    "lib.Size((k[0], True))",
    "lib.Size(5)",
    "list(reversed(k))",
    "x.module_load(lib.zeros(2, 3))",
    "lib.nn.functional.one_hot(input=k)",
    "lib.nn.functional.gumbel_softmax(logits=x).shape",
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", ATTRIBUTES)
def test_attributes_are_those_of_torch(program):
    def outcome(lib):
        names = {"lib": lib, "x": lib.ones(2, 3), "k": lib.tensor([1, 2])}
        try:
            return repr(eval(program, names))
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    assert outcome(pb) == outcome(torch).replace("torch.", "pullback.")
