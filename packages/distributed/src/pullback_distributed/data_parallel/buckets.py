"""Gradients in flat buffers, which travel as one message each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pullback
from pullback import Tensor

FIRST_BYTES = 1 << 20  # of the first bucket, which so begins to travel early


class GradBucket:
    """The gradients of some parameters, one after the other in a buffer: what hooks are given.

    Behind the gradients the buffer has a number for each parameter, which is 1 where it has a
    gradient: summed over the processes it says whether any has.
    """

    def __init__(self, index: int, parameters: Sequence[Tensor], places: Sequence[int]) -> None:
        self._index = index
        self._parameters = list(parameters)
        self.places = list(places)  # of the parameters among those of the reducer
        self._is_last = False
        self._streams: set[Any] = set()  # of a CUDA device, on which gradients were put here
        count = sum(parameter.numel() for parameter in parameters)
        first = parameters[0]
        self.whole = pullback.zeros(count + len(parameters), dtype=first.dtype, device=first.device)
        self._gradients = self.whole[:count]
        self.used = self.whole[count:]
        self.views: list[Tensor] = []
        start = 0
        for parameter in parameters:
            stop = start + parameter.numel()
            self.views.append(self.whole[start:stop].view(parameter.shape))
            start = stop

    def index(self) -> int:
        """Return the number of the bucket, in the order in which buckets are reduced."""
        return self._index

    def buffer(self) -> Tensor:
        """Return the gradients as one tensor of one dim."""
        return self._gradients

    def replace_buffer(self, buffer: Tensor) -> None:
        """Let another tensor stand for the gradients until it is replaced again."""
        self._gradients = buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Replace the values of the gradients."""
        self._gradients.copy_(buffer)

    def gradients(self) -> list[Tensor]:
        """Return the gradients, as views of the buffer in the shapes of the parameters."""
        return list(self.views)

    def parameters(self) -> list[Tensor]:
        """Return the parameters, in the order of their gradients."""
        return list(self._parameters)

    def note_stream(self) -> None:
        """Remember that a gradient is put into the buffer on the current stream."""
        if self.whole.is_cuda:
            self._streams.add(pullback.cuda.current_stream(self.whole.device))

    def join_streams(self) -> None:
        """Let the current stream wait for all gradients."""
        if self._streams:
            current = pullback.cuda.current_stream(self.whole.device)
            for stream in self._streams - {current}:
                current.wait_stream(stream)
            self._streams.clear()

    def is_last(self) -> bool:
        """Return whether this is the last bucket of a backward pass."""
        return self._is_last

    def mark_last(self) -> None:
        """Make this the last bucket."""
        self._is_last = True


def buckets_of(parameters: Sequence[Tensor], order: Sequence[int], nbytes: int) -> list[GradBucket]:
    """Return buckets of at most so many bytes, a larger parameter has its own, in an order.

    Those of one bucket have one dtype and device; the first bucket is at most ``FIRST_BYTES``.
    """
    filling: dict[object, tuple[list[int], int]] = {}
    groups: list[list[int]] = []
    limit = min(FIRST_BYTES, nbytes)
    for place in order:
        parameter = parameters[place]
        key = (parameter.dtype, parameter.device)
        size = parameter.numel() * parameter.element_size()
        places, filled = filling.get(key, ([], 0))
        if places and filled + size > limit:
            groups.append(places)
            limit, places, filled = nbytes, [], 0
        filling[key] = ([*places, place], filled + size)
    groups += [places for places, _ in filling.values()]
    made = [
        GradBucket(index, [parameters[place] for place in places], places)
        for index, places in enumerate(groups)
    ]
    if made:
        made[-1].mark_last()
    return made
