"""One history through all that take the steps of the plan loop: equal marks at equal times."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from math import inf
from random import Random

import pytest
from msgspec.structs import replace

from nodeguard.aggregator import service as service_module
from nodeguard.aggregator.backends.standalone import StandaloneBackend
from nodeguard.aggregator.fleet_inputs import FleetInputs
from nodeguard.aggregator.leadership import Candidacy
from nodeguard.aggregator.outbox import InstructionOutbox
from nodeguard.aggregator.report_handler import ReportHandler
from nodeguard.aggregator.service import AggregatorService
from nodeguard.backtest.fleet_replay import FleetReplay
from nodeguard.backtest.mark_tracker import MarkTracker
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.executors.advice.advised_marks import advised_marks
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.plan_loop import PlanLoop
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.state.history_events import NodeObserved, ReportReceived
from nodeguard.model.decision import NodeDecision
from nodeguard.model.instant import Instant
from nodeguard.model.inventory import ObservedMarks
from nodeguard.model.mark import Mark
from nodeguard.model.policy import Budget, CheckLimit, Policy, SoakPeriod, default_policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.faults import Fault, FleetEvent, SimulatedAgents
from nodeguard.simulate.fleet_topology import simulated_topology
from nodeguard.simulate.observer import Observer
from nodeguard.simulate.simulated_fleet import HEARTBEAT_SECONDS, SimulatedFleet
from nodeguard.simulate.simulation import enforce_all
from tests.aggregator.virtual_time import run_virtually
from tests.fleet.scene import WIDE
from tests.policies import FAULT_CLASSES

TOPOLOGY = simulated_topology(64)
START, MONO = 1_700_000_000.0, 10_000.0

# Length of a history in seconds.
UNTIL = 3600.0

# Seconds between the same change in two drivers: the pause after a plan and a tick of the service, which waits
# at most 1.25 s, and the same again for a mark that waits for another one. The end of a degraded domain is
# evaluated once a minute, from its beginning in each driver.
DELAY, EVALUATION = 2.5, 60.0

# A change of the marks of a node: its uid, and the marks from then on.
Change = tuple[str, frozenset[Mark]]


class MarkLog(Observer):
    """The changes of marks, with their times in seconds from the start of the history."""

    def __init__(self) -> None:
        self._changes: list[tuple[Change, float]] = []
        self._marks: dict[str, frozenset[Mark]] = {}

    def record(self, uid: str, marks: frozenset[Mark], at: float) -> None:
        if self._marks.get(uid, frozenset()) != marks:
            self._marks[uid] = marks
            self._changes.append(((uid, marks), at))

    def of_nodes(self) -> list[tuple[Change, float]]:
        """Return the changes of each node with their times, by uid."""
        return sorted(self._changes, key=lambda change: (change[0][0], change[1]))

    def marks_changed(self, node: int, now: frozenset[Mark], at: float) -> None:
        self.record(TOPOLOGY.nodes[node].key, now, at)


def carried_out(planner: Planner, decision: NodeDecision) -> ObservedMarks:
    """Return the marks of a node once a decision is carried out."""
    before = planner.state.marks.observed(decision.node)
    return advised_marks(decision, before, planner.policy.marks, out_by_operator=False)


class WritingBackend(StandaloneBackend):
    """A backend that writes each plan at once, and logs the marks."""

    def __init__(self, planner: Planner, inputs: FleetInputs, log: MarkLog) -> None:
        super().__init__(None, planner, inputs)
        self._planner, self._changes, self._log = planner, inputs, log

    async def renew_leadership(self, _now: float, candidacy: Candidacy) -> bool:
        return candidacy.wanted

    def desired(self, decisions: Iterable[NodeDecision]) -> None:
        pass

    def publish(self, plan: Plan, now: Instant) -> None:
        for decision in plan.decisions:
            marks = carried_out(self._planner, decision)
            self._changes.marks_written(decision.node, decision.record)
            self._changes.marks_observed(decision.node, marks)
            self._log.record(decision.node, marks.present, now.mono - MONO)


class LoggedMarks(MarkTracker):
    """The tracker of a replay, which logs the marks of Nodes too."""

    def __init__(self, log: MarkLog) -> None:
        super().__init__()
        self._log = log

    def plan_applied(self, planner: Planner, plan: Plan, at: float) -> None:
        super().plan_applied(planner, plan, at)
        for decision in plan.decisions:
            self._log.record(decision.node, carried_out(planner, decision).present, at - START)


def simulated(agents: SimulatedAgents, events: Iterable[FleetEvent], policy: Policy, until: float) -> MarkLog:
    log = MarkLog()
    SimulatedFleet(TOPOLOGY, agents, policy, [log], Random(1)).run(events, until)
    return log


def replayed(agents: SimulatedAgents, events: Iterable[FleetEvent], policy: Policy, until: float) -> MarkLog:
    log = MarkLog()
    replay = FleetReplay(policy, agents.agent.checks)
    replay.marks = LoggedMarks(log)
    for node in TOPOLOGY.nodes:
        replay.apply_step(NodeObserved(START, node))
        replay.apply_step(ReportReceived(START, node.key, agents.healthy_report))
    for event in events:
        assert event.report is not None
        replay.apply_step(ReportReceived(START + event.at, TOPOLOGY.nodes[event.node].key, event.report))
    replay.advance_to(START + until)
    return log


def virtual_instant() -> Instant:
    seconds = asyncio.get_running_loop().time()
    return Instant(START + seconds, MONO + seconds, "aggregator")


async def _serve(
    agents: SimulatedAgents, events: Sequence[FleetEvent], policy: Policy, until: float, log: MarkLog
) -> None:
    clock, now = asyncio.get_running_loop().time, virtual_instant
    planner, outbox, wake = Planner(policy, agents.agent.checks), InstructionOutbox(), asyncio.Event()
    inputs = FleetInputs(planner, wake.set, now)
    backend = WritingBackend(planner, inputs, log)
    handler = ReportHandler(planner, inputs, outbox, now)
    service = AggregatorService(planner, inputs, backend, handler, lambda _: None, wake)
    for node in TOPOLOGY.nodes:
        inputs.node_changed(node)
        inputs.report_received(node.key, agents.healthy_report, now())
    running = asyncio.create_task(service.run())

    async def send_heartbeats() -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            for node in TOPOLOGY.nodes:
                inputs.heartbeat_received(node.key, now())

    heartbeats = asyncio.create_task(send_heartbeats())
    for event in events:
        assert event.report is not None
        await asyncio.sleep(event.at - clock())
        inputs.report_received(TOPOLOGY.nodes[event.node].key, event.report, now())
    await asyncio.sleep(until - clock())
    assert service.errors == 0
    for task in (running, heartbeats):
        task.cancel()


def served(agents: SimulatedAgents, events: Sequence[FleetEvent], policy: Policy, until: float) -> MarkLog:
    log = MarkLog()
    run_virtually(_serve(agents, events, policy, until, log))
    return log


FREE = replace(enforce_all(default_policy(FAULT_CLASSES)), soak=SoakPeriod(300.0, 900.0, 86_400.0))
ONE_OF_A_CHECK = replace(FREE, budget=replace(WIDE, check=CheckLimit(new=1, within=600.0)))
ONE_NODE = replace(FREE, budget=replace(Budget(), fleet=0.01, domain=1.0))
LEAF = TOPOLOGY.domains_at("fabric", 2)[0]
KINDS = "gpu-lost", "ecc-uncontained", "gsp-timeout", "gpu-lost"
NODE_FAULTS = [
    Fault(100.0 + 40.0 * number, 700.0 + 55.0 * number, 7 * number, kind) for number, kind in enumerate(KINDS)
]
RETURNING = [Fault(200.0, 500.0, 3, "gpu-lost"), Fault(1500.0, 1700.0, 3, "gpu-lost")]
LASTING = [Fault(100.0 + 30.0 * number, 5000.0, 9 * number, "gpu-lost") for number in range(2)]
WAITING = [Fault(100.0, 900.0, 3, "gpu-lost"), Fault(200.0, 5000.0, 40, "ecc-uncontained")]
SHARED = [Fault(300.0, 900.0, node, "port-down", 0, LEAF) for node in TOPOLOGY.domains[LEAF]]


HISTORIES = [
    pytest.param(NODE_FAULTS, FREE, 6, DELAY, id="faults-of-nodes"),
    pytest.param(RETURNING, FREE, 4, DELAY, id="a-fault-returns"),
    pytest.param(LASTING, ONE_OF_A_CHECK, 2, DELAY, id="limit-of-a-check"),
    pytest.param(WAITING, ONE_NODE, 3, DELAY, id="full-budget"),
    pytest.param(SHARED, FREE, 16, EVALUATION, id="degraded-leaf", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def agents() -> SimulatedAgents:
    return SimulatedAgents(SimulatedAgent(*load_catalogue()))


def reports(agents: SimulatedAgents, faults: list[Fault]) -> list[FleetEvent]:
    """Return the reports of a history. Agents report a day later that a fault in a log is old."""
    return [
        event for event in agents.events(faults, Random(1)) if event.kind == "report" and event.at <= UNTIL
    ]


@pytest.mark.parametrize(("faults", "policy", "changes", "seconds"), HISTORIES)
def test_all_drivers_set_equal_marks_at_equal_times(
    agents: SimulatedAgents,
    faults: list[Fault],
    policy: Policy,
    changes: int,
    seconds: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_module, "current_instant", virtual_instant)
    events = reports(agents, faults)
    expected = simulated(agents, events, policy, UNTIL).of_nodes()
    assert len(expected) == changes
    for drive in (replayed, served):
        actual = drive(agents, events, policy, UNTIL).of_nodes()
        assert [change for change, _ in actual] == [change for change, _ in expected]
        assert [at for _, at in actual] == pytest.approx([at for _, at in expected], abs=seconds)


@pytest.mark.parametrize(("faults", "policy", "changes", "seconds"), HISTORIES)
def test_a_service_that_skips_plans_sets_the_same_marks_at_the_same_times(
    agents: SimulatedAgents,
    faults: list[Fault],
    policy: Policy,
    changes: int,
    seconds: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_module, "current_instant", virtual_instant)
    monkeypatch.setattr(
        service_module, "pause_after", lambda *_, **__: 0.005
    )  # else by the load of the machine
    monkeypatch.setattr(service_module, "PlanLoop", partial(PlanLoop, max_interval=inf))
    events = reports(agents, faults)
    skipped = served(agents, events, policy, UNTIL).of_nodes()
    assert len(skipped) == changes
    monkeypatch.setattr(PlanLoop, "is_due", lambda *_, **__: True)
    assert served(agents, events, policy, UNTIL).of_nodes() == skipped
