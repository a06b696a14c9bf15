"""Averages gradients over the processes while the backward pass goes on.

When the last gradient of a bucket is there, its collective is given to the progress thread; buckets
are reduced in the same order on all processes. The end of the backward pass gives away what is left
and waits. The order of the first backward pass, as the first process saw it, becomes that of the
buckets.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pullback._c.engine.engine import queue_callback

import pullback
from pullback import Tensor
from pullback_distributed.collectives.buffers import check_tensors
from pullback_distributed.collectives.movements import broadcast
from pullback_distributed.collectives.progress import CollectiveWork
from pullback_distributed.collectives.reductions import all_reduce
from pullback_distributed.data_parallel.buckets import GradBucket, buckets_of
from pullback_distributed.futures import Future
from pullback_distributed.groups.lifecycle import world
from pullback_distributed.groups.process_group import ProcessGroup

Hook = Callable[[Any, GradBucket], Future[Any]]


class Reducer:
    """Reduces the gradients of parameters; ``DistributedDataParallel`` holds one."""

    def __init__(
        self,
        parameters: Iterable[Tensor],
        group: ProcessGroup,
        bucket_bytes: int,
        as_views: bool,
        agrees: bool = True,  # on buckets in the order of the first backward pass
    ) -> None:
        self.parameters = list(parameters)
        self.group = group
        self.divisor = group.size()
        self.hook: Hook | None = None
        self.hook_state: Any = None
        self._bucket_bytes = bucket_bytes
        self._as_views = as_views
        self._reversed = range(len(self.parameters) - 1, -1, -1)
        self.buckets = buckets_of(self.parameters, self._reversed, bucket_bytes)
        # In which gradients came; None when buckets follow it.
        self._order: list[int] | None = [] if agrees else None
        self._active = False
        self._homes = self._homes_of(self.buckets)
        self._running: list[tuple[GradBucket, Any]] = []
        self._start()
        this = weakref.ref(self)
        self._handles = [
            parameter.register_post_accumulate_grad_hook(_on_gradient(this, place))
            for place, parameter in enumerate(self.parameters)
        ]

    @staticmethod
    def _homes_of(buckets: Sequence[GradBucket]) -> dict[int, tuple[GradBucket, int]]:
        """Return the bucket of each parameter and its place in it."""
        return {
            place: (bucket, index)
            for bucket in buckets
            for index, place in enumerate(bucket.places)
        }

    def _start(self) -> None:
        self._queued = False
        self._next = 0
        self._missing = [len(bucket.places) for bucket in self.buckets]
        self._ready = [False] * len(self.parameters)
        self._running = []

    def prepare(self, unused: Iterable[int] = ()) -> None:
        """Begin an iteration: the next backward pass reduces. Parameters may be out of its way."""
        for _, (work, _) in self._running:  # of a backward pass that failed
            _wait(work)
        self._start()
        self._active = True
        for place in unused:
            self._take(place)
        self._give_away()

    def rest(self) -> None:
        """Let backward passes accumulate gradients on this process alone."""
        self._active = False

    # -- during the backward pass ------------------------------------------------------------------

    def on_gradient(self, place: int) -> None:
        """Take the gradient of a parameter, which is complete."""
        if not self._active:
            return
        if not self._queued:
            self._queued = True
            queue_callback(self.finish)
        if self._ready[place]:
            self._mark_again(place)
            return
        if self._order is not None:
            self._order.append(place)
        self._take(place)
        self._give_away()

    def _take(self, place: int) -> None:
        self._ready[place] = True
        self._missing[self._homes[place][0].index()] -= 1
        self._mark(place)

    def _mark_again(self, place: int) -> None:
        """Take a gradient that came a second time in one backward pass.

        Raises: RuntimeError if the first one is under way.
        """
        if self._homes[place][0].index() < self._next:
            raise RuntimeError(
                f"DistributedDataParallel: parameter {place} of shape "
                f"{tuple(self.parameters[place].shape)} got a gradient again in the same backward "
                f"pass, when it was on its way to other processes: this comes of reentrant "
                f"checkpoints (use_reentrant=False avoids it), or of parameters that forward used "
                f"outside of the module's output"
            )
        self._mark(place)

    def _mark(self, place: int) -> None:
        """Put the gradient of a parameter into its bucket; zeros if it has none."""
        bucket, index = self._homes[place]
        parameter, view = self.parameters[place], bucket.views[index]
        grad = parameter.grad
        bucket.note_stream()
        with pullback.no_grad():
            bucket.used[index] = 0 if grad is None else 1
            if grad is None:
                view.zero_()
            elif self._divides_copies():
                pullback.div(grad, self.divisor, out=view)
            elif not _is_same_memory(grad, view):
                view.copy_(grad)

    def _divides_copies(self) -> bool:
        """Return whether gradients are divided on their way into the bucket.

        Hooks are given them as they are, and to those that are views of it more may be added.
        """
        return self.hook is None and not self._as_views

    def _give_away(self) -> None:
        """Begin to reduce the buckets that are complete, in their order."""
        while self._next < len(self.buckets) and not self._missing[self._next]:
            bucket = self.buckets[self._next]
            self._running.append((bucket, self._reduce(bucket)))
            self._next += 1

    def _reduce(self, bucket: GradBucket) -> Any:
        bucket.join_streams()
        if self.hook is not None:
            # The numbers travel by themselves: a hook has its own idea of what travels.
            used = all_reduce(bucket.used, group=self.group, async_op=True)
            return used, self.hook(self.hook_state, bucket)
        if not self._divides_copies():
            with pullback.no_grad():
                bucket.whole.div_(self.divisor)
        return all_reduce(bucket.whole, group=self.group, async_op=True), None

    def finish(self) -> None:
        """End the backward pass: reduce what is left, and put the gradients into place."""
        if not self._active:
            return
        for place, is_ready in enumerate(self._ready):
            if not is_ready:
                self._take(place)
        self._give_away()
        self._active = False
        for bucket, (work, future) in self._running:
            _wait(work)
            if future is not None:
                bucket.set_buffer(_result_of(future))
            self._put_into_place(bucket)
        self._running = []
        if self._order is not None:
            self._follow_the_order()

    def _put_into_place(self, bucket: GradBucket) -> None:
        used = bucket.used.tolist()
        with pullback.no_grad():
            for parameter, view, count in zip(bucket.parameters(), bucket.views, used, strict=True):
                if not count:
                    continue  # no process has a gradient
                if self._as_views:
                    parameter.grad = view
                elif parameter.grad is None:
                    parameter.grad = view.clone()
                else:
                    parameter.grad.copy_(view)

    def _follow_the_order(self) -> None:
        """Make buckets anew, in the order in which gradients came on the first process."""
        order, self._order = self._order or [], None
        came = [*order, *(place for place in self._reversed if place not in set(order))]
        agreed = pullback.tensor(came, dtype=pullback.int64, device=_host_device(self.parameters))
        if agreed.numel():
            broadcast(agreed, group=self.group, group_src=0)
        held = [parameter.grad for parameter in self.parameters] if self._as_views else []
        self.buckets = buckets_of(self.parameters, agreed.tolist(), self._bucket_bytes)
        self._homes = self._homes_of(self.buckets)
        with pullback.no_grad():
            for place, grad in enumerate(held):
                if grad is not None:
                    bucket, index = self._homes[place]
                    bucket.views[index].copy_(grad)
                    self.parameters[place].grad = bucket.views[index]

    # -- for processes without further inputs ------------------------------------------------------

    def shadow(self) -> None:
        """Take part in the backward pass of others, with gradients that are zero.

        Afterwards the parameters have the averaged gradients, which a step may need.
        """
        self._start()
        self._active = True
        for parameter in self.parameters:
            parameter.grad = None
        self.finish()

    def close(self) -> None:
        """Take the hooks off the parameters."""
        for handle in self._handles:
            handle.remove()


def synchronize_gradients(
    parameters: Iterable[Tensor],
    group: ProcessGroup | None = None,
    bucket_cap_mb: float = 25,
) -> None:
    """Average the gradients of parameters over the processes, after backward.

    All processes give parameters of the same shapes and dtypes in the same order. A parameter that
    has no gradient counts as zeros; if no process has one, ``grad`` stays None.
    Raises: TypeError if one is no tensor; ValueError before ``init_process_group``.

    >>> import pullback, pullback_distributed as dist
    >>> dist.init_process_group()
    >>> w = pullback.ones(2, requires_grad=True)
    >>> (w * 3).sum().backward()
    >>> dist.synchronize_gradients([w])
    >>> w.grad
    tensor([3., 3.])
    >>> dist.destroy_process_group()
    """
    parameters = list(parameters)
    check_tensors(parameters, "parameters")
    found = world() if group is None else group
    reducer = Reducer(parameters, found, int(bucket_cap_mb * 2**20), False, agrees=False)
    reducer.close()
    reducer.prepare()
    reducer.finish()


def _on_gradient(reducer: weakref.ref[Reducer], place: int) -> Callable[[Tensor], None]:
    def hook(parameter: Tensor) -> None:
        found = reducer()
        if found is not None:
            found.on_gradient(place)

    return hook


def _is_same_memory(a: Tensor, b: Tensor) -> bool:
    return a.data_ptr() == b.data_ptr() and a.stride() == b.stride()


def _host_device(parameters: Sequence[Tensor]) -> Any:
    return parameters[0].device if parameters else None


def _wait(work: Any) -> None:
    if isinstance(work, CollectiveWork):
        work.wait()


def _result_of(future: Any) -> Tensor:
    """Return the tensor that a hook has promised.

    Raises: TypeError if it is no tensor, nor a list with one.
    """
    value = future.wait() if hasattr(future, "wait") else future
    if isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    if not isinstance(value, Tensor):
        raise TypeError(
            f"a communication hook must return a Future of a tensor, but its value is of type "
            f"{type(value).__name__}"
        )
    return value
