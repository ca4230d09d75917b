"""Everybody who is told of a node, each by a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from nodeguard.agent.reporting.delivery_state import DeliveryQueue
from nodeguard.agent.reporting.endpoint_pool import Name, Replicas
from nodeguard.agent.reporting.http1 import Transport
from nodeguard.agent.reporting.sender import Sender
from nodeguard.agent.reporting.thread import SenderThread
from nodeguard.model.instant import Instant


class Senders:
    """Everybody who is told. transports: to receivers that stay where they are. names: of those who may come
    and go. For the others see Sender.
    """

    def __init__(
        self,
        transports: Sequence[Transport],
        mailbox: DeliveryQueue,
        jitter: Callable[[], float],
        tell: Callable[[str], None],
        names: Sequence[Name] = (),
    ) -> None:
        def sender(transport: Transport) -> Sender:
            return Sender(transport, mailbox, jitter, tell)

        self._senders = [sender(one) for one in transports]
        self._replicas = [Replicas(name, sender, jitter, tell) for name in names]
        self._fixed: list[SenderThread] = []
        mailbox.wake = self._wake

    def heard(self) -> dict[str, float]:
        """When each receiver last heard of this node, in seconds since boot, by its name; -inf for never."""
        found = {one.transport.name: one.line.heard for one in self._senders}
        for replicas in self._replicas:
            found |= replicas.heard()
        return found

    def begin(self, now: Callable[[], Instant]) -> None:
        """Begin to send. now: gives the moment."""
        self._fixed = [SenderThread(one, now) for one in self._senders]
        for replicas in self._replicas:
            replicas.begin(now)

    def end(self, within: float) -> None:
        """Send what is left, and wait for that, so many seconds at most."""
        until = time.monotonic() + within
        for replicas in self._replicas:
            replicas.end()
        for one in self._fixed:
            one.end()
        for one in self._threads():
            one.join(until)

    def _threads(self) -> list[SenderThread]:
        return [*self._fixed, *(one for replicas in self._replicas for one in replicas.threads)]

    def _wake(self) -> None:
        for one in self._threads():
            one.wake.set()
