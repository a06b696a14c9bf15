"""Count the warnings of ``backward(create_graph=True)`` in one process."""

import warnings

import pullback as pb

x = pb.ones(2, requires_grad=True)
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for _ in range(3):
        (x * x).sum().backward(create_graph=True)
text = "Using backward() with create_graph=True will create a reference cycle"
found = [w for w in seen if text in str(w.message)]
assert len(found) == 1, [str(w.message) for w in seen]
assert issubclass(found[0].category, UserWarning)
