"""The spool of notifications: order, bound, and what survives a restart."""

from __future__ import annotations

import pytest
from msgspec import convert
from msgspec.structs import replace

from nodeguard.aggregator.notifications import spool as spool_module
from nodeguard.aggregator.notifications.formats import Notification
from nodeguard.aggregator.notifications.spool import (
    FILE_LIMIT,
    MAX_AGE,
    MAX_PENDING,
    NotificationSpool,
    SpoolError,
)
from nodeguard.aggregator.notifications.subscription import ChangeKind
from nodeguard.model.instant import rfc3339
from tests.aggregator.notifications.scene import NOW, incident, notification


def test_each_webhook_has_its_own_order() -> None:
    spool = NotificationSpool(("a", "b"))
    items = [notification(number=number) for number in range(3)]
    for item in items:
        spool.put("a", item)
    spool.put("b", items[2])
    spool.remove("a", items[0])
    assert (spool.first("a"), spool.first("b")) == (items[1], items[2])
    assert (spool.pending("a"), spool.pending("b")) == (2, 1)


def test_the_oldest_is_dropped_and_counted_when_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "MAX_PENDING", 2)
    spool = NotificationSpool(("a",))
    items = [notification(number=number) for number in range(3)]
    for item in items:
        spool.put("a", item)
    # The first one is being sent.
    assert (spool.first("a"), spool.dropped) == (items[0], {"a": 1})
    spool.remove("a", items[0])
    assert (spool.first("a"), spool.pending("a")) == (items[2], 1)


def test_a_restart_continues_before_what_is_new() -> None:
    before, after = NotificationSpool(("a", "b")), NotificationSpool(("a",))
    items = [notification(number=number) for number in range(3)]
    for item in items[:2]:
        before.put("a", item)
    before.put("b", items[0])
    after.put("a", items[2])
    after.restore(before.encode({}))
    sent = []
    while (first := after.first("a")) is not None:
        sent.append(first)
        after.remove("a", first)
    assert sent == items


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"version": 9, "pending": {}}', b'{"version": 1}', b"[" * 100_000]
)
def test_a_damaged_file_is_refused(content: bytes) -> None:
    with pytest.raises(SpoolError):
        NotificationSpool(("a",)).restore(content)


def change(text: str, at: float = 0.0) -> Notification:
    """Return a notification from the name of an incident and its change, such as `1 opened`."""
    incident, _, name = text.partition(" ")
    kind: ChangeKind = convert(name, ChangeKind)
    return replace(
        notification(), id=f"{incident}-{kind}-{at}", change=kind, incident=incident, at=rfc3339(NOW + at)
    )


def left(spool: NotificationSpool) -> list[str]:
    """Return the notifications of the webhook `a`, and remove them."""
    items = []
    while (first := spool.first("a")) is not None:
        spool.remove("a", first)
        items.append(f"{first.incident} {first.change}")
    return items


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        # A later notification has the state of an update.
        (["2 opened", "1 updated", "2 resolved"], ["2 opened", "2 resolved"]),
        # It began and ended unseen.
        (["2 opened", "1 resolved", "2 resolved"], ["1 resolved"]),
        # The receiver has 1 open: it needs its end most.
        (["1 resolved", "2 opened", "3 opened"], ["1 resolved", "3 opened"]),
        (["1 resolved", "2 resolved", "3 resolved"], ["2 resolved", "3 resolved"]),
    ],
)
def test_the_ends_of_open_incidents_are_dropped_last(
    monkeypatch: pytest.MonkeyPatch, rest: list[str], expected: list[str]
) -> None:
    monkeypatch.setattr(spool_module, "MAX_PENDING", 3)
    spool = NotificationSpool(("a",))
    spool.put("a", change("sent opened"))
    for item in rest:
        spool.put("a", change(item))
    assert left(spool) == ["sent opened", *expected]
    assert spool.dropped == {"a": len(rest) - len(expected)}


def test_what_is_older_than_a_day_is_dropped_except_the_ends_of_open_incidents() -> None:
    spool = NotificationSpool(("a",))
    for text, at in (
        ("delivered resolved", 0.0),
        ("delivered opened", 1.0),
        ("delivered updated", 2.0),
        ("unseen opened", 3.0),
        ("unseen resolved", 4.0),
        ("delivered resolved", 5.0),
        ("recent opened", 100.0),
    ):
        spool.put("a", change(text, at))
    spool.drop_old("a", NOW + MAX_AGE)
    assert (spool.pending("a"), spool.dropped) == (7, {"a": 0})
    spool.drop_old("a", NOW + MAX_AGE + 50.0)
    assert left(spool) == ["delivered resolved", "recent opened"]
    assert spool.dropped == {"a": 5}


def test_the_largest_spool_can_be_read_again() -> None:
    spool, text = NotificationSpool(("a",)), "\u2713" * 1024
    largest = replace(notification(), text=text, id="i" * 300, incident="n" * 256, target="t" * 256)
    for number in range(100):
        spool.put("a", replace(largest, id=f"{number:0300}"))
    opened = {"a": {f"{number:0256}": replace(incident(), name=f"{number:0256}") for number in range(100)}}
    pending, single, double = (
        len(spool.encode(items)) for items in ({}, opened, opened | {"b": opened["a"]})
    )
    per_webhook = pending / 100 * MAX_PENDING + (double - single) / 100 * 20_000
    assert 20 * per_webhook + (single - pending) / 100 * 20_000 < FILE_LIMIT
    assert spool.restore(spool.encode(opened)) == opened
