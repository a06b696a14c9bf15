"""What keeps the memory of a tensor alive."""

import gc
import json
import threading
import weakref

import numpy as np
import pytest

import pullback as pb
from pullback.autograd.graph import saved_tensors_hooks, who_holds

kept_by_module = None


def places(tensor):
    return [holder.where for holder in who_holds(tensor).holders]


def intermediate():
    return pb.ones(3, requires_grad=True).exp()


def found(tensor, *texts):
    """True if for each text a holder has it."""
    listed = places(tensor)
    return all(any(text in place for place in listed) for text in texts)


def test_nodes_that_saved_it():
    h = intermediate()
    loss = (h * 2).sin() + h.cos()
    holders = who_holds(h).holders
    nodes = [holder.where.partition(" #")[0] for holder in holders if holder.kind == "node"]
    assert sorted(nodes) == ["saved as 'out' by ExpBackward0", "saved as 'self' by CosBackward0"]
    loss.sum().backward()
    assert not [holder for holder in who_holds(h).holders if holder.kind == "node"]


def test_leaves_of_graphs():
    x = pb.ones(2, requires_grad=True)
    y = x * 2
    leaves = [place for place in places(x) if place.startswith("leaf of the graph")]
    assert leaves == ["leaf of the graph, by its pullback::autograd::AccumulateGrad"]
    del y
    assert not [place for place in places(x) if place.startswith("leaf of the graph")]


def test_local_variables_of_callers():
    def inner(argument):
        return places(argument)

    outside = intermediate()
    listed = inner(outside)
    assert any("'argument' in function inner at" in place for place in listed)
    assert any("'outside' in function test_local_variables_of_callers" in p for p in listed)


class Model:
    def __init__(self, weight):
        self.weight = weight
        self.table = {"first": [weight]}


class Shared:
    weights = None


class Slots:
    __slots__ = ("weight",)


def test_attributes_and_containers():
    h = intermediate()
    model, slots, listed, table = Model(h), Slots(), [0, h], {"key": h}
    slots.weight = h
    name = f"object of class {__name__}"
    assert found(
        h,
        f"attribute 'weight' of an {name}.Model",
        f"element 0 of a list, key 'first' of a dict, attribute 'table' of an {name}.Model",
        f"attribute 'weight' of an {name}.Slots",
        "element 1 of a list, local variable 'listed' in function test_attributes_and_containers",
        "key 'key' of a dict, local variable 'table' in function test_attributes_and_containers",
    )
    del model, listed, table


def test_tensors_that_escaped_from_a_vmap():
    escaped = []
    pb.vmap(lambda x: escaped.append(x) or x)(pb.ones(2))
    h = intermediate()
    assert found(h)
    assert len(escaped) == 1


def test_default_arguments():
    h = intermediate()

    def step(x=h, *, y=h):
        return x + y

    name = "test_default_arguments.<locals>.step"
    assert found(
        h,
        f"element 0 of a tuple, the defaults of function {name}",
        f"key 'y' of a dict, the defaults of function {name}",
    )
    del step


def test_attributes_of_classes():
    h = intermediate()
    Shared.weights = [h]
    try:
        assert found(h, f"element 0 of a list, attribute 'weights' of {Shared!r}")
    finally:
        Shared.weights = None


def test_modules_and_closures():
    global kept_by_module
    h = kept_by_module = intermediate()

    def closure():
        return h

    try:
        assert found(
            h,
            f"variable 'kept_by_module' of module {__name__}",
            "variable 'h' of the closure of function test_modules_and_closures.<locals>.closure",
        )
    finally:
        kept_by_module = None


def test_suspended_generators():
    def generate(value):
        yield value

    h = intermediate()
    waiting = generate(h)
    next(waiting)
    assert found(h, "a local variable of the suspended test_suspended_generators.<locals>.generate")


def test_grad_of_a_leaf():
    x = pb.ones(2, requires_grad=True)
    x.sum().backward()
    (holder,) = who_holds(x.grad).holders
    assert holder == ("grad", ".grad of a tensor float32 [2]")


def test_views_and_aliases():
    h = intermediate()
    view, alias = h[:2], h.detach()
    assert found(
        h,
        "a tensor float32 [2], a view of it",
        "a tensor float32 [2]: local variable 'view'",
        "a tensor float32 [3]: local variable 'alias'",
    )
    assert found(alias, "a tensor float32 [3]: local variable 'h'")
    del view


def test_storage_objects():
    h = intermediate()
    storage = h.untyped_storage()
    assert found(h, "its storage: local variable 'storage' in function test_storage_objects")
    assert who_holds(h).unknown == 0
    del storage


def test_values_that_hooks_packed():
    h = intermediate()
    with saved_tensors_hooks(lambda t: (1, t), lambda packed: packed[1]):
        y = h.cos()
    assert found(h, "packed by a hook for 'self' by CosBackward0")
    del y


def test_lines_that_were_noted():
    with pb.autograd.set_detect_anomaly(True):
        h = intermediate()
    assert found(h, "saved as 'out' by ExpBackward0 #", "test_who_holds.py:")


def test_other_threads():
    h = intermediate()
    started, done = threading.Event(), threading.Event()

    def hold(in_thread):
        started.set()
        done.wait()

    thread = threading.Thread(target=hold, args=(h,))
    thread.start()
    started.wait()
    try:
        assert found(h, "local variable 'in_thread' in function hold")
    finally:
        done.set()
        thread.join()


def test_text_and_dict():
    x = pb.ones(2)
    holders = who_holds(x)
    described = json.loads(json.dumps(holders.to_dict()))
    assert described["tensor"] == "a tensor float32 [2]"
    assert described["unknown"] == 0
    assert str(holders).splitlines()[0] == "The memory of a tensor float32 [2] is held by"
    assert "local variable 'x' in function test_text_and_dict" in str(holders)
    assert repr(holders) == "<Holders: 1 of a tensor float32 [2]>"


def test_references_that_python_does_not_show():
    x = pb.ones(2)
    array = np.asarray(x)
    assert who_holds(x).unknown == 1
    assert "1 references that Python does not show" in str(who_holds(x))
    del array
    assert who_holds(x).unknown == 0


def test_search_keeps_nothing_alive(no_gc):
    def search():
        h = intermediate()
        listed = [h]
        holders = who_holds(h)
        alive = weakref.ref(h)
        del h, listed
        return holders, alive() is None

    search()
    gc.collect()
    holders, died = search()
    assert died
    assert gc.collect() == 0
    assert len(holders.holders) == 3


def test_locals_that_the_program_took(no_gc):
    """The dict that locals() returned is the program's and stays as it is."""
    h = intermediate()
    taken = locals()
    who_holds(h)
    assert taken["h"] is h


@pytest.mark.parametrize("wrong", [None, 3, [pb.ones(1)]])
def test_anything_but_a_tensor(wrong):
    with pytest.raises(TypeError, match=r"who_holds\(\): expected a Tensor"):
        who_holds(wrong)
