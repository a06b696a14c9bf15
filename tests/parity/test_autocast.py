"""Autocast on every op's samples: torch's dtypes, and on the host torch's values.

The list of ops for other devices is compared on fake tensors, which torch gives dtypes but no
elements, with a device of ours whose memory is the host's.
"""

import contextlib
import functools
import itertools
import logging
import sys

import numpy as np
import pytest

import pullback as pb
from pullback.ops import ENTRIES, ops
from pullback.testing.samples import samples_of, tensors_in

torch = pytest.importorskip("torch")
fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")

SPACES = {
    "": torch,
    "functional": torch.nn.functional,
    "linalg": torch.linalg,
    "fft": torch.fft,
    "special": torch.special,
}
PLUGIN = """
from pullback.backend import hookimpl


class HostMemory:
    def __init__(self):
        self.blocks = {}
        self.count = 0

    def allocate(self, device, nbytes):
        self.count += 1
        self.blocks[self.count] = memoryview(bytearray(nbytes))
        return self.count

    def release(self, device, handle, nbytes):
        del self.blocks[handle]

    def write(self, device, handle, offset, source):
        self.blocks[handle][offset : offset + source.nbytes] = source.cast("B")

    def read(self, device, handle, offset, target):
        target.cast("B")[:] = self.blocks[handle][offset : offset + target.nbytes]

    def copy(self, device, to, to_offset, source, source_offset, nbytes):
        part = bytes(self.blocks[source][source_offset : source_offset + nbytes])
        self.blocks[to][to_offset : to_offset + nbytes] = part


@hookimpl
def pullback_backend(device):
    return HostMemory() if device == "away" else None
"""
MOST_SAMPLES = 5  # of an op
# torch's fake tensors have another formula than its kernels, which call bmm. The statistics of
# 16-bit numbers are float32 there and 16-bit numbers here, with autocast or without; so are the
# floats of a mask without elements, which is bool here. A pseudoinverse is one op here.
OTHER_DTYPES = {"affine_grid", "affine_grid_generator", "native_batch_norm"}
OTHER_DTYPES |= {"native_dropout", "linalg_pinv"}


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """Install a device that is none of the host."""
    folder = tmp_path_factory.mktemp("plugin")
    info = folder / "away-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: away\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[pullback.backends]\naway = away\n")
    (folder / "away.py").write_text(PLUGIN)
    sys.path.insert(0, str(folder))
    try:
        pb.zeros(1, device="away")
    finally:
        sys.path.remove(str(folder))
    return "away"


def torchs(entry):
    """Return torch's function of an entry, or None."""
    shown = entry.function if isinstance(entry.function, str) else entry.name
    name = shown.partition(".")[0]
    for space in entry.namespaces if entry.function else ():
        found = getattr(SPACES[space], name.removeprefix(f"{space}_" if space else ""), None)
        if found is not None:
            return found
    method = entry.method if isinstance(entry.method, str) else name
    return getattr(torch.Tensor, method, None) if entry.method else None


def converted(value, make):
    """Return torch's argument for one of ours."""
    if isinstance(value, pb.Tensor):
        return make(value)
    if isinstance(value, pb.dtype):
        return getattr(torch, value.name)
    if isinstance(value, pb.memory_format):
        return getattr(torch, str(value).partition(".")[2])
    if isinstance(value, list | tuple):
        return type(value)(converted(item, make) for item in value)
    return value


def copied(tensor):
    if tensor.dtype == pb.bfloat16:
        return torch.tensor(tensor.float().numpy()).bfloat16()
    return torch.tensor(tensor.numpy())


def faked(mode, tensor):
    with mode:
        return torch.empty_strided(
            tuple(tensor.shape),
            tensor.stride(),
            dtype=getattr(torch, tensor.dtype.name),
            device="cuda",
        )


@contextlib.contextmanager
def region_of_fakes(mode):
    torch.set_autocast_enabled("cuda", True)
    logging.disable(logging.ERROR)
    try:
        with mode:
            yield
    finally:
        logging.disable(logging.NOTSET)
        torch.set_autocast_enabled("cuda", False)


def tensors_of(result):
    """Return the tensors of a result of torch."""
    if isinstance(result, list | tuple):
        return [tensor for item in result for tensor in tensors_of(item)]
    return [result] if isinstance(result, torch.Tensor) else []


def pairs(dtypes, device, make, region):
    """Yield (sample, torch's tensors, ours) of every call that works in both under autocast."""
    for entry in ENTRIES.values():
        function = torchs(entry)
        drawn = any(argument.name == "generator" for argument in entry.arguments)
        written = any(argument.written for argument in entry.arguments)
        touched = entry.composite or entry.autocast != (None, None)
        if function is None or drawn or written or not touched:
            continue
        for dtype in dtypes:
            if not entry.dtypes >> dtype.code & 1:
                continue
            for sample in itertools.islice(samples_of(entry, dtype, device=device), MOST_SAMPLES):
                args = [converted(value, make) for value in sample.args]
                kwargs = {name: converted(value, make) for name, value in sample.kwargs.items()}
                try:
                    with region():
                        theirs = tensors_of(function(*args, **kwargs))
                except Exception:  # it takes other arguments, or none of this dtype
                    continue
                with pb.autocast(device):
                    ours = tensors_in((getattr(ops, entry.name)(*sample.args, **sample.kwargs),))
                yield sample, theirs, ours


def names(tensors):
    return [str(tensor.dtype).partition(".")[2] for tensor in tensors]


# Rounded in between: torch's steps in 16 bits are others.
ROUNDED_INSIDE = {"bilinear", "gru_cell", "linear_cross_entropy", "local_response_norm"}
ROUNDED_INSIDE |= {"lp_pool3d", "lstm_cell"}
# Without a value that both have: fresh memory, drawn numbers, zeros of either sign, empty batches.
OTHER_VALUES = ("empty", "new_empty", "resize_", "dropout", "rand", "gumbel", "copysign", "histc")
OTHER_VALUES += (
    "feature_",
    "matrix_exp",  # whose products torch rounds to 16 bits
    "linalg_matrix_exp",
    "alpha_",
    "pixel_unshuffle",
    "multi_margin_loss",
    "normal",
    "native_dropout",
    "bernoulli",
)


@pytest.mark.filterwarnings("ignore")
def test_host_has_torchs_dtypes_and_values():
    dtypes = (pb.float32, pb.bfloat16)
    count, wrong = 0, []
    region = functools.partial(torch.autocast, "cpu")
    for sample, theirs, ours in pairs(dtypes, "cpu", copied, region):
        count += 1
        name = sample.entry.name
        if names(theirs) != names(ours) and name not in OTHER_DTYPES:
            wrong.append((str(sample), names(theirs), names(ours)))
            continue
        if name.startswith(OTHER_VALUES):
            continue
        for a, b in zip(theirs, ours):
            if not a.is_floating_point():
                continue
            x, y = a.detach().double().numpy(), b.detach().double().numpy()
            low = a.dtype == torch.bfloat16 or name in ROUNDED_INSIDE
            scale = np.abs(x[np.isfinite(x)]).max(initial=0)
            if not np.allclose(x, y, rtol=0, atol=scale * (2e-2 if low else 1e-5), equal_nan=True):
                wrong.append((str(sample), "values"))
    assert not wrong, wrong
    assert count > 2000


@pytest.mark.filterwarnings("ignore")
def test_other_devices_have_the_dtypes_of_cuda(away):
    mode = fake_tensor.FakeTensorMode()
    count, wrong = 0, []
    make = functools.partial(faked, mode)
    region = functools.partial(region_of_fakes, mode)
    for sample, theirs, ours in pairs((pb.float32, pb.float16), away, make, region):
        count += 1
        if names(theirs) != names(ours) and sample.entry.name not in OTHER_DTYPES:
            wrong.append((str(sample), names(theirs), names(ours)))
    assert not wrong, wrong
    assert count > 2000


@pytest.mark.parametrize(("key", "side"), [("AutocastCPU", 0), ("AutocastCUDA", 1)])
def test_every_listed_op_has_a_policy(key, side):
    listed = {
        name.removeprefix("aten::").partition(".")[0]
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(key)
    }
    # of `_convolution` the host's list has a form that no program calls
    entries = [e for e in ENTRIES.values() if e.name.partition(".")[0] in listed]
    without = {e.name for e in entries if e.autocast[side] is None}
    assert without <= ({"_convolution"} if side == 0 else set())
    assert len(entries) > 60


def test_refusal_of_a_loss_has_torchs_text(away):
    mode = fake_tensor.FakeTensorMode()
    with region_of_fakes(mode), pytest.raises(RuntimeError) as theirs:
        torch.nn.functional.binary_cross_entropy(*[torch.empty(2, device="cuda")] * 2)
    x = pb.full((2,), 0.5, device=away)
    with pb.autocast(away), pytest.raises(RuntimeError) as ours:
        pb.nn.functional.binary_cross_entropy(x, x)
    text = str(theirs.value).partition("\nException raised")[0]
    assert str(ours.value) == text.replace("torch", "pullback")


RECURRENT = [
    (kind, options)
    for kind in ("LSTM", "GRU", "RNN")
    for options in ({}, {"bias": False}, {"num_layers": 2, "bidirectional": True})
] + [("LSTM", {"proj_size": 2})]


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(("kind", "options"), RECURRENT)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_recurrent_layers_have_torchs_dtypes(kind, options, dtype):
    found = []
    for library in (torch, pb):
        module = getattr(library.nn, kind)(4, 3, **options)
        with library.autocast("cpu"):
            output, state = module(library.ones(5, 2, 4, dtype=getattr(library, dtype)))
        parts = state if isinstance(state, tuple) else (state,)
        found.append(names([output, *parts]))
    assert found[0] == found[1]
