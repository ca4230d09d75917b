"""The spool: notifications that a webhook has not accepted yet, in order and bounded."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.aggregator.notifications.formats import Notification
from nodeguard.aggregator.notifications.subscription import ChangeKind, SubscriptionState
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident
from nodeguard.model.instant import parse_or_zero

# Notifications for each webhook: those of a bad day. One has less than 6 KiB.
MAX_PENDING = 1000

# Seconds for which an incident that began and ended while the receiver was down is kept after its end.
MAX_AGE = 86_400.0

# Bytes of a spool file: of 20 webhooks with MAX_PENDING notifications and with 20,000 open incidents.
FILE_LIMIT = 256 << 20

VERSION = 1

# The changes to drop first if the receiver needs all of them.
_DROP_ORDER: tuple[ChangeKind, ...] = ("updated", "opened", "resolved")


class _SpoolFile(Struct, frozen=True):
    """The content of a file. open: the health in the latest notification, by webhook and incident.
    incidents: those that are open for a webhook. waiting: see Subscription, by webhook.
    """

    version: int
    pending: dict[str, tuple[Notification, ...]]
    open: dict[str, dict[str, Health]] = {}
    incidents: tuple[Incident, ...] = ()
    waiting: dict[str, dict[str, str]] = {}


class SpoolError(Exception):
    """A spool file cannot be used. The message has the reason."""


class NotificationSpool:
    """The pending notifications of each webhook, oldest first. No input or output.

    dropped: notifications that were removed and not sent, by webhook. revision: increases with each change.
    The first notification of a webhook may be in transit: put does not drop it.
    """

    def __init__(self, webhooks: Iterable[str]) -> None:
        self._pending: dict[str, list[Notification]] = {name: [] for name in webhooks}
        self.dropped = dict.fromkeys(self._pending, 0)
        self.revision = 0

    def room(self) -> dict[str, int]:
        """Return for how many more notifications of each webhook there is room."""
        return {name: max(0, MAX_PENDING - len(pending)) for name, pending in self._pending.items()}

    def put(self, webhook: str, notification: Notification) -> Notification | None:
        """Add a notification. If there are too many, others of the webhook are dropped.

        First those that a receiver does not need, see _unneeded. Then the oldest update, then the oldest
        beginning, last the oldest end. Returns the dropped update or beginning: its incident has to be
        notified again.
        """
        pending = self._pending[webhook]
        pending.append(notification)
        self.revision += 1
        if len(pending) <= MAX_PENDING:
            return None
        unneeded = _unneeded(pending[1:])
        if unneeded:
            self._drop(webhook, unneeded)
            return None
        oldest = min(pending[1:], key=lambda item: _DROP_ORDER.index(item.change))
        self._drop(webhook, [oldest])
        return oldest if oldest.change != "resolved" else None

    def drop_old(self, webhook: str, now: float) -> None:
        """Drop incidents that began and ended unseen, MAX_AGE after their end. Other notifications stay: the
        receiver needs them to have the state. now: seconds since the epoch.
        """
        pending = self._pending[webhook]
        if pending and now - parse_or_zero(pending[0].at) > MAX_AGE:
            unseen = _unseen(pending)
            self._drop(
                webhook,
                [item for items in unseen if now - parse_or_zero(items[-1].at) > MAX_AGE for item in items],
            )

    def drop_ended(self, webhook: str, incidents: Container[str]) -> None:
        """Drop the notifications of incidents that are over, if another aggregator notifies their ends: the
        receiver could get a beginning after its end.
        """
        self._drop(webhook, [item for item in self._pending[webhook] if item.incident in incidents])

    def _drop(self, webhook: str, dropped: Collection[Notification]) -> None:
        if dropped:
            ids = {item.id for item in dropped}
            pending = self._pending[webhook]
            self._pending[webhook] = [item for item in pending if item.id not in ids]
            self.dropped[webhook] += len(pending) - len(self._pending[webhook])
            self.revision += 1

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

    def encode(self, states: Mapping[str, SubscriptionState]) -> bytes:
        """Return the content of the spool file. states: of the subscriptions, by webhook."""
        content = _SpoolFile(
            VERSION,
            pending={name: tuple(items) for name, items in self._pending.items() if items},
            open={
                webhook: {name: incident.health for name, incident in state.open.items()}
                for webhook, state in states.items()
            },
            incidents=tuple(
                {name: item for state in states.values() for name, item in state.open.items()}.values()
            ),
            waiting={webhook: dict(state.waiting) for webhook, state in states.items() if state.waiting},
        )
        return msgspec.json.encode(content)

    def restore(self, content: bytes) -> dict[str, SubscriptionState]:
        """Restore the notifications in a spool file, without those of removed webhooks. Returns the states of
        the subscriptions, by webhook. Raises SpoolError.
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
            webhook: SubscriptionState(
                {
                    name: replace(incidents[name], health=health)
                    for name, health in healths.items()
                    if name in incidents
                },
                stored.waiting.get(webhook, {}),
            )
            for webhook, healths in stored.open.items()
        }


def _unneeded(pending: Sequence[Notification]) -> Sequence[Notification]:
    """Return notifications of one incident that a receiver does not need to have the state.

    First the oldest update that a later notification of the incident follows. Then the incident that began
    and ended unseen, and that ended first.
    """
    latest = {item.incident: item.id for item in pending}
    for item in pending:
        if item.change == "updated" and latest[item.incident] != item.id:
            return [item]
    return next(_unseen(pending), [])


def _unseen(pending: Iterable[Notification]) -> Iterator[list[Notification]]:
    """Yield the notifications of each incident that began and ended unseen, in the order of the ends."""
    unsent: dict[str, list[Notification]] = {}
    for item in pending:
        if item.change == "opened":
            unsent[item.incident] = []
        if item.incident in unsent:
            unsent[item.incident].append(item)
            if item.change == "resolved":
                yield unsent.pop(item.incident)
