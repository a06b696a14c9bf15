"""Run backward from a hook without end; it must become a RecursionError."""

import faulthandler

import pullback as pb

faulthandler.enable()
x = pb.ones(1, requires_grad=True)


def again(g):
    with pb.enable_grad():
        y = x * 2
        y.register_hook(again)
        y.backward()


y = x * 2
y.register_hook(again)
try:
    y.backward()
except RecursionError:
    print("refused")
x.grad = None
(x * 2).backward()
assert x.grad.tolist() == [2.0]
