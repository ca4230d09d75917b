"""A fleet on the real control plane: from a line of the kernel log to marks that others see, and back."""

from __future__ import annotations

import json

from tests.controlplane.cluster import Cluster
from tests.e2e.fleet import fleet

ENFORCED = """
mode: enforce
settle: {quarantine: 1s, suspect: 1s}
soak: {first: 1s, most: 1s, forget: 1m}
"""
GSP = "3,{},{},-;NVRM: Xid (PCI:0000:1b:00): 119, pid=1234, name=train, Timeout after 6s of waiting for RPC response from GPU0 GSP!\n"


def test_a_line_of_the_kernel_log_becomes_a_taint(controlplane: Cluster) -> None:
    with fleet(controlplane) as made:
        made.policy.write_text(ENFORCED)
        agent = made.join("gpu-1")
        [aggregator] = made.aggregate(1)
        aggregator.start()
        made.trust()
        aggregator.ready()
        agent.start()
        agent.ready()
        print(controlplane.kubectl("get", "nodes", "-o", "wide"))
        agent.kernel_says(GSP.format(90001, 1_000_000_000_000).strip())
        agent.until(lambda: "quarantine" in json.dumps(controlplane.api.get("/api/v1/nodes/gpu-1")["spec"]))
        print(controlplane.kubectl("describe", "node", "gpu-1"))
        print(controlplane.kubectl("get", "nodeincidents"))
        print(controlplane.kubectl("get", "nodeincidents", "-o", "yaml"))
        print(aggregator.page("/metrics"))
        print((controlplane.kept.log("aggregator-127.0.0.1")).read_text())
