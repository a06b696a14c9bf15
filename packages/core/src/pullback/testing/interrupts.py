"""How long Ctrl-C takes to end a kernel: calls that run long, and the latency of a signal in them.

A backend's tests take each of `CALLS` and look at what `interrupt` measures. Operands are expanded
where a kernel allows it, so that a call can run for a second without much memory.

>>> from pullback.testing.interrupts import CALLS, interrupt
>>> sorted(CALLS)[:3]
['amax', 'argmax', 'argmax of rows']
>>> interrupt("sum", device="ref", seconds=0.0).kept
0
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pullback as pb

__all__ = ["CALLS", "Interrupted", "interrupt", "small_result"]

nn: Any = pb.nn.functional
linalg: Any = pb.linalg
Call = Callable[[], object]
Build = Callable[[int], Call]
SMALL = 70_000  # units of a call on whose work threads are worth their while


class Interrupted(NamedTuple):
    """What a signal did to a call."""

    ended: bool  # by the signal
    latency: float  # seconds from the signal until the call was over
    left: float  # seconds that it would have run on
    kept: int  # bytes more in use than before


def _numbers(n: int, dtype: pb.dtype = pb.float64) -> pb.Tensor:
    """Numbers of all sizes between 1 and 2, in no order."""
    return (pb.arange(n, dtype=pb.float64) * 0.6180339887498949).frac().add_(1).to(dtype)


def _side(n: int, power: float, times: int = 1) -> int:
    """The side of a square or cube of about n elements, a multiple of a number."""
    return max(int(n ** (1 / power)) // times, 1) * times


def _expanded(n: int, dtype: pb.dtype = pb.float32) -> pb.Tensor:
    return pb.ones(1, dtype=dtype).expand(n)


def _pow_strided(n: int) -> Call:
    x = _numbers(2 * n, pb.complex128)[::2]
    return lambda: x**1.3


def _pow_transposed(n: int) -> Call:
    side = _side(n, 2, 16)
    x, y = _numbers(side * side).reshape(side, side), _numbers(side)
    return lambda: pb.pow(x.t(), y)


def _pow_rows(n: int) -> Call:
    x, y = _numbers(n).reshape(1, -1), _numbers(3).reshape(3, 1)
    return lambda: pb.pow(x, y)


def _lgamma(n: int) -> Call:
    x = _numbers(n)
    return lambda: pb.lgamma(x)


def _where(n: int) -> Call:
    x = _numbers(1)
    return lambda: pb.where(_expanded(n, pb.bool), x.expand(n), x).sum()


def _cast(n: int) -> Call:
    return lambda: _expanded(n, pb.float16).to(pb.uint8)


def _rows(n: int, width: int = 8) -> pb.Tensor:
    return _numbers(width, pb.float32).expand(-(-n // width), width)


def _layer_norm(n: int) -> Call:
    x = _numbers(n, pb.float32).reshape(1, -1)
    return lambda: nn.layer_norm(x, (n,))


def _layer_norm_backward(n: int) -> Call:
    x, w = _numbers(n, pb.float32).reshape(1, -1).requires_grad_(), pb.ones(n, requires_grad=True)
    y = nn.layer_norm(x, (n,), w)
    return lambda: pb.autograd.grad(y, (x, w), pb.ones(1, 1).expand(1, n), retain_graph=True)


def _softmax(n: int) -> Call:
    x = _numbers(n)
    return lambda: pb.softmax(x, 0)


def _gather(n: int) -> Call:
    x = pb.arange(256, dtype=pb.int64).to(pb.uint8)
    index = pb.zeros(1, dtype=pb.int64).expand(n)
    return lambda: x.gather(0, index)


def _scatter_add(n: int) -> Call:
    index = pb.zeros(1, dtype=pb.int64).expand(n)
    return lambda: pb.zeros(8).scatter_add(0, index, _expanded(n))


def _index(n: int) -> Call:
    x = pb.arange(256, dtype=pb.int64).to(pb.uint8)
    index = pb.zeros(1, dtype=pb.int64).expand(n)
    return lambda: x[index]


def _index_rows(n: int) -> Call:
    x = _numbers(4, pb.float32).reshape(4, 1).expand(4, n // 300 + 1).contiguous()
    index = pb.zeros(300, dtype=pb.int64)
    return lambda: x[index]


def _index_put_rows(n: int) -> Call:
    index, width = pb.zeros(300, dtype=pb.int64), n // 300 + 1
    values = _expanded(300).reshape(300, 1).expand(300, width)
    return lambda: pb.zeros(4, width).index_put_((index,), values, accumulate=True)[0, :8]


def _index_put(n: int) -> Call:
    index = pb.zeros(1, dtype=pb.int64).expand(n)
    return lambda: pb.zeros(8).index_put_((index,), _expanded(n), accumulate=True)


def _searchsorted(n: int) -> Call:
    bounds, x = pb.arange(1 << 16, dtype=pb.float32), _expanded(n)
    return lambda: pb.searchsorted(bounds, x, out_int32=False)


def _matmul(dtype: pb.dtype, power: float = 3) -> Build:
    def build(n: int) -> Call:
        side = _side(n, power, 16)
        x = (_numbers(side * side) * 2).to(dtype).reshape(side, side)
        return lambda: x @ x.t()

    return build


def _long_sums(n: int) -> Call:
    x = _numbers(n // 4 * 2, pb.float32).reshape(-1, 2)
    return lambda: [x.t() @ x for _ in range(8)]


def _matvec(n: int) -> Call:
    x, y = _numbers(4096, pb.complex64), _numbers(4096, pb.complex64)
    rows = x.reshape(1, -1).expand(-(-n // 4096), 4096)
    return lambda: rows.contiguous() @ y


def _bmm(n: int) -> Call:
    x = _numbers(16 * 16, pb.float32).reshape(1, 16, 16).expand(-(-n // 4096), 16, 16)
    return lambda: (x @ x).sum()


def _dot(n: int) -> Call:
    x = _numbers(n, pb.float32)
    return lambda: [pb.dot(x, x) for _ in range(100)]


def _images(n: int) -> pb.Tensor:
    return (
        _numbers(16 * 64 * 64, pb.float32)
        .reshape(1, 16, 64, 64)
        .expand(-(-n // (16 * 64 * 64 * 16)), 16, 64, 64)
    )


def _conv(n: int) -> Call:
    x, w = _images(n).contiguous(), _numbers(16 * 16 * 9, pb.float32).reshape(16, 16, 3, 3)
    return lambda: nn.conv2d(x, w, padding=1)


def _conv_backward(wanted: int) -> Build:
    def build(n: int) -> Call:
        x, w = _images(n).contiguous(), _numbers(16 * 16 * 9, pb.float32).reshape(16, 16, 3, 3)
        (x, w)[wanted].requires_grad_()
        y = nn.conv2d(x, w, padding=1)
        return lambda: pb.autograd.grad(y.sum(), (x, w)[wanted], retain_graph=True)

    return build


def _conv_line(wanted: int) -> Build:
    def build(n: int) -> Call:
        x, w = _numbers(n, pb.float32).reshape(1, 1, -1), _numbers(3, pb.float32).reshape(1, 1, 3)
        (x, w)[wanted].requires_grad_()
        y = nn.conv1d(x, w)
        g = pb.ones(1, 1, 1).expand(y.shape)
        return lambda: pb.autograd.grad(y, (x, w)[wanted], g, retain_graph=True)

    return build


def _conv_long(n: int) -> Call:
    x = _numbers(_side(n, 2), pb.float32).reshape(1, 1, -1)
    return lambda: nn.conv1d(x, x[:, :, : x.shape[2] // 2])


def _pool(n: int) -> Call:
    x = _images(n)
    return lambda: nn.max_pool2d(x, 5, 1)


def _interpolate(n: int) -> Call:
    x = _images(4 * n)
    return lambda: nn.interpolate(x, scale_factor=2, mode="bilinear")


def _svd(n: int) -> Call:
    side = _side(n, 3)
    x = _numbers(side * side).reshape(side, side)
    return lambda: linalg.svd(x)


def _solve(dtype: pb.dtype) -> Build:
    def build(n: int) -> Call:
        side = _side(n, 3)
        x = _numbers(side * side).reshape(side, side).to(dtype) + pb.eye(side) * side
        return lambda: linalg.solve(x, x)

    return build


def _small_systems(n: int) -> Call:
    x = (pb.ones(3, 3) + pb.eye(3)).expand(n // 27 + 1, 3, 3)
    return lambda: linalg.solve(x, x)


def _random(draw: Callable[[int], pb.Tensor]) -> Build:
    def build(n: int) -> Call:
        def call() -> pb.Tensor:
            pb.manual_seed(7)
            return draw(n)

        return call

    return build


def _nll(n: int) -> Call:
    x = pb.zeros(1, 2).expand(n, 2)
    target = pb.zeros(n, dtype=pb.int64)
    return lambda: nn.nll_loss(x, target)


def _nll_backward(n: int) -> Call:
    x = _numbers(2 * n, pb.float32).reshape(1, 2, -1).requires_grad_()
    loss = nn.nll_loss(x, pb.zeros(1, 1, dtype=pb.int64).expand(1, n))
    return lambda: pb.autograd.grad(loss, x, retain_graph=True)


def _far_apart(n: int) -> Call:
    return lambda: pb.empty(n)[::1024].fill_(1)


def _chain(n: int) -> Call:
    x = pb.ones(2, requires_grad=True)
    y = x
    for _ in range(n // 50):
        y = y * 1.0
    return lambda: pb.autograd.grad(y.sum(), x, retain_graph=True)


def _on(make: Callable[[int], pb.Tensor], run: Callable[[pb.Tensor], object]) -> Build:
    def build(n: int) -> Call:
        x = make(n)
        return lambda: run(x)

    return build


# By name, a function of the number of elements or multiplications that makes a call.
CALLS: dict[str, Build] = {
    "lgamma": _lgamma,
    "exp": _on(_numbers, lambda x: x.exp()),
    "pow, strided": _pow_strided,
    "pow, transposed": _pow_transposed,
    "pow, few rows": _pow_rows,
    "where": _where,
    "cast": _cast,
    "sum": _on(_expanded, lambda x: x.sum()),
    "sum of rows": _on(_rows, lambda x: x.sum(0)),
    "prod, float64": _on(lambda n: _expanded(n, pb.float64), lambda x: x.prod()),
    "amax": _on(_expanded, lambda x: x.amax()),
    "argmax": _on(_expanded, lambda x: x.argmax()),
    "argmax of rows": _on(_rows, lambda x: x.argmax(0)),
    "var": _on(_expanded, lambda x: x.var()),
    "logsumexp": _on(_expanded, lambda x: x.logsumexp(0)),
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "cumsum": _on(_numbers, lambda x: x.cumsum(0)),
    "logcumsumexp": _on(_numbers, lambda x: x.logcumsumexp(0)),
    "cummax": _on(lambda n: _numbers(n, pb.float32), lambda x: x.cummax(0)),
    "sort": _on(_numbers, lambda x: x.sort()),
    "sort of rows": _on(lambda n: _numbers(n // 50 * 50).reshape(-1, 50), lambda x: x.sort()),
    "topk": _on(_expanded, lambda x: x.topk(5)),
    "kthvalue": _on(_numbers, lambda x: x.kthvalue(x.numel() // 2)),
    "unique": _on(lambda n: (_numbers(n) * 1000).to(pb.int64), lambda x: x.unique()),
    "bincount": _on(lambda n: _expanded(n, pb.int64), lambda x: x.bincount()),
    "nonzero": _on(lambda n: pb.zeros(1, dtype=pb.bool).expand(n), lambda x: x.nonzero()),
    "gather": _gather,
    "scatter_add": _scatter_add,
    "index": _index,
    "index, wide rows": _index_rows,
    "index_put": _index_put,
    "index_put, wide rows": _index_put_rows,
    "searchsorted": _searchsorted,
    "triu": _on(lambda n: _expanded(n, pb.uint8).reshape(1, -1), lambda x: x.triu()),
    "flip": _on(lambda n: _expanded(n, pb.uint8), lambda x: x.flip(0)),
    "matmul": _matmul(pb.float32),
    "matmul, float64": _matmul(pb.float64),
    "matmul, int8": _matmul(pb.int8),
    "matmul, bfloat16": _matmul(pb.bfloat16),
    "matmul, complex": _matmul(pb.complex128),
    "matmul, vector": _matvec,
    "matmul, long sums": _long_sums,
    "bmm": _bmm,
    "dot": _dot,
    "conv2d": _conv,
    "conv2d, gradient": _conv_backward(0),
    "conv2d, gradient of the weight": _conv_backward(1),
    "conv1d, gradient of a line": _conv_line(0),
    "conv1d, gradient of a line's weight": _conv_line(1),
    "max_pool2d": _pool,
    "conv1d, long kernel": _conv_long,
    "adaptive_avg_pool1d": _on(
        lambda n: pb.ones(1, 1, 1).expand(1, 1, n).contiguous(),
        lambda x: [nn.adaptive_avg_pool1d(x, 3) for _ in range(10)],
    ),
    "layer_norm, gradient": _layer_norm_backward,
    "split": _on(lambda n: _expanded(n // 50), lambda x: x.split(1)),
    "unbind": _on(lambda n: _expanded(n // 50), lambda x: x.unbind()),
    "interpolate": _interpolate,
    "svd": _svd,
    "solve": _solve(pb.float64),
    "solve, complex": _solve(pb.complex128),
    "solve, small matrices": _small_systems,
    "randn": _random(lambda n: pb.randn(n, dtype=pb.float64)),
    "randint": _random(lambda n: pb.randint(0, 9, (n,), dtype=pb.uint8)),
    "randperm": _random(pb.randperm),
    "nll_loss": _nll,
    "nll_loss, gradient": _nll_backward,
    "fill, far apart": _far_apart,
    "backward": _chain,
    "tolist": _on(lambda n: _expanded(n // 20), lambda x: x.tolist()),
}


def _flat(result: object) -> list[object]:
    """Everything that a call gave, as lists of numbers."""
    if isinstance(result, pb.Tensor):
        return [result.tolist()]
    if isinstance(result, (tuple, list)) and result and isinstance(result[0], pb.Tensor):
        return [one.tolist() for one in result]
    return [result]


def small_result(name: str, device: str = "cpu") -> list[object]:
    """Return what a call of moderate size gives, as lists: the same each time.

    >>> from pullback.testing.interrupts import small_result
    >>> small_result("sum", "ref")
    [70000.0]
    """
    with pb.device(device):
        return _flat(CALLS[name](SMALL)())


def _bytes_in_use(device: str) -> int:
    return int(pb.memory_stats(device)["allocated_bytes.all.current"])


def _time(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _sized(build: Build, device: str, seconds: float, memory: int) -> tuple[Call, float]:
    """Return a call that takes about so long, unless it would need more memory, and its time."""
    n = SMALL
    while True:
        before = _bytes_in_use(device)
        pb.reset_peak_memory_stats(device)
        call = build(n)
        took = _time(call)
        used = pb.memory_stats(device)["allocated_bytes.all.peak"] - before
        growth = min(1.2 * seconds / max(took, 1e-4), 8, memory / max(used, 1))
        if took >= seconds or growth < 1.2:
            return call, took
        del call
        n = int(n * max(growth, 1.5))


def interrupt(
    name: str, device: str = "cpu", seconds: float = 0.8, memory: int = 1 << 29
) -> Interrupted:
    """Start a call that takes so many seconds, and interrupt it after an eighth of them.

    The signal is that of a timer, whose handler raises KeyboardInterrupt as Ctrl-C does. A call
    that would need more bytes of memory is shorter.

    >>> from pullback.testing.interrupts import interrupt
    >>> interrupt("amax", device="ref", seconds=0.0).kept
    0
    """
    with pb.device(device):
        call, took = _sized(CALLS[name], device, seconds, memory)
        return _interrupt(call, took, device)


def _interrupt(call: Call, took: float, device: str) -> Interrupted:
    delay = max(took / 8, 1e-3)
    found = _interrupt_after(delay, call, took, device)
    while found.latency < 0 and delay > 1e-3:  # the call was over before the signal
        delay /= 2
        found = _interrupt_after(delay, call, took, device)
    return found


def _interrupt_after(delay: float, call: Call, took: float, device: str) -> Interrupted:
    before = _bytes_in_use(device)

    def handler(number: int, frame: object) -> None:
        if running:  # else the call was over before
            raise KeyboardInterrupt

    running = ended = True
    outer = signal.signal(signal.SIGALRM, handler)
    sent = time.perf_counter() + delay
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        call()
        running = ended = False
    except KeyboardInterrupt:
        pass
    finally:
        now = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, outer)
    return Interrupted(ended, now - sent, took - delay, _bytes_in_use(device) - before)
