"""Kernels called on NumPy arrays: their arguments and the results of their return codes."""

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
    """Return a kernel that notes its arguments, and the notes."""
    seen = []

    @FUNCTION
    def kernel(pointer):
        call = pointer.contents
        arrays = [call.out[i].contents for i in range(call.nout)]
        arrays += [call.in_[i].contents for i in range(call.nin)]
        for array in arrays:
            dims = range(array.ndim)
            seen.append(
                (
                    array.dtype,
                    array.flags,
                    [array.shape[d] for d in dims],
                    [array.strides[d] for d in dims],
                    array.data,
                )
            )
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
    for wrong in ("float128", "M8[s]", "U3", "O"):
        with pytest.raises(ValueError, match="no tensor has the dtype"):
            dtype_code(np.dtype(wrong))
    with pytest.raises(ValueError, match="no tensor has the dtype"):
        dtype_code(np.dtype("f4").newbyteorder("S"))
    with pytest.raises(TypeError, match="expected a PyCapsule, got object"):
        pointer_of(object(), b"int (pb_call *)")
    with pytest.raises(TypeError, match="expected a PyCapsule, got str"):
        call_kernel("a name", np.zeros(1), [])


def frozen(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("outs", "ins", "params", "kind", "words"),
    [
        (frozen(np.zeros(2)), [], (), ValueError, "read-only"),
        (np.zeros(2), [[1.0]], (), TypeError, "arrays or Scalars, not list"),
        (np.zeros(2), np.zeros(2), (), TypeError, "arrays or Scalars, not float64"),
        (np.zeros(2), [np.zeros(2, "u1, f8")["f1"]], (), ValueError, "whole elements"),
        (np.zeros(2), [], (2**64,), OverflowError, "64 bits, got 18446744073709551616"),
        (np.zeros(2), [], ((1, -(2**63) - 1),), OverflowError, "64 bits"),
        (np.zeros(2), [], (None,), TypeError, "an int, a float or several ints, not NoneType"),
        (np.zeros(2), [], ("x",), TypeError, "an int, a float or several ints, not str"),
    ],
)
def test_operands_that_no_kernel_can_be_given(outs, ins, params, kind, words):
    kernel, seen = recorded()
    with pytest.raises(kind, match=words):
        call_kernel(kernel, outs, ins, *params)
    assert not seen


def test_numbers_of_numpy_are_parameters():
    kernel, seen = recorded()
    call_kernel(kernel, np.zeros(0), [], np.int64(-5), np.float32(0.5), [np.int8(3)], True)
    assert seen[1:] == [-5, 0.5, [3], 1]


def test_message_is_that_of_the_last_call():
    answers = [(E_INDEX, b"first"), (E_INDEX, b""), (E_INDEX, b"cut off: \xc3")]

    @FUNCTION
    def kernel(pointer):
        code, text = answers.pop(0)
        if text:
            ctypes.memmove(pointer.contents.message, text + b"\0", len(text) + 1)
        return code

    call = KernelCall(kernel, [np.zeros(1)], [])
    for text in ("first", "", "cut off: \ufffd"):
        with pytest.raises(KernelError) as error:
            call.run()
        assert error.value.message == text
