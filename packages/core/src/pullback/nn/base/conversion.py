"""Devices and dtypes of a module's parameters and buffers."""

from __future__ import annotations

import pullback
from pullback import Tensor
from pullback.nn.parameter import Parameter


class ConversionMethods:
    """The methods of modules that move and cast parameters and buffers."""

    def apply(self, fn):
        """Call ``fn(module)`` on every submodule, then on the module; return it."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn, recurse=True):
        """Replace the memory of parameters, their gradients and buffers by what a function makes.

        Parameters stay the same objects, so that optimizers keep them, unless a switch of
        ``pullback.__future__`` says otherwise.
        """
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is not None:
                with pullback.no_grad():
                    self._parameters[name] = _converted_parameter(parameter, fn)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args, **kwargs):
        """Move and cast: ``to(device)``, ``to(dtype)``, ``to(device, dtype)`` or ``to(tensor)``.

        Only floating-point and complex parameters and buffers are cast. The module itself changes,
        and is returned.

        Raises: TypeError for an integer dtype.

        >>> import pullback
        >>> pullback.nn.Linear(2, 2).to(pullback.float64).weight.dtype
        pullback.float64
        """
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={dtype}"
            )

        def convert(tensor):
            inexact = tensor.is_floating_point() or tensor.is_complex()
            options = (
                {"memory_format": memory_format}
                if (memory_format is not None and tensor.dim() in (4, 5))
                else {}
            )
            return tensor.to(
                device or tensor.device,
                dtype if inexact and dtype is not None else tensor.dtype,
                non_blocking,
                **options,
            )

        return self._apply(convert)

    def _cast(self, dtype):
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self):
        """Cast floating-point parameters and buffers to float32."""
        return self._cast(pullback.float32)

    def double(self):
        """Cast floating-point parameters and buffers to float64."""
        return self._cast(pullback.float64)

    def half(self):
        """Cast floating-point parameters and buffers to float16."""
        return self._cast(pullback.float16)

    def bfloat16(self):
        """Cast floating-point parameters and buffers to bfloat16."""
        return self._cast(pullback.bfloat16)

    def type(self, dst_type):
        """Cast all parameters and buffers to a dtype."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self):
        """Move all parameters and buffers to the CPU."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device=None):
        """Move all parameters and buffers to a GPU."""
        return self._apply(lambda t: t.cuda(device))

    def to_empty(self, *, device, recurse=True):
        """Move to a device without copying: elements are uninitialised there."""
        return self._apply(lambda t: pullback.empty_like(t, device=device), recurse=recurse)

    def share_memory(self):
        """Move parameters and buffers into memory that other processes can use."""
        return self._apply(lambda t: t.share_memory_())


def _parse_to(*args, device=None, dtype=None, non_blocking=False, copy=False, memory_format=None):
    """Return (device, dtype, non_blocking, memory_format) of the arguments of ``Module.to``."""
    args = list(args)
    if args and isinstance(args[0], Tensor):
        other = args.pop(0)
        device, dtype = other.device, other.dtype
    elif args and (args[0] is None or isinstance(args[0], (str, int, pullback.device))):
        device = args.pop(0)
    if args and (args[0] is None or isinstance(args[0], pullback.dtype)):
        dtype = args.pop(0)
    if args:
        non_blocking = args.pop(0)
    if len(args) > 1:
        raise TypeError(f"to(): {len(args) - 1} arguments more than expected")
    return (
        pullback.device(device) if device is not None else None,
        dtype,
        non_blocking,
        memory_format,
    )


def _converted_parameter(parameter, fn):
    """Return the parameter of a converted module: the same object, or a new one if asked for."""
    grad, switches = parameter.grad, pullback.__future__
    swap = switches.get_swap_module_params_on_conversion()
    made = parameter
    if swap or switches.get_overwrite_module_params_on_conversion():
        made = Parameter(fn(parameter.detach()), parameter.requires_grad)
    else:
        parameter.data = fn(parameter.data)
    if grad is not None:
        made.grad = None
        made.grad = fn(grad.detach()).requires_grad_(grad.requires_grad)
    if not swap:
        return made
    pullback.utils.swap_tensors(parameter, made)
    return parameter
