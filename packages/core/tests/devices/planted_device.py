"""A device whose kernels can be made wrong, with programs that are wrong there by themselves."""

import numpy as np
from library_device import load

import pullback as pb
from pullback.backend import define_primitive
from pullback.backend.array_library import ArrayLibrary
from pullback.backend.masks import FLOATING

DEVICES = ("ref", "planted")
KERNELS = {"exp": np.exp, "sin": np.sin, "cos": np.cos, "mul": np.multiply, "neg": np.negative}
planted = {}  # what is wrong now: the name of a kernel, or "program", and how
_loaded = []


def kernel_of(name):
    """Return the kernel of a name, which does what is planted."""

    def kernel(x, *others):
        result = KERNELS[name](x, *others)
        bug = planted.get(name)
        if bug == "larger":
            return result * np.asarray(1.01, x.dtype)
        if bug == "writes its input":
            x[...] = 0
        if bug == "raises":
            raise ValueError("no such number")
        return result

    return kernel


def twice(x, **_):
    """Return twice an array, or a little more."""
    return 2 * x * np.asarray(1.01 if "twice" in planted else 1, x.dtype)


def load_planted():
    """Load the device, once."""
    if _loaded:
        return
    library = ArrayLibrary("numpy")

    def register(table):
        library.register(table)
        for name in KERNELS:
            table.add(name, FLOATING, library.kernel(kernel_of(name)))
        table.add("verdicts::twice", FLOATING, library.kernel(twice))

    define_primitive("verdicts::twice", "(Tensor x) -> Tensor", lambda x: x * 2)
    _loaded.append(load("planted", library, register))


def is_wrong(tensor):
    """Return True on the device that is wrong, for programs that are wrong there by themselves."""
    return tensor.device.type == "planted" and "program" in planted


def x():
    return pb.tensor([[0.5, -1.0, 2.0], [0.25, 1.5, -0.5]], requires_grad=True)


def plain():
    return pb.tensor([1.0, 2.0, 3.0])


class Exp(pb.autograd.Function):
    """Saves its output."""

    @staticmethod
    def forward(ctx, a):
        result = a.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


class ByNumPy(pb.autograd.Function):
    """Computes without ops."""

    @staticmethod
    def forward(ctx, a):
        array = a.numpy(force=True) * (3 if is_wrong(a) else 2)
        return pb.tensor(array, device=a.device)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clone()


class Opaque:
    pass
