"""torch.onnx's question of programs that run eagerly: models are not exported to ONNX."""

from pullback._help import explain_names as _explain_names

__all__ = ["is_in_onnx_export"]


def is_in_onnx_export() -> bool:
    """Return False: no model is exported.

    >>> import pullback
    >>> pullback.onnx.is_in_onnx_export()
    False
    """
    return False


_explain_names(globals())
