"""Modules on several devices: all work is done on one."""

from __future__ import annotations

import pullback
from pullback import Tensor
from pullback._help import explain_names as _explain_names
from pullback.nn.modules.module import Module

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]  # noqa: F822


def _device_of(device_ids):
    """Return the device that does the work; None without GPUs, where the module stays."""
    if not pullback.cuda.is_available():
        return None
    if device_ids is None:
        return pullback.device("cuda", 0)
    first = next(iter(device_ids), None)
    return first if first is None or isinstance(first, pullback.device) else _cuda(first)


def _cuda(index):
    return pullback.device("cuda", index) if isinstance(index, int) else pullback.device(index)


def _moved(value, device):
    """Move the tensors in nested arguments to a device."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_moved(item, device) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(item, device) for item in value)
    if isinstance(value, dict):
        return type(value)((key, _moved(item, device)) for key, item in value.items())
    return value


class DataParallel(Module):
    """Call a module; the keys of its state dict begin with ``module.``, as in torch.

    Without GPUs the module is called as it is. With them it moves to the first of ``device_ids``,
    which does all the work, and so do the arguments of each call; results are on
    ``output_device``. ``dim`` is the dim that would be split between devices.

    >>> import pullback
    >>> model = pullback.nn.DataParallel(pullback.nn.Linear(3, 2))
    >>> list(model.state_dict()), model(pullback.ones(5, 3)).shape
    (['module.weight', 'module.bias'], pullback.Size([5, 2]))
    """

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        device = _device_of(device_ids)
        self.module = module
        self.dim = dim
        self.device_ids = [] if device is None else [device.index or 0]
        if device is not None:
            self.output_device = device if output_device is None else _cuda(output_device)
            module.to(device)

    def forward(self, *inputs, **kwargs):
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        device = _cuda(self.device_ids[0])
        result = self.module(*_moved(inputs, device), **_moved(kwargs, device))
        return _moved(result, self.output_device)


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """Call a module as ``DataParallel`` does, with a tuple of inputs or one input.

    >>> import pullback
    >>> from pullback.nn.parallel import data_parallel
    >>> data_parallel(pullback.nn.Identity(), pullback.ones(2))
    tensor([1., 1.])
    """
    if not isinstance(inputs, tuple):
        inputs = () if inputs is None else (inputs,)
    return DataParallel(module, device_ids, output_device, dim)(*inputs, **(module_kwargs or {}))


def _find(name):
    """Return ``DistributedDataParallel`` of the package pullback-distributed, or what refuses."""
    if name == "DistributedDataParallel":
        return pullback.distributed.DistributedDataParallel
    return None


_explain_names(globals(), _find)
