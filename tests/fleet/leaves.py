"""A fleet of leaf switches for tests: nodes with link faults, and the marks of their failure domains."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from nodeguard.model.finding import Action, Health
from nodeguard.model.incident import Incident, IncidentState
from nodeguard.model.policy import GracePeriods, Policy, TopologyLabels
from nodeguard.wire.report import ReportedEvidence, ReportedFinding
from tests.fleet.scene import AT_ONCE, Fleet, in_order
from tests.policies import diagnosis_policy

LEAF = 8
VIEWS = (TopologyLabels("fabric", ("pod", "rack")),)
ENFORCED = replace(
    AT_ONCE,
    topologies=VIEWS,
    grace=GracePeriods(0.0, 0.0, 60.0),
    diagnosis=diagnosis_policy(enforce=("fabric",)),
)
PORT = "port/mlx5_0/1"
FIRST = "fabric/p0/r0"


def down(age: float = 0.0) -> ReportedFinding:
    return ReportedFinding(
        "port-down", PORT, Health.FATAL, component="mlx5_0", action=Action.REPLACE_COMPONENT, age=age, family="infiniband",
        message="the port is down", evidence=(ReportedEvidence("infiniband", "port.up False"),), topologies=("fabric",),
    )  # fmt: skip


def fleet(size: int = 80, policy: Policy = ENFORCED) -> Fleet:
    """Leaves of eight nodes, pods of five leaves."""
    made = Fleet(0, policy)
    for number in range(size):
        labels = {"pod": f"p{number // 40}", "rack": f"r{number // LEAF}"}
        made.add(number, labels=labels)
    made.after(1.0)
    made.carry_out()
    return made


def fails(made: Fleet, numbers: Iterable[int] = range(LEAF)) -> None:
    for number in numbers:
        made.report(number, down())


def well(made: Fleet, numbers: Iterable[int] = range(LEAF)) -> None:
    for number in numbers:
        made.report(number, proven=(in_order(), in_order(("port-down",), (PORT,))))


def wait(made: Fleet, seconds: float) -> None:
    """Advance the time and carry out the plans."""
    for _ in range(int(seconds / 5.0)):
        made.after(5.0)
        made.carry_out()


def faulty(
    seconds: float = 20.0, *, size: int = 80, policy: Policy = ENFORCED, numbers: Iterable[int] = range(LEAF)
) -> Fleet:
    """Return a fleet in which some nodes, else those of the first leaf, have had a link fault for seconds."""
    made = fleet(size, policy)
    fails(made, numbers)
    wait(made, seconds)
    return made


def domains(made: Fleet, *states: IncidentState) -> list[Incident]:
    incidents = made.planner.tracker.recorded.by_uid.get("", {}).values()
    return [incident for incident in incidents if not states or incident.state in states]
