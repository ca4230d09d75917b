"""Receivers that refuse notifications, and are repaired: each incident is then sent as it is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodeguard.aggregator.notifications import sender as sender_module
from nodeguard.aggregator.notifications.spool import MAX_AGE
from nodeguard.aggregator.notifications.subscriptions import REFUSED_RETRY
from tests.aggregator.notifications.scene import new_sender, pending, plan, running, stored_spool, webhook
from tests.fleet.scene import Fleet, finding
from tests.waiting import until_async
from tests.webhooks import WebhookReceiver

pytestmark = pytest.mark.usefixtures("retry_at_once")


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    receiver = WebhookReceiver()
    with receiver.serving():
        yield receiver


class Clock:
    """A fleet of which the changes are notified to a webhook, and the time of both."""

    def __init__(self, url: str, nodes: int) -> None:
        self.fleet = Fleet(nodes)
        self.sender = new_sender(webhook(url=url), now=lambda: self.fleet.now)

    def plan(self) -> None:
        plan(self.sender, self.fleet)

    def nodes(self, receiver: WebhookReceiver, change: str) -> list[str]:
        return sorted({body["node"] for body in receiver.bodies if body["change"] == change})


@pytest.mark.parametrize("status", [302, 401, 403, 404, 500])
async def test_pages_of_a_bad_hour_come_after_the_receiver_is_repaired(
    receiver: WebhookReceiver, status: int
) -> None:
    receiver.status = status
    clock = Clock(receiver.url, 280)
    for number in range(280):
        clock.fleet.report(number, finding())
    clock.plan()
    opened = {item.node for item in pending(clock.sender)}
    assert len(opened) == len(clock.fleet.planner.all_incidents())
    async with running(clock.sender):
        await until_async(lambda: clock.sender.delivery.failed["oncall"] >= 5)
        receiver.status = 200
        await until_async(lambda: not pending(clock.sender))
    assert clock.nodes(receiver, "opened") == sorted(opened)
    assert (clock.sender.delivery.refused["oncall"], clock.sender.delivery.dropped["oncall"]) == (0, 0)


async def test_a_refused_beginning_of_an_open_incident_is_sent_again(receiver: WebhookReceiver) -> None:
    receiver.status = 400
    clock = Clock(receiver.url, 4)
    async with running(clock.sender):
        for number in (0, 1):
            clock.fleet.report(number, finding())
        clock.plan()
        await until_async(lambda: clock.sender.delivery.refused["oncall"] == 2)
        clock.fleet.report(1)
        clock.plan()  # one is over before the receiver is repaired: it is never sent
        assert not pending(clock.sender)
        receiver.status = 200
        clock.fleet.after(REFUSED_RETRY)
        clock.plan()
        await until_async(lambda: clock.nodes(receiver, "opened") == ["node-0"])
        clock.fleet.report(0)
        clock.plan()
        await until_async(lambda: clock.nodes(receiver, "resolved") == ["node-0"])
    assert [body["change"] for body in receiver.bodies] == ["opened", "resolved"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_refused_end_is_sent_again(
    receiver: WebhookReceiver, tmp_path: Path, *, restarts: bool
) -> None:
    clock = Clock(receiver.url, 4)
    clock.sender = new_sender(webhook(url=receiver.url), spool=tmp_path, now=lambda: clock.fleet.now)
    async with running(clock.sender):
        clock.fleet.report(0, finding())
        clock.plan()
        await until_async(lambda: clock.nodes(receiver, "opened") == ["node-0"])
        receiver.status = 413
        clock.fleet.report(0)
        clock.plan()
        await until_async(lambda: clock.sender.delivery.refused["oncall"] == 1)
        clock.plan()
        await until_async(lambda: stored_spool(tmp_path) == ([], ["node-0"]))
    if restarts:
        clock.sender = new_sender(webhook(url=receiver.url), spool=tmp_path, now=lambda: clock.fleet.now)
        clock.sender.read_spool()
    receiver.status = 200
    clock.fleet.after(REFUSED_RETRY)
    async with running(clock.sender):
        clock.plan()
        await until_async(lambda: clock.nodes(receiver, "resolved") == ["node-0"])


async def test_a_restart_between_the_refusal_of_an_end_and_the_next_plan_sends_it(
    receiver: WebhookReceiver, tmp_path: Path
) -> None:
    clock = Clock(receiver.url, 4)
    clock.sender = new_sender(webhook(url=receiver.url), spool=tmp_path, now=lambda: clock.fleet.now)
    receiver.status = 503
    async with running(clock.sender):
        clock.fleet.report(0, finding())
        clock.plan()
        receiver.status = 200
        await until_async(lambda: clock.nodes(receiver, "opened") == ["node-0"])
        receiver.status = 503
        clock.fleet.report(0)
        clock.plan()
        await until_async(lambda: stored_spool(tmp_path)[0] == ["resolved"])
        receiver.status = 413
        await until_async(lambda: clock.sender.delivery.refused["oncall"] == 1)
        await asyncio.sleep(10 * sender_module._SAVE_INTERVAL)
    clock.sender = new_sender(webhook(url=receiver.url), spool=tmp_path, now=lambda: clock.fleet.now)
    receiver.status = 200
    async with running(clock.sender):
        await until_async(lambda: clock.nodes(receiver, "resolved") == ["node-0"])


async def test_an_open_incident_that_waited_for_a_day_is_sent_as_it_is_then(
    receiver: WebhookReceiver,
) -> None:
    receiver.status = 403
    clock = Clock(receiver.url, 4)
    for number in (0, 1):
        clock.fleet.report(number, finding())
    clock.plan()
    clock.fleet.report(1)
    clock.plan()
    assert [item.change for item in pending(clock.sender)] == ["opened", "opened", "resolved"]
    async with running(clock.sender):
        await until_async(lambda: clock.sender.delivery.failed["oncall"] >= 1)
        clock.fleet.after(MAX_AGE + 60.0)
        await until_async(lambda: clock.sender.delivery.dropped["oncall"] == 3)
        assert not pending(clock.sender)
        clock.plan()
        assert [(item.node, item.change) for item in pending(clock.sender)] == [("node-0", "opened")]
        receiver.status = 200
        await until_async(lambda: clock.nodes(receiver, "opened") == ["node-0"])


def test_an_incident_that_began_and_ended_unseen_is_dropped_a_day_after_its_end() -> None:
    clock = Clock("http://127.0.0.1:1/", 2)
    clock.fleet.report(0, finding())
    clock.plan()
    clock.fleet.after(MAX_AGE / 2)
    clock.fleet.report(0)
    clock.plan()
    kinds = {item.kind: item.expires_at for item in clock.sender.delivery.waiting("oncall")}
    assert kinds["resolved"] is None
    assert kinds["opened"] == pytest.approx(clock.fleet.wall + MAX_AGE, abs=10.0)
