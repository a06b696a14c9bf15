"""Run backward in a child after the parent has run one."""

import os

import pullback as pb

x = pb.ones(2, requires_grad=True)
(x * x).sum().backward()
child = os.fork()
if child == 0:
    (x * x).sum().backward()
    os._exit(0 if x.grad.tolist() == [4.0, 4.0] else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert x.grad.tolist() == [2.0, 2.0]
