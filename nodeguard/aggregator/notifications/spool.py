"""The spool file: notifications that no webhook has accepted, and what each has open. No input or output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.aggregator.notifications.formats import Notification
from nodeguard.aggregator.notifications.subscription import SubscriptionState
from nodeguard.delivery.queue import Message
from nodeguard.model.finding import Health
from nodeguard.model.incident import Incident
from nodeguard.model.json_decoder import JsonDecoder

# Seconds for which a notification waits. Then that of an open incident is replaced by its present state, and
# an incident that began and ended while the receiver was down is dropped.
MAX_AGE = 86_400.0

# Bytes of a spool file: of 20 webhooks with 1,000 notifications each, and with 20,000 open incidents.
FILE_LIMIT = 256 << 20

VERSION = 2

# The changes to drop first if the receiver needs all of them.
_DROP_ORDER = {"updated": 0, "opened": 1, "resolved": 2}


class _SpoolFile(Struct, frozen=True):
    """The content of a file. waiting: the messages by webhook. open: the health in the latest notification,
    by webhook and incident. incidents: those that are open for a webhook. later: `waiting` of the
    subscriptions.
    """

    version: int
    waiting: dict[str, tuple[Message, ...]]
    open: dict[str, dict[str, Health]] = {}
    incidents: tuple[Incident, ...] = ()
    later: dict[str, dict[str, str]] = {}


class SpoolError(Exception):
    """A spool file cannot be used. The message has the reason."""


def encode_spool(
    waiting: Mapping[str, tuple[Message, ...]], states: Mapping[str, SubscriptionState]
) -> bytes:
    """Return the content of the spool file. waiting: messages by webhook. states: of the subscriptions, by
    webhook.
    """
    content = _SpoolFile(
        VERSION,
        waiting={name: messages for name, messages in waiting.items() if messages},
        open={
            webhook: {name: incident.health for name, incident in state.open.items()}
            for webhook, state in states.items()
        },
        incidents=tuple(
            {name: item for state in states.values() for name, item in state.open.items()}.values()
        ),
        later={webhook: dict(state.waiting) for webhook, state in states.items() if state.waiting},
    )
    return msgspec.json.encode(content)


def decode_spool(content: bytes) -> tuple[Mapping[str, tuple[Message, ...]], dict[str, SubscriptionState]]:
    """Return the waiting messages in a spool file and the states of the subscriptions, both by webhook.

    Raises SpoolError.
    """
    try:
        stored = JsonDecoder(_SpoolFile).decode(content)
    except msgspec.DecodeError as error:
        raise SpoolError(f"it is damaged: {error}") from None
    if stored.version != VERSION:
        raise SpoolError(f"it has version {stored.version}, this nodeguard reads {VERSION}")
    incidents = {incident.name: incident for incident in stored.incidents}
    states = {
        webhook: SubscriptionState(
            {
                name: replace(incidents[name], health=health)
                for name, health in healths.items()
                if name in incidents
            },
            stored.later.get(webhook, {}),
        )
        for webhook, healths in stored.open.items()
    }
    return stored.waiting, states


def message_of(notification: Notification, now: float) -> Message:
    """Return the message of a notification. now: seconds since the epoch.

    The end of an incident does not expire: the receiver that has the beginning needs it.
    """
    return Message(
        id=notification.id,
        key=notification.incident,
        payload=msgspec.json.encode(notification),
        added_at=now,
        kind=notification.change,
        expires_at=None if notification.change == "resolved" else now + MAX_AGE,
    )


def least_needed(waiting: Sequence[Message]) -> Sequence[Message]:
    """Return the messages to drop if too many wait: first those that a receiver needs least.

    First the oldest update that a later notification of the incident follows. Then the incident that began
    and ended unseen, and that ended first. Then the oldest update, then the oldest beginning, last the oldest
    end.
    """
    latest = {item.key: item.id for item in waiting}
    for item in waiting:
        if item.kind == "updated" and latest[item.key] != item.id:
            return [item]
    unseen = next(_unseen(waiting), [])
    return unseen or [min(waiting, key=lambda item: _DROP_ORDER.get(item.kind, 0))]


def _unseen(waiting: Iterable[Message]) -> Iterator[list[Message]]:
    """Yield the messages of each incident that began and ended unseen, in the order of the ends."""
    unsent: dict[str, list[Message]] = {}
    for item in waiting:
        if item.kind == "opened":
            unsent[item.key] = []
        if item.key in unsent:
            unsent[item.key].append(item)
            if item.kind == "resolved":
                yield unsent.pop(item.key)
