"""Fourier transforms by cuFFT, against the CPU backend."""

import pytest

import pullback as pb

pytest.importorskip("nvmath.bindings")


def numbers(*shape, dtype):
    pb.manual_seed(3)
    return pb.randn(*shape, dtype=getattr(pb, dtype))


def close(found, expected, dtype):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    atol = 1e-4 if dtype in ("float32", "complex64") else 1e-11
    return pb.allclose(found.cpu(), expected, atol=atol)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dim", [(-1,), (0,), (2, 0), (0, 1, 2), (3, 0, 2, 1)])
@pytest.mark.parametrize("norm", ["ortho", "forward"])
def test_transforms_match_the_cpu(dtype, dim, norm):
    x = numbers(3, 4, 5, 2, dtype=dtype)
    z = numbers(3, 4, 5, 2, dtype={"float32": "complex64", "float64": "complex128"}[dtype])
    for name in ("fftn", "ifftn", "irfftn", "hfftn", "rfftn", "ihfftn"):
        transform = getattr(pb.fft, name)
        sizes = [4] * len(dim)  # more or fewer than there are
        for operand in (x, z, z.transpose(0, 2)):
            if operand.is_complex() and name in ("rfftn", "ihfftn"):
                continue
            found = transform(operand.cuda(), sizes, dim, norm)
            assert close(found, transform(operand, sizes, dim, norm), dtype)


def test_gradients_match_the_cpu():
    x = numbers(4, 6, dtype="float64")
    found = []
    for device in ("cpu", "cuda"):
        leaf = x.clone().to(device).requires_grad_()
        pb.fft.irfft2(pb.fft.rfft2(leaf) ** 2).pow(2).sum().backward()
        found.append(leaf.grad)
    assert close(found[1], found[0], "float64")


def test_plans_are_kept_and_the_oldest_are_given_up(monkeypatch):
    from pullback_cuda.runtime import cufft

    monkeypatch.setattr(cufft, "MOST_PLANS", 2)
    while cufft._plans:
        cufft._bindings().destroy(cufft._plans.popitem()[1])
    for size in (4, 5, 6, 5):
        pb.fft.fft(pb.ones(size, dtype=pb.complex64, device="cuda"))
    assert [key[3] for key in cufft._plans] == [(6,), (5,)]
