"""Build a long chain of nodes, use it, and drop it.

Arguments: operation, length, what to do with the chain, and where (main or thread).
"""

import gc
import sys
import threading

import pullback as pb


def run(build, length, use):
    x = pb.ones(1, requires_grad=True)
    y = x
    for _ in range(length):
        y = build(y)
    if use == "backward":
        y.backward()
        assert x.grad.tolist() == [1.0], x.grad
    elif use == "retain":
        y.backward(retain_graph=True)
    elif use == "walk":
        node, count = y.grad_fn, 0
        while node.next_functions:
            node, count = node.next_functions[0][0], count + 1
        assert count == length, count
    del y
    gc.collect()
    (x * 2).backward()


class Same(pb.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g


def in_place(y):
    if y.is_leaf:
        y = y * 1
    y[:].add_(1)
    return y


BUILD = {
    "view": lambda y: y.view(1),
    "add": lambda y: y + 1,
    "custom": Same.apply,
    "mul": lambda y: y * 1.0,
    "in_place": in_place,
    "clone": lambda y: y.clone(),
}
build, length, use, where = sys.argv[1:]
arguments = (BUILD[build], int(length), use)
if where == "thread":
    threading.stack_size(1 << 20)
    failed = []

    def guarded():
        try:
            run(*arguments)
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    assert not failed
else:
    run(*arguments)
print("done")
