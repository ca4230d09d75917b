"""The worked examples and the constants of docs/concepts/how-the-diagnosis-works.md are those of the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from nodeguard.fleet.diagnosis import (
    candidates,
    job_starts,
    likelihood,
    results,
    settling_candidates,
    shared_versions,
    significance,
    stopped_agents,
    suppressed_checks,
    suspected_checks,
    vote_index,
    votes,
)
from nodeguard.judge.formatting import format_duration
from nodeguard.model.diagnosis import DiagnosisPolicy, FaultClass
from tests.docs.pages import text
from tests.fleet.diagnosis.scene import VIEWS, Voters
from tests.policies import FAULT_CLASSES

PAGE = text("docs/concepts/how-the-diagnosis-works.md")

# Seconds after which an example that is not decided ends.
LONGEST = 1_800


def node(group: int, part: int, number: int) -> str:
    """Return the node of a leaf, or rack, of a pod, or row."""
    index = group * 32 + part * 8 + number
    return f"{index // 128}-{index // 16 % 8}-{index % 16}"


class Fleet(Voters):
    """128 nodes: four pods of four leaves of eight nodes, which are four rows of four racks, too."""

    def __init__(self) -> None:
        super().__init__(pods=1)

    def place(self, uid: str, **_versions: str) -> None:
        _, leaf, number = (int(word) for word in uid.split("-"))
        index = leaf * 16 + number
        path = f"{index // 32}/{index // 8 % 4}"
        self.move(uid, f"fabric/pod{path}", f"rack/row{path}")


class Example:
    """Votes for a check in a fault class: seconds after the first of the fault, by node. decision: the degraded
    domains and the suppressed checks.
    """

    def __init__(
        self, check: str, fault_class: str, votes: Mapping[str, float], decision: Sequence[str]
    ) -> None:
        self.check, self.fault_class, self.votes, self.decision = check, fault_class, votes, decision

    def replay(self) -> str:
        """Return the cells of the page's table at the last decision."""
        fleet = Fleet()
        began, decision, row = fleet.now, list[str](), ""
        for second in range(-7_200, LONGEST):
            for uid, at in self.votes.items():
                if second - 1 < at <= second:
                    fleet.now = began + at
                    fleet.diagnosis.vote(uid, self.check, VIEWS[self.check], fleet.now)
                    fleet.look()
            fleet.now = began + second
            if second >= 0:
                fleet.look()
            if decision != [*fleet.degraded, *fleet.suppressed]:
                decision = [*fleet.degraded, *fleet.suppressed]
                row = " | ".join((*self.cells(fleet), f"{second} s"))
        assert decision == self.decision
        return row

    def cells(self, fleet: Fleet) -> Iterator[str]:
        """Yield the nodes that are counted, the minimum by share, and that by chance."""
        if fleet.suppressed:
            suppressed = fleet.diagnosis.suppressed_checks[self.check]
            yield from (f"{len(suppressed.nodes)} of 128", "-", str(suppressed.limit))
            return
        [tally] = [
            tally
            for tally in fleet.diagnosis.voting.tallies(self.decision[0], fleet.now)
            if tally.fault_class == self.fault_class
        ]
        yield from (f"{len(tally.voters)} of {tally.size}", str(tally.by_share), str(tally.by_chance))


EXAMPLES = {
    "1. a dead leaf": Example(
        "port-down", "link-down", {node(1, 3, number): number for number in range(7)}, ["fabric/pod1/3"]
    ),
    "2. cooling of a row": Example(
        "gpu-thermal-slowdown",
        "thermal",
        {node(1, step % 4, step // 4): 90.0 * step for step in range(16)}
        | {node(2, 0, 1): -4_000.0, node(3, 2, 2): 100.0},
        ["rack/row1"],
    ),
    "3. two dead leaves of a pod": Example(
        "port-down",
        "link-down",
        {node(1, leaf, number): 4.0 * leaf + 0.5 * number for leaf in (0, 1) for number in range(8)},
        ["fabric/pod1/0", "fabric/pod1/1"],
    ),
    "4. a false alarm": Example(
        "port-down",
        "link-down",
        {node(step % 4, step // 4, step % 8): 2.0 * step for step in range(12)},
        ["port-down"],
    ),
    "5. three dead leaves of three pods": Example(
        "port-down",
        "link-down",
        {node(pod, 2, number): 4.0 * pod + 0.5 * number for pod in range(3) for number in range(7)},
        ["fabric/pod0/2", "fabric/pod1/2", "fabric/pod2/2"],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_the_numbers_of_the_code(name: str) -> None:
    assert f"| {name} | {EXAMPLES[name].replay()} |" in PAGE.splitlines()


def test_the_fault_classes_have_the_values_of_the_catalogue() -> None:
    for fault_class in FAULT_CLASSES:
        assert any(line.startswith(class_row(fault_class)) for line in PAGE.splitlines())


def test_the_page_has_the_constants_of_the_policy() -> None:
    rule = DiagnosisPolicy()
    weak, recovery, suppression = rule.weak_evidence, rule.recovery, rule.suppression
    for row in (
        f"`significance` | {exponent(rule.significance)}",
        f"`rateMargin` | {rule.rate_margin:g}",
        f"`minNodes` | {rule.min_nodes}",
        f"a fault of a version | {durations(votes.AFTER_RECEIPT, votes.BEFORE_RECEIPT)}",
        f"`gracePeriod` | {format_duration(rule.grace_period)}",
        f"`maxDailyOnsets` | {rule.max_daily_onsets}",
        f"`weakEvidence` | {weak.share:.0%}, {durations(weak.wait)}",
        f"`recovery` | {durations(recovery.initial, recovery.max, recovery.reset_after)}",
        f"`suppression.minNodes` | {suppression.min_nodes}",
        f"`suppression.usualDailyOnsets` | {suppression.usual_daily_onsets:g}",
        f"`suppression.significance` | {exponent(suppression.significance)}",
        f"`suppression.windows` | {durations(*suppression.windows)}",
        f"`suppression.confirmedShare` | {suppression.confirmed_share:.0%}",
        f"a clear domain | {likelihood.CLEARLY_LIKELIER:g} times",
        f"one cause of the fleet | {suspected_checks._CLEARLY_LIKELIER:g} times",
        f"several domains at once | {suspected_checks._MANY}",
        f"largest domain | {shared_versions.MAX_FLEET_SHARE:.0%} of the nodes with a location",
        f"parts that fail in turn | {format_duration(candidates._PAUSE)}, {candidates._IN_TURN_CHANCE:.0%}",
        f"probability that a domain fails | {likelihood.DOMAIN_FAILS:g}",
        f"probability of a wrong label | {likelihood.WRONG_LABEL:.0%}",
        f"another topology | {settling_candidates._CLEARLY_LIKELIER:g} times",
        f"a part in another topology | {settling_candidates._PART_CLEARLY_LIKELIER:g} times",
        f"a new version | {format_duration(shared_versions._NEW_SECONDS)}",
        f"a small part | {candidates._SMALL_PART:.0%}",
        f"nodes of one leaf | {suspected_checks._OF_ONE}, or {suspected_checks._TIMES_ITS_PART:g} times its part",
        f"nodes outside of parents | {suspected_checks._TIMES_USUAL:g} times the usual number",
        f"nearly all nodes | {shared_versions._MIN_VOTER_SHARE:.0%}",
        f"usual rate of a check | {vote_index._FAULT_RATE:g}, {vote_index._WARNING_RATE:g}",
        f"the fleet's own rate | {durations(significance._MEMORY, significance._WORTH)}",
        f"start of a job | {durations(job_starts._BEFORE, job_starts._AFTER)}",
        f"nodes of one start | {format_duration(job_starts._SPREAD)}",
        f"marks are released | {suppressed_checks._RETRACTION_NODES} nodes, {suppressed_checks._RETRACTION_SHARE:.0%}",
        f"a recovery begins | {format_duration(results._RECOVERING_AFTER)}",
        f"before the first vote | {format_duration(results.BEFORE_FIRST_VOTE)}",
        f"a stopped agent | {format_duration(stopped_agents._RECENT)}",
        f"no agent | {format_duration(results.NO_AGENT)}",
    ):
        assert any(line.startswith(f"| {row} |") for line in PAGE.splitlines()), row
    assert (suspected_checks._MISPLACED, suspected_checks._CAUSES) == (0.25, 2)
    assert suspected_checks._CLEAR_SHARE == 0.5
    assert (rule.fewest_affected(6), rule.fewest_affected(7)) == (2, 3)


def durations(*seconds: float) -> str:
    """Return some durations as text."""
    return ", ".join(map(format_duration, seconds))


def exponent(probability: float) -> str:
    """Return a probability as `1e-6`."""
    return f"{probability:.0e}".replace("e-0", "e-")


def class_row(fault_class: FaultClass) -> str:
    """Return the begin of the row of a fault class."""
    windows = durations(*fault_class.windows)
    shares = {rule.topology: f"{rule.share:.0%}" for rule in fault_class.topologies}
    parents = ", ".join(dict.fromkeys(shares.values()))
    if len(set(shares.values())) > 1:
        parents = ", ".join(f"{topology} {share}" for topology, share in shares.items())
    cells = (
        f"`{fault_class.name}`",
        windows,
        f"{fault_class.daily_rate:g}",
        f"{fault_class.share * 100:g}%",
        parents,
    )
    return f"| {' | '.join(cells)} |"
