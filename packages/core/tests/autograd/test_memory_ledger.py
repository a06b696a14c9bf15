"""The ledger of what a graph's saved values hold."""

import json
import weakref

import pytest

import pullback as pb
from pullback.autograd.diagnostics.records import KEY, Site
from pullback.autograd.graph import (
    get_gradient_edge,
    memory,
    save_on_cpu,
    saved_tensors_hooks,
)

F32 = 4


def leaf(*shape):
    return pb.ones(*shape, requires_grad=True)


def test_bytes_are_divided_by_op_and_node():
    x = leaf(100)
    ledger = memory((x.exp().sin() * 2).sum())
    assert ledger.total == 100 * F32  # saved by exp and by sin
    assert ledger.by_op == {"sin": ledger.total}
    assert [name.partition(" #")[0] for name in ledger.by_node] == ["SinBackward0"]
    assert ledger.by_line == {"unknown": ledger.total}
    assert ledger.leaves == ledger.elsewhere == ledger.packed == 0


def test_leaves_and_tensors_of_the_program_are_told_apart():
    x, w, data = leaf(100), leaf(100), pb.ones(100)
    h = x * w * data  # saves all three
    loss = (h * h).sum()
    ledger = memory(loss)
    assert (ledger.total, ledger.leaves, ledger.elsewhere) == (0, 800, 800)
    view = h[:10]
    del h
    assert memory(loss).elsewhere == 800  # the view holds all of it
    del view
    assert (memory(loss).total, memory(loss).elsewhere) == (400, 400)


@pytest.mark.parametrize("alias", [lambda t: t.detach(), lambda t: t.data])
def test_aliases_hold_memory(alias):
    y = leaf(100).exp()
    loss, other = y.sum(), alias(y)
    del y
    assert memory(loss).elsewhere == 400
    del other
    assert (memory(loss).total, memory(loss).elsewhere) == (400, 0)


def test_views_over_one_memory_are_counted_once():
    a, b = leaf(100).exp().split(50)
    loss = (a.sin() + b.sin()).sum()
    del a, b
    assert memory(loss).total == 400


def test_several_roots_and_edges():
    y = leaf(100).exp()
    first, second = y.sin().sum(), y.cos().sum()
    del y
    assert memory([first, get_gradient_edge(second)]).total == 400
    assert memory(first).total == 0  # the second graph has it, too
    assert memory(first).elsewhere == 400


def test_total_is_what_dropping_the_graph_frees():
    if not pb.memory_stats()["allocated_bytes.all.current"]:
        pytest.skip("the device does not count its memory")

    def make():
        w = pb.rand(64, 64).requires_grad_()
        h = pb.rand(32, 64)
        for _ in range(4):
            h = (h @ w).tanh() * w[0]
        return w, h.square().sum()

    w, loss = make()
    expected = memory(loss).total + loss.element_size()
    before = pb.memory_stats()["allocated_bytes.all.current"]
    del loss
    assert before - pb.memory_stats()["allocated_bytes.all.current"] == expected > 0
    assert w.requires_grad


class Keeps(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x * 2)
        ctx.extra = x + 1
        ctx.more = [x + 2, "text"]
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad


def test_custom_functions_and_their_attributes():
    ledger = memory(Keeps.apply(leaf(100)))
    assert ledger.by_op == {"KeepsBackward": 1200}


def test_writes_to_views_are_counted():
    y = leaf(100).clone()
    y[:50].mul_(leaf(50).exp())
    assert memory(y.sum()).total == 2 * 50 * F32  # both factors


def test_values_packed_by_hooks():
    with saved_tensors_hooks(lambda t: t.tolist(), pb.tensor):
        y = leaf(100).exp()
    assert (memory(y).packed, memory(y).total) == (1, 0)
    assert "packed by a hook: 1" in str(memory(y))
    with saved_tensors_hooks(lambda t: t.to(pb.float16), lambda t: t.to(pb.float32)):
        y = leaf(100).exp()
    assert (memory(y).packed, memory(y).total) == (0, 200)
    with save_on_cpu():
        y = leaf(100).exp().sin()
    assert memory(y).total == 400


def test_reading_runs_no_hook_and_checks_no_version():
    def unpack(packed):
        raise AssertionError("unpacked")

    with saved_tensors_hooks(lambda t: t, unpack):
        y = leaf(100).exp()
    assert memory(y.sum()).packed == 0
    x = leaf(100).clone()
    loss = (x * x).sum()
    with pb.no_grad():
        x.zero_()
    version = x._version
    assert memory(loss).elsewhere == 400
    assert x._version == version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_lines_of_anomaly_mode_and_of_notes():
    with pb.autograd.set_detect_anomaly(True):
        loss = leaf(100).exp().sum()
    (line,) = memory(loss).by_line
    assert "test_memory_ledger.py:" in line
    assert line.endswith(", in test_lines_of_anomaly_mode_and_of_notes")
    loss = leaf(100).exp().sum()
    loss.grad_fn.next_functions[0][0].metadata[KEY] = Site("model.py", 7, "forward")
    assert memory(loss).by_line == {"model.py:7, in forward": 400}
    assert "model.py:7, in forward" in str(memory(loss))


def test_ledger_keeps_nothing_alive(no_gc):
    loss = leaf(100).exp().sum()
    ledger = memory(loss)
    note = loss.grad_fn.metadata["note"] = pb.ones(1)
    note = weakref.ref(note)
    assert note() is not None
    del loss
    assert note() is None
    assert ledger.total == 400


def test_text_and_dict():
    loss = (leaf(1024).exp() * 2).sum()
    ledger = memory(loss)
    assert json.loads(json.dumps(ledger.to_dict()))["by_op"] == {"exp": 4096}
    assert "|     4096 B   | exp" in str(ledger).splitlines()
    assert repr(ledger) == "<MemoryLedger: 4096 bytes in 4 nodes>"


def test_checkpoint_counts_what_only_the_block_holds():
    x = leaf(100) * 1

    def block(x):
        return x.exp().sin().cos()

    y = block(x)
    loss = y.square().sum()
    ledger = memory(loss)
    assert ledger.total == 800  # of exp and of sin; y itself is a variable
    assert ledger.checkpoint(x, y) == 800
    assert ledger.checkpoint([x], get_gradient_edge(y)) == 800
    assert ledger.checkpoint((pb.ones(1), x), y) == 800  # data does not require grad
    assert memory(loss).checkpoint(y, y) == 0
    other = block(leaf(100))
    with pytest.raises(RuntimeError, match="are not of the graph"):
        ledger.checkpoint(pb.ones(1), other)
    for inputs, output in ((leaf(1), other), (y, x), ([leaf(1), pb.ones(1)], y)):
        with pytest.raises(RuntimeError, match="the output does not depend on the inputs"):
            ledger.checkpoint(inputs, output)


def test_checkpoint_keeps_what_others_saved():
    h = leaf(100).exp()
    y = h.sin()
    loss = (y * h.cos()).sum()
    ledger = memory(loss)
    assert ledger.checkpoint(h, y) == 0  # the input is kept
    h2 = leaf(100) * 1
    inner = h2.exp()
    y2 = inner.sin()
    loss2 = (y2 + inner.cos()).sum()
    del inner
    assert memory(loss2).total == 400
    assert memory(loss2).checkpoint(h2, y2) == 0  # cos has saved it, too


def test_save_on_cpu_frees_nothing_on_the_host():
    saving = memory(leaf(100).exp().sum()).save_on_cpu()
    assert saving.nbytes == 0
    assert "host memory already" in saving.why


def test_long_chains_do_not_recurse():
    h = leaf(2)
    for _ in range(20_000):
        h = h.sin()
    assert memory(h).nodes == 20_001


@pytest.mark.parametrize("wrong", [3, "x", [pb.ones(1, requires_grad=True), None]])
def test_wrong_roots(wrong):
    with pytest.raises(TypeError, match=r"memory\(\): expected a Tensor"):
        memory(wrong)


def test_root_without_a_graph():
    with pytest.raises(RuntimeError, match="does not require grad"):
        memory(pb.ones(1))


def test_a_checkpoint_holds_its_arguments():
    x, scale = pb.ones(256, requires_grad=True), pb.ones(256)
    h = x.exp()
    y = pb.utils.checkpoint.checkpoint(lambda h, s: (h * s).exp().sin(), h, scale)
    ledger = memory(y.sum())
    assert (ledger.total, ledger.elsewhere, ledger.packed) == (0, 2048, 0)
    del h
    ledger = memory(y.sum())
    assert ledger.by_op["CheckpointInputsBackward"] == ledger.total == 1024
    y.sum().backward()
    assert memory((x * 1).sum()).total == 0
