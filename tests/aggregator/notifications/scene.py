"""Webhooks, notifications and their sender for tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from nodeguard.aggregator.notifications.formats import Notification, notification_of
from nodeguard.aggregator.notifications.sender import FILE_NAME, NotificationSender
from nodeguard.aggregator.notifications.settings import NotificationSettings, Webhook, WebhookFormat
from nodeguard.aggregator.notifications.spool import decode_spool
from nodeguard.aggregator.notifications.subscription import ChangeKind
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.instant import Instant
from tests.fleet.scene import Fleet
from tests.waiting import in_background

NOW = 1_700_000_000.0


def webhook(name: str = "oncall", form: WebhookFormat = "json", url: str = "http://127.0.0.1:1/") -> Webhook:
    return Webhook(name, form, url, b"", "key" if form == "pagerduty" else "", Health.SUSPECT)


def incident(state: IncidentState = IncidentState.MARKED, node: str = "gpu-1") -> Incident:
    return Incident(
        name=f"{node}-lost", node=node, uid=f"uid-{node}", target="gpu/0000:3b:00", cause="gpu-lost",
        health=Health.FATAL, state=state, first_seen=NOW - 60.0, last_transition=NOW, action=Action.REBOOT_NODE,
    )  # fmt: skip


def notification(
    state: IncidentState = IncidentState.MARKED, message: str = "the GPU is lost", number: int = 0
) -> Notification:
    change: ChangeKind = "opened" if state != IncidentState.RESOLVED else "resolved"
    return notification_of(incident(state), change, message, NOW + number)


def new_sender(
    *webhooks: Webhook, spool: Path | None = None, now: Callable[[], Instant] = lambda: Instant(NOW, 1.0, "")
) -> NotificationSender:
    return NotificationSender(NotificationSettings(webhooks, spool), now)


def pending(sender: NotificationSender) -> list[Notification]:
    """Return the notifications that are not sent."""
    return [
        msgspec.json.decode(item.payload, type=Notification) for item in sender.delivery.waiting("oncall")
    ]


def stored_spool(directory: Path) -> tuple[list[str], list[str]]:
    """Return the changes that wait in a stored spool, and the nodes that it has as open; empty before the
    first write.
    """
    path = directory / FILE_NAME
    if not path.exists():
        return [], []
    waiting, states = decode_spool(path.read_bytes())
    messages = waiting.get("oncall", ())
    changes: list[str] = [msgspec.json.decode(item.payload, type=Notification).change for item in messages]
    return changes, [item.node for item in states["oncall"].open.values()] if "oncall" in states else []


def running(sender: NotificationSender) -> AbstractAsyncContextManager[None]:
    return in_background(sender.run())


def plan(sender: NotificationSender, fleet: Fleet, *, acts: bool = True) -> None:
    """Plan until nothing is left to do."""
    for _ in range(3):
        fleet.after(1.0)
        plan = fleet.issue()
        fleet.write(plan)
        sender.plan_made(fleet.planner, plan, acts=acts, has_leader=True)
