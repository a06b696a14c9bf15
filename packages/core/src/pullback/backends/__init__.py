"""torch.backends' settings of vendors' libraries, which programs read and set.

Settings are kept and change no result: kernels choose by themselves, and compute as exactly with
every setting. ``cuda.matmul.allow_tf32`` is ``set_float32_matmul_precision``. How backends of
devices are added is in ``pullback.backend``.
"""

from pullback._help import explain_names as _explain_names
from pullback.backends import cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp", "opt_einsum"]


_explain_names(globals())
