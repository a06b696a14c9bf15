"""Saved-tensor hooks that compose, and that select what they pack."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback._c.base import state
from pullback.autograd import graph
from pullback.autograd.graph import save_on_cpu, saved_tensors_hooks
from pullback.utils.checkpoint import checkpoint


class Recorder:
    """Makes pairs of hooks that note their calls."""

    def __init__(self):
        self.calls = []

    def pair(self, name, change=lambda t: t * 1, restore=lambda t: t, **options):
        def pack(tensor):
            self.calls.append(f"pack {name}")
            return change(tensor)

        def unpack(packed):
            self.calls.append(f"unpack {name}")
            return restore(packed)

        return saved_tensors_hooks(pack, unpack, **options)

    def run(self, function, *pairs):
        """Return the gradient of the function's sum at [1, 2, 3, 4], recorded inside the pairs."""
        x = pb.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
        with contextlib.ExitStack() as stack:
            for pair in pairs:
                stack.enter_context(pair)
            y = function(x)
        assert state.saved_tensor_hooks() is None
        y.sum().backward()
        return x.grad


@pytest.fixture
def record():
    return Recorder()


def test_innermost_pair_alone_by_default(record):
    record.run(pb.exp, record.pair("outer"), record.pair("inner"))
    assert record.calls == ["pack inner", "unpack inner"]


def test_composed_pairs_pack_outwards_and_unpack_inwards(record):
    pairs = record.pair("a"), record.pair("b", compose=True), record.pair("c", compose=True)
    found = record.run(pb.exp, *pairs)
    assert record.calls == ["pack c", "pack b", "pack a", "unpack a", "unpack b", "unpack c"]
    assert found.equal(pb.tensor([1.0, 2.0, 3.0, 4.0]).exp())


def test_the_enclosing_pair_decides_how_far_it_goes(record):
    record.run(pb.exp, record.pair("a"), record.pair("b"), record.pair("c", compose=True))
    assert record.calls[:2] == ["pack c", "pack b"]
    assert len(record.calls) == 4


def test_other_objects_than_tensors_are_kept(record):
    inner = record.pair("list", lambda t: t.tolist(), pb.tensor, compose=True)
    found = record.run(pb.exp, record.pair("outer"), inner)
    assert record.calls == ["pack list", "unpack list"]
    assert found.equal(pb.tensor([1.0, 2.0, 3.0, 4.0]).exp())


def test_other_objects_of_an_enclosing_pair(record):
    outer = record.pair("list", lambda t: t.tolist(), pb.tensor)
    record.run(pb.exp, outer, record.pair("inner", compose=True))
    assert record.calls == ["pack inner", "pack list", "unpack list", "unpack inner"]


def test_an_enclosing_unpack_hook_must_return_a_tensor(record):
    outer = record.pair("outer", restore=lambda t: 3)
    with pytest.raises(TypeError, match="expected to be a Tensor"):
        record.run(pb.exp, outer, record.pair("inner", compose=True))


@pytest.mark.parametrize("ops", ["mul", ["mul"], ("exp", "MulBackward0"), {"MulBackward7"}])
def test_ops_are_selected_by_their_names_or_nodes(record, ops):
    record.run(lambda x: (x * x).sin(), record.pair("a", ops=ops))
    assert record.calls == ["pack a", "pack a", "unpack a", "unpack a"]


def test_in_place_forms_have_the_name_of_their_op(record):
    record.run(lambda x: x.clone().mul_(x.detach()), record.pair("a", ops="mul"))
    assert record.calls == ["pack a", "unpack a"]


def test_other_names_of_an_op_are_its_names(record):
    record.run(lambda x: (x * x).sin(), record.pair("a", ops="multiply"))
    assert record.calls == ["pack a", "pack a", "unpack a", "unpack a"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("conv2d", "'conv2d' is composed of other ops, which save its tensors"),
        ("layer_norm", "'layer_norm' is composed of other ops"),
        ("softmx", "no op has the name 'softmx'; graph.memory"),
        ("entry", "no op has the name 'entry'"),
    ],
)
def test_names_that_would_take_nothing_are_refused(record, name, message):
    with pytest.raises(ValueError, match=f"saved_tensors_hooks\\(\\): argument 'ops': {message}"):
        record.pair("a", ops=["mul", name])


@pytest.mark.parametrize(
    "call",
    [
        lambda x: pb.nn.functional.softmax(x, 0),
        lambda x: pb.nn.functional.layer_norm(x, (4,)),
        lambda x: pb.nn.functional.conv1d(x.view(1, 1, 4), pb.ones(1, 1, 2)),
        lambda x: pb.nn.functional.gelu(x),
        lambda x: x @ pb.ones(4, 4),
    ],
)
def test_names_of_the_ledger_select_what_it_lists(record, call):
    names = list(pb.autograd.graph.memory(call(pb.ones(4, requires_grad=True))).by_op)
    record.run(call, record.pair("a", ops=names))
    assert bool(names) <= bool(record.calls)


class Cube(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x * x * grad


def test_custom_functions_are_selected_by_their_node(record):
    found = record.run(lambda x: Cube.apply(x).exp(), record.pair("a", ops="CubeBackward"))
    assert record.calls == ["pack a", "unpack a"]
    found = record.run(Cube.apply, record.pair("a", ops="exp"))
    assert len(record.calls) == 2
    assert found.tolist() == [3, 12, 27, 48]


def test_sizes_and_predicates_select(record):
    record.run(lambda x: x[:2].exp().sum() * x.exp(), record.pair("a", min_bytes=16, ops="exp"))
    assert record.calls == ["pack a", "unpack a"]
    record.calls.clear()
    seen = []
    chosen = record.pair("a", predicate=lambda t: seen.append(t.shape) or t.dim() == 2)
    record.run(lambda x: x.exp().reshape(2, 2).exp(), chosen)
    assert record.calls == ["pack a", "unpack a"]
    assert [len(shape) for shape in seen] == [1, 2]


def test_what_is_not_taken_goes_to_the_enclosing_pair(record):
    for compose in (False, True):
        record.calls.clear()
        inner = record.pair("inner", ops="sin", compose=compose)
        record.run(pb.exp, record.pair("outer"), inner)
        assert record.calls == ["pack outer", "unpack outer"]


def test_what_none_takes_is_saved_as_without_hooks(record):
    x = pb.ones(3, requires_grad=True).clone()
    with record.pair("a", ops="sin"), record.pair("b", ops="cos"):
        y = x * x
    assert record.calls == []
    with pb.no_grad():
        x.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_tensors_in_tuples(record):
    index = pb.tensor([0, 2])
    taken = record.run(lambda x: x[index].exp(), record.pair("a", ops="index"))
    assert record.calls == ["pack a", "unpack a"]
    record.calls.clear()
    plain = record.run(lambda x: x[index].exp(), record.pair("a", ops="sin"))
    assert record.calls == []
    assert taken.equal(plain)

    x = pb.ones(3, requires_grad=True)
    with record.pair("a", ops="sin"):
        y = x[index].sum()
    index.add_(-1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_save_on_cpu_composes(record):
    found = record.run(pb.exp, record.pair("outer"), save_on_cpu(compose=True, min_bytes=16))
    assert record.calls == ["pack outer", "unpack outer"]
    record.calls.clear()
    other = record.run(pb.exp, save_on_cpu(), record.pair("inner", compose=True))
    assert record.calls == ["pack inner", "unpack inner"]
    assert found.equal(other)


def test_checkpoints(record):
    def block(x):
        with record.pair("inner", compose=True, ops=["mul"]):
            return (x * x).exp()

    plain = record.run(block)
    record.calls.clear()
    outside = record.pair("outer", compose=True)
    assert record.run(lambda x: checkpoint(block, x), outside).equal(plain)
    # the argument and, inside, the factors twice: the second time when the block runs again
    assert record.calls.count("pack outer") == record.calls.count("unpack outer") == 1
    assert record.calls.count("pack inner") == 4
    assert record.calls.count("unpack inner") == 2


def test_mutation_is_allowed_outside(record):
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    with graph.allow_mutation_on_saved_tensors():
        y = x.clone()
        with record.pair("a", compose=True, change=lambda t: t):
            z = (y * y).sum()
        with pb.no_grad():
            y.zero_()
        z.backward()
    assert x.grad.tolist() == [2, 4]
    assert record.calls.count("pack a") == 2


def test_exceptions_leave_the_stack(record):
    def fail(tensor):
        raise ValueError("no")

    x = pb.ones(2, requires_grad=True)
    with record.pair("outer"):
        for options in ({"compose": True}, {"ops": "exp"}, {"predicate": fail}):
            before = state.saved_tensor_hooks()
            with pytest.raises(ValueError, match="no"), record.pair("a", fail, **options):
                x.exp()
            assert state.saved_tensor_hooks() is before
    assert state.saved_tensor_hooks() is None
    with graph.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError):
        record.pair("a", compose=True).__enter__()


def test_one_object_entered_twice(record):
    pair = record.pair("a", compose=True)
    record.run(pb.exp, pair, pair)
    assert record.calls == ["pack a", "pack a", "unpack a", "unpack a"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ops": 3}, "'ops' must be names of ops or nodes, not int"),
        ({"ops": [None]}, "'ops' must be names of ops or nodes, not NoneType"),
        ({"min_bytes": "1"}, "'min_bytes' must be int, not str"),
        ({"min_bytes": True}, "'min_bytes' must be int, not bool"),
        ({"compose": 1}, "'compose' must be bool, not int"),
        ({"predicate": 3}, "predicate must be callable, not int"),
    ],
)
def test_wrong_arguments(options, text):
    with pytest.raises(TypeError, match=text):
        saved_tensors_hooks(lambda t: t, lambda t: t, **options)
    with pytest.raises(TypeError, match=text):
        save_on_cpu(**options)


_PAIRS = st.lists(
    st.fixed_dictionaries(
        {
            "compose": st.booleans(),
            "ops": st.sampled_from([None, "mul", "exp", ["mul", "SinBackward0"]]),
            "min_bytes": st.sampled_from([0, 16, 17]),
        }
    ),
    max_size=4,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws slowly at first
@given(_PAIRS)
def test_no_nesting_changes_gradients(options):
    def function(x):
        return (x * x.sin()).exp() * x

    record = Recorder()
    pairs = [
        record.pair(k, lambda t, k=k: t * 2**k, lambda t, k=k: t / 2**k, **one)
        for k, one in enumerate(options)
    ]
    assert record.run(function, *pairs).equal(record.run(function))
    packs = [call for call in record.calls if call.startswith("pack")]
    unpacks = [call.removeprefix("un") for call in record.calls if call.startswith("unpack")]
    assert sorted(packs) == sorted(unpacks)
