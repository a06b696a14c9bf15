"""Scaled losses: gradients of 16-bit numbers stay above the smallest positive one."""

from __future__ import annotations

import inspect
import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

import pullback
from pullback import Tensor
from pullback.ops.rules.operands import all_hold

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """What a scaler did with an optimizer since the last ``update``.

    >>> from pullback.amp.grad_scaler import OptState
    >>> list(OptState)
    [<OptState.READY: 0>, <OptState.UNSCALED: 1>, <OptState.STEPPED: 2>]
    """

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh_state():
    return {"stage": OptState.READY, "found_inf_per_device": {}}


def _has_nonfinite(grads):
    """Return a 0-d float32 tensor: 1 if a gradient has an infinity or NaN, else 0."""
    flags = pullback.stack([grad.isfinite().all() for grad in grads])
    return flags.all().logical_not().float()


class GradScaler:
    """Multiplies losses by a factor, and gradients by its inverse before an optimizer's step.

    Gradients that are too small for float16 are kept so. ``step`` leaves out the step when a
    gradient is infinite or NaN; ``update`` then multiplies the factor by ``backoff_factor``, and by
    ``growth_factor`` after ``growth_interval`` steps in a row without one.

    Raises: AssertionError for a growth factor of at most 1, or a backoff factor of at least 1.

    >>> import pullback as pb
    >>> weight = pb.nn.Parameter(pb.ones(2))
    >>> optimizer = pb.optim.SGD([weight], lr=0.5)
    >>> scaler = pb.amp.GradScaler("cpu", init_scale=1024.0)
    >>> scaler.scale((3 * weight).sum()).backward()
    >>> weight.grad
    tensor([3072., 3072.])
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> weight
    Parameter containing:
    tensor([-0.5000, -0.5000], requires_grad=True)
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        if enabled and device == "cuda" and not pullback.cuda.is_available():
            warnings.warn(
                "pullback.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                stacklevel=2,
            )
            self._enabled = False
        if not self._enabled:
            return
        if not growth_factor > 1.0:
            raise AssertionError("The growth factor must be > 1.0.")
        if not backoff_factor < 1.0:
            raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale = init_scale
        self._scale: Any = None
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._growth_tracker: Any = None
        self._per_optimizer_states: defaultdict[int, dict[str, Any]] = defaultdict(_fresh_state)

    # -- losses ------------------------------------------------------------------------------------

    def scale(self, outputs):
        """Return a tensor, or the tensors of an iterable, times the factor.

        Raises: ValueError for anything else.

        >>> import pullback as pb
        >>> pb.amp.GradScaler("cpu", init_scale=4.0).scale([pb.ones(1), pb.ones(2)])
        [tensor([4.]), tensor([4., 4.])]
        """
        return self._scaled(outputs) if self._enabled else outputs

    def _scaled(self, value):
        if isinstance(value, Tensor):
            if self._scale is None:
                self._begin(value.device)
            # in 16 bits the factor could be infinite: it multiplies as a 0-d float32 tensor
            return value * self._scale.to(value.device, non_blocking=True)
        if not isinstance(value, Iterable):
            raise ValueError("outputs must be a Tensor or an iterable of Tensors")
        scaled = map(self._scaled, value)
        return type(value)(scaled) if isinstance(value, list | tuple) else scaled

    def _begin(self, device):
        self._scale = pullback.full((), self._init_scale, dtype=pullback.float32, device=device)
        self._growth_tracker = pullback.full(
            (), self._init_growth_tracker, dtype=pullback.int32, device=device
        )

    def _check_scale_growth_tracker(self, funcname):
        """Return the factor and the count of good steps; raises before the first ``scale``."""
        fix = (
            "This may indicate your script did not use scaler.scale(loss or outputs) earlier in "
            "the iteration."
        )
        if self._scale is None:
            raise AssertionError(f"Attempted {funcname} but _scale is None.  {fix}")
        return self._scale, self._growth_tracker

    # -- gradients ---------------------------------------------------------------------------------

    def _unscale_grads_(self, optimizer, inv_scale, allow_fp16):
        """Multiply gradients by a number; return for each device whether one is not finite."""
        by_device = defaultdict(list)
        with pullback.no_grad():
            for group in optimizer.param_groups:
                for param in group["params"]:
                    if param.grad is None:
                        continue
                    if param.grad.dtype == pullback.float16 and not allow_fp16:
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    by_device[param.grad.device].append(param.grad)
            found = {device: _has_nonfinite(grads) for device, grads in by_device.items()}
            for device, grads in by_device.items() if inv_scale is not None else ():
                factor = inv_scale.to(device, non_blocking=True)
                for grad in grads:
                    grad.mul_(factor)
        return found

    def unscale_(self, optimizer):
        """Divide the gradients of an optimizer's parameters by the factor, before its ``step``.

        Programs that clip or read gradients call it; otherwise ``step`` does.

        Raises: RuntimeError for a second call before ``update``, and after ``step``; ValueError for
        float16 gradients.

        >>> import pullback as pb
        >>> weight = pb.nn.Parameter(pb.ones(2))
        >>> optimizer, scaler = pb.optim.SGD([weight]), pb.amp.GradScaler("cpu")
        >>> scaler.scale(weight.sum()).backward()
        >>> scaler.unscale_(optimizer)
        >>> weight.grad
        tensor([1., 1.])
        """
        if not self._enabled:
            return
        scale, _ = self._check_scale_growth_tracker("unscale_")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        inverse = scale.double().reciprocal().float()
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, False)
        state["stage"] = OptState.UNSCALED

    def step(self, optimizer, *args, **kwargs):
        """Call ``optimizer.step(*args, **kwargs)`` unless a gradient is infinite or NaN.

        It divides gradients by the factor before, where ``unscale_`` did not. Returns what the
        optimizer returns, or None.

        Raises: RuntimeError for a closure, and for a second call before ``update``; AssertionError
        when no parameter has a gradient.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        self._check_scale_growth_tracker("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            result = self._step_of_scaling(optimizer, state, args, kwargs)
        else:
            if state["stage"] is OptState.READY:
                self.unscale_(optimizer)
            if not state["found_inf_per_device"]:
                raise AssertionError("No inf checks were recorded for this optimizer.")
            flags = state["found_inf_per_device"].values()
            is_finite = all(all_hold(flag == 0) for flag in flags)
            result = optimizer.step(*args, **kwargs) if is_finite else None
        state["stage"] = OptState.STEPPED
        return result

    def _step_of_scaling(self, optimizer, state, args, kwargs):
        """Make the step of an optimizer that divides by the factor itself."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warnings.warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed "
                "optimizer. In the near future GradScaler registers `grad_scale: Tensor` and "
                "`found_inf: Tensor` to the passed optimizer and let the optimizer use them "
                "directly.",
                FutureWarning,
                stacklevel=3,
            )
            return optimizer.step(*args, **kwargs, grad_scaler=self)
        scale = self._scale
        if state["stage"] is OptState.READY:
            self._check_inf_per_device(optimizer)
        flags = list(state["found_inf_per_device"].values())
        found = [flag.to(scale.device, non_blocking=True) for flag in flags]
        before = getattr(optimizer, "grad_scale", None)
        optimizer.grad_scale = None
        if state["stage"] is not OptState.UNSCALED:
            optimizer.grad_scale = scale if before is None else scale * before
        optimizer.found_inf = pullback.stack(found).sum() if found else None
        try:
            return optimizer.step(*args, **kwargs)
        finally:
            del optimizer.grad_scale
            del optimizer.found_inf

    def _check_inf_per_device(self, optimizer):
        """Look for infinities and NaN in gradients without changing them."""
        self._check_scale_growth_tracker("_check_inf_per_device")
        found = self._unscale_grads_(optimizer, None, True)
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = found
        return found

    def _found_inf_per_device(self, optimizer):
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]

    # -- the factor --------------------------------------------------------------------------------

    def update(self, new_scale=None):
        """Grow the factor or back off, by what the steps since the last call found; or set it.

        Raises: AssertionError when there was no step, and for a ``new_scale`` that is neither a
        float nor a tensor of one float without gradient.

        >>> import pullback as pb
        >>> scaler = pb.amp.GradScaler("cpu")
        >>> _ = scaler.scale(pb.ones(1))
        >>> scaler.update(8.0)
        >>> scaler.get_scale()
        8.0
        """
        if not self._enabled:
            return
        scale, tracker = self._check_scale_growth_tracker("update")
        if new_scale is not None:
            self._set_scale(scale, new_scale)
        else:
            found = [
                flag.to(scale.device, non_blocking=True)
                for state in self._per_optimizer_states.values()
                for flag in state["found_inf_per_device"].values()
            ]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._adapt(scale, tracker, pullback.stack(found).sum() > 0)
        self._per_optimizer_states.clear()

    def _adapt(self, scale, tracker, found):
        """Multiply the factor on its device, without waiting for it."""
        good = tracker + 1
        grows = good == self._growth_interval
        grown = scale * self._growth_factor
        grown = pullback.where(grows & grown.isfinite(), grown, scale)
        scale.copy_(pullback.where(found, scale * self._backoff_factor, grown))
        tracker.copy_(pullback.where(found | grows, pullback.zeros_like(good), good))

    def _set_scale(self, scale, new_scale):
        if isinstance(new_scale, float):
            scale.fill_(new_scale)
            return
        if (
            not isinstance(new_scale, Tensor)
            or not new_scale.is_floating_point()
            or new_scale.numel() != 1
            or new_scale.requires_grad
        ):
            raise AssertionError(
                "new_scale should be a float or a 1-element pullback.cuda.FloatTensor or "
                "pullback.FloatTensor with requires_grad=False."
            )
        scale.copy_(new_scale.reshape(()))

    def get_scale(self):
        """Return the factor as a number, 1.0 if the scaler is not enabled; waits for the device."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def _get_growth_tracker(self):
        if not self._enabled:
            return 0
        if self._growth_tracker is None:
            return self._init_growth_tracker
        return self._growth_tracker.item()

    def get_growth_factor(self):
        """Return what the factor is multiplied by after enough good steps."""
        return self._growth_factor

    def set_growth_factor(self, new_factor):
        """Set what the factor is multiplied by after enough good steps."""
        self._growth_factor = new_factor

    def get_backoff_factor(self):
        """Return what the factor is multiplied by after an infinite gradient."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor):
        """Set what the factor is multiplied by after an infinite gradient."""
        self._backoff_factor = new_factor

    def get_growth_interval(self):
        """Return after how many good steps the factor grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval):
        """Set after how many good steps the factor grows."""
        self._growth_interval = new_interval

    def is_enabled(self):
        """Return whether the scaler does anything."""
        return self._enabled

    # -- copies ------------------------------------------------------------------------------------

    def state_dict(self):
        """Return the factor, its parameters and the count of good steps; {} if not enabled.

        >>> import pullback as pb
        >>> pb.amp.GradScaler("cpu").state_dict()["growth_interval"]
        2000
        """
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict):
        """Restore what ``state_dict`` returned; nothing if the scaler is not enabled.

        Raises: RuntimeError for the state of a scaler that was not enabled.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved "
                "from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        self._growth_factor = state_dict["growth_factor"]
        self._backoff_factor = state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self):
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning "
                    "of an iteration, or at the end after scaler.update()."
                )
            state["_init_scale"] = self.get_scale()
            state["_init_growth_tracker"] = self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state

    def __setstate__(self, state):
        self.__dict__.update(state)
