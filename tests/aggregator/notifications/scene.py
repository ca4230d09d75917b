"""Webhooks and notifications for tests."""

from __future__ import annotations

from nodeguard.aggregator.notifications.formats import Notification, notification_of
from nodeguard.aggregator.notifications.settings import Webhook, WebhookFormat
from nodeguard.aggregator.notifications.subscription import ChangeKind
from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState

NOW = 1_700_000_000.0


def webhook(
    name: str = "oncall", form: WebhookFormat = "json", url: str = "http://127.0.0.1:1/", secret: str = ""
) -> Webhook:
    return Webhook(name, form, url, secret.encode(), "key" if form == "pagerduty" else "", Health.SUSPECT)


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
