"""Which changes of incidents a webhook receives."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.notifications.subscription import ChangeKind, Subscription
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState
from tests.aggregator.notifications.scene import incident


def changes(subscription: Subscription, *steps: dict[str, Any]) -> list[str | None]:
    """Return the changes of one incident. steps: its fields, `news` (an Event), `maintenance`."""
    return [
        subscription.change(
            replace(incident(), **{name: step[name] for name in step.keys() & {"state", "health", "parent"}}),
            is_news=step.get("news", True),
            in_maintenance=step.get("maintenance", False),
        )
        for step in steps
    ]


SUSPECT, FATAL = {"health": Health.SUSPECT}, {"health": Health.FATAL}
RESOLVED = {"state": IncidentState.RESOLVED}
SILENT = {"news": False}
MAINTENANCE = {"maintenance": True}


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([FATAL, FATAL, RESOLVED | FATAL], ["opened", "updated", "resolved"]),
        ([SUSPECT, SUSPECT | RESOLVED], [None, None]),
        # It becomes fatal without an Event: the mark is still set, or still a dry run.
        ([SUSPECT, FATAL | SILENT, FATAL | SILENT], [None, "opened", None]),
        # The receiver has it open: it needs the end, with whatever health.
        ([FATAL, SUSPECT | SILENT, SUSPECT | RESOLVED], ["opened", None, "resolved"]),
        ([FATAL, FATAL | SILENT | {"parent": "leaf-1"}, FATAL | RESOLVED], ["opened", "resolved", None]),
        ([FATAL | {"parent": "leaf-1"}, FATAL | SILENT], [None, "opened"]),
        ([FATAL, FATAL | RESOLVED | SILENT], ["opened", "resolved"]),
        ([FATAL | {"state": IncidentState.PENDING}, FATAL], [None, "opened"]),
        # Under maintenance nothing is opened; the end of an earlier one is received.
        ([FATAL | MAINTENANCE, FATAL | RESOLVED], [None, None]),
        ([FATAL | MAINTENANCE, FATAL | SILENT], [None, "opened"]),
        ([FATAL, FATAL | RESOLVED | MAINTENANCE], ["opened", "resolved"]),
    ],
)  # fmt: skip
def test_a_receiver_of_fatal_incidents_gets_their_beginning_and_end(
    steps: list[dict[str, Any]], expected: list[str | None]
) -> None:
    assert changes(Subscription(Health.FATAL), *steps) == expected


def test_more_severe_is_an_update_without_an_event() -> None:
    steps: list[dict[str, Any]] = [SUSPECT, FATAL | SILENT, SUSPECT | SILENT]
    assert changes(Subscription(Health.SUSPECT), *steps) == ["opened", "updated", None]


def test_an_incident_from_before_the_start_is_resolved() -> None:
    subscription = Subscription(Health.FATAL)
    for item in (incident(), replace(incident(node="gpu-2"), health=Health.SUSPECT)):
        subscription.restore(item, in_maintenance=False)
    assert changes(subscription, RESOLVED) == ["resolved"]
    other = incident(IncidentState.RESOLVED, "gpu-2")
    assert subscription.change(other, is_news=True, in_maintenance=False) is None


def test_an_incident_from_before_the_start_waits_for_the_end_of_the_maintenance() -> None:
    subscription = Subscription(Health.FATAL)
    subscription.restore(incident(), in_maintenance=True)
    assert subscription.waiting == {incident().name: incident().uid}
    assert changes(subscription, SILENT | MAINTENANCE, SILENT, RESOLVED) == [None, "opened", "resolved"]


@pytest.mark.parametrize(
    ("dropped", "steps", "expected"),
    [
        ("opened", [SILENT], ["opened"]),
        ("opened", [RESOLVED], [None]),
        ("updated", [SILENT, SILENT], ["updated", None]),
        ("updated", [RESOLVED], ["resolved"]),
    ],
)
def test_an_incident_with_a_dropped_notification_is_notified_again(
    dropped: ChangeKind, steps: list[dict[str, Any]], expected: list[str | None]
) -> None:
    subscription = Subscription(Health.SUSPECT)
    assert changes(subscription, SUSPECT, FATAL | SILENT) == ["opened", "updated"]
    subscription.notify_again(incident().name, dropped)
    assert changes(subscription, *steps) == expected
    assert subscription.waiting == {}
