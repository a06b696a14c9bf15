"""Which build of a kernel is loaded for an instruction set."""

import pytest

from pullback_cpu.runtime import isa

MODULES = [
    "k.sum_avx2",
    "k.sum_avx512",
    "k.sum_baseline",
    "k.copy_avx2",
    "k.copy_baseline",
    "k.fft",
]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("baseline", {"k.sum_baseline", "k.copy_baseline", "k.fft"}),
        ("avx2", {"k.sum_avx2", "k.copy_avx2", "k.fft"}),
        ("avx512", {"k.sum_avx512", "k.copy_avx2", "k.fft"}),
    ],
)
def test_widest_build_that_fits_is_loaded(monkeypatch, chosen, expected):
    monkeypatch.setattr(isa, "ISA", chosen)
    found = isa.builds_to_load(MODULES)
    assert set(found) == expected and len(found) == len(expected)
    assert set(isa.builds_to_load(MODULES[::-1])) == expected
