"""Property: a fleet with injected faults diagnoses, suppresses, counts and marks real faults as without them.

Each history has a false alarm of a check, which is suppressed, a failed leaf switch, which is a degraded
domain, and a component that is a repeat offender.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from nodeguard.model.incident import Incident
from nodeguard.model.policy import InjectionPolicy
from nodeguard.wire.report import Inventory, ReportedComponent, ReportedFinding, ReportedPassing
from tests.fleet.leaves import ENFORCED, LEAF, PORT, down
from tests.fleet.leaves import fleet as fleet_of_leaves
from tests.fleet.scene import Fleet, finding
from tests.policies import diagnosis_policy

pytestmark = pytest.mark.slow

# Six leaves of eight nodes.
SIZE = 48
GPU = "gpu/0000:3b:00"
POLICY = replace(
    ENFORCED, diagnosis=diagnosis_policy(enforce=("fabric",)), injection=InjectionPolicy(allowed=True)
)

# The checks of the false alarm, of the repeat offender, and of the leaf switch, with their targets.
FALSE_ALARM, OFFENDER, LINK = ("gpu-lost", GPU), ("gpu-hot", GPU), ("port-down", PORT)
FAULTS = (FALSE_ALARM, OFFENDER, LINK, ("gpu-ecc", GPU))
Fault = tuple[str, str]


class Histories:
    """Two fleets with the same real faults; one of them has injected faults, too.

    suppressed, degraded, releases, offenders: in the fleet without injected faults, at any time: suppressed
    checks, degraded domains, checks with the reason of a release, and repeat offenders. injected_marks: the
    most causes of injected faults at a time, in the other fleet.
    """

    def __init__(self, seed: int, *, paused: bool) -> None:
        self.source = random.Random(seed)
        policy = replace(POLICY, pause=paused)
        self.plain, self.rehearsed = fleet_of_leaves(SIZE, policy), fleet_of_leaves(SIZE, policy)
        self.suppressed: set[str] = set()
        self.degraded: set[str] = set()
        self.releases: set[tuple[str, str]] = set()
        self.offenders: set[str] = set()
        self.injected_marks = 0
        # The onset of each fault, by node. unread: the faults on which the check reports nothing.
        self._real: list[dict[Fault, float]] = [{} for _ in range(SIZE)]
        self._injected: list[dict[Fault, float]] = [{} for _ in range(SIZE)]
        self._unread: list[set[Fault]] = [set() for _ in range(SIZE)]
        self._report(range(SIZE))
        self.wait(2_000.0, 500.0)

    def leaf_and_offender(self) -> tuple[list[int], int]:
        """Choose most nodes of a leaf, and a node of another one."""
        leaf = self.source.randrange(SIZE // LEAF)
        nodes = self.source.sample(range(leaf * LEAF, (leaf + 1) * LEAF), self.source.randint(6, LEAF))
        return nodes, (leaf * LEAF - self.source.randint(1, LEAF)) % SIZE

    def fail(self, nodes: Iterable[int], fault: Fault) -> None:
        """Have a fault begin on nodes, for real."""
        nodes = tuple(nodes)
        for node in nodes:
            self._real[node].setdefault(fault, self.plain.wall)
            self._unread[node].discard(fault)
        self._report(nodes)

    def recover(self, nodes: Iterable[int], fault: Fault, *, unread: bool = False) -> None:
        """Have a real fault end on nodes. unread: whether the check does not report that it passes."""
        nodes = tuple(nodes)
        for node in nodes:
            self._real[node].pop(fault, None)
            self._unread[node].discard(fault)
            if unread:
                self._unread[node].add(fault)
        self._report(nodes)

    def inject(self) -> None:
        """Inject faults that would cause a diagnosis if they were real, and end earlier ones."""
        source, leaf = self.source, self.source.randrange(SIZE // LEAF)
        ended = source.sample(range(SIZE), source.randint(0, SIZE))
        for node in ended:
            self._injected[node].clear()
        nodes, fault = source.choice(
            [
                (range(leaf * LEAF, (leaf + 1) * LEAF), LINK),
                (source.sample(range(SIZE), source.randint(1, SIZE)), source.choice(FAULTS)),
                (range(SIZE), source.choice(FAULTS)),
            ]
        )
        for node in nodes:
            self._injected[node].setdefault(fault, self.plain.wall)
        self._report({*ended, *nodes})

    def wait(self, seconds: float, turn: float) -> None:
        """Advance the time, carry out the plans, and compare both fleets after each."""
        for _ in range(int(seconds / turn)):
            for fleet in (self.plain, self.rehearsed):
                fleet.after(turn)
            self._carry_out()

    def _carry_out(self) -> None:
        for fleet in (self.plain, self.rehearsed):
            for _ in range(3):  # the last one has nothing to write
                plan = fleet.issue()
                fleet.write(plan)
                if fleet is self.plain:
                    self.releases |= {(mark.cause.check, mark.reason) for _, mark in plan.released}
        self.suppressed |= set(self.plain.planner.diagnosis.suppressed_checks)
        self.degraded |= set(self.plain.planner.diagnosis.degraded_domains)
        offenders = self.plain.planner.component_faults.repeat_offenders(self.plain.now)
        self.offenders |= {offender.part for offender in offenders}
        causes = (
            item
            for uid in self.rehearsed.nodes
            for item in self.rehearsed.planner.state.marks.latest(uid).causes()
        )
        self.injected_marks = max(self.injected_marks, sum(cause.injected for _, cause in causes))
        assert diagnosed(self.rehearsed) == diagnosed(self.plain)
        assert real_causes(self.rehearsed) == real_causes(self.plain)
        assert real_incidents(self.rehearsed) == real_incidents(self.plain)

    def _report(self, nodes: Iterable[int]) -> None:
        for node in sorted(nodes):
            real = [self._finding(node, *item) for item in self._real[node].items()]
            injected = tuple(self._finding(node, *item) for item in self._injected[node].items())
            passing = tuple(
                ReportedPassing((check,), (target,))
                for check, target in FAULTS
                if (check, target) not in self._real[node].keys() | self._unread[node]
            )
            inventory = Inventory(components={GPU: ReportedComponent(f"GPU-{node}", "H100")})
            self.plain.report(node, *real, proven=passing, inventory=inventory)
            self.rehearsed.report(node, *real, proven=passing, inventory=inventory, injected=injected)

    def _finding(self, node: int, fault: Fault, onset: float) -> ReportedFinding:
        age = self.plain.wall - onset
        return down(age) if fault == LINK else finding(*fault, age=age, component=f"GPU-{node}")


def diagnosed(fleet: Fleet) -> tuple[object, ...]:
    """Return everything that the diagnosis and the statistics hold."""
    planner = fleet.planner
    diagnosis = planner.diagnosis
    return (
        dict(diagnosis.degraded_domains),
        dict(diagnosis.suppressed_checks),
        dict(diagnosis.bad_starts),
        diagnosis.voting.current_voters(fleet.mono),
        planner.component_faults.repeat_offenders(fleet.now),
        planner.job_nodes(fleet.now),
        {uid: report.findings for uid, report in planner.reports.items()},
        {uid: planner.state.marks.latest(uid).node.degraded for uid in fleet.nodes},
    )


def real_causes(fleet: Fleet) -> dict[str, list[tuple[str, str, float]]]:
    """Return the causes of marks that are not injected, by Node."""
    return {
        uid: sorted(
            (cause.check, cause.target, cause.since)
            for _, cause in fleet.planner.state.marks.latest(uid).causes()
            if not cause.injected
        )
        for uid in fleet.nodes
    }


def real_incidents(fleet: Fleet) -> dict[str, Incident]:
    """Return the incidents that are not injected, by name."""
    return {item.name: item for item in fleet.planner.all_incidents() if not item.injected}


@pytest.mark.parametrize("paused", [False, True], ids=["marks", "paused"])
@pytest.mark.parametrize("seed", range(3))
def test_injected_faults_change_nothing_of_real_ones(seed: int, *, paused: bool) -> None:
    histories = Histories(seed, paused=paused)
    source, (leaf, offender) = histories.source, histories.leaf_and_offender()
    spread = source.sample([node for node in range(SIZE) if node != offender], source.randint(12, 20))
    causes = [(leaf, LINK), (spread, FALSE_ALARM)]
    source.shuffle(causes)
    for nodes, fault in causes:
        # The first nodes are marked: they are neither a false alarm nor a degraded domain.
        histories.inject()
        histories.fail(nodes[:2], fault)
        histories.wait(80.0, 10.0)
        histories.inject()
        histories.recover(nodes[:1], fault, unread=True)
        histories.inject()
        histories.wait(20.0, 10.0)
        histories.fail(nodes[1:], fault)
        histories.inject()
        histories.wait(120.0, 10.0)
        histories.inject()
        histories.wait(source.choice([60.0, 1_200.0]), 60.0)
    rounds = range(8)
    ends = {source.choice(rounds[:3]): causes[0], source.choice(rounds[3:5]): causes[1]}
    for number in rounds:
        histories.fail([offender], OFFENDER)
        histories.inject()
        histories.wait(700.0, 175.0)
        histories.recover([offender], OFFENDER)
        if number in ends:
            nodes, fault = ends[number]
            histories.recover(nodes, fault, unread=source.random() < 0.5)
            histories.inject()
            histories.wait(175.0, 175.0)
            histories.recover(nodes, fault)
        histories.inject()
        histories.wait(700.0, 175.0)
    assert histories.suppressed == {FALSE_ALARM[0]}
    assert histories.degraded == {f"fabric/p{leaf[0] // 40}/r{leaf[0] // LEAF}"}
    assert histories.offenders == {f"GPU-{offender}"}
    assert not histories.plain.planner.diagnosis.suppressed_checks
    assert not histories.plain.planner.diagnosis.degraded_domains
    assert (histories.injected_marks > LEAF) != paused
    if not paused:
        expected = {(FALSE_ALARM[0], "retracted"), (LINK[0], "superseded"), (OFFENDER[0], "proven")}
        assert histories.releases >= expected
