"""The spool of notifications: order, bound, and what survives a restart."""

from __future__ import annotations

import pytest

from nodeguard.aggregator.notifications import spool as spool_module
from nodeguard.aggregator.notifications.spool import NotificationSpool, SpoolError
from tests.aggregator.notifications.scene import notification


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
    assert (spool.first("a"), spool.dropped) == (items[1], {"a": 1})
    # It was dropped while it was sent.
    spool.remove("a", items[0])
    assert spool.pending("a") == 2


def test_a_restart_continues_before_what_is_new() -> None:
    before, after = NotificationSpool(("a", "b")), NotificationSpool(("a",))
    items = [notification(number=number) for number in range(3)]
    for item in items[:2]:
        before.put("a", item)
    before.put("b", items[0])
    after.put("a", items[2])
    after.restore(before.encode())
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
