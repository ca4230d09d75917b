"""Faults of nodes behind leaf switches: simulated agents report them, and a real aggregator sets the marks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from nodeguard.model.finding import Action, Health
from nodeguard.wire.report import Report, ReportedEvidence, ReportedFinding, ReportedPassing
from tests import waiting
from tests.controlplane.cluster import Cluster
from tests.daemonset.helm import grant_rights
from tests.e2e.fleet import Aggregator, deployed_fleet
from tests.e2e.gangs import LEAF, POD, GangNodes
from tests.e2e.swarm import TARGET, Swarm, fatal_finding, healthy_report, reporting_swarm

DEGRADED_TAINT, SUSPECT_TAINT = "nodeguard.dev/domain-degraded", "nodeguard.dev/suspect"
QUARANTINE_TAINT = "nodeguard.dev/quarantine"

# A leaf is degraded, and recovers, within seconds. Lost GPUs end the work on them.
POLICY = f"""
defaultMode: enforce
gracePeriod: {{quarantine: 1m, suspect: 1s}}
soak: {{initial: 1s, max: 1s, resetAfter: 1m}}
budget: {{fleet: 100%, pool: 100%, domain: 100%, suspect: 100%, newDegradedDomainsPerHour: 100}}
topologies: {{fabric: [{POD}, {LEAF}]}}
diagnosis: {{enforce: [fabric], gracePeriod: 2s, recovery: {{initial: 2s, max: 2s, resetAfter: 1m}}}}
drain: {{mode: enforce, rules: [{{check: gpu-lost, when: immediately}}], limits: {{nodes: 100%, perDomain: 8}}}}
"""

_PORT = "port/mlx5_0/1"
_HEALTHY = healthy_report(("gpu-retired-pages-limit", "gpu-lost"))
_HEALTHY = replace(_HEALTHY, passing=(*_HEALTHY.passing, ReportedPassing(("port-down",), (_PORT,))))
_PORT_DOWN = ReportedFinding(
    check="port-down",
    target=_PORT,
    health=Health.FATAL,
    action=Action.CONTACT_SUPPORT,
    age=60.0,
    message=f"{_PORT} is DOWN/Polling but should be up according to its inventory",
    evidence=(ReportedEvidence("ports", "port.phys_state is Polling"),),
    topologies=("fabric",),
    family="port",
)
_SUSPECT_GPU = ReportedFinding(
    check="gpu-retired-pages-limit",
    target=TARGET,
    health=Health.SUSPECT,
    component="GPU-1",
    action=Action.REPLACE_COMPONENT,
    age=3_600.0,
    message=f"{TARGET} has retired 64 pages",
    evidence=(ReportedEvidence("nvml", "gpu.retired_pages is 64"),),
    family="gpu-memory",
)


class AgentFaults:
    """Sets the findings that agents report. Each method returns when the marks of the nodes are as expected."""

    def __init__(self, nodes: GangNodes, agents: Swarm, aggregator: Aggregator) -> None:
        self._nodes = nodes
        self._agents = agents
        self._aggregator = aggregator

    def degrade(self, leaf: str) -> None:
        """Report link faults of all nodes behind a leaf, as a faulty leaf switch causes them."""
        self._report(self._nodes.nodes_behind(leaf), _report_with(_PORT_DOWN), DEGRADED_TAINT)

    def recover(self, leaf: str) -> None:
        """Report that the nodes behind a leaf are healthy."""
        self._report(self._nodes.nodes_behind(leaf), _HEALTHY)

    def suspect(self, *names: str) -> None:
        """Report a suspect GPU of each of some nodes."""
        self._report(names, _report_with(_SUSPECT_GPU), SUSPECT_TAINT)

    def lose_gpu(self, *names: str) -> None:
        """Report that each of some nodes has lost GPU-1."""
        self._report(names, _report_with(fatal_finding("gpu-lost", age=60.0)), QUARANTINE_TAINT)

    def clear(self) -> None:
        """Report that all nodes are healthy."""
        self._report(self._nodes.leaves, _HEALTHY)

    def _report(self, names: Iterable[str], report: Report, *keys: str) -> None:
        """Set the report of nodes, and wait until they have exactly these taints of nodeguard."""
        chosen = list(names)
        self._agents.set_reports(dict.fromkeys(chosen, report))

        self._agents.wait_until_delivered()

        def others() -> dict[str, list[str]]:
            taints = _marks(self._nodes.cluster)
            return {name: taints[name] for name in chosen if taints[name] != list(keys)}

        def message() -> str:
            state = json.dumps(self._aggregator.query("/v1/status"))
            return f"taints {list(keys)} expected, found {others()}; its status is {state}"

        waiting.until(lambda: not others(), message, every=0.1)


@contextmanager
def agent_faults(nodes: GangNodes) -> Iterator[AgentFaults]:
    """Run a healthy agent for each node, and an aggregator that has all reports and is active."""
    with deployed_fleet(nodes.cluster) as fleet:
        fleet.policy.write_text(POLICY)
        grant_rights(nodes.cluster, POLICY)
        with reporting_swarm(fleet, nodes.uids, _HEALTHY) as (aggregator, agents):
            aggregator.until(lambda: aggregator.metric("nodeguard_aggregator_active") == 1)
            yield AgentFaults(nodes, agents, aggregator)


def _report_with(finding: ReportedFinding) -> Report:
    passing = tuple(item for item in _HEALTHY.passing if finding.check not in item.checks)
    return replace(_HEALTHY, health=finding.health, findings=(finding,), passing=passing)


def _marks(cluster: Cluster) -> dict[str, list[str]]:
    """Return the keys of nodeguard's taints, by node."""
    return {
        node["metadata"]["name"]: [
            taint["key"]
            for taint in node["spec"].get("taints", ())
            if taint["key"].startswith("nodeguard.dev/")
        ]
        for node in cluster.api.get("/api/v1/nodes")["items"]
    }
