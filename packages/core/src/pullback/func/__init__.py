"""Function transforms, with torch.func's interface."""

from pullback._help import explain_names as _explain_names
from pullback.func._forward import hessian, jacfwd, jvp, linearize
from pullback.func._modules import (
    debug_unwrap,
    functional_call,
    replace_all_batch_norm_modules_,
    stack_module_state,
)
from pullback.func._reverse import grad, grad_and_value, jacrev, vjp
from pullback.func._vmap import vmap

__all__ = [
    "debug_unwrap",
    "functional_call",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]


_explain_names(globals())
