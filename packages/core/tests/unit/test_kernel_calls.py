"""Kernels called on NumPy arrays: what they are given, and what comes of their answers."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

from pullback.testing.kernel_calls import (
    E_INDEX,
    FUNCTION,
    HOST,
    WRITE,
    KernelCall,
    KernelError,
    Scalar,
    call_kernel,
    dtype_code,
    pointer_of,
)


def recorded(answer=0, text=b""):
    """Return a kernel that notes what it is given, and the notes."""
    seen = []

    @FUNCTION
    def kernel(pointer):
        call = pointer.contents
        arrays = [call.out[i].contents for i in range(call.nout)]
        arrays += [call.in_[i].contents for i in range(call.nin)]
        for array in arrays:
            dims = range(array.ndim)
            seen.append((array.dtype, array.flags, [array.shape[d] for d in dims],
                         [array.strides[d] for d in dims], array.data))  # fmt: skip
        for param in call.param[: call.nparam]:
            values = [param.i, param.d, param.ints[: param.count] if param.kind == 2 else None]
            seen.append(values[param.kind])
        ctypes.memmove(call.message, text + b"\0", len(text) + 1)
        return answer

    return kernel, seen


def test_arrays_and_parameters_arrive_as_they_are():
    kernel, seen = recorded()
    out = np.zeros((3, 4))
    turned = np.zeros((5, 2), ml_dtypes.bfloat16).T[:, ::-1]
    call_kernel(kernel, out[:, ::2], [turned, Scalar(np.float32(2.5))], -3, 0.5, (4, 5), (), 2**63)
    assert seen[0] == (9, WRITE, [3, 2], [4, 2], out.ctypes.data)
    assert seen[1] == (7, 0, [2, 5], [1, -2], turned.ctypes.data)
    assert seen[2][:4] == (8, HOST, [], [])
    assert seen[3:] == [-3, 0.5, [4, 5], [], -(2**63)]


def test_call_can_be_made_again():
    kernel, seen = recorded()
    call = KernelCall(kernel, [np.zeros(2)], [])
    call.run()
    call.run()
    assert len(seen) == 2
    assert seen[0] == seen[1]


def test_failure_has_code_and_message():
    kernel, _ = recorded(E_INDEX, b"index 7 is out of bounds")
    with pytest.raises(KernelError, match="index 7 is out of bounds") as error:
        call_kernel(kernel, np.zeros(1), [])
    assert error.value.code == E_INDEX


def test_other_dtypes_and_capsules_are_refused():
    for number, name in enumerate("bool uint8 int8 int16 int32 int64 float16".split()):
        assert dtype_code(np.dtype(name)) == number
    for wrong in ("uint16", "M8[s]", "U3", "O"):
        with pytest.raises(ValueError, match="no tensor has the dtype"):
            dtype_code(np.dtype(wrong))
    with pytest.raises(ValueError, match="PyCapsule"):
        pointer_of(object(), b"int (pb_call *)")
    with pytest.raises(ValueError, match="PyCapsule"):
        call_kernel("a name", np.zeros(1), [])
