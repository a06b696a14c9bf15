"""Errors of calls name the module: its path from the outermost one, and its line."""

import gc
import sys
import weakref

import pytest

import pullback as pb
from pullback import nn

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, size), nn.Linear(4, 2)])

    def forward(self, x, again=False):
        for layer in self.layers:
            x = layer(x)
        return x


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.encoder = nn.Sequential(nn.ReLU(), Block(size))

    def forward(self, x):
        return self.encoder(x)


def notes_of(call, error=RuntimeError):
    with pytest.raises(error) as found:
        call()
    return getattr(found.value, "__notes__", []), str(found.value)


LINE = "Linear(in_features=4, out_features=2, bias=True)"


def test_wrong_shape_names_path_and_line():
    notes, text = notes_of(lambda: Model(3)(pb.ones(5, 4)))
    assert notes == [f"in module encoder.1.layers.1 of Model: {LINE}"]
    assert text == "mat1 and mat2 shapes cannot be multiplied (5x3 and 4x2)"


def test_module_that_is_called_alone_is_named_alone():
    assert notes_of(lambda: nn.Linear(4, 2)(pb.ones(5, 3)))[0] == [f"in module {LINE}"]


def test_call_through_hooks_is_named_too():
    model = Model(3)
    model.encoder[1].layers[1].register_forward_hook(lambda *a: None)
    model.encoder.register_forward_pre_hook(lambda *a: None)
    with nn.modules.module.register_module_forward_hook(lambda *a: None):
        assert notes_of(lambda: model(pb.ones(5, 4)))[0] == [
            f"in module encoder.1.layers.1 of Model: {LINE}"
        ]


def test_observed_call_is_named_too():
    seen = []
    stop = pb.backend.observe_module_calls(
        lambda module: seen.append(type(module).__name__), lambda: seen.append("end")
    )
    try:
        notes, _ = notes_of(lambda: Model(3)(pb.ones(5, 4)))
    finally:
        stop()
    assert notes == [f"in module encoder.1.layers.1 of Model: {LINE}"]
    assert seen[:5] == ["Model", "Sequential", "ReLU", "end", "Block"]
    assert seen.count("end") == 6
    Model(4)(pb.ones(5, 4))
    assert len(seen) == 12


def test_own_error_of_a_module_names_it_without_its_children():
    notes, _ = notes_of(lambda: nn.Sequential(Block(4))(pb.ones(5, 4), again=True), TypeError)
    assert notes == ["in module Sequential()"]


def test_module_outside_of_the_one_that_calls_is_named_alone():
    other = nn.Linear(4, 2)

    class Caller(nn.Module):
        def forward(self, x):
            return [other][0](x)

    assert notes_of(lambda: Caller()(pb.ones(3)))[0] == [f"in module {LINE}"]


def test_control_flow_has_no_note():
    class Stop(Exception):
        pass

    class Raises(nn.Module):
        def forward(self):
            raise Stop

    assert notes_of(lambda: nn.Sequential(nn.Identity(), Raises())[1](), Stop)[0] == []


def test_error_of_a_broken_representation_stays_the_error():
    class Broken(nn.Module):
        def forward(self):
            raise ValueError("mine")

        def extra_repr(self):
            raise KeyError("other")

    assert notes_of(lambda: Broken()(), ValueError) == ([], "mine")


def test_result_and_module_are_freed():
    module = nn.Identity()
    x = pb.ones(3)
    seen = weakref.ref(x)
    for _ in range(3):
        module(x)
        with pytest.raises(TypeError):
            module(x, x)
    del x
    gc.collect()
    assert seen() is None
