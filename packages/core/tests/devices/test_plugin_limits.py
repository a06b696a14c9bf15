"""Methods that a plugin may omit, and the errors that it gets for wrong return values."""

import json
import sys

import numpy as np
import pytest

import pullback as pb
from pullback._c.device import py_allocator
from pullback.backend import __main__ as command
from pullback.backend import hookimpl, masks, registry
from pullback.backend.array_library import ArrayLibrary
from pullback.backend.doctor import primitives
from pullback.backend.doctor.findings import Finding, attempt, expect_error
from pullback.ops import ENTRIES
from pullback.testing import __main__ as testing
from pullback.testing.requirements import requirements_of
from pullback.testing.runner import collapsed, run_check

WITHOUT = {"float64", "complex128", "uint16", "uint32", "uint64", "complex32"}
LIBRARY = ArrayLibrary("numpy")
GIVEN = {}  # what kernels return, or raise


class Plugin:
    """A device without float64; one kernel returns an array, another one what a test gives."""

    @hookimpl
    def pullback_backend(self, device):
        return LIBRARY if device == "narrow" else None

    @hookimpl
    def pullback_dtypes(self, device):
        return masks.ALL & ~(masks.F64 | masks.C128) if device == "narrow" else None

    @hookimpl
    def pullback_register_kernels(self, table, device):
        if device == "narrow":
            LIBRARY.register(table)
            table.add("exp", masks.F32 | masks.F64, lambda out, x: np.exp(LIBRARY.view(x)))
            table.add("sinh", masks.F32, lambda out, x: GIVEN["result"](LIBRARY.view(x)))


@pytest.fixture(autouse=True, scope="session")
def _plugin():
    """Load the device, as an installed plugin's would be."""
    found = registry._find
    registry._find = lambda asked: ("narrow", Plugin) if asked == "narrow" else found(asked)
    try:
        pb.ones(1, device="narrow")
    finally:
        registry._find = found


@pytest.mark.parametrize(
    "make",
    [
        lambda: pb.empty(2, dtype=pb.float64, device="narrow"),
        lambda: pb.tensor([1.0], dtype=pb.float64, device="narrow"),
        lambda: pb.ones(2, device="narrow").double(),
        lambda: pb.ones(2, device="narrow").to(pb.float64),
        lambda: pb.ones(2, dtype=pb.float64).to("narrow"),
    ],
)
def test_a_dtype_that_the_device_does_not_have_is_refused_by_name(make):
    with pytest.raises(
        TypeError, match=r"tensor of float64 on device 'narrow': .* has bool, uint8"
    ):
        make()


def test_the_suite_leaves_out_dtypes_that_the_plugin_does_not_state():
    assert requirements_of("narrow").without_dtypes == WITHOUT
    assert requirements_of("ref").without_dtypes == set()


@pytest.mark.filterwarnings("ignore:.*has no kernel:RuntimeWarning")
@pytest.mark.parametrize("check", ["value", "out", "grad", "gradgrad", "inplace_grad", "forward"])
@pytest.mark.parametrize("name", ["mul", "exp", "softmax"])
def test_ops_conform_without_float64(name, check):
    found = run_check(check, ENTRIES[name], "narrow", WITHOUT)
    assert found.failures == []
    assert found.samples or name == "softmax"  # it has no in-place form and no out=


def test_a_wrong_derivative_is_seen_in_float32(monkeypatch):
    from pullback.testing.checks import narrow

    right = narrow.derivatives
    monkeypatch.setattr(
        narrow,
        "derivatives",
        lambda call, twice: [
            d if d is None or d.device.type == "ref" else d * 1.01 for d in right(call, twice)
        ],
    )
    assert run_check("grad", ENTRIES["mul"], "narrow", WITHOUT).failures


def test_a_kernel_may_return_its_result():
    x = pb.ones((2, 3), device="narrow").t()
    assert x.exp().tolist() == [[np.exp(np.float32(1))] * 2] * 3
    out = pb.zeros((3, 4), device="narrow")
    pb.exp(x, out=out[:, ::2])
    assert out.cpu()[:, 0].tolist() == [np.exp(np.float32(1))] * 3
    assert out.cpu()[:, 1].tolist() == [0.0] * 3


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (lambda x: x[:1], r"it returned shape \(1,\) for an output of shape \(3,\)"),
        (lambda x: 1.0, r"it returned float for an output of shape \(3,\)"),
    ],
)
def test_a_result_of_another_shape_is_refused(result, message):
    GIVEN["result"] = result
    with pytest.raises(RuntimeError, match=f"the kernel 'sinh' of the backend 'narrow'.*{message}"):
        pb.ones(3, device="narrow").sinh()


def test_memory_without_store_is_named(monkeypatch):
    monkeypatch.setitem(py_allocator.memories, "narrow", object())
    with pytest.raises(
        RuntimeError, match=r"returned ndarray: .* has a method store\(out, value\)"
    ):
        pb.ones(3, device="narrow").exp()


@pytest.mark.parametrize("kind", [ValueError, NotImplementedError])
def test_an_error_of_a_kernel_says_where_it_was_raised(kind):
    def refuse(x):
        raise kind("too small")

    GIVEN["result"] = refuse
    with pytest.raises(kind, match="too small") as caught:
        pb.ones(3, device="narrow").sinh()
    place = "in the kernel 'sinh' of the backend 'narrow', for float32"
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == [place]
    else:
        assert str(caught.value) == f"too small ({place})"


@pytest.mark.parametrize("handle", [None, "7", 0, -1, 1.5])
def test_a_handle_that_is_none_is_refused(monkeypatch, handle):
    monkeypatch.setattr(LIBRARY, "allocate", lambda device, nbytes: handle)
    with pytest.raises(TypeError, match=r"allocate\(\) of a backend's memory must return an integ"):
        pb.empty(3, device="narrow")


def test_other_errors_of_allocate_reach_the_user(monkeypatch):
    def fail(device, nbytes):
        raise OSError("the cable is loose")

    monkeypatch.setattr(LIBRARY, "allocate", fail)
    with pytest.raises(RuntimeError, match=r"allocate\(\) failed: OSError: the cable is loose"):
        pb.empty(3, device="narrow")


def test_equal_failures_are_one_text():
    failures = ["value of add #0 int8: no", "value of add #1 int8: yes", "value of add #2 int8: no"]
    assert collapsed([*failures, "value of sub #0 int8: no"]) == [
        "value of add #0 int8: no\n(1 more samples fail so)",
        "value of add #1 int8: yes",
        "value of sub #0 int8: no",
    ]


# -- the doctor ------------------------------------------------------------------------------------


@pytest.fixture
def quick(monkeypatch):
    """Let the doctor run one op of each part."""
    from pullback.backend.doctor import conformance, speed

    monkeypatch.setattr(conformance, "FAMILIES", {"elementwise": ("add",)})
    monkeypatch.setattr(conformance, "DERIVATIVES", ("mul",))
    monkeypatch.setattr(primitives, "ENTRIES", {n: ENTRIES[n] for n in ("add", "erf", "tanh")})
    monkeypatch.setattr(speed, "CALLS", 1)
    monkeypatch.setattr(speed, "NBYTES", 64)
    primitives.needs.cache_clear()
    yield
    primitives.needs.cache_clear()


def test_doctor_of_a_device(quick, capsys):
    assert command.main(["doctor", "narrow", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["good"]
    assert "float64" not in found["dtypes"]
    assert {one["part"] for one in found["findings"]} >= {"memory", "copies", "errors"}
    assert found["primitives"]["add"] == "kernel"
    assert found["primitives"]["tanh"] == "kernel"
    assert found["primitives"]["softmax"] == "decomposition"
    first = found["missing"][0]
    assert (first["primitive"], first["runs"], first["ops"]) == ("erf", "host", 1)
    assert "kernel(out, self)" in first["remedy"]
    assert all(value > 0 for value in found["speed"].values())


def test_doctor_shows_what_fails(quick, capsys, monkeypatch):
    monkeypatch.setattr(LIBRARY, "read", lambda *given: None)
    assert command.main(["doctor", "narrow"]) == 1
    shown = capsys.readouterr().out
    assert "FAIL  to the device and back" in shown
    assert "erf: table.add('erf', mask, kernel)" in shown


def test_devices_that_are_not_there_get_one_line(capsys):
    assert command.main(["doctor", "nonsense"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    for name in ([], ["certify"], ["hostile"]):
        with pytest.raises(SystemExit):
            testing.main([*name, "--device", "nonsense"])
        shown = capsys.readouterr().err
        assert "there is no device type 'nonsense'" in shown
        assert shown.count("\n") == 1


def test_the_doctor_has_nothing_to_examine_of_meta(capsys):
    assert command.main(["doctor", "meta"]) == 1
    assert "the device 'meta' has no memory and no kernels" in capsys.readouterr().err


def test_the_doctor_counts_what_every_device_needs_apart(quick, capsys):
    command.main(["doctor", "narrow"])
    shown = capsys.readouterr().out
    assert "  45 required of every device: kernel" in shown
    assert "  38 required, but left to the host by most devices: host 38" in shown


def test_findings_of_the_doctor():
    assert str(attempt("part", "what", lambda: "detail")) == "ok    what: detail"
    assert attempt("part", "what", lambda: 1 / 0) == Finding(
        "part", "what", False, "ZeroDivisionError: division by zero"
    )
    assert expect_error(KeyError, lambda: {}[1]) == "KeyError: 1"
    with pytest.raises(AssertionError, match="expected KeyError, nothing was raised"):
        expect_error(KeyError, list)
    with pytest.raises(AssertionError, match="expected KeyError, got IndexError"):
        expect_error(KeyError, lambda: [].pop())


def test_compositions_name_the_primitives_that_they_end_in():
    assert primitives.primitives_of("matmul") == {"bmm"}
    assert primitives.primitives_of("softmax") == {"amax", "div", "exp", "sub", "sum"}
    assert pb.backend.explain("matmul", "ref").endswith("which end in 'bmm' (python)")
    assert pb.backend.explain("cat", "ref").endswith("which runs 'copy' (python)")


# -- primitives of a plugin ------------------------------------------------------------------------


def scaled(x, weight, eps):
    return x * weight * (x.square().mean(-1, True) + eps).rsqrt()


def both(x):
    return x.amax(-1), x.amin(-1)


SCHEMA = "(Tensor x, Tensor weight, float eps) -> Tensor"


@pytest.fixture(scope="session")
def rms_norm(_plugin):
    """A primitive with a decomposition, and a kernel of the device for float32."""
    made = pb.backend.define_primitive("testing_plugin::rms_norm", SCHEMA, scaled)

    def kernel(out, x, weight, eps):
        GIVEN["calls"] = GIVEN.get("calls", 0) + 1
        x, weight = LIBRARY.view(x), LIBRARY.view(weight)
        return (x * weight / np.sqrt((x * x).mean(-1, keepdims=True) + eps)).astype(x.dtype)

    registry.KernelTable("narrow").add("testing_plugin::rms_norm", masks.F32, kernel)
    return made


def test_a_defined_primitive_has_derivatives_everywhere(rms_norm):
    x = pb.randn(2, 4, dtype=pb.float64, requires_grad=True)
    weight = pb.rand(4, dtype=pb.float64, requires_grad=True)
    assert pb.equal(rms_norm(x, weight, 1e-5), scaled(x, weight, 1e-5))
    assert pb.autograd.gradcheck(lambda *given: rms_norm(*given, 1e-5), (x, weight))
    assert pb.autograd.gradgradcheck(lambda *given: rms_norm(*given, 1e-5), (x, weight))
    assert rms_norm(x.detach().to("meta"), weight.detach().to("meta"), 0.0).shape == (2, 4)


@pytest.mark.filterwarnings("ignore:.*has no kernel:RuntimeWarning")
def test_its_kernel_runs_on_the_device_in_its_dtypes(rms_norm):
    for dtype, calls in ((pb.float32, 1), (pb.float16, 0)):
        GIVEN["calls"] = 0
        x = pb.randn(4, 3, dtype=dtype, device="narrow").t().requires_grad_()
        weight = pb.ones(4, dtype=dtype, device="narrow")
        result = rms_norm(x, weight, 1e-5)
        assert GIVEN["calls"] == calls
        assert result.device.type == "narrow"
        pb.testing.assert_close(result.detach(), scaled(x, weight, 1e-5).detach())
        result.sum().backward()
        assert x.grad.shape == x.shape


def test_a_defined_primitive_may_have_several_results():
    made = pb.backend.define_primitive(
        "testing_plugin::ends", "(Tensor x) -> (Tensor, Tensor)", both
    )

    def kernel(outs, x):
        for out, result in zip(outs, (x.max(-1), x.min(-1)), strict=True):
            out[...] = result

    registry.KernelTable("ref").add("testing_plugin::ends", masks.F64, kernel)
    x = pb.tensor([[1.0, 2.0], [4.0, 3.0]], dtype=pb.float64, device="ref", requires_grad=True)
    most, least = made(x)
    assert (most.tolist(), least.tolist()) == ([2.0, 4.0], [1.0, 3.0])
    (most - least).sum().backward()
    assert x.grad.tolist() == [[-1.0, 1.0], [1.0, -1.0]]


@pytest.mark.parametrize(
    ("name", "schema", "message"),
    [
        ("norm", SCHEMA, "expected a name such as 'mine::norm', got 'norm'"),
        ("mine::norm", "(Tensor x, *, float eps) -> Tensor", r"arguments behind '\*'"),
    ],
)
def test_definitions_that_are_refused(name, schema, message):
    with pytest.raises(ValueError, match=message):
        pb.backend.define_primitive(name, schema, scaled)


def test_kernels_of_primitives_that_nobody_defined_are_refused(rms_norm):
    table = registry.KernelTable("narrow")
    with pytest.raises(ValueError, match="no primitive 'mine::other' is defined"):
        table.add("mine::other", masks.F32, print)
    with pytest.raises(TypeError, match="kernel of 'testing_plugin::rms_norm' must be callable"):
        table.add("testing_plugin::rms_norm", masks.F32, 42)
