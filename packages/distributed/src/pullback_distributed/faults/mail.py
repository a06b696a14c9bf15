"""Short messages between the watches of all ranks, which nobody waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pullback_distributed import mpi as MPI


class Mail:
    """Messages on a communicator of their own. One thread at a time may take them."""

    def __init__(self, communicator: MPI.Intracomm) -> None:
        self.communicator = communicator
        self.rank = communicator.rank
        self.size = communicator.size
        self._sent: list[MPI.Request] = []  # they hold the memory

    def tell(self, place: int, message: Any) -> None:
        """Send a message to a rank."""
        self._sent.append(self.communicator.isend(message, place))

    def tell_all(self, message: Any) -> None:
        """Send a message to all other ranks."""
        for place in range(self.size):
            if place != self.rank:
                self.tell(place, message)

    def take(self) -> Iterator[tuple[int, Any]]:
        """Yield the messages that are here, each with the rank that sent it."""
        self._sent = [request for request in self._sent if not request.Test()]
        status = MPI.Status()
        while True:
            found = self.communicator.improbe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
            if found is None:
                return
            yield status.source, found.recv()

    def close(self) -> None:
        """Free the communicator, when all have taken what was sent to them."""
        MPI.Request.Waitall(self._sent)
        self._sent.clear()
        self.communicator.Free()
