"""torch's private name of ``pullback.utils.pytree``, which many programs import."""

import sys

from pullback.utils import pytree

sys.modules[__name__] = pytree
