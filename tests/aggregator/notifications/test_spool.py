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
from nodeguard.aggregator.notifications.subscription import ChangeKind, SubscriptionState
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
    ("rest", "expected", "again"),
    [
        # A later notification has the state of an update.
        (["2 updated", "1 updated", "1 updated"], ["2 updated", "1 updated"], ""),
        (["2 updated", "1 updated", "1 resolved"], ["2 updated", "1 resolved"], ""),
        # It began and ended unseen.
        (["1 updated", "2 opened", "2 resolved"], ["1 updated"], ""),
        (["2 opened", "1 resolved", "2 resolved"], ["1 resolved"], ""),
        # The receiver needs all of them, an end most.
        (["1 opened", "2 updated", "3 updated"], ["1 opened", "3 updated"], "2 updated"),
        (["1 resolved", "2 opened", "3 opened"], ["1 resolved", "3 opened"], "2 opened"),
        (["1 resolved", "2 resolved", "3 resolved"], ["2 resolved", "3 resolved"], ""),
    ],
)
def test_a_full_spool_drops_first_what_a_receiver_needs_least(
    monkeypatch: pytest.MonkeyPatch, rest: list[str], expected: list[str], again: str
) -> None:
    monkeypatch.setattr(spool_module, "MAX_PENDING", 3)
    spool = NotificationSpool(("a",))
    spool.put("a", change("sent opened"))
    *_, dropped = [spool.put("a", change(item, float(number))) for number, item in enumerate(rest)]
    assert (f"{dropped.incident} {dropped.change}" if dropped else "") == again
    assert spool.room() == {"a": 3 - spool.pending("a")}
    assert left(spool) == ["sent opened", *expected]
    assert spool.dropped == {"a": len(rest) - len(expected)}


def test_an_incident_that_began_and_ended_unseen_is_dropped_a_day_after_its_end() -> None:
    spool = NotificationSpool(("a",))
    for text, at in (
        ("delivered resolved", 0.0),
        ("worse updated", 1.0),
        ("open opened", 2.0),
        ("delivered opened", 3.0),
        ("delivered updated", 4.0),
        ("unseen opened", 5.0),
        ("unseen resolved", 6.0),
        ("delivered resolved", 7.0),
        ("long opened", 8.0),
        ("long resolved", 100.0),
    ):
        spool.put("a", change(text, at))
    spool.drop_old("a", NOW + MAX_AGE)
    assert (spool.pending("a"), spool.dropped) == (10, {"a": 0})
    spool.drop_old("a", NOW + MAX_AGE + 50.0)
    assert spool.dropped == {"a": 5}
    spool.drop_old("a", NOW + 2 * MAX_AGE)
    assert left(spool) == ["delivered resolved", "worse updated", "open opened"]


def test_the_beginnings_of_incidents_of_which_others_notify_the_end_are_dropped() -> None:
    spool = NotificationSpool(("a",))
    for item in ("1 opened", "2 opened", "1 updated"):
        spool.put("a", change(item))
    spool.drop_ended("a", {"1"})
    assert (left(spool), spool.dropped) == (["2 opened"], {"a": 2})


def test_the_largest_spool_can_be_read_again() -> None:
    spool, text = NotificationSpool(("a",)), "\u2713" * 1024
    largest = replace(notification(), text=text, id="i" * 300, incident="n" * 256, target="t" * 256)
    for number in range(100):
        spool.put("a", replace(largest, id=f"{number:0300}"))
    opened = {f"{number:0256}": replace(incident(), name=f"{number:0256}") for number in range(100)}
    waiting = dict.fromkeys((f"{number:0256}" for number in range(100)), "u" * 36)
    state, later = SubscriptionState(opened), SubscriptionState(waiting=waiting)
    pending, single, double, waits = (
        len(spool.encode(states)) for states in ({}, {"a": state}, {"a": state, "b": state}, {"a": later})
    )
    of_one = max(double - single, waits - pending)
    per_webhook = pending / 100 * MAX_PENDING + of_one / 100 * 20_000
    assert 20 * per_webhook + (single - pending) / 100 * 20_000 < FILE_LIMIT
    for restored in ({"a": state}, {"a": later}):
        assert spool.restore(spool.encode(restored)) == restored
