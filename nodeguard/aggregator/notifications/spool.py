"""The spool: notifications that a webhook has not accepted yet, in order and bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.aggregator.notifications.formats import Notification
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident
from nodeguard.model.instant import parse_or_zero

# Notifications for each webhook: those of a bad day. One has less than 6 KiB.
MAX_PENDING = 1000

# Seconds after which a notification is not sent any more, except that of an end.
MAX_AGE = 86_400.0

# Bytes of a spool file: of 20 webhooks with MAX_PENDING notifications and with 20,000 open incidents.
FILE_LIMIT = 256 << 20

VERSION = 1


class _SpoolFile(Struct, frozen=True):
    """The content of a file. open: the health in the latest notification, by webhook and incident.
    incidents: those that are open for a webhook.
    """

    version: int
    pending: dict[str, tuple[Notification, ...]]
    open: dict[str, dict[str, Health]] = {}
    incidents: tuple[Incident, ...] = ()


class SpoolError(Exception):
    """A spool file cannot be used. The message has the reason."""


class NotificationSpool:
    """The pending notifications of each webhook, oldest first. No input or output.

    dropped: notifications that were removed because a webhook had MAX_PENDING of them, or after MAX_AGE, by
    webhook. revision: increases with each change.
    """

    def __init__(self, webhooks: Iterable[str]) -> None:
        self._pending: dict[str, list[Notification]] = {name: [] for name in webhooks}
        self.dropped = dict.fromkeys(self._pending, 0)
        self.revision = 0

    def put(self, webhook: str, notification: Notification) -> None:
        """Add a notification. If there are too many, others of the webhook are dropped: see _surplus."""
        pending = self._pending[webhook]
        pending.append(notification)
        self.revision += 1
        if len(pending) > MAX_PENDING:
            self._drop(webhook, _surplus(pending))

    def drop_old(self, webhook: str, now: float) -> None:
        """Drop notifications after MAX_AGE. Of an end only if its beginning is dropped, too: a receiver that
        has the incident open needs it. now: seconds since the epoch.
        """
        pending = self._pending[webhook]
        if pending and now - parse_or_zero(pending[0].at) > MAX_AGE:
            old = [item for item in pending if now - parse_or_zero(item.at) > MAX_AGE]
            self._drop(webhook, _without_needed_ends(old))

    def _drop(self, webhook: str, ids: set[str]) -> None:
        pending = self._pending[webhook]
        self._pending[webhook] = [item for item in pending if item.id not in ids]
        self.dropped[webhook] += len(pending) - len(self._pending[webhook])
        self.revision += bool(ids)

    def first(self, webhook: str) -> Notification | None:
        """Return the oldest notification of a webhook; None if there is none."""
        pending = self._pending[webhook]
        return pending[0] if pending else None

    def remove(self, webhook: str, notification: Notification) -> None:
        """Remove a notification that was sent or refused for good. It may have been dropped meanwhile."""
        pending = self._pending[webhook]
        if pending and pending[0].id == notification.id:
            pending.pop(0)
            self.revision += 1

    def pending(self, webhook: str) -> int:
        """Return the number of pending notifications of a webhook."""
        return len(self._pending[webhook])

    def encode(self, opened: Mapping[str, Mapping[str, Incident]]) -> bytes:
        """Return the content of the spool file. opened: the open incidents of each webhook, by name."""
        healths = {
            webhook: {name: incident.health for name, incident in incidents.items()}
            for webhook, incidents in opened.items()
        }
        incidents = {name: item for by_name in opened.values() for name, item in by_name.items()}
        pending = {name: tuple(items) for name, items in self._pending.items() if items}
        return msgspec.json.encode(_SpoolFile(VERSION, pending, healths, tuple(incidents.values())))

    def restore(self, content: bytes) -> dict[str, dict[str, Incident]]:
        """Restore the notifications in a spool file, without those of removed webhooks. Returns the incidents
        that are open for each webhook, by name. Raises SpoolError.
        """
        try:
            stored = msgspec.json.decode(content, type=_SpoolFile)
        except (msgspec.DecodeError, RecursionError) as error:
            raise SpoolError(f"it is damaged: {error}") from None
        if stored.version != VERSION:
            raise SpoolError(f"it has version {stored.version}, this nodeguard reads {VERSION}")
        for name, pending in stored.pending.items():
            if name in self._pending:
                self._pending[name] = [*pending[-MAX_PENDING:], *self._pending[name]]
        incidents = {incident.name: incident for incident in stored.incidents}
        return {
            webhook: {
                name: replace(incidents[name], health=health)
                for name, health in healths.items()
                if name in incidents
            }
            for webhook, healths in stored.open.items()
        }


def _without_needed_ends(old: Iterable[Notification]) -> set[str]:
    """Return the ids of notifications, without the ends of incidents that the receiver has open."""
    ids, unsent = set[str](), set[str]()
    for item in old:
        if item.change == "opened":
            unsent.add(item.incident)
        if item.change != "resolved" or item.incident in unsent:
            ids.add(item.id)
        if item.change == "resolved":
            unsent.discard(item.incident)
    return ids


def _surplus(pending: list[Notification]) -> set[str]:
    """Return the ids of the notifications to drop from a full list, at least one.

    First the oldest update, as a later notification has the state. Then the oldest incident that began and
    ended while the receiver was down: both notifications. Then the oldest beginning, last the oldest end. The
    first of the list is being sent.
    """
    rest = pending[1:]
    for item in rest:
        if item.change == "updated":
            return {item.id}
    ends = {item.incident: item.id for item in reversed(rest) if item.change == "resolved"}
    beginnings = [item for item in rest if item.change == "opened"]
    for item in beginnings:
        if item.incident in ends:
            return {item.id, ends[item.incident]}
    return {(beginnings or rest)[0].id}
