from __future__ import annotations

import asyncio

from nodeguard.aggregator.world.term import Term, monotonic
from nodeguard.fleet.plan import Plan
from nodeguard.kube.client import Api
from nodeguard.kube.device_rules import PATH
from nodeguard.kube.lease import Lease
from nodeguard.model.mark import DeviceRule
from nodeguard.model.node import Taint
from tests.controlplane.cluster import PATIENCE, Cluster
from tests.controlplane.objects import node

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

    api = await Api.connect(str(controlplane.kubeconfig))
    lease = Lease(api, namespace, "nodeguard-aggregator", "pod-1", lambda _: None)
    term = Term(api, lease, "pod-1", lambda _: None, lambda _: None, lambda _: None)
    try:
        term.know((), ())
        # Nothing is written before the lease is held.
        term.carry_out(Plan(rules=rules), list, 0.0)
        term.forget([uids["gpu-1"]])
        async with asyncio.timeout(PATIENCE):
            while not await lease.renew(monotonic()):
                await asyncio.sleep(0.05)
            while "nodeguard-gpu-2" not in written():
                await asyncio.sleep(0.05)
        # That of the other would have been the first.
        assert written() == ["nodeguard-gpu-2"]
    finally:
        await term.end()
        await api.close()
