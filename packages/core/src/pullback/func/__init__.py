"""Function transforms, with torch.func's interface."""

from pullback.func._forward import hessian, jacfwd, jvp, linearize
from pullback.func._reverse import grad, grad_and_value, jacrev, vjp
from pullback.func._vmap import vmap

__all__ = [
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "vjp",
    "vmap",
]
