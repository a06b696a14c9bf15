"""What programs do with parameters and sequences beside layers.

``prune`` is imported on first use.
"""

from pullback._help import explain_names as _explain_names
from pullback.nn.utils import parametrizations, parametrize, rnn, stateless
from pullback.nn.utils.clip_grad import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)
from pullback.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from pullback.nn.utils.fusion import (
    fuse_conv_bn_eval,
    fuse_conv_bn_weights,
    fuse_linear_bn_eval,
    fuse_linear_bn_weights,
)
from pullback.nn.utils.init import skip_init
from pullback.nn.utils.memory_format import (
    convert_conv2d_weight_memory_format,
    convert_conv3d_weight_memory_format,
)
from pullback.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from pullback.nn.utils.weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]


def _find(name):
    if name == "prune":
        import importlib

        return importlib.import_module("pullback.nn.utils.prune")
    return None


_explain_names(globals(), _find)
