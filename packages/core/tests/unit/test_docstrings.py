"""Docstrings of the public interface: there, with examples that run."""

import doctest
import importlib
import pkgutil
import warnings

import pytest

import pullback


def modules_below(*packages):
    """Return the modules of packages that have an ``__all__``, without the leading name."""
    found = []
    for package in packages:
        loaded = importlib.import_module(f"pullback.{package}")
        for info in pkgutil.walk_packages(loaded.__path__, f"pullback.{package}."):
            # A package has names of its modules; a private one is for us.
            if info.ispkg or "._" in info.name.rpartition(".")[0]:
                continue
            if hasattr(importlib.import_module(info.name), "__all__"):
                found.append(info.name.partition(".")[2])
    return found


# Here exceptions, structs, enumerations and deprecated names do without an example.
OTHERS = (
    *("autograd.gradcheck", "distributed", "jit", "multiprocessing.reductions", "nn.base.hooks"),
    *("testing.kernel_calls", "utils.checkpoint"),
)
MODULES = (
    *("accelerator", "backends.cuda", "backends.cudnn", "backends.mkldnn", "backends.mps"),
    *("compiler", "compiler.checks", "hub", "onnx", "utils.model_zoo"),
    *("amp", "amp.autocast_mode", "amp.grad_scaler", "amp.legacy", "cpu", "cpu.amp", "cuda.amp"),
    *("autograd", "autograd.anomaly_mode", "autograd.forward_ad", "autograd.function"),
    *("autograd.functional", "autograd.grad_mode", "autograd.graph", "autograd.variable"),
    *(
        "backend",
        "func",
        "nn.attention",
        "signal.windows",
        "storage",
        "testing",
        "utils.data",
        "utils.dlpack",
        "utils.hooks",
    ),
    *(
        module
        for module in modules_below("multiprocessing", "nn", "optim", "utils.data")
        if module not in OTHERS
    ),
)
# pluggy's own, older names, of which some warn, and base classes
WITHOUT_EXAMPLES = {
    *("nn.utils.clip_grad.clip_grad_norm", "nn.utils.weight_norm.remove_weight_norm"),
    "nn.utils.weight_norm.weight_norm",
    *("storage.MappedFile", "storage.StorageBase"),
    *("backend.hookimpl", "nn.modules.container.Container", "nn.modules.loss.NLLLoss2d"),
    *("nn.modules.rnn.RNNBase", "nn.modules.rnn.RNNCellBase"),
    *("nn.base.state.StateDictMethods", "nn.parameter.UninitializedTensorMixin"),
}
MEMBERS = {
    pullback: (
        *("autocast_decrement_nesting", "autocast_increment_nesting", "clear_autocast_cache"),
        *("get_autocast_dtype", "is_autocast_cache_enabled", "is_autocast_enabled"),
        *("set_autocast_cache_enabled", "set_autocast_dtype", "set_autocast_enabled"),
        *("is_anomaly_check_nan_enabled", "is_anomaly_enabled", "is_grad_enabled"),
        *("is_inference", "is_inference_mode_enabled", "set_anomaly_enabled"),
    ),
    pullback.multiprocessing: (
        *("get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy"),
    ),
    pullback.Tensor: ("backward", "register_hook", "register_post_accumulate_grad_hook"),
    pullback.autograd.graph.Node: ("__call__", "register_hook", "register_prehook"),
}


def public_objects(modules):
    """Return the functions and classes of modules by name, each once."""
    found = {}
    for module in modules:
        loaded = importlib.import_module(f"pullback.{module}")
        for name in loaded.__all__:
            value = getattr(loaded, name)
            if callable(value) and all(value is not other for other in found.values()):
                found[f"{module}.{name}"] = value
    return found


SHOWN = public_objects(MODULES)
SHOWN.update(
    {
        f"{owner.__name__}.{name}": getattr(owner, name)
        for owner, names in MEMBERS.items()
        for name in names
    }
)
OBJECTS = {**public_objects(OTHERS), **SHOWN}
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("name", OBJECTS)
def test_docstring_says_what_it_is(name):
    assert (OBJECTS[name].__doc__ or "").strip()


@pytest.mark.parametrize("name", sorted(SHOWN.keys() - WITHOUT_EXAMPLES))
def test_docstring_has_an_example(name):
    assert ">>> " in SHOWN[name].__doc__ or hasattr(SHOWN[name], "__deprecated__")


@pytest.mark.parametrize("name", OBJECTS)
def test_examples_give_what_they_show(name):
    found = doctest.DocTestFinder(exclude_empty=True).find(
        OBJECTS[name], name, module=False, globs={}
    )
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    report = []
    for test in found:
        with warnings.catch_warnings():
            runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)
