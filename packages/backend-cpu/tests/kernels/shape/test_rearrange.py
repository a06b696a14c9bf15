"""Kernels that turn arrays around or cut them to triangles."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_calls import DTYPES, run_kernel
from layouts import LAYOUTS, empty_like, sample

from pullback.testing.kernel_calls import E_VALUE, KernelError


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims", [(), (0,), (1,), (2,), (0, 2), (0, 1, 2)])
def test_flip(dtype, layout, dims):
    for shape in ((3, 4, 5), (2, 1, 70), (2, 0, 3)):
        values = sample(dtype, shape)
        out = empty_like(values, layout=layout)
        run_kernel("flip", out, [LAYOUTS[layout](values)], dims)
        np.testing.assert_array_equal(out, np.flip(values, dims))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("diagonal", [-9, -2, -1, 0, 1, 3, 9])
def test_triangles(dtype, layout, diagonal):
    for shape in ((4, 4), (3, 5), (6, 2), (2, 3, 4, 5), (0, 3), (1, 1)):
        values = sample(dtype, shape)
        for primitive, cut in (("tril", np.tril), ("triu", np.triu)):
            out = empty_like(values, layout=layout)
            run_kernel(primitive, out, [LAYOUTS[layout](values)], diagonal)
            np.testing.assert_array_equal(out, cut(values, diagonal))


def test_triangles_need_two_dimensions():
    with pytest.raises(KernelError) as info:
        run_kernel("tril", np.zeros(3), [np.zeros(3)], 0)
    assert info.value.code == E_VALUE
