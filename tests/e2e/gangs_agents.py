"""The leaf of a scene as a real aggregator sees it: agents of all its nodes tell what they find, and it draws the
conclusion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from nodeguard.model.finding import Action, Health
from nodeguard.wire.report import Report, ReportedEvidence, ReportedFinding, ReportedPassing
from tests.controlplane.cluster import Cluster
from tests.e2e.fleet import Aggregator, fleet
from tests.e2e.gangs import LEAF, POD, Floor
from tests.e2e.gangs_leaf import DEGRADED, SUSPECT
from tests.e2e.swarm import SLOT, Swarm, in_order, swarm

# A leaf is blamed for what its nodes find, and let go, within seconds.
POLICY = f"""
defaultMode: enforce
gracePeriod: {{quarantine: 1m, suspect: 1s}}
soak: {{initial: 1s, max: 1s, resetAfter: 1m}}
budget: {{fleet: 100%, pool: 100%, domain: 100%, suspect: 100%, newDegradedDomainsPerHour: 100}}
topologies: {{fabric: [{POD}, {LEAF}]}}
diagnosis: {{enforce: [fabric], gracePeriod: 2s, recovery: {{initial: 2s, max: 2s, resetAfter: 1m}}}}
"""

_PORT = "port/mlx5_0/1"
_HEALTHY = in_order(("gpu-retired-pages-limit",))
_HEALTHY = replace(_HEALTHY, passing=(*_HEALTHY.passing, ReportedPassing(("port-down",), (_PORT,))))
_CUT_OFF = ReportedFinding(
    check="port-down",
    target=_PORT,
    health=Health.FATAL,
    action=Action.CONTACT_SUPPORT,
    age=60.0,
    message=f"{_PORT} is DOWN/Polling and should be up, going by its inventory",
    evidence=(ReportedEvidence("ports", "port.phys_state is Polling"),),
    topologies=("fabric",),
    family="port",
)
_DOUBTED = ReportedFinding(
    check="gpu-retired-pages-limit",
    target=SLOT,
    health=Health.SUSPECT,
    component="GPU-1",
    action=Action.REPLACE_COMPONENT,
    age=3_600.0,
    message=f"{SLOT} has retired 64 pages",
    evidence=(ReportedEvidence("nvml", "gpu.retired_pages is 64"),),
    family="gpu-memory",
)


class ByAgents:
    """What the agents of nodes find, and what becomes of it."""

    def __init__(self, floor: Floor, agents: Swarm, aggregator: Aggregator) -> None:
        self._floor = floor
        self._agents = agents
        self._aggregator = aggregator

    def degrades(self, leaf: str) -> None:
        self._find(self._floor.behind(leaf), _told(_CUT_OFF), DEGRADED["key"])

    def recovers(self, leaf: str) -> None:
        self._find(self._floor.behind(leaf), _HEALTHY)

    def suspects(self, *names: str) -> None:
        self._find(names, _told(_DOUBTED), SUSPECT["key"])

    def clear(self) -> None:
        self._find(self._floor.leaves, _HEALTHY)

    def _find(self, names: Iterable[str], report: Report, *keys: str) -> None:
        """Have nodes say something, and wait until they have these taints and no other of nodeguard's."""
        chosen = list(names)
        self._agents.say(dict.fromkeys(chosen, report))

        def marked() -> bool:
            found = _marks(self._floor.cluster)
            return all(found[name] == list(keys) for name in chosen)

        self._aggregator.until(marked)


@contextmanager
def by_agents(floor: Floor) -> Iterator[ByAgents]:
    """An agent for each node, which finds nothing at first, and an aggregator that has heard them all and acts."""
    with fleet(floor.cluster) as made:
        made.policy.write_text(POLICY)
        [aggregator] = made.aggregate(1)
        aggregator.start()
        made.trust()
        with swarm(made, floor.uids, _HEALTHY, aggregator) as agents:
            agents.speak()
            agents.heard()
            aggregator.until(lambda: "nodeguard_aggregator_active 1" in aggregator.page("/metrics"))
            yield ByAgents(floor, agents, aggregator)


def _told(finding: ReportedFinding) -> Report:
    proven = tuple(one for one in _HEALTHY.passing if finding.check not in one.checks)
    return replace(_HEALTHY, health=finding.health, findings=(finding,), passing=proven)


def _marks(cluster: Cluster) -> dict[str, list[str]]:
    """Keys of nodeguard's taints, by node."""
    return {
        one["metadata"]["name"]: [
            taint["key"]
            for taint in one["spec"].get("taints", ())
            if taint["key"].startswith("nodeguard.dev/")
        ]
        for one in cluster.api.get("/api/v1/nodes")["items"]
    }
