"""Property test: with constant input, a restart changes no mark, and no mark is set, removed and set again."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from math import inf

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodeguard.fleet.state.liveness import may_act
from nodeguard.model.finding import Health
from nodeguard.model.node import PREFIX
from nodeguard.model.policy import GracePeriods, SoakPeriod
from nodeguard.wire.report import ReportedEvidence, ReportedFinding
from tests.fleet.leaves import ENFORCED, LEAF, down, fleet, well
from tests.fleet.scene import finding
from tests.policies import diagnosis_policy

pytestmark = pytest.mark.slow

# Two pods of five leaves of eight nodes.
SIZE = 80
POLICY = replace(
    ENFORCED,
    grace=GracePeriods(30.0, 60.0, 90.0),
    soak=SoakPeriod(600.0, 28_800.0, 86_400.0),
    diagnosis=diagnosis_policy(enforce=("fabric",)),
)

# Seconds: for the plans of constant input to settle, more than the longest recovery of a domain and soak period
# of a mark; and from the loss of its agent until a Node is not ready.
SETTLING = 30_000.0
NOT_READY_AFTER = 45.0

# Seconds of a step, until so many have passed.
_STEPS = ((300.0, 15.0), (3_600.0, 60.0), (inf, 300.0))


def lost() -> ReportedFinding:
    evidence = (ReportedEvidence("infiniband", "port.link_downed rose by 1 to 1"),)
    return replace(down(), check="port-link-downed", health=Health.WARNING, evidence=evidence)


FAULTS = {
    "port-down": down(),
    "port-flap": replace(down(), check="port-flap", health=Health.SUSPECT),
    "port-link-downed": lost(),
    "gpu-lost": finding(age=0.0),
}


class World:
    """A fleet with agents that may stop. changes: set (+) and removed (-) taints, by node and taint."""

    def __init__(self) -> None:
        self.made = fleet(SIZE, POLICY)
        self.dark: dict[int, float] = {}
        self.started = self.made.mono
        self.changes: dict[tuple[str, str], list[str]] = {}
        self.pass_time(900.0)

    def apply(self, kind: str, nodes: Sequence[int]) -> None:
        made = self.made
        for number in nodes:
            if kind == "cordon":
                made.change(number, unschedulable=True)
            elif kind == "uncordon":
                made.change(number, unschedulable=False)
            elif kind == "dark":
                self.dark.setdefault(number, made.mono)
            elif kind in FAULTS and number not in self.dark:
                # A fault that goes on is not younger in a later report.
                if FAULTS[kind] not in made.reports[f"uid-{number}"].findings:
                    made.report(number, FAULTS[kind])
            elif kind == "recover":
                self.dark.pop(number, None)
                made.change(number, ready=True, not_ready_since=0.0)
                well(made, [number])

    def pass_time(self, seconds: float) -> None:
        """Advance the time, in short steps at first, and carry out the plans."""
        made, begin = self.made, self.made.mono
        while (passed := made.mono - begin) < seconds:
            step = next(step for until, step in _STEPS if passed < until)
            made.after(min(step, seconds - passed), quiet=self.quiet)
            for number, since in self.dark.items():
                if made.mono - since >= NOT_READY_AFTER and made.nodes[f"uid-{number}"].ready:
                    made.change(number, ready=False, not_ready_since=made.wall)
            if may_act(made.planner.stale_agents, self.started, made.mono):
                before = self.taints
                made.carry_out(rounds=6)
                after = self.taints
                for taint in before ^ after:
                    self.changes.setdefault(taint, []).append("+" if taint in after else "-")

    def restart(self) -> None:
        """Start a new aggregator with the Nodes and incidents; the agents report again."""
        made, incidents = self.made, self.made.planner.all_incidents()
        for uid, report in list(made.reports.items()):
            if uid in self.quiet:
                del made.reports[uid]
                continue
            seconds = made.wall - made.received[uid].wall
            made.reports[uid] = replace(
                report, findings=tuple(replace(item, age=item.age + seconds) for item in report.findings)
            )
        made.restart(incidents=incidents)
        self.started = made.mono

    @property
    def quiet(self) -> set[str]:
        return {f"uid-{number}" for number in self.dark}

    @property
    def taints(self) -> set[tuple[str, str]]:
        return {
            (node.name, f"{taint.key}={taint.value}")
            for node in self.made.nodes.values()
            for taint in node.taints
            if taint.key.startswith(PREFIX)
        }


nodes = st.one_of(
    st.builds(
        lambda leaf, count: list(range(leaf * LEAF, leaf * LEAF + count)),
        st.integers(0, 9),
        st.integers(1, 8),
    ),
    st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=6, unique=True),
)
events = st.lists(
    st.tuples(
        st.sampled_from([*FAULTS, "dark", "recover", "cordon", "uncordon"]),
        nodes,
        st.sampled_from([0.0, 20.0, 60.0, 400.0, 2_000.0, 8_000.0]),
    ),
    min_size=1,
    max_size=8,
)


# tests/worlds has restarts at any time, with other inputs and smaller fleets.
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(events, st.sampled_from([300.0, 3_000.0, SETTLING]))
def test_a_restart_with_constant_input_changes_no_mark(
    history: list[tuple[str, list[int], float]], restart_after: float
) -> None:
    world = World()
    for kind, numbers, seconds in history:
        world.apply(kind, numbers)
        world.pass_time(seconds)
    world.changes.clear()
    world.pass_time(restart_after)
    other = deepcopy(world)
    other.restart()
    for copy in (world, other):
        copy.pass_time(SETTLING)
        repeated = {taint: "".join(signs) for taint, signs in copy.changes.items() if "+-+" in "".join(signs)}
        assert not repeated
    assert other.taints == world.taints
