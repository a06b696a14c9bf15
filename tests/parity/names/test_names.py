"""Public names are torch's: each exists there too, with the same parameters."""

import inspect

import pytest

import pullback

torch = pytest.importorskip("torch", reason="torch is not installed: run `nox -s parity`")

# What is ours alone.
EXTRA = {
    *("absolute_", "backend", "empty_cache", "get_include", "get_printoptions", "get_pxd_path"),
    *("memory_stats", "memory_summary", "printoptions", "reset_peak_memory_stats", "synchronize"),
}


def public_names(thing):
    return {name for name in dir(thing) if not name.startswith("_")}


def test_module_offers_torch_s_names_only():
    submodules = {
        name for name in public_names(pullback) if inspect.ismodule(getattr(pullback, name))
    }
    assert public_names(pullback) - submodules - EXTRA - public_names(torch) == set()


def test_tensor_offers_torch_s_names_only():
    of_the_array_api = {"to_device"}
    assert public_names(pullback.Tensor) - public_names(torch.Tensor) == of_the_array_api


@pytest.mark.parametrize("name", ["backward", "grad", "no_grad", "enable_grad", "set_grad_enabled"])
def test_autograd_has_torch_s_parameters(name):
    ours, theirs = getattr(pullback.autograd, name), getattr(torch.autograd, name)
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


def test_autograd_offers_torch_s_names_only():
    names = {
        name
        for name in public_names(pullback.autograd)
        if not inspect.ismodule(getattr(pullback.autograd, name))
    }
    assert names - public_names(torch.autograd) - {"execute_backward"} == set()


def test_checkpoint_offers_torch_s_names_with_their_parameters():
    from torch.utils import checkpoint as theirs

    ours = pullback.utils.checkpoint
    assert sorted(ours.__all__) == sorted(theirs.__all__)
    for name in ours.__all__:
        if inspect.isfunction(getattr(theirs, name)):
            expected = list(inspect.signature(getattr(theirs, name)).parameters)
            assert list(inspect.signature(getattr(ours, name)).parameters) == expected, name
    values = {policy.name: policy.value for policy in theirs.CheckpointPolicy}
    assert {policy.name: policy.value for policy in ours.CheckpointPolicy} == values
