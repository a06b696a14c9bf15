"""Memory, copies, streams and errors of a device, through tensors as users have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pullback as pb
from pullback.backend.doctor.findings import Finding, attempt, expect_error

__all__ = ["examine_copies", "examine_errors", "examine_memory", "examine_streams"]

LARGE = 2**55  # bytes, which no device has


def _equal(found: Any, expected: Any) -> None:
    left, right = np.asarray(found), np.asarray(expected)
    assert left.shape == right.shape, f"shape {left.shape}, expected {right.shape}"
    assert (left == right).all(), f"{left.tolist()}, expected {right.tolist()}"


def _run(part: str, checks: dict[str, Callable[[], str | None]]) -> list[Finding]:
    return [attempt(part, what, check) for what, check in checks.items()]


def examine_memory(device: str, dtypes: list[Any]) -> list[Finding]:
    """Allocate blocks, free them, ask for none and for more than there is."""

    def in_use() -> int:
        return pb.memory_stats(device)["allocated_bytes.all.current"]

    def blocks() -> str:
        sizes = (1, 8, 63, 4096, 1 << 20)
        kept = [pb.empty(size, dtype=pb.uint8, device=device) for size in sizes]
        storages = {tensor.untyped_storage().data_ptr() for tensor in kept}
        assert len(storages) == len(kept), "two blocks have one handle"
        return f"{', '.join(map(str, sizes))} bytes"

    def freed() -> str:
        before = in_use()
        held = pb.empty(1 << 20, dtype=pb.uint8, device=device)
        counted = in_use() - before
        del held
        if not counted:
            return "memory_stats() counts nothing"
        assert in_use() == before, f"{in_use() - before} bytes are still in use"
        return f"{counted} bytes in use, then 0"

    def nothing() -> None:
        for shape in ((0,), (3, 0, 2)):
            empty = pb.empty(shape, dtype=dtypes[0], device=device)
            assert empty.cpu().tolist() == pb.empty(shape).tolist()

    def refusal() -> str:
        text = expect_error(MemoryError, lambda: pb.empty(LARGE, dtype=pb.uint8, device=device))
        pb.empty(8, dtype=pb.uint8, device=device)
        return text

    return _run(
        "memory",
        {
            "blocks of several sizes": blocks,
            "a block is freed": freed,
            "tensors of no elements": nothing,
            f"{LARGE} bytes are refused, and others still given": refusal,
        },
    )


def examine_copies(device: str, dtypes: list[Any]) -> list[Finding]:
    """Copy to the device, back, inside it, with strides, and between views of one block."""
    values = np.arange(24).reshape(4, 6)

    def there_and_back() -> str:
        for dtype in dtypes:
            host = pb.tensor(values % 2 if dtype == pb.bool else values, device="ref").to(dtype)
            back = host.to(device).to("ref")
            assert back.dtype == dtype, f"{dtype.name} became {back.dtype.name}"
            _equal(back.to(pb.complex128).numpy(), host.to(pb.complex128).numpy())
        return ", ".join(dtype.name for dtype in dtypes)

    def put() -> Any:
        return pb.tensor(values, dtype=pb.float32, device="ref").to(device)

    def strided() -> None:
        x = put()
        _equal(x.t().to("ref").numpy(), values.T)
        _equal(x[1:, ::2].to("ref").numpy(), values[1:, ::2])
        _equal(x[2].expand(3, 6).to("ref").numpy(), np.broadcast_to(values[2], (3, 6)))

    def into_views() -> None:
        x, expected = put(), values.copy()
        x[1:3, ::2] = pb.tensor(-1.0, device=device)
        x[:, 1].copy_(pb.tensor([7.0, 8.0, 9.0, 10.0]))
        expected[1:3, ::2], expected[:, 1] = -1, [7, 8, 9, 10]
        _equal(x.to("ref").numpy(), expected)

    def inside() -> None:
        x = put()
        copy = x.clone()
        copy.zero_()
        _equal(x.to("ref").numpy(), values)
        x[0].copy_(x[3])  # two parts of one block
        _equal(x[0].to("ref").numpy(), values[3])

    def overlapping() -> str:
        x = put().reshape(-1)
        return expect_error(RuntimeError, lambda: x[1:].copy_(x[:-1]))

    return _run(
        "copies",
        {
            "to the device and back": there_and_back,
            "from strided views to the host": strided,
            "from the host into strided views": into_views,
            "inside the device": inside,
            "overlapping views are refused": overlapping,
        },
    )


def examine_streams(device: str) -> list[Finding]:
    """Use a second stream, where the backend has streams."""
    stream = pb.backend.current_stream(device)
    try:
        pb.backend.set_stream(device, stream)
    except RuntimeError:
        return [Finding("streams", "the device has no streams", None, "work runs in order")]

    def order() -> str:
        x = pb.ones(1000, device=device)
        pb.backend.wait_stream(device, stream, device, stream)
        total = (x + x).sum()
        pb.synchronize(device)
        assert total.item() == 2000, f"the sum is {total.item()}, not 2000"
        return f"current stream {stream}"

    return [attempt("streams", "a stream waits and is synchronized with", order)]


def examine_errors(device: str) -> list[Finding]:
    """Make kernels fail; the device computes afterwards."""

    def afterwards() -> None:
        _equal((pb.ones(3, device=device) + 1).tolist(), [2, 2, 2])

    def index() -> str:
        x = pb.ones(3, device=device)
        wrong = pb.tensor([7], device=device)
        text = expect_error(IndexError, lambda: (x[wrong] + 1).tolist())
        afterwards()
        return text

    def division() -> str:
        x = pb.tensor([4, 2], device=device)
        text = expect_error(RuntimeError, lambda: (x // 0).tolist())
        assert "ZeroDivisionError" in text, text
        afterwards()
        return text

    def dtype() -> str:
        missing = [d for d in pb._dtypes() if not _offers(device, d)]
        if not missing:
            return "the device has every dtype"
        return expect_error(TypeError, lambda: pb.empty(1, dtype=missing[0], device=device))

    return _run(
        "errors",
        {
            "an index out of range": index,
            "integers divided by 0": division,
            "a dtype that the device does not have": dtype,
        },
    )


def _offers(device: str, dtype: Any) -> bool:
    """Tell whether a device says that it has a dtype."""
    from pullback.testing.requirements import requirements_of

    return dtype.name not in requirements_of(device).without_dtypes
