"""Take tensors' DLPack structs; call their deleters from threads without the interpreter lock."""

import ctypes
import faulthandler
import gc
import sys
import threading
import weakref

import numpy as np

import pullback as pb

faulthandler.enable()
versioned = sys.argv[1] == "versioned"
name = b"dltensor_versioned" if versioned else b"dltensor"
used = b"used_" + name
deleter_offset = 16 if versioned else 56  # of the member in the struct
get_pointer, set_name = ctypes.pythonapi.PyCapsule_GetPointer, ctypes.pythonapi.PyCapsule_SetName
get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)  # lets go of the lock


class Array(np.ndarray):
    """One that can be referred to weakly."""


def lend():
    """Return a weak reference to lent memory, and what gives it back."""
    array = np.arange(4.0).view(Array)
    capsule = pb.from_numpy(array).__dlpack__(max_version=(1, 0) if versioned else None)
    pointer = get_pointer(capsule, name)
    set_name(capsule, used)
    deleter = call(ctypes.c_void_p.from_address(pointer + deleter_offset).value)
    return weakref.ref(array), lambda: deleter(pointer)


loans = [lend() for _ in range(64)]
gc.collect()
assert all(dead() is not None for dead, _ in loans), "the memory died while it was lent"
threads = [threading.Thread(target=give_back) for _, give_back in loans]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
gc.collect()
assert all(dead() is None for dead, _ in loans), "the memory outlived the last loan"
