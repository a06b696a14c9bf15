"""torch.onnx's question of programs that run eagerly: models are not exported to ONNX."""

__all__ = ["is_in_onnx_export"]


def is_in_onnx_export() -> bool:
    """Return False: no model is exported.

    >>> import pullback
    >>> pullback.onnx.is_in_onnx_export()
    False
    """
    return False


def __getattr__(name):
    from pullback._help.names import missing

    raise missing("pullback.onnx", name)
