"""The webhook executor with a real receiver: in time, late, twice, never."""

from __future__ import annotations

import asyncio

from nodeguard.aggregator.notifications.problem import delivery_problem
from nodeguard.delivery import queue
from nodeguard.executors.webhook.executor import RESYNC
from nodeguard.fleet.decide.observed_marks import WriteError
from nodeguard.model.mark import Mark
from tests.executors.receiver import MarkReceiver
from tests.executors.webhook.scene import NOW, Scene, decision
from tests.waiting import until_async


async def test_all_marks_are_posted_first_and_then_each_change(receiver: MarkReceiver) -> None:
    scene = Scene(receiver, decision(0, Mark.QUARANTINE), decision(1), epoch=3)
    async with scene.running():
        await scene.accepted(1)
        assert receiver.drained == {"node-0": {"quarantine"}}
        scene.executor.desired([decision(1, Mark.SUSPECT)])
        scene.executor.desired([decision(0)])
        await until_async(lambda: len(receiver.bodies) == 3)
    assert receiver.drained == {"node-1": {"suspect"}}
    first = int(NOW * 1000)
    versions = [(body["epoch"], body["sequence"] - first, body["change"]) for body in receiver.bodies]
    assert versions == [(3, 0, "all"), (3, 1, "node"), (3, 2, "node")]
    # A cause has every field, also while the node does not report the fault.
    [cause] = receiver.bodies[0]["nodes"][0]["marks"][0]["causes"]
    assert cause == {
        "since": "2023-11-14T22:13:20Z",
        "check": "gpu-lost",
        "target": "gpu/0000:3b:00",
        "fault_class": "gpu",
        "message": "",
        "action": None,
        "injected": False,
    }
    assert scene.reports.shown["uid-1"] == decision(1, Mark.SUSPECT).record


async def test_a_late_receiver_gets_the_latest_marks_of_each_node(receiver: MarkReceiver) -> None:
    scene = Scene(receiver)
    async with scene.running():
        await scene.accepted(1)
        receiver.status = 503
        for number in range(20):
            scene.executor.desired(
                [decision(0, Mark.QUARANTINE, since=NOW + number), decision(1, Mark.SUSPECT)]
            )
            await asyncio.sleep(0)
        scene.executor.desired([decision(1)])
        receiver.status = 200
        await until_async(lambda: receiver.drained == {"node-0": {"quarantine"}})
    assert len(receiver.bodies) <= 4
    assert scene.reports.failures == []


async def test_a_refused_request_is_reported_and_sent_again_with_all_marks(receiver: MarkReceiver) -> None:
    scene = Scene(receiver)
    async with scene.running():
        await scene.accepted(1)
        receiver.status = 422
        scene.executor.desired([decision(0, Mark.QUARANTINE)])
        await until_async(lambda: bool(scene.reports.failures))
        assert scene.reports.failures == [("uid-0", WriteError("HTTP status 422", is_refused=True))]
        receiver.status = 200
        scene.wall += RESYNC + 1
        await until_async(lambda: receiver.drained == {"node-0": {"quarantine"}})


async def test_after_a_kill_the_next_aggregator_releases_what_is_over(receiver: MarkReceiver) -> None:
    killed = Scene(receiver, decision(0, Mark.QUARANTINE), decision(1, Mark.SUSPECT))
    async with killed.running():
        await until_async(lambda: len(receiver.drained) == 2)
    following = Scene(receiver, decision(1, Mark.SUSPECT), epoch=2)
    async with following.running():
        await until_async(lambda: receiver.drained == {"node-1": {"suspect"}})
        killed.executor.desired([decision(0, Mark.QUARANTINE, since=NOW + 1)])
        async with killed.running():  # an aggregator that does not know that it has lost the lease
            await until_async(lambda: receiver.bodies[-1]["epoch"] == 1)
        assert receiver.drained == {"node-1": {"suspect"}}


async def test_an_aggregator_that_no_longer_leads_posts_nothing(receiver: MarkReceiver) -> None:
    receiver.status = 503
    scene = Scene(receiver, decision(0, Mark.QUARANTINE))
    async with scene.running():
        await until_async(lambda: receiver.requests > 0)
        scene.executor.end()
        receiver.status = 200
        scene.executor.desired([decision(0, Mark.QUARANTINE)])
        await asyncio.sleep(0.1)
    assert receiver.drained == {}


async def test_the_problem_of_a_receiver_is_that_of_the_aggregator_that_leads(receiver: MarkReceiver) -> None:
    scene = Scene(receiver, epoch=3)
    receiver.status = 503
    async with scene.running():
        await until_async(lambda: scene.executor.delivery.failed["slurm"] > 0)
    assert "HTTP status 503" in delivery_problem(scene.executor.delivery, NOW)
    scene.executor.end()
    assert delivery_problem(scene.executor.delivery, NOW) == ""


async def test_a_withdrawn_decision_is_not_posted_with_all_marks(receiver: MarkReceiver) -> None:
    scene = Scene(receiver, decision(0, Mark.QUARANTINE))
    scene.executor.withdraw(["uid-0"])
    async with scene.running():
        await asyncio.sleep(0.1)
        assert receiver.requests == 0
        scene.executor.desired([decision(0)])
        await until_async(lambda: len(receiver.bodies) == 1)
    assert receiver.drained == {}


async def test_a_request_in_transit_is_in_flight_also_after_another_one_replaced_it(
    receiver: MarkReceiver,
) -> None:
    scene = Scene(receiver)
    async with scene.running():
        await scene.accepted(1)
        receiver.fault = "hang"
        scene.executor.desired([decision(0, Mark.QUARANTINE)])
        await until_async(lambda: receiver.requests == 2)
        assert scene.executor.is_in_flight("uid-0")
        scene.executor.desired([decision(0, Mark.SUSPECT)])
        assert scene.executor.is_in_flight("uid-0")
        scene.executor.withdraw(["uid-0"])
        assert scene.executor.is_in_flight("uid-0")
        assert scene.executor.delivery.waiting("slurm") == ()


async def test_a_withdrawn_decision_in_a_list_that_waits_is_not_posted(receiver: MarkReceiver) -> None:
    receiver.status = 503
    scene = Scene(receiver, decision(0, Mark.QUARANTINE), decision(1, Mark.SUSPECT))
    async with scene.running():
        await until_async(lambda: receiver.requests > 0)
        scene.executor.withdraw(["uid-0"])
        await until_async(lambda: scene.executor.delivery.in_transit("slurm") is None)
        assert scene.executor.delivery.waiting("slurm") == ()
        receiver.status = 200
        scene.executor.desired([decision(0)])
        await until_async(lambda: bool(receiver.bodies))
    assert receiver.drained == {"node-1": {"suspect"}}


async def test_of_too_many_changes_the_receiver_gets_all_marks_at_once(receiver: MarkReceiver) -> None:
    receiver.status = 503
    scene = Scene(receiver)
    async with scene.running():
        await until_async(lambda: receiver.requests > 0)
        count = queue.MAX_PENDING + 100
        scene.executor.desired(decision(number, Mark.SUSPECT) for number in range(count))
        receiver.status = 200
        await until_async(lambda: len(receiver.drained) == count)
    assert len(receiver.bodies) < count


async def test_many_changes_at_once_are_one_request_with_all_marks(receiver: MarkReceiver) -> None:
    scene = Scene(receiver, decision(0, Mark.QUARANTINE))
    async with scene.running():
        await scene.accepted(1)
        scene.executor.desired(decision(number, Mark.SUSPECT) for number in range(1, 500))
        await scene.accepted(2)
        scene.executor.desired(decision(number) for number in range(1, 500))
        scene.executor.desired([decision(500, Mark.SUSPECT)])
        await scene.accepted(3)
    assert receiver.drained == {"node-0": {"quarantine"}, "node-500": {"suspect"}}
    assert [body["change"] for body in receiver.bodies] == ["all"] * 3


async def test_all_marks_are_posted_again_after_the_clock_steps_back(receiver: MarkReceiver) -> None:
    scene = Scene(receiver, decision(0, Mark.QUARANTINE))
    async with scene.running():
        await until_async(lambda: receiver.drained == {"node-0": {"quarantine"}})
        receiver.drained.clear()
        receiver.restart()
        scene.wall -= 86_400.0
        await scene.accepted(2)
        await asyncio.sleep(0.1)
    assert [body["change"] for body in receiver.bodies] == ["all", "all"]


async def test_a_change_replaces_a_request_with_all_marks_that_waits(receiver: MarkReceiver) -> None:
    scene = Scene(receiver, decision(0, Mark.QUARANTINE), epoch=3)
    receiver.status = 503
    async with scene.running():
        await until_async(lambda: scene.executor.delivery.failed["slurm"] > 1)
        scene.executor.desired([decision(1, Mark.QUARANTINE)])
        receiver.status = 200
        await until_async(lambda: receiver.drained.keys() == {"node-0", "node-1"})
        await until_async(lambda: not scene.executor.delivery.waiting("slurm"))
    assert [body["change"] for body in receiver.bodies] == ["all"] * len(receiver.bodies)
    assert receiver.drained.keys() == {"node-0", "node-1"}


async def test_an_outage_is_as_old_as_its_first_failed_request(receiver: MarkReceiver) -> None:
    """Each list of all marks replaces the one before it: their age never reaches that of the alert."""
    scene = Scene(receiver, decision(0, Mark.QUARANTINE), epoch=3)
    delivery = scene.executor.delivery
    receiver.status = 503

    async def is_replaced() -> None:
        await until_async(lambda: [item.added_at for item in delivery.waiting("slurm")] == [scene.wall])
        failed = delivery.failed["slurm"]
        await until_async(lambda: delivery.failed["slurm"] > failed)

    async with scene.running():
        for _ in range(3):
            await is_replaced()
            assert delivery.oldest("slurm") == NOW
            scene.wall += RESYNC + 1.0
        receiver.status = 200
        await until_async(lambda: not delivery.waiting("slurm"))
        assert delivery.oldest("slurm") is None
        receiver.status = 503
        scene.wall += RESYNC + 1.0
        await is_replaced()
        assert delivery.oldest("slurm") == scene.wall
