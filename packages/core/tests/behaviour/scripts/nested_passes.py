"""Run 2,000 backward passes inside of each other."""

import faulthandler
import sys

import pullback as pb

faulthandler.enable()
sys.setrecursionlimit(10**6)  # Python's own count must not be what ends it


class Descend(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.levels = levels
        return x * 2

    @staticmethod
    def backward(ctx, g):
        if ctx.levels:
            with pb.enable_grad():
                inner = pb.ones((), requires_grad=True)
                Descend.apply(inner, ctx.levels - 1).backward()
        return g * 2, None


x = pb.ones((), requires_grad=True)
Descend.apply(x, 2000).backward()
assert x.grad.item() == 2.0
print("done")
