"""Graph nodes and edges as the user sees them: names, links, metadata, sequence numbers."""

import threading
import weakref

import pytest

import pullback as pb

Node = pb.autograd.graph.Node
GradientEdge = pb.autograd.graph.GradientEdge
get_gradient_edge = pb.autograd.graph.get_gradient_edge
F = pb.nn.functional


def leaf(*values, dtype=pb.float64):
    return pb.tensor(list(values), dtype=dtype, requires_grad=True)


def square():
    return pb.ones(2, 2, requires_grad=True)


NAMES = [
    ("AddBackward0", lambda x: x + 1),
    ("AddBackward0", lambda x: x + x),
    ("SubBackward0", lambda x: x - x),
    ("RsubBackward1", lambda x: 1 - x),
    ("MulBackward0", lambda x: x * 2),
    ("DivBackward0", lambda x: x / x),
    ("NegBackward0", lambda x: -x),
    ("PowBackward0", lambda x: x**2),
    ("PowBackward1", lambda x: x**x),
    ("ExpBackward0", lambda x: x.exp()),
    ("LogBackward0", lambda x: x.log()),
    ("TanhBackward0", lambda x: x.tanh()),
    ("SigmoidBackward0", lambda x: x.sigmoid()),
    ("ReluBackward0", lambda x: x.relu()),
    ("ReluBackward0", F.relu),
    ("SqrtBackward0", lambda x: x.sqrt()),
    ("AbsBackward0", lambda x: x.abs()),
    ("SumBackward0", lambda x: x.sum()),
    ("SumBackward1", lambda x: x.sum(0)),
    ("MeanBackward0", lambda x: x.mean()),
    ("MeanBackward1", lambda x: x.mean(1)),
    ("AmaxBackward0", lambda x: x.amax(0)),
    ("MmBackward0", lambda x: x.mm(x)),
    ("MmBackward0", lambda x: x @ x),
    ("MvBackward0", lambda x: x @ x[0]),
    ("BmmBackward0", lambda x: x[None].bmm(x[None])),
    ("AddmmBackward0", lambda x: pb.addmm(x, x, x)),
    ("ViewBackward0", lambda x: x.view(4)),
    ("ViewBackward0", lambda x: x.reshape(4)),
    ("TBackward0", lambda x: x.t()),
    ("TransposeBackward0", lambda x: x.transpose(0, 1)),
    ("PermuteBackward0", lambda x: x.permute(1, 0)),
    ("ExpandBackward0", lambda x: x.expand(3, 2, 2)),
    ("SqueezeBackward0", lambda x: x.squeeze()),
    ("SqueezeBackward1", lambda x: x.squeeze(0)),
    ("UnsqueezeBackward0", lambda x: x.unsqueeze(0)),
    ("SelectBackward0", lambda x: x[0]),
    ("SliceBackward0", lambda x: x[1:]),
    ("SliceBackward0", lambda x: x.narrow(0, 0, 1)),
    ("IndexBackward0", lambda x: x[pb.tensor([0])]),
    ("IndexSelectBackward0", lambda x: x.index_select(0, pb.tensor([0]))),
    ("GatherBackward0", lambda x: x.gather(0, pb.tensor([[0, 1]]))),
    ("IndexPutBackward0", lambda x: x.index_put((pb.tensor([0]),), pb.tensor(1.0))),
    ("CatBackward0", lambda x: pb.cat([x, x])),
    ("StackBackward0", lambda x: pb.stack([x, x])),
    ("WhereBackward0", lambda x: pb.where(x > 0, x, x)),
    ("MaskedFillBackward0", lambda x: x.masked_fill(x > 0, 0.0)),
    ("CloneBackward0", lambda x: x.clone()),
    ("CloneBackward0", lambda x: x.t().contiguous()),
    ("ToCopyBackward0", lambda x: x.to(pb.float64)),
    ("SoftmaxBackward0", lambda x: x.softmax(0)),
    ("LogSoftmaxBackward0", lambda x: x.log_softmax(0)),
    ("NllLossBackward0", lambda x: F.nll_loss(x, pb.tensor([0, 1]))),
    ("UnbindBackward0", lambda x: x.unbind()[0]),
    ("SplitBackward0", lambda x: x.split(1)[0]),
    ("SplitBackward0", lambda x: x.chunk(2)[0]),
]


@pytest.mark.parametrize(("name", "op"), NAMES, ids=[f"{i}-{n[0]}" for i, n in enumerate(NAMES)])
def test_name_of_node(name, op):
    node = op(square()).grad_fn
    assert node.name() == name
    assert repr(node).startswith(f"<{name} object at 0x")
    assert isinstance(node, Node)


def test_name_that_depends_on_arguments_a_node_does_not_keep():
    # Next to each node that keeps none in memory is another one, which four others hold.
    x = square()
    kept = [(y, y + 1, y + 2, y + 3) for y in (x.sum() for _ in range(200))]
    assert {row[0].grad_fn.name() for row in kept} == {"SumBackward0"}


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("RsubBackward0", lambda x: pb.rsub(x, x)),
        ("PowBackward2", lambda x: 2**x),
        ("MulBackward0", lambda x: 1 / x),
        ("SumBackward1", lambda x: x.sum(())),
        ("SqueezeBackward2", lambda x: x.squeeze((0, 1))),
        ("SplitWithSizesBackward0", lambda x: x.split([1, 1])[0]),
        ("DotBackward0", lambda x: x[0] @ x[1]),
        ("UnsafeViewBackward0", lambda x: x.t().reshape(4)),
        ("MaskedFillBackward1", lambda x: x.masked_fill(x > 0, x[0, 0])),
        ("AddmmBackward0", lambda x: F.linear(x, x, x[0])),
        (
            "NllLoss2DBackward0",
            lambda x: F.nll_loss(x[None], pb.zeros(1, 2, dtype=pb.int64)),
        ),
    ],
)
def test_node_names_tell_overloads_apart(name, op):
    y = op(square())
    node = y.grad_fn
    assert node.name() == name
    y.sum().backward()
    assert node.name() == name  # also when what it kept is freed


SECOND_NAMES = [
    ("DivBackward1", lambda x: x.mean()),
    ("SoftmaxBackwardDataBackward0", lambda x: x.softmax(0)),
    ("LogSoftmaxBackwardDataBackward0", lambda x: x.log_softmax(0)),
    ("SelectBackwardBackward0", lambda x: x[0]),
    ("SliceBackwardBackward0", lambda x: x.narrow(0, 1, 2)),
    ("UnfoldBackwardBackward0", lambda x: x.unfold(0, 2, 1)),
    ("GeluBackwardBackward0", F.gelu),
    ("GeluBackwardBackward0", lambda x: F.gelu(x, approximate="tanh")),
    ("MaxPool2DWithIndicesBackwardBackward0", lambda x: F.max_pool2d(x.view(1, 2, 2), 2)),
]


@pytest.mark.parametrize(("name", "op"), SECOND_NAMES)
def test_name_of_the_node_of_a_derivative(name, op):
    x = leaf(0.5, 1.0, 2.0, 3.0)
    y = op(x)
    weights = pb.ones(y.shape, dtype=y.dtype, requires_grad=True)
    node = pb.autograd.grad(y, x, weights, create_graph=True)[0].grad_fn
    while node.name() == "ViewBackward0":
        node = node.next_functions[0][0]
    assert node.name() == name


def test_accumulator_node():
    x = leaf(1.0)
    node = (x * 2).grad_fn.next_functions[0][0]
    assert node.name().endswith("AccumulateGrad")
    assert repr(node).startswith("<AccumulateGrad object at 0x")
    assert isinstance(node, Node)
    assert node.variable is x
    assert node.next_functions == ()


def test_node_is_abstract():
    with pytest.raises(TypeError):
        Node()


def test_next_functions_lead_to_the_inputs_in_order():
    x, y = leaf(1.0), leaf(2.0)
    a, (b, c) = x * y, (x.expand(2) * 1).unbind()
    node = (a * c).grad_fn
    assert node.next_functions == ((a.grad_fn, 0), (c.grad_fn, 1))
    assert [f.variable for f, _ in a.grad_fn.next_functions] == [x, y]
    assert b.grad_fn is c.grad_fn
    assert (b.output_nr, c.output_nr) == (0, 1)


def test_next_functions_hold_none_where_no_gradient_flows():
    x, c = leaf(1.0), pb.ones(1)
    assert (c * x).grad_fn.next_functions[0] == (None, 0)
    assert (x * 2).grad_fn.next_functions[1:] == ((None, 0),)
    assert len((-x).grad_fn.next_functions) == 1
    assert len(pb.cat([x, x, x]).grad_fn.next_functions) == 3


def test_repeated_reads_give_the_same_object():
    y = leaf(1.0) * 2
    assert y.grad_fn is y.grad_fn
    assert (y + 1).grad_fn.next_functions[0][0] is y.grad_fn


def test_node_keeps_its_graph_alive():
    x = leaf(3.0)
    node = (x * x * 2).grad_fn
    inner = node.next_functions[0][0]
    assert inner.name() == "MulBackward0"
    assert inner.next_functions[0][0].variable is x
    edge = GradientEdge(node, 0)
    assert pb.autograd.grad(edge, x, pb.ones(1))[0].tolist() == [12.0]


def test_accumulator_keeps_its_leaf_alive():
    node = (leaf(1.0, 2.0) * 2).grad_fn.next_functions[0][0]
    assert node.variable.tolist() == [1.0, 2.0]


def test_accumulator_of_a_second_use_is_as_new():
    x = leaf(1.0, 2.0)
    calls = []
    (x * 2).grad_fn.next_functions[0][0].register_hook(lambda *grads: calls.append(grads))
    x.data = pb.zeros(3)  # while there is none
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    assert calls == []
    left = weakref.ref(x)
    del x
    assert left() is None


# Metadata


def test_metadata_is_a_dict_of_the_node():
    y, z = leaf(1.0) * 2, leaf(1.0) * 2
    assert y.grad_fn.metadata == {}
    y.grad_fn.metadata["key"] = [1]
    assert y.grad_fn.metadata == {"key": [1]}
    assert z.grad_fn.metadata == {}


def test_input_metadata_describes_the_outputs():
    parts = pb.ones(2, 3, dtype=pb.float32, requires_grad=True).unbind(1)
    described = parts[0].grad_fn._input_metadata
    assert len(described) == 3
    for entry, part in zip(described, parts, strict=True):
        assert tuple(entry.shape) == (2,)
        assert entry.dtype == pb.float32
        assert entry.device == part.device
        assert not entry.is_nested_tensor


def test_sequence_numbers_grow_with_creation():
    x = leaf(1.0)
    nodes = [(x * 2).grad_fn for _ in range(3)]
    numbers = [node._sequence_nr() for node in nodes]
    assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
    assert nodes[0].next_functions[0][0]._sequence_nr() == 2**64 - 1


def test_sequence_numbers_start_at_zero_in_each_thread():
    numbers = []

    def run():
        x = leaf(1.0)
        numbers.extend([(x * 2).grad_fn._sequence_nr(), (x + 1).grad_fn._sequence_nr()])

    for _ in range(2):
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert numbers == [0, 1, 0, 1]


def test_custom_function_takes_part():
    class MyF(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g, g

    x = leaf(1.0)
    node = MyF.apply(x, pb.ones(1)).grad_fn
    assert node.name() == "MyFBackward"
    assert "MyFBackward" in repr(node)
    assert node.next_functions[0][0].variable is x
    assert node.next_functions[1] == (None, 0)
    assert node._sequence_nr() < (x * 2).grad_fn._sequence_nr()
    node.metadata["key"] = 1
    assert node.metadata == {"key": 1}


# Edges


def test_edge_of_leaf_and_of_result():
    x = leaf(1.0, 2.0)
    y = x * 2
    assert get_gradient_edge(x)[:2] == (y.grad_fn.next_functions[0][0], 0)
    assert get_gradient_edge(y)[:2] == (y.grad_fn, 0)
    part = (x * 2).unbind()[1]
    edge = get_gradient_edge(part)
    assert isinstance(edge, GradientEdge)
    assert (edge.node, edge.output_nr) == (part.grad_fn, 1)
    assert GradientEdge(y.grad_fn, 0).ownership_token is None


def test_edge_needs_a_gradient():
    with pytest.raises(RuntimeError, match="It is not possible to get the gradient edge"):
        get_gradient_edge(pb.ones(1))
    with pytest.raises((TypeError, AttributeError)):
        get_gradient_edge(3)


def test_edge_of_view_after_a_write_is_the_new_one():
    base = leaf(1.0, 2.0) * 1
    view = base[:1]
    old = get_gradient_edge(view).node
    base.mul_(2)
    assert get_gradient_edge(view).node is not old


# ---- calling a node ------------------------------------------------------------------------------


def test_call_runs_the_formula():
    x = pb.tensor([3.0], requires_grad=True)
    first, second = (x * x).grad_fn(pb.tensor([2.0]))
    assert (first.tolist(), second.tolist()) == ([6.0], [6.0])
    assert first.requires_grad
    assert x.exp().grad_fn(None) is None
    assert x.grad is None


def test_call_of_an_accumulator_accumulates():
    x = pb.tensor([3.0], requires_grad=True)
    node = pb.autograd.graph.get_gradient_edge(x).node
    assert node(pb.tensor([2.0])) == ()
    assert x.grad.tolist() == [2.0]


def test_call_of_a_node_of_several_outputs():
    x = pb.ones(2, 2, requires_grad=True)
    assert x.unbind()[0].grad_fn(None, pb.tensor([1.0, 2.0])).tolist() == [[0, 0], [1, 2]]


@pytest.mark.parametrize(
    ("grads", "error", "message"),
    [
        ((), TypeError, "expected 1 arguments, got 0 instead"),
        ((pb.ones(1), pb.ones(1)), TypeError, "expected 1 arguments, got 2 instead"),
        ((1.0,), TypeError, "argument 0 is not a Tensor but float"),
        ((pb.ones(3),), RuntimeError, r"output 0 must have shape \[1\], got \[3\]"),
    ],
)
def test_call_with_wrong_gradients(grads, error, message):
    with pytest.raises(error, match="MulBackward0: .*" + message):
        (pb.ones(1, requires_grad=True) * 2).grad_fn(*grads)


def test_call_after_the_graph_was_freed():
    x = pb.tensor([3.0], requires_grad=True)
    y = x * x
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.grad_fn(pb.ones(1))


def test_dir_lists_saved_values():
    x = pb.tensor([3.0], requires_grad=True)
    assert {"_saved_result", "_raw_saved_result"} <= set(dir(x.exp().grad_fn))


AT = pb.tensor([0, 2])
WRITTEN_COPIES = {
    "scatter": lambda x: x.scatter(0, AT, 1.0),
    "scatter_add": lambda x: x.scatter_add(0, AT, pb.ones(2)),
    "scatter_reduce": lambda x: x.scatter_reduce(0, AT, pb.ones(2), "prod"),
    "index_add": lambda x: x.index_add(0, AT, pb.ones(2)),
    "index_copy": lambda x: x.index_copy(0, AT, pb.ones(2)),
    "index_fill": lambda x: x.index_fill(0, AT, 1.0),
    "index_reduce": lambda x: x.index_reduce(0, AT, pb.ones(2), "prod"),
    "index_put": lambda x: x.index_put((AT,), pb.ones(2)),
    "put": lambda x: x.put(AT, pb.ones(2)),
}


@pytest.mark.parametrize("write", WRITTEN_COPIES.values(), ids=WRITTEN_COPIES)
def test_a_copy_that_is_written_has_one_node(write):
    leaf = pb.tensor([1.0, 2.0, 3.0], requires_grad=True)
    assert write(leaf).grad_fn.next_functions[0][0].variable is leaf
    doubled = leaf * 2
    assert write(doubled).grad_fn.next_functions[0] == (doubled.grad_fn, 0)
    assert doubled.tolist() == [2, 4, 6]
