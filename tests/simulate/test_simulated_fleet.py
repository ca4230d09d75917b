from __future__ import annotations

from random import Random

from nodeguard.model.mark import Mark
from nodeguard.model.policy import default_policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.fault_kinds import NODE_DOWN
from nodeguard.simulate.faults import Fault, FleetEvent, NodeChange, SimulatedAgents
from nodeguard.simulate.fleet_topology import simulated_topology
from nodeguard.simulate.observer import Observer
from nodeguard.simulate.outcome_counter import OutcomeCounter
from nodeguard.simulate.random_faults import GANG_START
from nodeguard.simulate.simulated_fleet import SimulatedFleet
from nodeguard.simulate.simulation import enforce_all
from tests.policies import FAULT_CLASSES

HOUR = 3600.0
TOPOLOGY = simulated_topology(200)


class EventLog(Observer):
    """Records events in their order."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def fault_started(self, fault: Fault, at: float) -> None:
        self.lines.append(("fault starts", fault.node, at))

    def fault_ended(self, fault: Fault, at: float) -> None:
        self.lines.append(("fault ends", fault.node, at))

    def marks_changed(self, node: int, now: frozenset[Mark], at: float) -> None:
        self.lines.append(("quarantined" if Mark.QUARANTINE in now else "released", node, at))


def run_fleet(
    agent: SimulatedAgent, faults: list[Fault], until: float, *observers: Observer
) -> SimulatedFleet:
    agents, chance = SimulatedAgents(agent), Random(1)
    fleet = SimulatedFleet(TOPOLOGY, agents, enforce_all(default_policy(FAULT_CLASSES)), observers, chance)
    fleet.run(agents.events(faults, chance), until)
    return fleet


def test_a_fault_is_marked_and_its_mark_is_released(agent: SimulatedAgent) -> None:
    log, counter = EventLog(), OutcomeCounter()
    fault = Fault(100.0, 100.0 + HOUR, 7, "gpu-lost")
    run_fleet(agent, [fault], 3 * HOUR, log, counter)
    expected = [("fault starts", 7), ("quarantined", 7), ("fault ends", 7), ("released", 7)]
    assert [line[:2] for line in log.lines] == expected
    times = [float(str(line[2])) for line in log.lines]
    assert times == sorted(times)
    assert 100.0 < times[1] < 130.0
    # The check passes after the reboot; the soak period is ten minutes.
    assert times[2] + 600.0 <= times[3] < times[2] + 630.0
    counter.close(3 * HOUR)
    assert (counter.quarantines, counter.correct_quarantines, counter.max_quarantined, counter.incidents) == (
        1,
        1,
        1,
        1,
    )
    assert counter.justified_seconds == times[2] - times[1]
    assert counter.unjustified_seconds == times[3] - times[2]


def test_an_agent_without_heartbeats_becomes_stale(agent: SimulatedAgent) -> None:
    down, unreachable = (
        Fault(100.0, 100.0 + HOUR, 3, "node-down"),
        Fault(200.0, 200.0 + HOUR, 4, "agent-unreachable"),
    )
    fleet = run_fleet(agent, [down, unreachable], 300.0)
    assert fleet.planner.stale_agents.stale == {"uid-3", "uid-4"}
    assert [fleet.planner.state.nodes[f"uid-{number}"].ready for number in (3, 4, 5)] == [False, True, True]
    fleet = run_fleet(agent, [down, unreachable], 2 * HOUR)
    assert fleet.planner.stale_agents.stale == frozenset()
    assert fleet.planner.state.nodes["uid-3"].ready


def test_a_stale_agent_reports_after_its_return(agent: SimulatedAgent) -> None:
    unreachable, down = (
        Fault(100.0, 1000.0, 3, "agent-unreachable"),
        Fault(500.0, 500.0 + HOUR, 3, "port-down"),
    )
    log = EventLog()
    run_fleet(agent, [unreachable, down], 2000.0, log)
    [at] = [float(str(line[2])) for line in log.lines if line[0] == "quarantined"]
    assert 1000.0 <= at < 1010.0


def test_a_seed_repeats_the_same_events(agent: SimulatedAgent) -> None:
    faults = [Fault(60.0 * at, 60.0 * at + HOUR, at, "port-down", at % 2) for at in range(20)]
    first, second = EventLog(), EventLog()
    run_fleet(agent, faults, 3 * HOUR, first)
    run_fleet(agent, faults, 3 * HOUR, second)
    assert first.lines == second.lines


def test_events_are_in_the_order_of_time(agent: SimulatedAgent) -> None:
    faults = [
        Fault(0.0, HOUR, 1, "port-down"),
        Fault(600.0, 600.0 + HOUR, 1, "gpu-lost"),
        Fault(300.0, 900.0, 1, "node-down"),
    ]
    events = SimulatedAgents(agent).events(faults, Random(1))
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert [event.kind for event in events].count("agent lost") == 2
    both = [event.report for event in events if event.report is not None and len(event.report.findings) == 2]
    # The first finding is older.
    assert {finding.check: finding.age for finding in both[0].findings} == {
        "gpu-lost": 0.0,
        "port-down": 600.0,
    }


def test_healthy_nodes_have_no_events(agent: SimulatedAgent) -> None:
    assert SimulatedAgents(agent).events([], Random(1)) == []
    events: list[FleetEvent] = []
    counter = OutcomeCounter()
    SimulatedFleet(
        TOPOLOGY, SimulatedAgents(agent), enforce_all(default_policy(FAULT_CLASSES)), [counter], Random(1)
    ).run(events, HOUR)
    assert (counter.quarantines, counter.incidents) == (0, 0)


def test_an_operator_changes_the_cordon_and_the_maintenance_of_a_node(agent: SimulatedAgent) -> None:
    agents, chance = SimulatedAgents(agent), Random(1)
    fleet = SimulatedFleet(TOPOLOGY, agents, enforce_all(default_policy(FAULT_CLASSES)), [], chance)
    changes = [NodeChange(10.0, 3, unschedulable=True, maintenance="a switch"), NodeChange(20.0, 3)]
    events = agents.events([], chance, changes=changes)
    uid = TOPOLOGY.nodes[3].key
    fleet.run(events[:1], 15.0)
    placement = fleet.planner.state.placements[uid]
    assert placement.cordoned_by_user
    assert "a switch" in placement.maintenance
    fleet.run(events[1:], 25.0)
    placement = fleet.planner.state.placements[uid]
    assert (placement.cordoned_by_user, placement.maintenance) == (False, "")


def test_a_restarted_aggregator_diagnoses_a_rack_that_lost_power_just_before(agent: SimulatedAgent) -> None:
    [rack, *_] = TOPOLOGY.domains_at("power", 2)
    faults = [Fault(HOUR, 2 * HOUR, node, NODE_DOWN, 0, rack) for node in TOPOLOGY.domains[rack]]
    agents, chance = SimulatedAgents(agent), Random(1)
    fleet = SimulatedFleet(TOPOLOGY, agents, enforce_all(default_policy(FAULT_CLASSES)), [], chance)
    events = list(agents.events(faults, chance))
    killed = HOUR + 24.0
    fleet.run([event for event in events if event.at <= killed], killed)
    fleet.restart(killed)
    fleet.run([event for event in events if event.at > killed], killed + 120.0)
    assert set(fleet.planner.diagnosis.degraded_domains) == {rack}


def test_the_jobs_of_a_gang_are_read_one_after_the_other_and_again_by_a_new_aggregator(
    agent: SimulatedAgent,
) -> None:
    leaf = TOPOLOGY.domains[TOPOLOGY.domains_at("fabric", 2)[0]][:10]
    gang = [Fault(100.0, HOUR, node, "port-flap", 0, GANG_START, "a/gang", 90.0) for node in leaf]
    agents, chance = SimulatedAgents(agent), Random(1)
    fleet = SimulatedFleet(TOPOLOGY, agents, enforce_all(default_policy(FAULT_CLASSES)), (), chance)
    events = list(agents.events(gang, chance))

    def nodes_with_job() -> int:
        jobs = fleet.planner.state.jobs
        return sum(jobs.names(TOPOLOGY.nodes[node].key) == ("a/gang",) for node in leaf)

    fleet.run([event for event in events if event.at < 101.2], 101.2)
    assert nodes_with_job() == 5
    fleet.run([event for event in events if event.at >= 101.2], 600.0)
    assert nodes_with_job() == 10
    fleet.restart(600.0)
    assert nodes_with_job() == 0
    fleet.run([], 700.0)
    assert nodes_with_job() == 10
    assert fleet.planner.diagnosis.degraded_domains == {}
