"""The writes of a burst of faults, as a real API server counts them.

`bench/burst.py` counts those of 750 nodes, which take two minutes: condition, incident and Event of each node follow
its mark, 20 of them a second.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nodeguard.fleet.decide.observed_marks import REPORTED_AFTER
from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster, NewCluster
from tests.daemonset.helm import grant_rights
from tests.e2e.bulk_nodes import make_nodes, wait_until_schedulable
from tests.e2e.fleet import deployed_fleet
from tests.e2e.scene import INCIDENTS
from tests.e2e.swarm import fatal_finding, faulty_report, healthy_report, reporting_swarm
from tests.kubelet.audit import Audit

pytestmark = pytest.mark.slow

NODES, FAULTY = 120, 100
HEALTHY = healthy_report(("gpu-lost",))
POLICY = """
defaultMode: enforce
budget: {fleet: 100%, fatalReserve: 0%, pool: 100%, perCheck: {new: 100000, within: 10m, active: 100000}}
diagnosis: {suppression: {minNodes: 100000}}
gracePeriod: {quarantine: 0s, suspect: 0s}
"""


def test_a_burst_of_faults_costs_one_write_of_each_object(new_cluster: NewCluster, tmp_path: Path) -> None:
    audit = Audit(tmp_path)
    with new_cluster(flags={"kube-apiserver": audit.flags()}) as cluster, deployed_fleet(cluster) as fleet:
        fleet.policy.write_text(POLICY)
        grant_rights(cluster, POLICY)
        uids = make_nodes(cluster, [f"gpu-{number:04}" for number in range(NODES)])
        wait_until_schedulable(cluster)
        with reporting_swarm(fleet, uids, HEALTHY) as (aggregator, agents):
            aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
            before = audit.size()
            faulty = faulty_report(HEALTHY, fatal_finding("gpu-lost"))
            agents.set_reports(dict.fromkeys(list(uids)[:FAULTY], faulty))
            aggregator.until(lambda: len(marked_incidents(cluster)) == FAULTY)
            # Longer than the time after which a write that is not observed is reported, and written again.
            time.sleep(2 * REPORTED_AFTER)
            assert len(marked_incidents(cluster)) == FAULTY
        writes = audit.writes(before)
    assert writes == dict.fromkeys(
        (
            "patch nodes",
            "patch nodes/status",
            "create nodeincidents",
            "patch nodeincidents/status",
            "create events",
        ),
        FAULTY,
    )


def marked_incidents(cluster: Cluster) -> list[Object]:
    return [
        item
        for item in cluster.api.get(INCIDENTS)["items"]
        if item.get("status", {}).get("state") == "Marked"
    ]
