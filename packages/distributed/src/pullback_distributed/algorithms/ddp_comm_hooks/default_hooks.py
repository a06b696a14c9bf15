"""Hooks that average gradients, in their own dtype or in a shorter one.

A hook gets its state, here a process group or None for that of all processes, and a bucket; it
returns the future of the averaged gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pullback
from pullback import Tensor
from pullback_distributed.collectives.progress import CollectiveWork
from pullback_distributed.collectives.reductions import all_reduce
from pullback_distributed.data_parallel.buckets import GradBucket
from pullback_distributed.futures import Future
from pullback_distributed.groups.lifecycle import world
from pullback_distributed.groups.process_group import ProcessGroup

Hook = Callable[[Any, GradBucket], Future[Any]]


def _averaged(group: ProcessGroup | None, tensor: Tensor) -> Future[Any]:
    found = world() if group is None else group
    with pullback.no_grad():
        tensor.div_(found.size())
    work = all_reduce(tensor, group=found, async_op=True)
    assert isinstance(work, CollectiveWork)
    return work.get_future()


def allreduce_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """Average the gradients as they are, which is what happens without a hook."""
    return _averaged(process_group, bucket.buffer()).then(lambda done: done.value()[0])


def _compressed(
    group: ProcessGroup | None, bucket: GradBucket, dtype: pullback.dtype
) -> Future[Tensor]:
    buffer = bucket.buffer()

    def widen(done: Future[Any]) -> Tensor:
        with pullback.no_grad():
            buffer.copy_(done.value()[0])
        return buffer

    return _averaged(group, buffer.to(dtype)).then(widen)


def fp16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """Average the gradients in float16; what is above 65504 becomes infinite."""
    return _compressed(process_group, bucket, pullback.float16)


def bf16_compress_hook(process_group: ProcessGroup | None, bucket: GradBucket) -> Future[Tensor]:
    """Average the gradients in bfloat16, which has 8 bits of precision."""
    return _compressed(process_group, bucket, pullback.bfloat16)


def _wrapped(hook: Hook, dtype: pullback.dtype) -> Hook:
    def run(state: Any, bucket: GradBucket) -> Future[Tensor]:
        whole = bucket.buffer()
        bucket.replace_buffer(whole.to(dtype))
        inner = hook(state, bucket)

        def widen(done: Future[Any]) -> Tensor:
            value = done.value()
            value = value[0] if isinstance(value, (list, tuple)) else value
            with pullback.no_grad():
                whole.copy_(value)
            bucket.replace_buffer(whole)
            return whole

        return inner.then(widen)

    return run


def fp16_compress_wrapper(hook: Hook) -> Hook:
    """Return a hook that gives the gradients in float16 to another one."""
    return _wrapped(hook, pullback.float16)


def bf16_compress_wrapper(hook: Hook) -> Hook:
    """Return a hook that gives the gradients in bfloat16 to another one."""
    return _wrapped(hook, pullback.bfloat16)
