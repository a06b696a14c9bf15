"""Raise the process's first exception in a pass over a graph that only temporaries hold."""

import sys

import pullback as pb


class Double(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        if sys.argv[1] == "backward":
            raise KeyError("user")
        return grad if sys.argv[1] == "hook" else "no tensor"


def raise_key_error(grad):
    raise KeyError("user")


x = pb.ones(3, requires_grad=True)
if sys.argv[1] == "hook":
    x.register_hook(raise_key_error)
try:
    Double.apply(x).sum().backward()
except Exception as error:
    print(type(error).__name__)
