"""A fleet for the diagnosis: pods of leaves of sixteen nodes, feeds of racks, rows of racks, one NVLink
domain each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set

from nodeguard.fleet.diagnosis.diagnosis import Diagnosis
from nodeguard.fleet.diagnosis.node_evidence import JobStart, NodeEvidence, ShownFault
from nodeguard.fleet.diagnosis.results import DegradedDomain
from nodeguard.fleet.diagnosis.vote_index import VoteIndex
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy
from nodeguard.model.policy import Policy
from tests.policies import diagnosis_policy

PODS, LEAVES, NODES = 4, 8, 16

VIEWS = {
    "port-down": ("fabric",),
    "port-link-downed": ("fabric",),
    "gpu-thermal-slowdown": ("rack",),
    "nvlink-down": ("nvlink",),
    "driver-library-mismatch": ("driver",),
    STALE_CHECK: ("power", "fabric"),
}


class Voters(NodeEvidence):
    """A fleet and its diagnosis at a time. confirmed: nodes on which another source confirms the check."""

    def __init__(self, pods: int = PODS, rule: DiagnosisPolicy | None = None) -> None:
        super().__init__(FleetState(Policy()))
        self.now = 1_000_000.0
        self.confirmed: set[str] = set()
        self.versions: dict[str, str] = {}
        self.diagnosis = Diagnosis(rule or diagnosis_policy(), self)
        self.nodes = [
            f"{pod}-{leaf}-{node}" for pod in range(pods) for leaf in range(LEAVES) for node in range(NODES)
        ]
        for uid in self.nodes:
            self.place(uid)
        self.diagnosis.evaluate(self.now - 3 * 86_400.0)

    def place(self, uid: str, **versions: str) -> None:
        """Place a node. versions: other than the usual ones, by topology."""
        pod, leaf, node = (int(word) for word in uid.split("-"))
        number = (pod * LEAVES + leaf) * NODES + node
        rack = f"r{number // 8}"
        all_versions = {"agent": "1", "driver": "580", **versions}
        domains = [f"{topology}/{version}" for topology, version in all_versions.items()]
        self.diagnosis.voting.record_versions(uid, domains, {}, self.now)
        self.move(
            uid,
            f"fabric/p{pod}/l{leaf}",
            f"rack/row{number // 64}/{rack}",
            f"power/feed{(number + 64) // 128}/{rack}",
            f"nvlink/n{number // 16}",
            *domains,
        )

    def move(self, uid: str, *paths: str) -> None:
        """Set the domains of a node; without any, it is removed."""
        self.diagnosis.voting.has_changed |= self.members.set_domains(uid, paths)
        self.diagnosis.voting.set_domains(uid, paths)
        if not paths:
            self.diagnosis.voting.remove_node(uid)

    def exists(self, uid: str) -> bool:
        return bool(self.members.paths(uid))

    def is_confirmed(self, uid: str, _check: str) -> bool:
        return uid in self.confirmed

    def is_fact(self, _check: str, _uids: Collection[str]) -> bool:
        return False

    def is_marked(self, _uid: str, _check: str) -> bool:
        return False

    def shown_checks(self, uid: str) -> Set[str]:
        firings = self.diagnosis.voting.firings
        return {check for check in firings if uid in firings[check].active}

    def nodes_showing(self, _check: str) -> set[str]:
        return set()

    def onsets(self, _check: str) -> dict[str, float]:
        return {}

    def job_starts(self, _uid: str) -> Iterable[JobStart]:
        return ()

    def shown_faults(
        self, uids: Iterable[str], degraded: DegradedDomain, votes: VoteIndex, now: float
    ) -> dict[str, list[ShownFault]]:
        """Return the faults of some nodes on which a check of a domain's fault classes fires."""
        nodes = frozenset(uids)
        return {
            uid: [ShownFault(firings.latest.get(uid, 0.0), now)]
            for check, firings in votes.firings.items()
            if not votes.classes_of(check).keys().isdisjoint(degraded.fault_classes)
            for uid in firings.active & nodes
        }

    def leaf(self, pod: int, leaf: int, count: int = NODES) -> list[str]:
        return [f"{pod}-{leaf}-{node}" for node in range(count)]

    def show(self, nodes: Iterable[str], check: str = "port-down", every: float = 0.0) -> None:
        """Fire a check on nodes, in sequence."""
        for uid in nodes:
            self.diagnosis.vote(uid, check, VIEWS.get(check, ()), self.now)
            self.look()
            if every:
                self.after(every)

    def over(self, nodes: Iterable[str], check: str = "port-down") -> None:
        for uid in nodes:
            self.diagnosis.record_cleared(uid, check)

    def look(self) -> None:
        self.diagnosis.evaluate(self.now)

    def after(self, seconds: float) -> None:
        """Advance the time, with the evaluations that are due."""
        end = self.now + seconds
        while (due := self.diagnosis.next_evaluation()) is not None and due <= end:
            self.now = max(self.now, due)
            self.look()
        self.now = end

    @property
    def degraded(self) -> list[str]:
        return sorted(self.diagnosis.degraded_domains)

    @property
    def suppressed(self) -> dict[str, str]:
        return {check: suppressed.domain for check, suppressed in self.diagnosis.suppressed_checks.items()}
