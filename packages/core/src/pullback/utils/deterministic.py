"""What deterministic algorithms mean beside their results.

``fill_uninitialized_memory``, True at first: while ``use_deterministic_algorithms(True)`` holds,
new tensors whose elements nobody gave (``empty``, ``empty_like``, ``new_empty``, ``empty_strided``,
``empty_permuted``) hold NaN, True or the largest integer, so that a program that reads them gives
the same results each time.

>>> import pullback
>>> pullback.use_deterministic_algorithms(True)
>>> pullback.empty(2)
tensor([nan, nan])
>>> pullback.use_deterministic_algorithms(False)
>>> pullback.utils.deterministic.fill_uninitialized_memory
True
"""

import sys
import types

from pullback import _context


class _Deterministic(types.ModuleType):
    @property
    def fill_uninitialized_memory(self):
        return _context.fills_uninitialized_memory()

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode):
        _context.set_fill_uninitialized_memory(mode)


sys.modules[__name__].__class__ = _Deterministic
