"""Leave the interpreter while graphs, cycles, finalizers and threads are alive."""

import atexit
import sys
import threading

import pullback as pb

x = pb.ones(2, requires_grad=True)
y = x
for _ in range(1000):
    y = (y * x).tanh()
y.register_hook(lambda g: g * x)
x.grad = y.detach()
module_level = [y, y.grad_fn, pb.autograd.graph.get_gradient_edge(y)]
module_level.append(module_level)


class Late:
    def __del__(self):
        if x is not None and pb is not None:
            (x * 2).sum().backward()


late = Late()
atexit.register(lambda: (x * 2).sum().backward())
if sys.argv[1] == "daemon":

    def forever():
        while True:
            (x * x).sum().backward()

    for _ in range(3):
        threading.Thread(target=forever, daemon=True).start()
print("done")
