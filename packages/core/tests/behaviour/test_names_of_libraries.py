"""What libraries written for torch ask for: compilers, vendors, other processes, lists, files."""

import importlib
import importlib.util
import os
import pickle
import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pullback as pb
from pullback.torch_version import TorchVersion
from pullback.utils._foreach_utils import _group_tensors_by_device_and_dtype


def values(*shape, seed=0):
    return pb.tensor(np.random.default_rng(seed).uniform(0.1, 0.9, shape))


# -- checks ----------------------------------------------------------------------------------------

FAILURES = [
    (lambda: pb._check(False), RuntimeError, "Expected cond to be True, but got False."),
    (lambda: pb._check(False, lambda: "why"), RuntimeError, "why"),
    (lambda: pb._check(False, "why"), TypeError, "message must be a callable"),
    (lambda: pb._check(1), TypeError, "cond must be a bool, but got <class 'int'>"),
    (lambda: pb._check(pb.tensor(True)), TypeError, "cond must be a bool, but got a Tensor"),
    (lambda: pb._check_index(False), IndexError, "Expected cond"),
    (lambda: pb._check_value(False, lambda: "v"), ValueError, "v"),
    (lambda: pb._check_type(False), TypeError, "Expected cond"),
    (lambda: pb._check_not_implemented(False), NotImplementedError, "Expected cond"),
    (lambda: pb._check_is_size(-1), RuntimeError, "Expected cond"),
    (lambda: pb._check_is_size(4, max=3), RuntimeError, "Expected cond"),
    (lambda: pb._check_tensor_all(3), TypeError, "cond must be a tensor"),
    (lambda: pb._check_tensor_all(pb.ones(2)), TypeError, "must have dtype pullback.bool"),
    (lambda: pb._check_tensor_all(pb.tensor([True, False])), RuntimeError, "Expected cond"),
    (lambda: pb._assert(pb.tensor(False), "x"), AssertionError, "x"),
    (lambda: pb._assert_async(pb.tensor(0.0)), RuntimeError, "Expected Tensor with single nonzero"),
    (lambda: pb._assert_async(pb.tensor(0.0), "why"), RuntimeError, "why"),
    (lambda: pb._assert_async(pb.ones(2)), RuntimeError, "more than one value is ambiguous"),
    (lambda: pb.jit.ignore(3), RuntimeError, "must be a bool or a function but got 3"),
    (lambda: pb.jit.interface(3), RuntimeError, "interface must be applied to a class"),
    (lambda: pb.jit.ScriptFunction(), NotImplementedError, "TorchScript"),
    (lambda: pb.fx.wrap(3), RuntimeError, "Unsupported type for global function!"),
    (lambda: pb.fx.Graph(), NotImplementedError, "symbolic tracing is left out"),
    (lambda: pb.fx.Tracer(), NotImplementedError, "symbolic tracing is left out"),
    (lambda: pb.SymInt(3), NotImplementedError, "symbolic numbers are left out"),
    (lambda: pb.compiler.allow_in_graph(3), AssertionError, "expects a callable"),
    (lambda: pb.cuda.CUDAGraph(), NotImplementedError, "graphs of kernels are not captured"),
    (lambda: pb.zeros(2, dtype=pb.float8_e4m3fn), TypeError, "dtype"),
    (lambda: pb.ops.load_library("a.so"), OSError, "Could not load this library: a.so"),
]


@pytest.mark.parametrize(("call", "kind", "words"), FAILURES)
def test_what_is_refused(call, kind, words):
    with pytest.raises(kind, match=re.escape(words)):
        call()


def test_eager_programs_answer_compilers():
    assert not any(
        (
            pb.compiler.is_compiling(),
            pb.compiler.is_dynamo_compiling(),
            pb.compiler.is_exporting(),
            pb.jit.is_scripting(),
            pb.jit.is_tracing(),
            pb._dynamo.is_compiling(),
            pb.onnx.is_in_onnx_export(),
            pb._C._get_tracing_state(),
        )
    )
    decorators = (
        pb.compiler.disable,
        pb.compiler.disable(),
        pb.compiler.allow_in_graph,
        pb.compiler.set_stance("force_eager"),
        pb.jit.export,
        pb.jit.unused,
        pb.jit.ignore,
        pb.jit.ignore(drop=True),
        pb.jit.script_if_tracing,
        pb._dynamo.disable,
        pb.fx.wrap,
    )
    for decorate in decorators:
        assert decorate(lambda x: x + 1)(2) == 3


def test_script_is_the_function_and_warns_once(monkeypatch):
    monkeypatch.delenv("PYTORCH_JIT", raising=False)
    monkeypatch.setattr(pb.jit, "_has_warned", False)
    with pytest.warns(pb.jit.ScriptWarning, match=r"jit\.script: TorchScript is left out"):
        assert pb.jit.script(abs) is abs
    assert pb.jit.trace(abs, pb.ones(1)) is abs

    monkeypatch.setenv("PYTORCH_JIT", "0")
    monkeypatch.setattr(pb.jit, "_has_warned", False)
    model = pb.nn.ReLU()
    assert pb.jit.trace_module(model, {}) is model

    class Double(pb.jit.ScriptModule):
        @pb.jit.script_method
        def forward(self, x):
            return 2 * x

    assert Double()(pb.ones(1)).item() == 2


def test_indices_without_dims_select_under_vmap():
    region = pb._dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex
    x = values(4, 3)
    with region():
        found = pb.vmap(lambda i, j: x[i, j])(pb.tensor([3, 1]), pb.tensor([0, 2]))
        assert x[pb.tensor(1)].tolist() == x[1].tolist()
    assert found.tolist() == [x[3, 0].item(), x[1, 2].item()]


# -- versions --------------------------------------------------------------------------------------

ORDER = [
    *("1.0.dev3", "1.0a1.dev2", "1.0a1", "1.0b1", "1.0rc2", "1.0", "1.0+cpu", "1.0+cu121.2"),
    *("1.0.post1", "1.0.1", "1.9", "1.10.0", "2.0.0a0+git12", "2.13.0", "1!0.1"),
]


@given(st.integers(0, len(ORDER) - 1), st.integers(0, len(ORDER) - 1))
def test_versions_are_ordered_as_versions(i, j):
    one = TorchVersion(ORDER[i])
    found = (one < ORDER[j], one <= ORDER[j], one == ORDER[j], one > ORDER[j], one >= ORDER[j])
    assert found == (i < j, i <= j, i == j, i > j, i >= j) and (one != ORDER[j]) == (i != j)


def test_versions_are_compared_with_tuples_and_strings():
    version = TorchVersion("1.10.0")
    assert version >= (1, 10) and version == (1, 10, 0) and version < ("1", "11")
    assert version == "v1.10" and version != "parrot" and version < "parrot"
    assert hash(version) == hash("1.10.0") and {"1.10.0": 3}[version] == 3
    assert isinstance(pb.__version__, TorchVersion) and pb.version.torch >= (2, 13)
    assert pickle.loads(pickle.dumps(version)) == version and version != 3
    nightly = TorchVersion("nightly")
    assert nightly > "1.10" and nightly != (1, 10) and version != {"a": 1}
    for one, other in ((version, 3), (version, {"a": 1}), (version, ()), (nightly, (2,))):
        with pytest.raises(TypeError, match="not supported between instances"):
            one < other  # noqa: B015


# -- settings and processes ------------------------------------------------------------------------


def test_precision_of_products_is_one_setting():
    before = pb.get_float32_matmul_precision()
    try:
        pb.backends.cuda.matmul.allow_tf32 = True
        assert pb.get_float32_matmul_precision() == "high"
        pb.set_float32_matmul_precision("highest")
        assert pb.backends.cuda.matmul.allow_tf32 is False
    finally:
        pb.set_float32_matmul_precision(before)


def test_settings_of_a_region_are_restored_after_an_error():
    cudnn = pb.backends.cudnn
    with pytest.raises(KeyError), cudnn.flags(benchmark=True, deterministic=True):
        assert cudnn.benchmark and cudnn.deterministic and not cudnn.enabled
        raise KeyError
    assert not cudnn.benchmark and not cudnn.deterministic and cudnn.enabled


@pytest.mark.skipif(
    importlib.util.find_spec("pullback_distributed") is not None,
    reason="pullback-distributed is installed and answers instead",
)
@pytest.mark.parametrize("name", ["all_reduce", "barrier", "get_rank", "new_group", "send"])
def test_a_lone_process_has_no_group(name):
    assert not pb.distributed.is_available() and not pb.distributed.is_initialized()
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        getattr(pb.distributed, name)()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("nn", "all_reduce"),
        ("nn.functional", "all_gather"),
        ("fsdp", "MixedPrecision"),
        ("_composable.fsdp", "FSDPModule"),
        ("tensor", "DTensor"),
        ("_tensor.experimental", "implicit_replication"),
        ("device_mesh", "init_device_mesh"),
    ],
)
def test_modules_of_several_processes_are_imported_by_one(module, name, monkeypatch):
    monkeypatch.setattr(pb.distributed, "_HOME", "pullback_not_installed")
    for path in [path for path in sys.modules if path.startswith("pullback.distributed.")]:
        monkeypatch.delitem(sys.modules, path)
    found = getattr(importlib.import_module(f"pullback.distributed.{module}"), name)
    assert found.__name__ == name
    assert not isinstance(found, type) or not isinstance(pb.ones(1), found)
    with pytest.raises((ImportError, NotImplementedError), match=f"{module}.{name}"):
        found(pb.ones(1))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"pullback.distributed.{module}x")
    first = module.partition(".")[0]
    monkeypatch.delitem(vars(pb.distributed), first)
    assert getattr(pb.distributed, first).__name__ == f"pullback.distributed.{first}"
    assert not hasattr(pb.distributed, f"{first}x")


def test_local_rank_is_that_of_the_launcher(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert pb.distributed.get_node_local_rank(2) == 2
    with pytest.raises(RuntimeError, match="LOCAL_RANK is not in the environment"):
        pb.distributed.get_node_local_rank()
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert pb.distributed.get_node_local_rank() == 3


def test_names_of_dtypes_that_are_left_out_have_limits():
    assert pb.finfo(pb.float8_e4m3fn).max == 448
    assert pb.finfo(pb.float8_e5m2).eps == 0.25
    assert pickle.loads(pickle.dumps(pb.float8_e5m2)) is pb.float8_e5m2
    assert pb.ones(1).dtype != pb.float8_e4m3fn


# -- lists of tensors ------------------------------------------------------------------------------

CALLS = [
    ("add", ([2.0, 3.0],), {}),
    ("add", ("tensors",), {"alpha": 2}),
    ("sub", (0.5,), {}),
    ("mul", ("tensor",), {}),
    ("div", ("tensors",), {}),
    ("lerp", ("tensors", 0.25), {}),
    ("maximum", (0.5,), {}),
    ("pow", ([2.0, 0.5],), {}),
    ("clamp_max", (0.5,), {}),
    ("addcmul", ("tensors", "tensors"), {"value": 0.5}),
    ("addcdiv", ("tensors", "tensors", [2.0, 3.0]), {}),
    ("exp", (), {}),
    ("reciprocal", (), {}),
    ("neg", (), {}),
]


@pytest.mark.parametrize(("name", "given", "options"), CALLS)
def test_function_of_lists_is_the_op_of_each(name, given, options):
    tensors = [values(2, 3), values(4, seed=1)]
    others = [values(2, 3, seed=2), values(4, seed=3)]
    arguments = [
        others if a == "tensors" else pb.tensor(2.0) if a == "tensor" else a for a in given
    ]
    of_each = [[a[k] if isinstance(a, list) else a for a in arguments] for k in range(2)]
    keywords = dict(options)
    if name.startswith("addc") and len(arguments) == 3:
        keywords = {"value": None}
    method = {"maximum": "clamp_min"}.get(name, name)
    expected = []
    for tensor, own in zip(tensors, of_each, strict=True):
        if keywords == {"value": None}:
            expected.append(getattr(tensor, method)(*own[:2], value=own[2]))
        else:
            expected.append(getattr(tensor, method)(*own, **keywords))
    found = getattr(pb, f"_foreach_{name}")(tensors, *arguments, **options)
    assert isinstance(found, tuple)
    written = getattr(pb, f"_foreach_{name}_")(tensors, *arguments, **options)
    for one, two, three, four in zip(found, written, tensors, expected, strict=True):
        assert one.tolist() == four.tolist() and two is three and two.tolist() == four.tolist()


def test_functions_of_lists_that_only_make_or_write():
    tensors = [pb.tensor([3.0, -4.0])]
    assert pb._foreach_norm(tensors)[0].item() == 5
    assert pb._foreach_powsum(tensors, 3)[0].item() == 91
    assert pb._foreach_max(tensors)[0].item() == 3
    assert pb._foreach_pow(2.0, tensors)[0].tolist() == [8.0, 0.0625]
    pb._foreach_copy_(tensors, [pb.ones(2)])
    assert tensors[0].tolist() == [1.0, 1.0]
    pb._foreach_zero_(tensors)
    assert tensors[0].tolist() == [0.0, 0.0]
    assert not hasattr(pb, "_foreach_norm_") and not hasattr(pb, "_foreach_zero")


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: pb._foreach_add([], 1.0), RuntimeError, "must have at least one tensor"),
        (lambda: pb._foreach_add(pb.ones(2), 1.0), TypeError, "must be tuple of Tensors"),
        (
            lambda: pb._foreach_add([pb.ones(2)], [pb.ones(2), pb.ones(2)]),
            RuntimeError,
            "Tensor lists must have the same number of tensors, got 1 and 2",
        ),
        (
            lambda: pb._foreach_add([pb.ones(2)], [1.0, 2.0]),
            RuntimeError,
            "must have same number of elements as scalar list",
        ),
    ],
)
def test_wrong_lists_are_refused(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_lists_are_grouped_by_dtype():
    first = [pb.ones(1), pb.ones(1, dtype=pb.int64), pb.zeros(1)]
    groups = _group_tensors_by_device_and_dtype([first, ["a", "b", "c"]], with_indices=True)
    assert [(lists[1], indices) for lists, indices in groups.values()] == [
        (["a", "c"], [0, 2]),
        (["b"], [1]),
    ]
    with pytest.raises(RuntimeError, match="must have the same number of tensors"):
        _group_tensors_by_device_and_dtype([first, ["a"]])


# -- sparse, files, other packages -----------------------------------------------------------------


@pytest.mark.parametrize("dims", [None, 1, 2])
def test_dense_tensors_become_sparse(dims):
    x = pb.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])
    found = x.to_sparse() if dims is None else x.to_sparse(dims)
    assert found.is_sparse and found.is_coalesced() and found.sparse_dim() == (dims or 2)
    assert found._nnz() == (2 if dims == 1 else 3)
    assert found.to_dense().tolist() == x.tolist()
    masked = pb.full((3, 3), 5.0).sparse_mask(found)
    assert masked._indices().tolist() == found._indices().tolist()
    assert (masked._values() == 5).all()


def test_sparse_conversions_refuse():
    with pytest.raises(RuntimeError, match=r"must be in \[0,1\] range, but 2 is given"):
        pb.ones(2).to_sparse(2)
    with pytest.raises(NotImplementedError, match="use detach"):
        pb.ones(2, requires_grad=True).to_sparse()
    with pytest.raises(NotImplementedError, match="COO is there"):
        pb.ones(2, 2).to_sparse(layout=pb.sparse_csr)
    with pytest.raises(RuntimeError, match="incompatible sizes"):
        pb.ones(3).sparse_mask(pb.ones(2).to_sparse())


def test_parameters_are_downloaded_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(pb.hub, "_folder", None)  # which examples choose
    pb.save({"bias": pb.ones(2)}, tmp_path / "a.pth")
    url = (tmp_path / "a.pth").as_uri()
    assert pb.hub.load_state_dict_from_url(url)["bias"].tolist() == [1.0, 1.0]
    assert "Downloading" in capsys.readouterr().err
    (tmp_path / "a.pth").unlink()
    assert pb.utils.model_zoo.load_url(url)["bias"].tolist() == [1.0, 1.0]
    assert os.listdir(tmp_path / "home" / "hub" / "checkpoints") == ["a.pth"]


def test_a_wrong_checksum_leaves_no_file(tmp_path):
    (tmp_path / "a").write_bytes(b"123")
    with pytest.raises(RuntimeError, match='invalid hash value \\(expected "00", got "a665'):
        pb.hub.download_url_to_file((tmp_path / "a").as_uri(), str(tmp_path / "b"), "00")
    assert os.listdir(tmp_path) == ["a"]


def test_downloads_are_read_by_the_restricted_unpickler(tmp_path):
    pb.save({"bias": os.system}, tmp_path / "a.pth")
    with pytest.raises(pickle.UnpicklingError):
        pb.hub.load_state_dict_from_url((tmp_path / "a.pth").as_uri(), str(tmp_path / "cache"))
