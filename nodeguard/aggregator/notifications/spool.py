"""The spool: notifications that a webhook has not accepted yet, in order and bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from nodeguard.aggregator.notifications.formats import Notification

# Notifications for each webhook: those of a bad day. One has less than 4 KiB.
MAX_PENDING = 1000

# Bytes of a spool file.
FILE_LIMIT = 64 << 20

VERSION = 1


class _SpoolFile(Struct, frozen=True):
    version: int
    pending: dict[str, tuple[Notification, ...]]


class SpoolError(Exception):
    """A spool file cannot be used. The message has the reason."""


class NotificationSpool:
    """The pending notifications of each webhook, oldest first. No input or output.

    dropped: notifications that were removed because a webhook had MAX_PENDING of them, by webhook. revision:
    increases with each change.
    """

    def __init__(self, webhooks: Iterable[str]) -> None:
        self._pending: dict[str, deque[Notification]] = {name: deque() for name in webhooks}
        self.dropped = dict.fromkeys(self._pending, 0)
        self.revision = 0

    def put(self, webhook: str, notification: Notification) -> None:
        """Add a notification. If there are too many, the oldest of the webhook is dropped."""
        pending = self._pending[webhook]
        if len(pending) >= MAX_PENDING:
            pending.popleft()
            self.dropped[webhook] += 1
        pending.append(notification)
        self.revision += 1

    def first(self, webhook: str) -> Notification | None:
        """Return the oldest notification of a webhook; None if there is none."""
        pending = self._pending[webhook]
        return pending[0] if pending else None

    def remove(self, webhook: str, notification: Notification) -> None:
        """Remove a notification that was sent or refused for good. It may have been dropped meanwhile."""
        pending = self._pending[webhook]
        if pending and pending[0].id == notification.id:
            pending.popleft()
            self.revision += 1

    def pending(self, webhook: str) -> int:
        """Return the number of pending notifications of a webhook."""
        return len(self._pending[webhook])

    def encode(self) -> bytes:
        """Return the content of the spool file."""
        return msgspec.json.encode(
            _SpoolFile(VERSION, {name: tuple(pending) for name, pending in self._pending.items() if pending})
        )

    def restore(self, content: bytes) -> None:
        """Restore the notifications in a spool file, without those of removed webhooks. Raises SpoolError."""
        try:
            stored = msgspec.json.decode(content, type=_SpoolFile)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SpoolError(f"it is damaged: {error}") from None
        if stored.version != VERSION:
            raise SpoolError(f"it has version {stored.version}, this nodeguard reads {VERSION}")
        for name, pending in stored.pending.items():
            if name in self._pending:
                self._pending[name].extendleft(reversed(pending[-MAX_PENDING:]))
