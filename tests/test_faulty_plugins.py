"""Plugins that are wrong: one clear message that names backend and op; everything else works."""

import ctypes
import sys
import textwrap

import pytest

PLUGIN = """
import pullback_example.plugin as example
from pullback.backend import hookimpl
from pullback.backend.masks import ALL
from pullback_example.kernels import KERNELS
from pullback_example.memory import MEMORY

@hookimpl
def pullback_backend(device):
    return MEMORY

@hookimpl
def pullback_register_kernels(table, device):
    kernels = dict(KERNELS)
{lines}
    for primitive, (mask, kernel) in kernels.items():
        table.add(primitive, mask, kernel)
"""
USE = """
import pullback as pb
x = pb.ones(3, device='faulty', requires_grad=True)
try:
    {use}
except Exception as error:
    print(type(error).__name__, '|', error)
else:
    print('nothing was raised')
print((x + 1).tolist(), (pb.ones(2) + 1).tolist(), (pb.ones(2, device='ref').exp() > 2).tolist())
(x * x).sum().backward()
print(x.grad.tolist())
"""


@pytest.fixture
def example(root):
    """The folder of the example backend's package."""
    return str(root / "examples" / "third_party_backend" / "src")


@pytest.fixture
def faulty(example, write_plugin, run_lines):
    """Return a function that runs code on a device with changed kernels; it gives the message."""

    def run(lines, use, **environment):
        folder = write_plugin("faulty", PLUGIN.format(lines=textwrap.indent(lines, "    ")))
        message, *rest = run_lines(f"{folder}:{example}", USE.format(use=use), **environment)
        assert rest == ["[2.0, 2.0, 2.0] [2.0, 2.0] [True, True]", "[2.0, 2.0, 2.0]"]
        return message

    return run


def test_kernel_that_returns_another_kind(faulty):
    lines = "import numpy\nkernels['exp'] = ALL, lambda out, x: numpy.ones(3, 'complex64')"
    lines += "\ntype(MEMORY).store = lambda *given: None"
    message = faulty(lines, "x.exp()")
    assert message == (
        "RuntimeError | the kernel 'exp' of the backend 'faulty' failed: TypeError: it returned "
        "complex64 for an output of float32"
    )


def test_kernel_that_raises(faulty):
    message = faulty("kernels['exp'] = ALL, lambda out, x: 1 / 0", "x.exp()")
    assert message == (
        "RuntimeError | the kernel 'exp' of the backend 'faulty' failed: "
        "ZeroDivisionError: division by zero"
    )


def test_kernel_that_takes_other_arguments(faulty):
    message = faulty("kernels['exp'] = ALL, lambda: None", "x.exp()")
    assert message.startswith(
        "RuntimeError | the kernel 'exp' of the backend 'faulty' failed: TypeError: "
    )


def test_kernel_that_reports(faulty):
    lines = "def refuse(out, x): raise ValueError('too small')\nkernels['exp'] = ALL, refuse"
    message = faulty(lines, "x.exp()")
    assert message.startswith("ValueError | too small")
    if sys.version_info >= (3, 11):  # which has notes, that are not part of the message
        assert message == "ValueError | too small"


CUT = """
def breakable(whole):
    def method(*args, **options):
        if MEMORY.cut:
            raise ValueError("the wire is cut")
        return whole(*args, **options)
    return method
MEMORY.cut = False
for name in ("read", "write", "copy"):
    setattr(MEMORY, name, breakable(getattr(MEMORY, name)))
kernels.pop("sort")
"""
CUT_WHILE = """import pullback_example.memory as memory
    import warnings
    warnings.simplefilter("ignore")
    memory.MEMORY.cut = True
    try: {use}
    finally: memory.MEMORY.cut = False"""


@pytest.mark.parametrize(
    "use",
    [
        "x.tolist()",
        "x.to('ref')",
        "pb.ones(3, device='ref').to('faulty')",
        "x[1].item()",
        "x.sort()",
        "pb.tensor([1.0], device='faulty')",
        "x.detach().copy_(pb.ones(3, device='ref'))",
    ],
)
def test_copy_that_fails_names_the_device(faulty, use):
    message = faulty(CUT, CUT_WHILE.format(use=use))
    assert message.startswith("RuntimeError | ")
    assert "faulty" in message
    assert "the wire is cut" in message


def test_missing_kernel_with_fallback_forbidden(faulty):
    message = faulty("del kernels['sort']", "x.sort()", PULLBACK_FALLBACK="error")
    assert message.startswith(
        "NotImplementedError | 'sort' has no kernel for 'float32' on device 'faulty', and "
        "PULLBACK_FALLBACK=error forbids"
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "kernels['no_such_primitive'] = ALL, print",
            "there is no primitive named 'no_such_primitive'",
        ),
        ("kernels['exp'] = 0, print", "'exp' needs a mask of dtypes"),
        ("kernels['exp'] = ALL, 42", "a kernel must be a PyCapsule or callable, got int"),
        (
            "import datetime\nkernels['exp'] = ALL, datetime.datetime_CAPI",
            "a kernel capsule must be named 'int (pb_call *)'",
        ),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_registration(example, write_plugin, run_python, lines, message):
    folder = write_plugin("faulty", PLUGIN.format(lines=textwrap.indent(lines, "    ")))
    code = (
        "import pullback as pb\n"
        "for _ in range(2):\n"
        "    try: pb.ones(3, device='faulty')\n"
        "    except RuntimeError as error: print(error)\n"
        "print((pb.ones(2) + 1).tolist())\n"
    )
    done = run_python(code, PYTHONPATH=f"{folder}:{example}")
    assert done.returncode == 0, done.stderr
    *errors, values = done.stdout.splitlines()
    assert values == "[2.0, 2.0]"
    assert len(errors) == 2
    for error in errors:
        assert error.startswith("the plugin of device 'faulty' cannot be used: ")
        assert message in error


def test_other_abi_version(write_plugin, run_python):
    size = 64 * ctypes.sizeof(ctypes.c_void_p)
    text = (
        "import ctypes\n"
        "from pullback.backend import hookimpl\n"
        f"memory = ctypes.create_string_buffer({size})\n"
        f"ctypes.cast(memory, ctypes.POINTER(ctypes.c_uint32))[0] = {size}\n"
        "ctypes.cast(memory, ctypes.POINTER(ctypes.c_uint32))[1] = 999\n"
        "make = ctypes.pythonapi.PyCapsule_New\n"
        "make.restype = ctypes.py_object\n"
        "make.argtypes = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p\n"
        "@hookimpl\n"
        "def pullback_backend(device):\n"
        "    return make(ctypes.addressof(memory), b'pb_backend', None)\n"
    )
    code = "import pullback as pb; pb.ones(3, device='faulty')"
    done = run_python(code, PYTHONPATH=write_plugin("faulty", text))
    assert (
        "backend 'faulty' was built for ABI version 999 of pullback, this is version"
        in (done.stderr.splitlines()[-1])
    )


@pytest.mark.parametrize("device", ["ref", "meta"])
def test_device_that_exists(write_plugin, run_python, device):
    code = (
        "import pullback as pb\n"
        f"print((pb.ones(2, device={device!r}) + 1).device)\n"
        "try: pb.ones(2, device='nothing')\n"
        "except RuntimeError as error: print(error)\n"
    )
    done = run_python(code, PYTHONPATH=write_plugin(device, "raise RuntimeError('was imported')"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == device
    assert "was imported" not in done.stdout + done.stderr
    assert (
        f"the plugin 'plugin_of_{device}' claims the device {device!r}, which 'pullback' "
        "provides: it is ignored" in done.stderr
    )
