"""The bodies of notifications: JSON, Slack, Microsoft Teams and PagerDuty. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.aggregator.notifications.settings import Webhook, WebhookFormat
from nodeguard.aggregator.notifications.subscription import ChangeKind
from nodeguard.model.diagnosis import Guidance
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware, hardware_label
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.injection import PREFIX
from nodeguard.model.instant import rfc3339
from nodeguard.model.printable import printable
from nodeguard.model.projection import project

VERSION = 1

# Characters of a text in a notification: PagerDuty's limit for a summary.
_TEXT_LENGTH = 1024

# Jobs of a notification, and characters of the text of each of them.
MAX_JOBS = 8
_JOB_LENGTH = 200

# Characters of a text and of a field in a block of Slack, and of the longest escaped character, `&amp;`.
_SLACK_LIMIT = 3000
_SLACK_FIELD_LIMIT = 2000
_LONGEST_ENTITY = 5

_MINUTE = 60.0


class Notification(Struct, frozen=True):
    """One change of an incident, for the spool and as the body of the format `json`.

    id: unique, and the same for each attempt to send it. text: one sentence for people. since, at: RFC 3339,
    of the incident and of this change. domain: path of the failure domain; empty for a node's incident.
    injected: whether an operator injected the fault for a rehearsal; then the text begins with `injected:`.
    hardware: names of the GPU for a person who has to find it; null for another target. guidance: what people
    do about a degraded domain; null for another incident. jobs: at the end of an incident, what drains did
    with the pods of the jobs that it hit; at most MAX_JOBS texts.
    """

    id: str
    change: ChangeKind
    text: str
    at: str
    incident: str
    node: str
    domain: str
    target: str
    cause: str
    health: Health
    state: IncidentState
    action: Action
    since: str
    version: int = VERSION
    injected: bool = False
    hardware: Hardware | None = None
    guidance: Guidance | None = None
    jobs: tuple[str, ...] = ()


def notification_of(
    incident: Incident,
    change: ChangeKind,
    message: str,
    now: float,
    guidance: Guidance | None = None,
    jobs: Sequence[str] = (),
) -> Notification:
    """Return the notification of an incident's change. message: one sentence. now: seconds since epoch.
    guidance, jobs: see Notification.

    The end of an incident has one id, whichever aggregator notifies it, and however often. It has the minute
    in which the incident began: aggregators compute it from the age in a report, so their seconds differ.
    """
    where = incident.node or incident.target
    time = now * 1000 if incident.is_open else incident.first_seen // _MINUTE
    return project(
        Notification,
        incident,
        id=f"{incident.name}-{incident.occurrences}-{incident.state.slug}-{time:.0f}",
        change=change,
        text=printable(f"{PREFIX if incident.injected else ''}{where}: {message}")[:_TEXT_LENGTH],
        at=rfc3339(now),
        incident=incident.name,
        since=rfc3339(incident.first_seen),
        guidance=guidance,
        jobs=tuple(printable(text)[:_JOB_LENGTH] for text in jobs[:MAX_JOBS]),
    )


def body_of(webhook: Webhook, notification: Notification) -> bytes:
    """Return the body of a notification in the format of a webhook. Only JSON keeps control characters of
    names in a report: a person reads the others.
    """
    if webhook.format != "json":
        cause, target = printable(notification.cause), printable(notification.target)
        notification = replace(notification, cause=cause, target=target)
    return msgspec.json.encode(_FORMATS[webhook.format](webhook, notification))


def _json(_: Webhook, notification: Notification) -> object:
    return notification


def _title(notification: Notification) -> str:
    place = notification.node or notification.target
    title = f"{notification.change.upper()} · {notification.health.value} · {place}"
    return f"INJECTED · {title}" if notification.injected else title


def _facts(notification: Notification) -> list[tuple[str, str]]:
    """Return the facts of a card, in the order in which a person asks for them."""
    action = [] if notification.change == "resolved" else _what_to_do(notification)
    jobs = [("Jobs", "\n".join(notification.jobs))] if notification.jobs else []
    injected = [("Injected", "yes, for a rehearsal: no hardware failed")] if notification.injected else []
    return [
        *injected,
        (
            "What",
            printable(
                f"{notification.cause} on {hardware_label(notification.target, notification.hardware)}"
            ),
        ),
        ("Since", notification.since),
        ("State", notification.state.phrase),
        *action,
        *jobs,
        ("Incident", notification.incident),
    ]


def _what_to_do(notification: Notification) -> list[tuple[str, str]]:
    """Return the action on one node, or what people do about a domain."""
    if (guidance := notification.guidance) is None:
        return [("Action", notification.action.phrase)]
    return [("Who acts", guidance.owner), ("Look first", guidance.first), ("Nodes", guidance.nodes)]


def _slack(_: Webhook, notification: Notification) -> object:
    """Return a message with blocks; the text is the fallback of notifications."""
    fields = [
        {"type": "mrkdwn", "text": f"*{name}*\n{_slack_text(value, _SLACK_FIELD_LIMIT - len(name) - 3)}"}
        for name, value in _facts(notification)
    ]
    return {
        "text": _escape_slack(f"{_title(notification)}: {notification.text}"),
        "blocks": [
            {"type": "header", "text": {"type": "plain_text", "text": _title(notification)[:150]}},
            {
                "type": "section",
                "text": {"type": "mrkdwn", "text": _slack_text(notification.text, _SLACK_LIMIT)},
            },
            {"type": "section", "fields": fields},
        ],
    }


def _slack_text(text: str, limit: int) -> str:
    """Return an escaped text within a limit of Slack, in characters."""
    escaped = _escape_slack(text)
    return escaped if len(escaped) <= limit else _escape_slack(text[: limit // _LONGEST_ENTITY])


def _escape_slack(text: str) -> str:
    """Return a text without markup of Slack, which a node name or a message could carry."""
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return text


def _teams(_: Webhook, notification: Notification) -> object:
    """Return an Adaptive Card, as a workflow of Teams expects it."""
    colour = {"resolved": "good"}.get(notification.change, "attention")
    card: Mapping[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {
                "type": "TextBlock",
                "text": _escape_teams(_title(notification)),
                "weight": "bolder",
                "color": colour,
                "wrap": True,
            },
            {"type": "TextBlock", "text": _escape_teams(notification.text), "wrap": True},
            {
                "type": "FactSet",
                "facts": [
                    {"title": name, "value": _escape_teams(value)} for name, value in _facts(notification)
                ],
            },
        ],
    }
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def _escape_teams(text: str) -> str:
    """Return a text without Markdown links and emphasis, which Adaptive Cards interpret."""
    return "".join(f"\\{character}" if character in "\\[]()*_`" else character for character in text)


_SEVERITIES = {
    Health.FATAL: "critical",
    Health.SUSPECT: "error",
    Health.WARNING: "warning",
    Health.OK: "info",
}


def _severity(notification: Notification) -> str:
    """Return PagerDuty's severity; info for a check that is not enforced, as the alert rules have it."""
    return "info" if notification.state == IncidentState.DRY_RUN else _SEVERITIES[notification.health]


def _pagerduty(webhook: Webhook, notification: Notification) -> object:
    """Return an event of PagerDuty's Events API v2: one PagerDuty incident for each incident of nodeguard."""
    event: dict[str, object] = {
        "routing_key": webhook.routing_key,
        "event_action": "resolve" if notification.change == "resolved" else "trigger",
        "dedup_key": notification.incident,
    }
    if notification.change != "resolved":
        event["client"] = "nodeguard"
        event["payload"] = {
            "summary": notification.text,
            "source": notification.node or notification.target,
            "severity": _severity(notification),
            "timestamp": notification.at,
            "component": notification.target,
            "class": notification.cause,
            "custom_details": dict(_facts(notification)),
        }
    return event


_FORMATS: Mapping[WebhookFormat, Callable[[Webhook, Notification], object]] = {
    "json": _json,
    "slack": _slack,
    "teams": _teams,
    "pagerduty": _pagerduty,
}
