from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from subprocess import CalledProcessError

from msgspec.structs import replace

from nodeguard.aggregator.backends.leader import Leader
from nodeguard.aggregator.clock import monotonic
from nodeguard.fleet.incidents.events import IncidentEvent
from nodeguard.fleet.plan import Plan
from nodeguard.kube.client import ApiClient
from nodeguard.kube.device_rule_writer import PATH
from nodeguard.kube.lease import Lease
from nodeguard.model.mark import DeviceRule
from nodeguard.model.node import Taint
from tests.controlplane.cluster import Cluster
from tests.controlplane.defining import define_incidents
from tests.controlplane.objects import node
from tests.fleet.decide.test_domain_marks import FIRST, domains, down, fleet
from tests.waiting import PATIENCE

TAINT = Taint("nodeguard.dev/quarantine", "NoSchedule", "gpu-xid")


async def test_what_is_forgotten_is_not_written_later(controlplane: Cluster, namespace: str) -> None:
    controlplane.api.delete(PATH)
    made = {name: controlplane.api.post("/api/v1/nodes", node(name)) for name in ("gpu-1", "gpu-2")}
    uids = {name: one["metadata"]["uid"] for name, one in made.items()}
    rules = tuple(
        DeviceRule(f"nodeguard-{name}", name, uid, "gpu.nvidia.com", name, "gpu-0", TAINT, "{}")
        for name, uid in uids.items()
    )

    def written() -> list[str]:
        return [one["metadata"]["name"] for one in controlplane.api.get(PATH)["items"]]

    api = await ApiClient.connect(str(controlplane.kubeconfig))
    lease = Lease(api, namespace, "nodeguard-aggregator", "pod-1", lambda _: None)
    term = Leader(api, lease, "pod-1", lambda _: None, lambda _: None, lambda _: None)
    try:
        term.add_existing((), ())
        # Nothing is written before the lease is held.
        term.apply_plan(Plan(rules=rules), list, 0.0)
        term.forget([uids["gpu-1"]])
        async with asyncio.timeout(PATIENCE):
            while not await lease.renew(monotonic()):
                await asyncio.sleep(0.05)
            while "nodeguard-gpu-2" not in written():
                await asyncio.sleep(0.05)
        # That of the other would have been the first.
        assert written() == ["nodeguard-gpu-2"]
    finally:
        await term.stop()
        await api.close()


@asynccontextmanager
async def leading(cluster: Cluster, namespace: str) -> AsyncIterator[Leader]:
    """A term that knows of nothing in the cluster, and holds the lease."""
    api = await ApiClient.connect(str(cluster.kubeconfig))
    lease = Lease(api, namespace, "nodeguard-aggregator", "pod-1", lambda _: None)
    async with asyncio.timeout(PATIENCE):
        while not await lease.renew(monotonic()):
            await asyncio.sleep(0.05)
    term = Leader(api, lease, "pod-1", lambda _: None, lambda _: None, lambda _: None)
    try:
        term.add_existing((), ())
        yield term
    finally:
        await term.stop()
        await api.close()


async def test_what_many_nodes_share_is_told_of_beside_its_incident(
    controlplane: Cluster, namespace: str
) -> None:
    define_incidents(controlplane)
    made = fleet()
    for number in range(7):
        made.say(number, down())
    events: list[IncidentEvent] = []
    for _ in range(4):
        made.after(5.0)
        plan = made.plan()
        events += [one for one in plan.events if not one.node]
        made.planner.record_issued(plan)
        made.write(plan)
    [domain] = domains(made)
    held = replace(
        domain,
        name="check-gpu-lost",
        domain="",
        target="check/gpu-lost",
        cause="gpu-lost",
        fault_class="held",
    )
    async with leading(controlplane, namespace) as term:
        term.apply_plan(
            Plan(incidents=(domain, held), events=tuple(events)), lambda: [domain, held], made.wall
        )

        def described() -> str:
            try:
                return controlplane.kubectl("describe", "nodeincident", domain.name)
            except CalledProcessError:
                return ""

        def listed() -> list[list[str]]:
            return [
                line.split()[:5] for line in controlplane.kubectl("get", "nodeincidents").splitlines()[1:]
            ]

        async with asyncio.timeout(PATIENCE):
            while "NodeguardMarked" not in (said := described()):
                await asyncio.sleep(0.1)
            while sum(cells[4:] == ["Marked"] for cells in listed()) < 2:
                await asyncio.sleep(0.1)
    [event] = [line for line in said.splitlines() if "NodeguardMarked" in line]
    assert event.partition("nodeguard  ")[2] == (
        f"{FIRST}: 7 of 8 nodes lost a link at once; its 4 siblings did not; "
        f"new gang work is kept off 8 nodes of {FIRST} ({domain.name})"
    )
    assert listed() == [
        ["check-gpu-lost", "check/gpu-lost", "gpu-lost", "suspect", "Marked"],
        [domain.name, FIRST, "link-down", "suspect", "Marked"],
    ]
