"""record_sites: which lines and tensors are recorded, and what records keep alive."""

import copy
import gc
import subprocess
import sys
import threading
import weakref
from typing import ClassVar

import numpy as np
import pytest

import pullback as pb
from pullback.autograd.diagnostics.records import KEY
from pullback.autograd.graph import explain_grad, record_sites


def site_of(tensor):
    return tensor.grad_fn.metadata[KEY]


def test_nodes_have_the_line_of_the_user():
    x = pb.ones(2, requires_grad=True)
    with record_sites() as sites:
        y = x.exp() + 1
    line = site_of(y)
    assert line.file == __file__ and line.function == "test_nodes_have_the_line_of_the_user"
    assert y.grad_fn.next_functions[0][0].metadata[KEY] == line
    assert [record.op for record in sites.records] == ["exp", "add"]
    assert len(sites) == 2
    sites.clear()
    assert len(sites) == 0


def test_all_nodes_of_a_composed_op_have_its_line():
    x = pb.ones(2, 3, requires_grad=True)
    layer = pb.nn.Linear(3, 4)
    before = x * 2
    with record_sites() as sites:
        y = pb.nn.functional.mse_loss(layer(before).softmax(-1), pb.zeros(2, 4))
    waiting, nodes = [y.grad_fn], []
    while waiting:
        node = waiting.pop()
        if getattr(node, "variable", None) is None:
            nodes.append(node)
            waiting.extend(below for below, _ in node.next_functions if below is not None)
    assert len(nodes) >= 4
    assert [KEY in node.metadata for node in nodes] == [
        node.name() != "MulBackward0" for node in nodes
    ]
    assert {str(record.site) for record in sites.records} == {str(site_of(y))}


def test_writes_renew_what_is_known_of_a_tensor():
    x = pb.ones(2, requires_grad=True)
    with record_sites() as sites:
        y = pb.zeros(2)
        y.copy_(x)
        first = site_of(y)
        y.mul_(2)
        view = y[0:1]
        view.add_(1)
    assert site_of(y).line > first.line
    assert [record.op for record in sites.records] == [
        *("zeros", "copy_", "mul_", "__getitem__", "add_")
    ]
    assert set(sites.records[1].outputs) <= set(sites.records[2].inputs)


def test_a_write_under_no_grad_ends_history():
    x = pb.ones(2, requires_grad=True)
    with record_sites():
        buffer = pb.zeros(2)
        with pb.no_grad():
            buffer[:] = x
        loss = (buffer * pb.ones(1, requires_grad=True)).sum()
    found = explain_grad(x, loss)
    assert found.reason == "no_grad" and "__setitem__" in found.answer


def test_values_that_leave_and_come_back():
    x = pb.tensor([1.5, 2.25], requires_grad=True)
    with record_sites() as sites:
        number = float(x.detach().sum())
        array = x.detach().numpy()
        made = pb.full((2,), number)
        shared = pb.from_numpy(array)
        foreign = pb.from_numpy(np.ones(2))
    taken = {record.outputs[0]: record.inputs for record in sites.records if record.op != "numpy"}
    last = [record for record in sites.records if record.op in ("full", "from_numpy")]
    assert [bool(record.inputs) for record in last] == [True, True, False]
    assert taken and made.shape == shared.shape == foreign.shape


def test_forward_of_a_custom_function_is_no_end():
    class Double(pb.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    x = pb.ones(2, requires_grad=True)
    with record_sites() as sites:
        y = Double.apply(x)
        loss = (y.detach() * pb.ones(1, requires_grad=True)).sum()
    assert next(record.end for record in sites.records if record.op == "mul") is None
    assert explain_grad(x, loss).reason == "detach"
    assert explain_grad(x, y).status == "fine"


def test_masks_are_the_last_suspects():
    x = pb.ones(2, requires_grad=True)
    with record_sites():
        loss = (
            pb.where(x > 0, x.detach(), pb.zeros_like(x)).mul(pb.ones(1, requires_grad=True)).sum()
        )
    found = explain_grad(x, loss)
    assert found.reason == "detach"
    assert {end["reason"] for end in found.ends} == {"detach", "integer", "not_differentiable"}


def test_operators_ask_foreign_operands():
    x = pb.ones(2)
    with record_sites():
        assert (x != None, x == None) == (True, False)  # noqa: E711
        assert (x + np.ones(2)).tolist() == (np.ones(2) + x).tolist() == [2, 2]
        with pytest.raises(TypeError):
            x + "1"


def test_overrides_do_not_see_what_is_read():
    class Logged(pb.Tensor):
        calls: ClassVar = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    x = pb.ones(2).as_subclass(Logged)
    with record_sites():
        x.exp()
    assert Logged.calls == ["exp"]


def test_clear_lets_go_of_tensors():
    x, y = pb.ones(2), pb.zeros(2)
    with record_sites() as sites:
        x + y
    with pytest.raises(RuntimeError, match="weakref"):
        pb.utils.swap_tensors(x, y)
    sites.clear()
    pb.utils.swap_tensors(x, y)
    assert x.tolist() == [0, 0]


def test_decorator_and_nesting():
    @record_sites()
    def run(depth):
        x = pb.ones(1, requires_grad=True)
        return run(depth - 1) if depth else x * 2

    assert site_of(run(3)).function == "run"
    x = pb.ones(1, requires_grad=True)
    with record_sites() as outer:
        x * 2
        with record_sites() as inner:
            x * 3
        x * 4
    assert (len(outer), len(inner)) == (3, 1)


def test_threads_are_apart():
    x = pb.ones(1, requires_grad=True)
    found = []
    with record_sites() as sites:
        thread = threading.Thread(target=lambda: found.append((x * 2).grad_fn.metadata))
        thread.start()
        thread.join()
    assert found == [{}] and len(sites) == 0


def test_records_keep_no_tensor_alive():
    with record_sites() as sites:
        x = pb.ones(2, requires_grad=True)
        y = (x * 2).sum()
        values = x.detach().numpy()
        dead = [weakref.ref(item) for item in (x, y, values)]
        del x, y, values
        gc.collect()
        assert [ref() for ref in dead] == [None] * 3
    assert len(sites) == 5


def test_ids_that_are_used_again_are_other_tensors():
    with record_sites() as sites:
        for _ in range(50):
            pb.ones(2)
    outputs = [record.outputs[0] for record in sites.records]
    assert len(set(outputs)) == 50


def test_exceptions_close_the_block():
    with pytest.raises(ZeroDivisionError), record_sites():
        1 / 0
    assert not pb.overrides.has_torch_function_unary(pb.ones(1))


def test_nothing_is_imported_before_its_first_use():
    code = "import pullback, sys; print([m for m in sys.modules if 'diagnostics' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- results without a history -------------------------------------------------------------------

INDICES = {
    "max": lambda w: w.max(dim=1)[1],
    "min": lambda w: w.min(dim=1)[1],
    "sort": lambda w: w.sort(1)[1],
    "topk": lambda w: w.topk(1)[1],
    "median": lambda w: w.median(1)[1],
    "nanmedian": lambda w: w.nanmedian(1)[1],
    "mode": lambda w: w.mode(1)[1],
    "kthvalue": lambda w: w.kthvalue(1, 1)[1],
    "cummax": lambda w: w.cummax(1)[1],
    "cummin": lambda w: w.cummin(1)[1],
    "frexp": lambda w: pb.frexp(w)[1],
    "argmax": lambda w: w.argmax(1),
    "argsort": lambda w: w.argsort(1),
}


@pytest.mark.parametrize("name", INDICES)
def test_integer_results_have_no_history(name):
    w = pb.tensor([[1.0, 2.0, 4.0], [5.0, 3.0, 0.5]], requires_grad=True)
    with record_sites():
        picked = INDICES[name](w)
        loss = (picked == 0).float().mean()
    found = explain_grad(w, loss)
    assert found.reason == "integer", str(found)
    assert f"{name} (" in found.answer and __file__ in found.answer


def test_values_beside_the_indices_keep_their_history():
    w = pb.tensor([[1.0, 2.0], [5.0, 3.0]], requires_grad=True)
    with record_sites():
        values, indices = w.max(dim=1)
        cut = values.detach()
        loss = (cut * pb.ones(1, requires_grad=True)).sum()
    found = explain_grad(w, loss)
    assert found.reason == "detach" and indices.shape == (2,)
    assert all(end["reason"] == "detach" for end in found.ends)


COPIES = {
    "tensor": lambda w: pb.tensor([w[0] * 2, w[1]], requires_grad=True),
    "tensor of a tensor": lambda w: pb.tensor(w * 2, requires_grad=True),
    "tensor without grad": lambda w: pb.tensor([w[0] * 2, w[1]]),
    "nested lists": lambda w: pb.tensor([[w[0] * 2], [w[1]]], requires_grad=True),
    "full": lambda w: pb.full((2,), w[0] * 2, requires_grad=True),
    "new_tensor": lambda w: w.new_tensor(w * 2, requires_grad=True),
    "Parameter": lambda w: pb.nn.Parameter(w * 2),
    "Parameter of a name": lambda w: [h := w * 2, pb.zeros(3), pb.nn.Parameter(h)][2],
    "frozen Parameter": lambda w: pb.nn.Parameter(w * 2, requires_grad=False),
    "Parameter of a leaf": lambda w: pb.nn.Parameter(w),
}


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("name", COPIES)
def test_new_leaves_are_copies(name):
    w = pb.tensor([3.0, 1.0], requires_grad=True)
    with record_sites():
        loss = (COPIES[name](w) * pb.ones(1, requires_grad=True)).sum()
    found = explain_grad(w, loss)
    assert found.reason == "copy", str(found)
    assert "copied values into a new leaf" in found.answer and __file__ in found.answer


def test_a_copy_into_a_parameter_runs_under_no_grad():
    w = pb.tensor([3.0, 1.0], requires_grad=True)
    layer = pb.nn.Linear(2, 1)
    with record_sites():
        with pb.no_grad():
            layer.weight.copy_(w * 2)
        loss = layer(pb.ones(1, 2)).sum()
    assert explain_grad(w, loss).reason == "no_grad"


def test_parameters_of_a_model_that_is_made_inside_are_no_copies():
    with record_sites() as sites:
        layer = pb.nn.Linear(2, 1)
        loss = layer(pb.ones(1, 2)).sum()
    assert explain_grad(layer.weight, loss).status == "fine"
    assert not any("copy" in record.ends for record in sites.records)


# ---- ends that are no operations' results --------------------------------------------------------


class Marked(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        ctx.mark_non_differentiable(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad


def written_through_data(w):
    buffer = pb.zeros(2)
    buffer.data.copy_(w * 2)
    return buffer


def written_through_detach(w):
    buffer = pb.zeros(2)
    buffer.detach().add_(w)
    return buffer


ENDS = {
    "marked": (Marked.apply, "Marked", "returned this without a history"),
    "alias": (written_through_data, "copy_", "wrote memory through .data"),
    "alias of detach": (written_through_detach, "add_", "wrote memory through .data or a detached"),
    "detach in vmap": (pb.func.vmap(lambda x: x.detach() * 2), "detach", "cut the history"),
    "data in two vmaps": (
        lambda w: pb.func.vmap(pb.func.vmap(lambda x: x.data))(w[None])[0],
        ".data was read",
        "has no history",
    ),
    "copy by copy": (copy.copy, "__copy__", "copied values into a new leaf"),
    "copy by deepcopy": (copy.deepcopy, "__deepcopy__", "copied values into a new leaf"),
}


@pytest.mark.parametrize("name", ENDS)
def test_ends_that_no_result_shows(name):
    make, op, text = ENDS[name]
    w = pb.tensor([3.0, 1.0], requires_grad=True)
    with record_sites():
        loss = (make(w) * pb.ones(1, requires_grad=True)).sum()
    found = explain_grad(w, loss)
    assert found.reason == name.partition(" ")[0] or name.startswith("data"), str(found)
    assert op in found.answer and text in found.answer and __file__ in found.answer


def test_a_cut_branch_that_the_root_does_not_use():
    w, v = pb.ones(2, requires_grad=True), pb.ones(2, requires_grad=True)
    with record_sites():
        logged = (w * 2).detach().norm()
        loss = (v * v).sum()
    found = explain_grad(w, loss)
    assert found.reason == "unused" and logged > 0
    assert "the root does not use the tensor, nor what detach (" in found.answer


def test_a_number_is_followed_and_an_equal_literal_is_not():
    w, v = pb.tensor([0.5, 1.5], requires_grad=True), pb.ones(2, requires_grad=True)
    for made, reason in ((lambda number: number, "number"), (lambda number: 2.0, "number")):
        with record_sites() as sites:
            used = (v * made(w.sum().item())).sum()
        assert explain_grad(w, used).reason == reason
        product = next(record for record in sites.records if record.op == "mul")
        assert len(product.inputs) == (2 if made(3.0) == 3.0 else 1)
