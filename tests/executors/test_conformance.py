"""What every executor does alike: in Kubernetes, behind a webhook, and in a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from nodeguard.delivery import queue
from nodeguard.executors.webhook import executor as webhook_executor
from nodeguard.kube.client import ApiClient
from nodeguard.model.decision import NodeDecision
from nodeguard.model.mark import Charge, Mark, MarkCause, MarkRecord, NodeMarks
from tests.controlplane.cluster import Cluster
from tests.executors.kube_place import KubePlace, OwnerPlace
from tests.executors.places import AdvicePlace, WebhookPlace
from tests.executors.receiver import MarkReceiver
from tests.kube.detour import Detour

NOW = 1_700_000_000.0
PLACES = ["kube", "owner", "owner-late", "owner-twice", "webhook", "webhook-in-parts", "advice"]

# Bytes of a body with one node, and not of one with two.
ONE_NODE = 500


@pytest.fixture(autouse=True)
def _retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_RETRY", "LONGEST_RETRY"):
        monkeypatch.setattr(queue, name, 0.01)
    monkeypatch.setattr(webhook_executor, "_TICK", 0.01)


@pytest_asyncio.fixture
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    async with AsyncExitStack() as stack:
        match request.param:
            case "advice":
                yield AdvicePlace(tmp_path)
            case "webhook" | "webhook-in-parts":
                receiver: MarkReceiver = request.getfixturevalue("receiver")
                if request.param == "webhook-in-parts":
                    receiver.limit = ONE_NODE
                webhook = WebhookPlace(receiver, stack)
                await webhook.start()
                yield webhook
            case _:
                cluster: Cluster = request.getfixturevalue("api_server")
                detour = await stack.enter_async_context(Detour(cluster.port))
                config = tmp_path / "far.kubeconfig"
                config.write_text(cluster.kubeconfig.read_text().replace(cluster.url, detour.url))
                near = await ApiClient.connect(str(cluster.kubeconfig))
                stack.push_async_callback(near.close)
                kube = KubePlace(cluster, config, near, detour)
                if request.param != "kube":
                    receiver = request.getfixturevalue("receiver")
                    receiver.every = request.param.partition("-")[2]
                    kube = OwnerPlace(cluster, config, near, detour, receiver)
                await kube.start()
                stack.push_async_callback(kube.stop)
                yield kube


def places(*without: str) -> pytest.MarkDecorator:
    """Run a test in all places; without: those to which it does not apply, for the reason beside it."""
    names = [
        pytest.param(name, marks=_marks(name)) for name in PLACES if name.partition("-")[0] not in without
    ]
    return pytest.mark.parametrize("place", names, indirect=True)


def _marks(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.cluster, pytest.mark.xdist_group("conformance")] if _has_cluster(name) else []


def _has_cluster(name: str) -> bool:
    return name.partition("-")[0] in {"kube", "owner"}


def decision(place: Any, name: str, *marks: Mark, since: float = NOW) -> NodeDecision:
    causes = tuple(MarkCause(mark, "gpu-lost", "gpu/0000:3b:00", "gpu", since) for mark in marks)
    charge = Charge("gpu-lost", marks[0], since) if marks else None
    return NodeDecision(place.key(name), name, NodeMarks(MarkRecord(causes, charge)))


@places()
async def test_desired_marks_are_shown_and_released(place: Any) -> None:
    place.desired(decision(place, "node-0", Mark.QUARANTINE), decision(place, "node-1", Mark.SUSPECT))
    await place.settled()
    shown = [await place.shown(name) for name in ("node-0", "node-1", "node-2")]
    assert shown == [{"quarantine"}, {"suspect"}, set()]
    place.desired(decision(place, "node-0"))
    await place.settled()
    assert await place.shown("node-0") == set()
    assert await place.shown("node-1") == {"suspect"}


@places()
async def test_the_latest_decision_about_a_node_wins(place: Any) -> None:
    place.desired(decision(place, "node-0", Mark.SUSPECT))
    place.desired(decision(place, "node-0", Mark.QUARANTINE))
    await place.settled()
    assert await place.shown("node-0") == {"quarantine"}


@places("advice")  # a file is written again at each change
async def test_a_decision_that_is_shown_is_not_written_again(place: Any) -> None:
    marked = decision(place, "node-0", Mark.QUARANTINE)
    place.desired(marked)
    await place.settled()
    writes = await place.writes()
    place.desired(marked)
    await place.settled()
    assert await place.writes() == writes


@places()
async def test_a_withdrawn_decision_is_not_carried_out(place: Any) -> None:
    place.desired(decision(place, "node-0", Mark.QUARANTINE))
    place.withdraw("node-0")
    place.desired(decision(place, "node-1", Mark.QUARANTINE), decision(place, "node-0"))
    await place.settled()
    assert await place.shown("node-0") == set()
    assert await place.shown("node-1") == {"quarantine"}


@places("advice")  # a file refuses nothing
async def test_a_refused_decision_is_reported_and_carried_out_later(place: Any) -> None:
    place.desired()
    await place.settled()
    await place.refuse(refuses=True)
    marked = decision(place, "node-0", Mark.QUARANTINE)
    place.desired(marked)
    await place.settled()
    assert place.refused == [marked.node]
    assert await place.shown("node-0") == set()
    await place.refuse(refuses=False)
    place.desired(marked)
    await place.settled()
    assert await place.shown("node-0") == {"quarantine"}


@places("advice")  # a file has no answers
async def test_a_lost_answer_loses_nothing(place: Any) -> None:
    await place.lose_answers()
    place.desired(decision(place, "node-0", Mark.QUARANTINE))
    await place.settled()
    assert await place.shown("node-0") == {"quarantine"}
    place.desired(decision(place, "node-0"))
    await place.settled()
    assert await place.shown("node-0") == set()


@places()
async def test_a_successor_continues(place: Any) -> None:
    first, second = decision(place, "node-0", Mark.QUARANTINE), decision(place, "node-1", Mark.SUSPECT)
    place.desired(first, second)
    await place.settled()
    await place.kill()
    assert await place.shown("node-0") == {"quarantine"}
    place.desired(decision(place, "node-0"), second)
    await place.settled()
    shown = [await place.shown(name) for name in ("node-0", "node-1")]
    assert shown == [set(), {"suspect"}]


@places("webhook")  # it mirrors: the owner of the nodes has the record
async def test_a_successor_reads_the_record_back(place: Any) -> None:
    marked = decision(place, "node-0", Mark.QUARANTINE)
    place.desired(marked)
    await place.settled()
    await place.kill()
    assert await place.record("node-0") == marked.record


@places("advice")  # no other client writes the file
async def test_a_mark_that_another_client_removed_is_set_again(place: Any) -> None:
    marked = decision(place, "node-0", Mark.QUARANTINE)
    place.desired(marked)
    await place.settled()
    await place.change_by_others("node-0")
    assert await place.shown("node-0") == set()
    place.desired(marked)
    await place.settled()
    assert await place.shown("node-0") == {"quarantine"}


@places("advice", "webhook")  # no operator writes the file; behind a webhook the receiver keeps it
async def test_what_an_operator_set_stays(place: Any) -> None:
    await place.set_by_operator("node-0")
    place.desired(decision(place, "node-0", Mark.SUSPECT))
    await place.settled()
    assert await place.is_set_by_operator("node-0")
    place.desired(decision(place, "node-0"))
    await place.settled()
    assert await place.is_set_by_operator("node-0")
    assert await place.shown("node-0") == set()


owner = pytest.mark.parametrize("place", [pytest.param("owner", marks=_marks("owner"))], indirect=True)


async def turns_until(place: OwnerPlace, condition: Callable[[], bool]) -> None:
    """Take turns until the condition is true."""
    while not condition():
        await place.turn()


@owner
async def test_a_mark_is_in_effect_when_the_receiver_of_the_owner_has_accepted_it(
    place: OwnerPlace, receiver: MarkReceiver
) -> None:
    receiver.status = 503
    marked = decision(place, "node-0", Mark.QUARANTINE)
    place.desired(marked)
    while await place.record("node-0") != marked.record:
        await place.turn()
    first = receiver.requests
    await turns_until(place, lambda: receiver.requests >= first + 3)
    assert place.in_effect("node-0") == set()
    assert place.charged("node-0")
    await place.kill()
    assert place.in_effect("node-0") == set()
    assert place.charged("node-0")
    receiver.status = 200
    place.desired(marked)
    await place.settled()
    assert await place.shown("node-0") == place.in_effect("node-0") == {"quarantine"}


@owner
async def test_a_release_is_charged_until_the_receiver_of_the_owner_has_accepted_it(
    place: OwnerPlace, receiver: MarkReceiver
) -> None:
    marked = decision(place, "node-0", Mark.QUARANTINE)
    place.desired(marked)
    await place.settled()
    await place.kill()
    assert place.in_effect("node-0") == {"quarantine"}  # read back from the record
    receiver.status = 503
    first = receiver.requests
    place.desired(decision(place, "node-0"))
    await turns_until(place, lambda: receiver.requests >= first + 3)
    assert await place.record("node-0") == marked.record
    assert place.in_effect("node-0") == {"quarantine"}
    assert place.charged("node-0")
    receiver.status = 200
    await place.settled()
    assert await place.shown("node-0") == place.in_effect("node-0") == set()
    assert await place.record("node-0") == MarkRecord()
    assert not place.charged("node-0")
