"""The sender of notifications, with a real receiver."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from nodeguard.aggregator.certificates.issue import issue_authority
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.notifications import sender as sender_module
from nodeguard.aggregator.notifications.formats import Notification
from nodeguard.aggregator.notifications.sender import FILE_NAME, NotificationSender
from nodeguard.aggregator.notifications.settings import NotificationSettings, Webhook
from nodeguard.aggregator.notifications.spool import MAX_AGE, decode_spool
from nodeguard.aggregator.notifications.subscriptions import REFUSED_RETRY
from nodeguard.delivery import delivery as delivery_module
from nodeguard.delivery import queue as queue_module
from nodeguard.model.instant import Instant
from tests.aggregator.notifications.scene import NOW, notification, webhook
from tests.aggregator.test_mark_counter import CountingScene
from tests.aggregator.test_report_handler import report
from tests.fleet.scene import Fleet, finding
from tests.logs import LogLines
from tests.waiting import until_async
from tests.webhooks import WebhookReceiver


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    receiver = WebhookReceiver()
    with receiver.serving():
        yield receiver


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "_SAVE_INTERVAL", 0.01)
    for name in ("FIRST_RETRY", "LONGEST_RETRY"):
        monkeypatch.setattr(queue_module, name, 0.01)


def new_sender(
    *webhooks: Webhook, spool: Path | None = None, now: Callable[[], Instant] = lambda: Instant(NOW, 1.0, "")
) -> NotificationSender:
    return NotificationSender(NotificationSettings(webhooks, spool), now)


def pending(sender: NotificationSender) -> list[Notification]:
    """Return the notifications that are not sent."""
    return [
        msgspec.json.decode(item.payload, type=Notification) for item in sender.delivery.waiting("oncall")
    ]


def listen(scene: CountingScene, sender: NotificationSender) -> None:
    """Give the plans of a scene to a sender."""
    scene.service.plan_listeners.append(
        lambda plan, _: sender.plan_made(scene.planner, plan, acts=scene.service.is_active, has_leader=True)
    )


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


def take_changes(sender: NotificationSender) -> list[str]:
    """Remove the pending notifications of a webhook and return their changes."""
    items = pending(sender)
    sender.delivery.discard("oncall", {item.incident for item in items})
    return [item.change for item in items]


@asynccontextmanager
async def running(sender: NotificationSender) -> AsyncIterator[None]:
    task = asyncio.create_task(sender.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_fault_and_its_end_are_notified_once_each(receiver: WebhookReceiver) -> None:
    scene = CountingScene()
    sender = new_sender(webhook(url=receiver.url))
    listen(scene, sender)
    async with running(sender):
        await scene.report(fatal=False)
        await scene.report(fatal=True)
        await scene.report(fatal=False)
        await until_async(lambda: len(receiver.bodies) >= 2)
        await scene.turn(2.0)
    assert [(body["change"], body["state"]) for body in receiver.bodies] == [
        ("opened", "Marked"),
        ("resolved", "Resolved"),
    ]
    assert {body["incident"] for body in receiver.bodies} == {receiver.bodies[0]["incident"]}


async def test_a_standby_sends_nothing(receiver: WebhookReceiver) -> None:
    scene = CountingScene()
    scene.backend.is_leader = False
    sender = new_sender(webhook(url=receiver.url))
    listen(scene, sender)
    await scene.report(fatal=True)
    assert not pending(sender)


async def test_the_end_is_notified_when_the_node_is_deleted() -> None:
    scene, sender = CountingScene(), new_sender(webhook())
    listen(scene, sender)
    scene.handler(Caller("node-2", "node-2"), report())
    await scene.report(fatal=True)
    scene.planner.remove_node("node-1")
    await scene.turn(2.0)
    assert take_changes(sender) == ["opened", "resolved"]


async def test_a_fault_under_maintenance_is_notified_if_it_outlasts_the_maintenance() -> None:
    scene, sender = CountingScene(), new_sender(webhook())
    listen(scene, sender)
    await scene.report(fatal=False)
    node = scene.planner.state.nodes["node-1"]
    labels = {"nvidia.com/gpu-driver-upgrade-state": "drain-required"}
    scene.planner.update_node(replace(node, labels={**node.labels, **labels}))
    await scene.report(fatal=True)
    assert scene.planner.all_incidents()
    assert take_changes(sender) == []
    scene.planner.update_node(node)
    await scene.turn(2.0)
    assert take_changes(sender) == ["opened"]


def plan(sender: NotificationSender, fleet: Fleet, *, acts: bool = True) -> None:
    """Plan until nothing is left to do."""
    for _ in range(3):
        fleet.after(1.0)
        plan = fleet.issue()
        fleet.write(plan)
        sender.plan_made(fleet.planner, plan, acts=acts, has_leader=True)


def test_a_receiver_that_was_down_gets_each_open_incident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_module, "MAX_PENDING", 3)
    monkeypatch.setattr(delivery_module, "MAX_PENDING", 3)
    fleet, sender = Fleet(8), new_sender(webhook())
    for number in range(7):
        fleet.report(number, finding())
        plan(sender, fleet)
    fleet.report(6)
    plan(sender, fleet)
    assert (len(pending(sender)), sender.delivery.dropped["oncall"]) == (3, 6)
    incidents: list[str] = []
    while items := pending(sender):
        sender.delivery.discard("oncall", {items[0].incident})
        incidents.append(f"{items[0].node} {items[0].change}")
        plan(sender, fleet)
    assert sorted(incidents) == [f"node-{number} opened" for number in range(6)]


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


def test_a_beginning_is_not_sent_after_the_end_that_another_aggregator_sends() -> None:
    fleet, sender = Fleet(2), new_sender(webhook())
    fleet.report(0, finding())
    plan(sender, fleet)
    assert len(pending(sender)) == 1
    fleet.report(0)
    plan(sender, fleet, acts=False)
    assert not pending(sender)


async def test_an_incident_of_an_earlier_start_is_resolved() -> None:
    scene, before, after = CountingScene(), new_sender(webhook()), new_sender(webhook())
    listen(scene, before)
    await scene.report(fatal=True)
    scene.service.plan_listeners.clear()
    listen(scene, after)
    await scene.report(fatal=False)
    await scene.turn(scene.planner.policy.soak.first)
    await scene.turn(2.0)
    assert take_changes(after)[-1:] == ["resolved"]
    assert "opened" not in take_changes(after)


async def test_a_receiver_that_is_down_gets_everything_in_order_later(
    receiver: WebhookReceiver, log: LogLines
) -> None:
    receiver.status = 503
    items = [notification(number=number) for number in range(3)]
    sender = new_sender(webhook(url=receiver.url))
    async with running(sender):
        for item in items:
            sender.add("oncall", item)
        await until_async(lambda: sender.delivery.failed["oncall"] >= 2)
        receiver.status = 200
        await until_async(lambda: sender.delivery.sent["oncall"] == 3)
    assert [body["id"] for body in receiver.bodies] == [item.id for item in items]
    assert log.messages().count("cannot send to a webhook, it is tried again") == 1
    assert (sender.delivery.sent["oncall"], sender.delivery.refused["oncall"]) == (3, 0)


async def test_a_problem_of_a_webhook_is_shown_until_it_accepts(
    receiver: WebhookReceiver, log: LogLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "MAX_PENDING", 2)
    receiver.status = 503
    sender = new_sender(webhook(url=receiver.url))
    async with running(sender):
        for number in range(4):
            sender.add("oncall", replace(notification(number=number), incident=f"gpu-{number}"))
        await until_async(lambda: sender.delivery.failed["oncall"] >= 1)
        assert sender.problem() == (
            "webhook oncall: HTTP status 503; 2 notifications pending, the oldest for 0 s, "
            "0 notifications refused, 2 notifications dropped"
        )
        receiver.status = 200
        await until_async(lambda: len(receiver.bodies) == 2)
        await until_async(lambda: not sender.problem())
    message = "messages for a webhook are dropped"
    assert log.messages().count(message) == 1


async def test_a_problem_without_a_response_has_a_remedy_and_not_the_address() -> None:
    sender = new_sender(webhook(url="http://127.0.0.1:1/T0KEN"))
    async with running(sender):
        sender.add("oncall", notification())
        await until_async(lambda: sender.delivery.failed["oncall"] >= 1)
    assert sender.problem() == (
        "webhook oncall: cannot send (ClientConnectorError): check the url and the network; "
        "1 notification pending, the oldest for 0 s, 0 notifications refused, 0 notifications dropped"
    )


async def test_a_refused_notification_does_not_block_the_others(
    receiver: WebhookReceiver, log: LogLines
) -> None:
    receiver.status = 400
    sender = new_sender(webhook(url=receiver.url + "T0KEN"))
    async with running(sender):
        sender.add("oncall", notification())
        await until_async(lambda: sender.delivery.refused["oncall"] == 1)
    assert not pending(sender)
    assert log.messages() == ["the receiver of a webhook refuses a message"]
    assert "T0KEN" not in str(log.lines)


async def test_pending_notifications_survive_a_restart(receiver: WebhookReceiver, tmp_path: Path) -> None:
    # The receiver gets nothing from the first sender, not even a request that its end interrupts.
    before = new_sender(webhook(url="http://127.0.0.1:1/"), spool=tmp_path)
    async with running(before):
        before.add("oncall", notification())
        await until_async((tmp_path / FILE_NAME).exists)
    after = new_sender(webhook(url=receiver.url), spool=tmp_path)
    async with running(after):
        await until_async(lambda: len(receiver.bodies) == 1)
        await until_async(lambda: "gpu-1" not in (tmp_path / FILE_NAME).read_text())
    assert [body["incident"] for body in receiver.bodies] == ["gpu-1-lost"]
    assert (after.delivery.sent["oncall"], len(pending(after))) == (1, 0)


@pytest.mark.parametrize("make", [lambda path: path.write_text("{"), os.mkfifo, os.mkdir])
async def test_a_damaged_spool_is_renamed(
    make: Callable[[Path], object], receiver: WebhookReceiver, tmp_path: Path, log: LogLines
) -> None:
    make(tmp_path / FILE_NAME)
    sender = new_sender(webhook(url=receiver.url), spool=tmp_path)
    async with running(sender):
        await until_async((tmp_path / f"{FILE_NAME}.damaged").exists)
        sender.add("oncall", notification())
        await until_async(lambda: len(receiver.bodies) == 1)
    assert log.messages() == ["cannot use the spool of notifications"]


async def test_a_receiver_of_an_internal_authority_needs_its_certificate(
    receiver: WebhookReceiver, tmp_path: Path, log: LogLines
) -> None:
    authority = issue_authority(time.time())
    receiver.encrypt(authority, tmp_path)
    trusting = replace(webhook(url=receiver.url), ca=authority.certificate)
    sender = new_sender(trusting, webhook("other", url=receiver.url))
    async with running(sender):
        sender.add("other", notification())
        await until_async(lambda: sender.delivery.failed["other"] >= 1)
        sender.add("oncall", notification())
        await until_async(lambda: sender.delivery.sent["oncall"] == 1)
    assert sender.delivery.sent["other"] == 0
    [line] = log.lines
    assert "set caFile to the CA certificate that signed it" in str(line)
