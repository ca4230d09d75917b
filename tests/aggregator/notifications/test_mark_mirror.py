"""The mark mirror: a receiver has the marks of the planner, over restarts and a change of the leader."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest
from msgspec.structs import replace

from nodeguard.aggregator.notifications.settings import MarkWebhook, NotificationSettings
from nodeguard.aggregator.notifications.webhooks import Webhooks
from nodeguard.executors.webhook import executor as executor_module
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.status import status_view
from tests.cli.fleet_output import LEADER, look
from tests.executors.receiver import MarkReceiver
from tests.fleet.scene import Fleet, finding
from tests.waiting import in_background, until_async


@pytest.fixture(autouse=True)
def _post_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "_TICK", 0.01)


class Aggregator:
    """The webhooks of an aggregator that plans for a fleet."""

    def __init__(self, fleet: Fleet, url: str) -> None:
        self.fleet = fleet
        self.webhooks = Webhooks(
            NotificationSettings((), None, (MarkWebhook("slurm", url),)), now=lambda: fleet.now
        )

    def plan(self, epoch: int, *, acts: bool = True) -> None:
        plan = self.fleet.carry_out()
        self.webhooks.plan_made(self.fleet.planner, plan, epoch=epoch, acts=acts, has_leader=True)

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background(self.webhooks.run())


async def test_a_receiver_gets_each_mark_and_its_release(receiver: MarkReceiver) -> None:
    aggregator = Aggregator(Fleet(4), receiver.url)
    fleet = aggregator.fleet
    async with aggregator.running():
        aggregator.plan(1)
        await until_async(lambda: len(receiver.bodies) == 1)
        fleet.report(0, finding())
        aggregator.plan(1)
        await until_async(lambda: bool(receiver.bodies[-1]["nodes"]))
        assert receiver.drained == {"node-0": {"quarantine"}}
        [node] = receiver.bodies[-1]["nodes"]
        [cause] = node["marks"][0]["causes"]
        expected = (finding().check, finding().message, finding().action)
        assert (cause["check"], cause["message"], cause["action"]) == expected
        fleet.report(0)
        aggregator.plan(1)
        await until_async(lambda: receiver.drained == {})


async def test_only_the_active_aggregator_posts(receiver: MarkReceiver) -> None:
    aggregator = Aggregator(Fleet(4), receiver.url)
    aggregator.fleet.report(0, finding())
    async with aggregator.running():
        aggregator.plan(1, acts=False)
        await asyncio.sleep(0.1)
        assert receiver.requests == 0
        aggregator.plan(2)
        await until_async(lambda: receiver.drained == {"node-0": {"quarantine"}})
        aggregator.plan(2, acts=False)
        aggregator.fleet.report(1, finding())
        aggregator.plan(2, acts=False)
        await asyncio.sleep(0.1)
    await until_async(lambda: bool(receiver.bodies))
    assert receiver.drained == {"node-0": {"quarantine"}}
    assert [body["change"] for body in receiver.bodies] == ["all"]


async def test_a_deleted_node_is_released(receiver: MarkReceiver) -> None:
    aggregator = Aggregator(Fleet(4), receiver.url)
    aggregator.fleet.report(0, finding())
    async with aggregator.running():
        aggregator.plan(1)
        await until_async(lambda: receiver.drained == {"node-0": {"quarantine"}})
        aggregator.fleet.planner.remove_node("uid-0")
        aggregator.plan(1)
        await until_async(lambda: receiver.drained == {})


async def test_a_marked_node_that_replaces_one_of_its_name_stays_marked(receiver: MarkReceiver) -> None:
    aggregator = Aggregator(Fleet(4), receiver.url)
    aggregator.fleet.report(0, finding())
    async with aggregator.running():
        aggregator.plan(1)
        await until_async(lambda: aggregator.webhooks.mirror.executors["slurm"].delivery.sent["slurm"] == 1)
        planner = aggregator.fleet.planner
        planner.observe_node(replace(planner.cluster.nodes["uid-0"], uid="uid-new"))
        aggregator.plan(1)
        await until_async(lambda: len(receiver.bodies) == 3)
    assert receiver.drained == {"node-0": {"quarantine"}}


async def test_a_webhook_that_does_not_accept_marks_is_shown(receiver: MarkReceiver) -> None:
    aggregator = Aggregator(Fleet(4), receiver.url)
    receiver.status = 403
    async with aggregator.running():
        aggregator.plan(1)
        await until_async(lambda: "webhook slurm: HTTP status 403" in aggregator.webhooks.problem())
    assert "notification" not in aggregator.webhooks.problem()


async def test_an_owner_that_is_down_for_a_minute_is_the_headline(receiver: MarkReceiver) -> None:
    aggregator = Aggregator(Fleet(4), receiver.url)
    fleet, webhooks = aggregator.fleet, aggregator.webhooks
    receiver.status = 503

    def headline(**owned: int) -> str:
        service = replace(LEADER, obstacle=webhooks.obstacle(owned))
        return look(status_view(fleet_status(fleet.planner, service, fleet.now)), 200).partition("\n")[0]

    async with aggregator.running():
        aggregator.plan(1)
        await until_async(lambda: bool(webhooks.deliveries[1].failed))
        fleet.after(59.0)
        assert headline(slurm=3) == "OK  4 nodes: all checks passed."
        fleet.after(61.0)
        assert headline(slurm=3) == (
            "BLOCKED  some marks are not set or released, for 2 min: webhook slurm, which owns 3 nodes, accepts "
            "no request: HTTP status 503."
        )
        # It mirrors the marks, or owns nothing.
        assert headline() == "OK  4 nodes: all checks passed."
        # Another aggregator leads.
        aggregator.plan(2, acts=False)
        assert headline(slurm=3) == "OK  4 nodes: all checks passed."
        receiver.status = 200
        aggregator.plan(3)
        # The answer arrives after the receiver has the body.
        await until_async(lambda: bool(receiver.bodies) and not webhooks.obstacle({"slurm": 3}))
        assert headline(slurm=3) == "OK  4 nodes: all checks passed."
