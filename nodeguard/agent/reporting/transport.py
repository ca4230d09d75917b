"""A way to one receiver, whatever it is made of."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

# Seconds for one exchange with its connection.
DEADLINE = 10.0


class Answer(Struct, frozen=True):
    """What came back. status: HTTP's. put_off: seconds that the receiver wants to be left alone."""

    status: int
    body: bytes
    put_off: float = 0.0


class TransportError(Exception):
    """No answer came, or none that can be used; says why and how to remedy."""


class Transport(Protocol):
    """A way to one receiver. It belongs to one thread, but for hurry."""

    name: str

    def post(self, body: bytes, within: float) -> Answer:
        """Send a message and wait for the answer, so many seconds at most. Raises TransportError."""

    def hurry(self, until: float) -> None:
        """Be done by a moment of time.monotonic, with what is under way too. The latest word counts."""

    def close(self) -> None:
        """Close what is open; a later message opens it again."""
