"""The symptoms of a world are those that the product's judge finds."""

from __future__ import annotations

from math import inf

import pytest

from bench.evaluation.symptoms import firings
from bench.evaluation.world import NodeFault
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.fault_kinds import FAULT_KINDS
from nodeguard.simulate.simulated_machine import PORTS, MachineChange

HOUR = 3600.0


def fault(symptom: str, onset: float = 0.0, end: float = HOUR) -> NodeFault:
    return NodeFault(node=0, symptom=symptom, onset=onset, end=end)


def spans(faults: list[NodeFault]) -> dict[str, list[tuple[float, float]]]:
    """The times at which each check fires."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for firing in firings(faults):
        rows.setdefault(firing.check, []).append((firing.start, firing.end))
    return {check: sorted(times) for check, times in rows.items()}


@pytest.mark.parametrize(
    "symptom",
    [
        "port-down",
        "port-flap",
        "throttled",
        "nvlink-down",
        "gpu-lost",
        "ecc-uncontained",
        "row-remap-failed",
        "ecc-contained",
        "adapter-dead",
    ],
)
def test_one_fault(agent: SimulatedAgent, symptom: str) -> None:
    judged: dict[str, list[tuple[float, float]]] = {}
    for timed in agent.fault_reports(FAULT_KINDS[symptom], 0, HOUR):
        checks = {finding.check for finding in timed.report.findings}
        for check, times in judged.items():
            if check not in checks and times[-1][1] == inf:
                times[-1] = times[-1][0], timed.after
        for check in checks - judged.keys():
            judged[check] = [(timed.after, inf)]
    assert spans([fault(symptom)]) == judged


@pytest.mark.parametrize(("count", "gap"), [(2, 600.0), (3, 600.0), (4, 600.0), (5, 1200.0)])
def test_repeated_flaps(agent: SimulatedAgent, count: int, gap: float) -> None:
    losses = [
        MachineChange(index * gap, PORTS[0], increments={"port.link_downed": 1}) for index in range(count)
    ]
    judged = [
        (timed.after, {finding.check for finding in timed.report.findings})
        for timed in agent.reports("port", losses)
    ]
    rows = spans([fault("port-flap", index * gap, index * gap + 1.0) for index in range(count)])
    changes = sorted({at for times in rows.values() for span in times for at in span})
    assert judged == [
        (at, {check for check, times in rows.items() if any(start <= at < end for start, end in times)})
        for at in changes
    ]
