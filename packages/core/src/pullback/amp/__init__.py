"""Mixed precision: regions in which ops choose the dtype of their operands, and scaled losses.

>>> import pullback as pb
>>> model = pb.nn.Linear(3, 2)
>>> with pb.autocast(pb.get_default_device().type):
...     y = model(pb.ones(1, 3))
>>> y.dtype, model.weight.dtype
(pullback.bfloat16, pullback.float32)
"""

from pullback._c.transforms.autocast import is_autocast_available
from pullback.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from pullback.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
