"""The sender of notifications, with a real receiver."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.certificates.issue import issue_authority
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.notifications.sender import FILE_NAME, NotificationSender
from nodeguard.delivery import delivery as delivery_module
from nodeguard.delivery import queue as queue_module
from tests.aggregator.notifications.scene import new_sender, notification, pending, plan, running, webhook
from tests.aggregator.test_mark_counter import CountingScene
from tests.aggregator.test_report_handler import report
from tests.fleet.scene import Fleet, finding
from tests.logs import LogLines
from tests.waiting import until_async
from tests.webhooks import WebhookReceiver

pytestmark = pytest.mark.usefixtures("retry_at_once")


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    receiver = WebhookReceiver()
    with receiver.serving():
        yield receiver


def listen(scene: CountingScene, sender: NotificationSender) -> None:
    """Give the plans of a scene to a sender."""
    scene.service.plan_listeners.append(
        lambda plan, _: sender.plan_made(scene.planner, plan, acts=scene.service.is_active, has_leader=True)
    )


def take_changes(sender: NotificationSender) -> list[str]:
    """Remove the pending notifications of a webhook and return their changes."""
    items = pending(sender)
    sender.delivery.discard("oncall", {item.incident for item in items})
    return [item.change for item in items]


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
            "2 notifications dropped"
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
        "1 notification pending, the oldest for 0 s"
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


async def test_a_spool_that_cannot_be_written_is_reported_with_its_remedy(
    receiver: WebhookReceiver, tmp_path: Path, log: LogLines
) -> None:
    directory = tmp_path / "unmounted" / "spool"
    sender = new_sender(webhook(url=receiver.url), spool=directory)
    reason = f"{directory / FILE_NAME}: No such file or directory: make room there, or make it writable"
    async with running(sender):
        sender.add("oncall", notification())
        await until_async(lambda: len(receiver.bodies) == 1)
        await until_async(lambda: sender.problem() == f"a restart loses notifications: {reason}")
        directory.parent.mkdir()
        await until_async(lambda: not sender.problem())
    [line] = log.lines
    assert line["error"] == reason


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
