"""The hooks that a backend plugin implements, found by pluggy and run once per device type."""

import pluggy

hookspec = pluggy.HookspecMarker("pullback")
hookimpl = pluggy.HookimplMarker("pullback")


@hookspec(firstresult=True)
def pullback_backend(device: str):
    """Return the memory of the device type, or None for a device type of another plugin.

    Either a PyCapsule named ``pb_backend`` that holds a ``pb_backend *`` of abi.h, valid until the
    process ends, or an object with the methods of ``pullback.backend.Memory``.
    """


@hookspec(firstresult=True)
def pullback_dtypes(device: str):
    """Return the dtypes that the device type has, as a mask of ``pullback.backend.masks``.

    None, and a plugin without the hook, stand for all dtypes. Tensors of the others are refused
    with a TypeError, kernels are registered without them, and the conformance suite leaves them
    out.
    """


@hookspec(firstresult=True)
def pullback_layouts(device: str):
    """Return the order of dims in memory that primitives of the device type prefer, by name.

    ``"channels_last"`` for ``conv``, ``conv_backward_input`` and ``conv_backward_weight``: their
    operands are copied into dense memory with dim 1 innermost unless they are so, and their output
    is allocated so. ``"column_major"`` for ``bmm``: the last two dims of its output are exchanged
    in memory; operands come with any strides. Other ops keep the order of their operands. None,
    and a plugin without the hook, stand for row-major.
    """


@hookspec
def pullback_register_kernels(table, device: str):
    """Add kernels of the device type: ``table.add(primitive, dtype_mask, capsule_or_callable)``."""


@hookspec(firstresult=True)
def pullback_requirements(device: str):
    """Return a ``pullback.testing.Requirements``: features that the suite must skip."""


@hookspec
def pullback_set_threads(count: int):
    """Set the number of threads that one op may use on the host."""
