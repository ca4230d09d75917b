"""The leader session on a real control plane: what it writes while the lease is held."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from subprocess import CalledProcessError
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from nodeguard.aggregator.backends.kubernetes import KubernetesBackend
from nodeguard.aggregator.backends.leader import Leader
from nodeguard.aggregator.clock import monotonic
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.leadership import Candidacy
from nodeguard.aggregator.service import withdraw_writes
from nodeguard.executors.kube.cluster import ClusterWrites, ObservedCluster
from nodeguard.executors.kube.desired import DeviceRule
from nodeguard.fleet.incidents.events import IncidentEvent, event_of, resolve
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.plan_loop import PlanLoop
from nodeguard.kube.client import ApiClient
from nodeguard.kube.device_rules import PATH, ObservedRule, decode_rule, rule_body
from nodeguard.kube.fenced_client import JSON
from nodeguard.kube.lease import Lease
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.node import Taint
from nodeguard.model.policy import Hold
from tests.aggregator.test_report_handler import report
from tests.controlplane.cluster import Cluster
from tests.controlplane.definitions import define_incidents
from tests.controlplane.objects import node
from tests.fleet.cluster_planner import ClusterPlanner
from tests.fleet.leaves import FIRST, domains, down, fleet
from tests.fleet.scene import AT_ONCE, CHECKS
from tests.kube.incident_writing import LOST, NOW
from tests.kube.writing import read
from tests.logs import LogLines
from tests.waiting import PATIENCE, until_async

TAINT = Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu")


@pytest_asyncio.fixture
async def api(controlplane: Cluster) -> AsyncIterator[ApiClient]:
    client = await ApiClient.connect(str(controlplane.kubeconfig))
    yield client
    await client.close()


def candidate(api: ApiClient, namespace: str) -> Lease:
    return Lease(api, namespace, "nodeguard-aggregator", "pod-1")


@asynccontextmanager
async def session(api: ApiClient, lease: Lease) -> AsyncIterator[Leader]:
    leader = Leader(api, lease, "pod-1", ObservedCluster(), lambda _: None, lambda *_: None)
    try:
        yield leader
    finally:
        await leader.stop()


@asynccontextmanager
async def leading(api: ApiClient, namespace: str) -> AsyncIterator[Leader]:
    """Run a leader session that holds the lease."""
    lease = candidate(api, namespace)
    async with asyncio.timeout(PATIENCE):
        while not await lease.renew(monotonic()):
            await asyncio.sleep(0.05)
    async with session(api, lease) as leader:
        yield leader


def rule(controlplane: Cluster, device: str) -> DeviceRule:
    """Create a Node and return a rule for one of its devices. The cluster has no rules then."""
    controlplane.api.delete(PATH)
    controlplane.api.post("/api/v1/nodes", node("gpu-7"))
    uid = controlplane.api.get("/api/v1/nodes/gpu-7")["metadata"]["uid"]
    return DeviceRule(f"nodeguard-{device}", "gpu-7", uid, "gpu.nvidia.com", "gpu-7", device, TAINT, "{}")


def rule_for(rule: DeviceRule, device: str) -> DeviceRule:
    """Return the rule for another device."""
    return replace(rule, name=f"nodeguard-{device}", device=device)


async def create(api: ApiClient, rule: DeviceRule, epoch: int = 1) -> ObservedRule:
    body = rule_body(rule, epoch)
    return decode_rule(await api.request("POST", PATH, body=body, content_type=JSON))


async def until_devices(api: ApiClient, leader: Leader, expected: list[str]) -> list[str]:
    """Deliver the rules to the leader, as a watch does, until they are for the expected devices.

    Returns the devices of the rules; after a timeout, those that are there instead.
    """
    end = monotonic() + PATIENCE
    while True:
        items = json.loads(await api.request("GET", PATH))["items"]
        devices = sorted(item["spec"]["deviceSelector"]["device"] for item in items)
        if devices == expected or monotonic() > end:
            return devices
        for item in items:
            leader.rule_changed(decode_rule(json.dumps(item).encode()))
        await asyncio.sleep(0.01)


async def test_a_withdrawn_write_is_not_sent_later(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    controlplane.api.delete(PATH)
    created = {name: controlplane.api.post("/api/v1/nodes", node(name)) for name in ("gpu-1", "gpu-2")}
    uids = {name: item["metadata"]["uid"] for name, item in created.items()}
    rules = tuple(
        DeviceRule(f"nodeguard-{name}", name, uid, "gpu.nvidia.com", name, "gpu-0", TAINT, "{}")
        for name, uid in uids.items()
    )

    def written() -> list[str]:
        return [item["metadata"]["name"] for item in controlplane.api.get(PATH)["items"]]

    async with leading(api, namespace) as leader:
        leader.add_existing((), ())
        # Nothing is written before the loop continues.
        leader.write(ClusterWrites(rules=rules))
        leader.forget([uids["gpu-1"]])
        await until_async(lambda: "nodeguard-gpu-2" in written())
        # The withdrawn rule would be the first.
        assert written() == ["nodeguard-gpu-2"]


async def test_a_session_writes_nothing_in_a_later_term_of_its_process(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    earlier_rule = rule(controlplane, "gpu-0")
    lease = candidate(api, namespace)
    async with asyncio.timeout(PATIENCE):
        while not await lease.renew(monotonic()):
            await asyncio.sleep(0.05)
        async with session(api, lease) as earlier:
            earlier.add_existing((), ())
            await lease.renew(monotonic(), wanted=False)
            while not await lease.renew(monotonic()):
                await asyncio.sleep(0.05)
            assert lease.epoch == earlier.epoch + 1
            earlier.write(ClusterWrites(rules=(earlier_rule,)))
            async with session(api, lease) as later:
                later.add_existing((), ())
                later.write(ClusterWrites(rules=(rule_for(earlier_rule, "gpu-1"),)))
                devices = await until_devices(api, later, ["gpu-1"])
    assert devices == ["gpu-1"]


async def test_the_event_of_a_domain_is_about_its_incident(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    define_incidents(controlplane)
    scene = fleet()
    for number in range(7):
        scene.report(number, down())
    events: list[IncidentEvent] = []
    for _ in range(5):
        scene.after(5.0)
        plan = scene.issue()
        events += [event for event in plan.events if not event.node]
        scene.write(plan)
    [domain] = domains(scene)
    suppressed = replace(
        domain,
        name="check-gpu-lost",
        domain="",
        target="check/gpu-lost",
        cause="gpu-lost",
        fault_class="held",
    )
    async with leading(api, namespace) as leader:
        leader.add_existing((), ())
        leader.record(
            Plan(incidents=(domain, suppressed), events=tuple(events)),
            lambda: [domain, suppressed],
            scene.wall,
        )

        # In threads: kubectl takes seconds on a busy machine, and a blocked loop loses the leader's writes.
        async def described() -> str:
            try:
                return await asyncio.to_thread(controlplane.kubectl, "describe", "nodeincident", domain.name)
            except CalledProcessError:
                return ""

        async def listed() -> str:
            return await asyncio.to_thread(controlplane.kubectl, "get", "nodeincidents")

        async with asyncio.timeout(PATIENCE):
            while "NodeguardMarked" not in (description := await described()):
                await asyncio.sleep(0.1)
            while (table := await listed()).count("Marked") < 2:
                await asyncio.sleep(0.1)
    [event] = [line for line in description.splitlines() if "NodeguardMarked" in line]
    assert event.partition("nodeguard  ")[2] == (
        f"{FIRST}: 7 of 8 nodes lost a link at once; the other 4 domains of fabric/p0 did not; "
        f"new gang work is kept off 8 nodes of {FIRST}; the network team acts ({domain.name})"
    )
    assert [line.split()[:5] for line in table.splitlines()[1:]] == [
        ["check-gpu-lost", "check/gpu-lost", "gpu-lost", "suspect", "Marked"],
        [domain.name, FIRST, "link-down", "suspect", "Marked"],
    ]


async def test_a_kill_between_an_event_and_its_incident_loses_no_event_of_the_end(
    api: ApiClient, controlplane: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    define_incidents(controlplane)
    uid = controlplane.api.post("/api/v1/nodes", node("gpu-1"))["metadata"]["uid"]
    begun = replace(LOST, name="gpu-1-lost", node="gpu-1", uid=uid, state=IncidentState.WITHHELD)
    ended = resolve(begun, NOW)
    written: list[str] = []
    request = api.request

    async def recorded(method: str, path: str, **options: Any) -> bytes:
        if method != "GET" and "/leases" not in path:
            written.append("incident" if "nodeincidents" in path else "event")
        return await request(method, path, **options)

    monkeypatch.setattr(api, "request", recorded)
    orders = []
    async with leading(api, namespace) as leader:
        leader.add_existing((), ())
        for before, after in ((None, begun), (begun, ended)):
            event = event_of(before, after)
            assert event is not None
            leader.record(Plan(incidents=(after,), events=(event,)), partial(list, [after]), NOW)
            async with asyncio.timeout(PATIENCE):
                while len(set(written)) < 2 or leader.incidents.current_incidents() != [after]:
                    await asyncio.sleep(0.01)
            orders.append(list(dict.fromkeys(written)))
            written.clear()
    assert orders == [["incident", "event"], ["event", "incident"]]


async def test_the_end_of_an_incident_is_reported_after_its_beginning(
    api: ApiClient, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    withheld = replace(LOST, name="gpu-1-brief", node="gpu-1", state=IncidentState.WITHHELD)
    resolved = resolve(withheld, NOW)
    events = event_of(None, withheld), event_of(withheld, resolved)
    sent: list[str] = []
    async with leading(api, namespace) as leader:
        leader.add_existing((), ())
        monkeypatch.setattr(leader, "send_event", lambda event: sent.append(event.reason))
        for event in events:
            assert event is not None
            leader.record(Plan(events=(event,)), list, NOW)
        await until_async(lambda: len(sent) == 2)
    assert sent == ["NodeguardWithheld", "NodeguardResolved"]


async def test_rules_that_the_watch_delivers_late_stay(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    existing = await create(api, rule(controlplane, "gpu-0"))
    async with leading(api, namespace) as leader:
        leader.add_existing((), ())
        leader.rule_changed(existing)
        for number in range(1, 4):
            leader.write(ClusterWrites(rules=(rule_for(existing.rule, f"gpu-{number}"),)))
            expected = [f"gpu-{other}" for other in range(number + 1)]
            assert await until_devices(api, leader, expected) == expected
        leader.write(ClusterWrites(rules_gone=(existing.rule.name,)))
        assert await until_devices(api, leader, ["gpu-1", "gpu-2", "gpu-3"]) == ["gpu-1", "gpu-2", "gpu-3"]


async def test_the_writes_of_a_deleted_nodes_devices_are_withdrawn(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    existing = await create(api, rule(controlplane, "gpu-0"))
    async with leading(api, namespace) as leader:
        leader.add_existing((existing,), ())
        waiting = tuple(rule_for(existing.rule, f"gpu-{number}") for number in range(1, 9))
        leader.write(ClusterWrites(rules=waiting))
        leader.forget([existing.rule.uid])
        leader.write(ClusterWrites(rules=(rule_for(existing.rule, "gpu-9"),)))
        assert await until_devices(api, leader, ["gpu-0", "gpu-9"]) == ["gpu-0", "gpu-9"]


async def test_the_epoch_of_the_lease_exceeds_that_of_every_rule(
    api: ApiClient, controlplane: Cluster, namespace: str, log: LogLines
) -> None:
    existing = await create(api, rule(controlplane, "gpu-0"), epoch=57)
    planner = ClusterPlanner(AT_ONCE, CHECKS)
    inputs = FleetInputs(planner, lambda: None)
    backend = KubernetesBackend(api, namespace, "pod-1", planner, inputs, planner.cluster)
    try:
        backend.watches.rule_changed(existing)
        assert await backend.renew_leadership(monotonic(), Candidacy(wanted=True))
        assert "INFO became leader epoch=58" in log.text()
    finally:
        await backend.close()


async def test_a_changed_policy_withdraws_writes_that_have_not_begun(
    api: ApiClient, controlplane: Cluster, namespace: str
) -> None:
    planner = ClusterPlanner(AT_ONCE, CHECKS)
    inputs = FleetInputs(planner, lambda: None)
    backend = KubernetesBackend(api, namespace, "pod-1", planner, inputs, planner.cluster)
    now = Instant(1_700_000_000.0, 10.0, "")
    try:
        for name in ("gpu-8", "gpu-9"):
            controlplane.api.post("/api/v1/nodes", node(name))
            observed = await read(api, name)
            backend.watches.node_changed(observed)
            planner.record_report(observed.uid, report(fatal=True), now)
        assert await backend.renew_leadership(monotonic(), Candidacy(wanted=True))
        backend.desired(PlanLoop(planner).step(now).plan.decisions)
        assert len(planner.state.marks.pending_nodes()) == 2
        planner.set_policy(replace(AT_ONCE, holds=(Hold(node="gpu-8"),)))
        withdraw_writes(planner, backend)
        assert planner.state.marks.pending_nodes() == ()
        backend.desired(planner.plan(now).decisions)
        async with asyncio.timeout(PATIENCE):
            while not (await read(api, "gpu-9")).annotations:
                await asyncio.sleep(0.01)
        assert not (await read(api, "gpu-8")).annotations
    finally:
        await backend.close()
