"""Import a hand-made DLPack capsule; the argument is a dict of what to change in it."""

import ctypes
import faulthandler
import gc
import sys

import pullback as pb

faulthandler.enable()


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


deleted = []
DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
deleter = DELETER(deleted.append)
memory = (ctypes.c_float * 6)(*range(6))
case = dict(
    data=ctypes.addressof(memory),
    device=(1, 0),
    ndim=2,
    dtype=(2, 32, 1),
    shape=(2, 3),
    strides=(3, 1),
    byte_offset=0,
    name=b"dltensor",
    version=(1, 0),
    flags=0,
    deleter=ctypes.cast(deleter, ctypes.c_void_p),
)
case.update(eval(sys.argv[1]))


def pointer(values):
    return None if values is None else (ctypes.c_int64 * max(len(values), 1))(*values)


tensor = Tensor(
    case["data"],
    Device(*case["device"]),
    case["ndim"],
    DType(*case["dtype"]),
    pointer(case["shape"]),
    pointer(case["strides"]),
    case["byte_offset"],
)
if b"versioned" in case["name"]:
    managed = Versioned(*case["version"], None, case["deleter"], case["flags"], tensor)
else:
    managed = Managed(tensor, None, case["deleter"])
new = ctypes.pythonapi.PyCapsule_New
new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
capsule = new(ctypes.addressof(managed), case["name"], None)
try:
    x = pb.from_dlpack(capsule)
except SystemError:
    raise
except Exception as error:
    print("refused", type(error).__name__)
    del error
    assert len(deleted) <= 1, deleted
else:
    print("accepted", x.tolist(), x.sum().item())
    assert not deleted, "the memory was given back while a tensor used it"
    view = x.detach()[...]
    del x
    gc.collect()
    assert not deleted, "the memory was given back while a view used it"
    try:
        pb.from_dlpack(capsule)
    except RuntimeError:
        pass
    else:
        raise AssertionError("the capsule was used twice")
    if case["flags"] & 1:
        before = bytes(memory)
        try:
            view.zero_()
        except RuntimeError:
            pass
        assert bytes(memory) == before, "read-only memory was written"
    del view
    gc.collect()
    assert deleted == ([ctypes.addressof(managed)] if case["deleter"] else []), deleted
