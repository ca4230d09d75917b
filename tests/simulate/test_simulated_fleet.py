from __future__ import annotations

from random import Random

from bench.simulation.episode import enforcing
from nodeguard.model.policy import Policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.faults import Fault, FleetEvent, SimulatedAgents
from nodeguard.simulate.fleet_topology import simulated_topology
from nodeguard.simulate.observer import NodeMarkState, Observer
from nodeguard.simulate.outcome_counter import OutcomeCounter
from nodeguard.simulate.simulated_fleet import SimulatedFleet

HOUR = 3600.0
PLACES = simulated_topology(200)


class Diary(Observer):
    """Everything that was heard, in its order."""

    def __init__(self) -> None:
        self.lines: list[tuple[object, ...]] = []

    def begins(self, trouble: Fault, at: float) -> None:
        self.lines.append(("begins", trouble.node, at))

    def ends(self, trouble: Fault, at: float) -> None:
        self.lines.append(("ends", trouble.node, at))

    def marked(self, node: int, now: NodeMarkState, at: float) -> None:
        self.lines.append(("quarantined" if now.quarantine else "given back", node, at))


def watched(
    agent: SimulatedAgent, troubles: list[Fault], until: float, *watchers: Observer
) -> SimulatedFleet:
    crowd, chance = SimulatedAgents(agent), Random(1)
    fleet = SimulatedFleet(PLACES, crowd, enforcing(Policy()), watchers, chance)
    fleet.run(crowd.events(troubles, chance), until)
    return fleet


def test_a_fault_is_marked_and_given_back_and_all_in_the_order_of_time(agent: SimulatedAgent) -> None:
    diary, account = Diary(), OutcomeCounter()
    trouble = Fault(100.0, 100.0 + HOUR, 7, "gpu-lost")
    watched(agent, [trouble], 3 * HOUR, diary, account)
    assert [line[:2] for line in diary.lines] == [
        ("begins", 7),
        ("quarantined", 7),
        ("ends", 7),
        ("given back", 7),
    ]
    times = [float(str(line[2])) for line in diary.lines]
    assert times == sorted(times)
    assert 100.0 < times[1] < 130.0
    # Proven after the reboot, and soaked for ten minutes.
    assert times[2] + 600.0 <= times[3] < times[2] + 630.0
    account.close(3 * HOUR)
    assert (account.quarantines, account.correct_quarantines, account.max_quarantined, account.incidents) == (
        1,
        1,
        1,
        1,
    )
    assert account.justified_seconds == times[2] - times[1]
    assert account.unjustified_seconds == times[3] - times[2]


def test_who_beats_is_never_silent_and_who_does_not_is_soon(agent: SimulatedAgent) -> None:
    one, other = Fault(100.0, 100.0 + HOUR, 3, "silent"), Fault(200.0, 200.0 + HOUR, 4, "unheard")
    fleet = watched(agent, [one, other], 300.0)
    assert fleet.planner.stale_agents.stale == {"uid-3", "uid-4"}
    assert [fleet.planner.state.nodes[f"uid-{number}"].ready for number in (3, 4, 5)] == [False, True, True]
    fleet = watched(agent, [one, other], 2 * HOUR)
    assert fleet.planner.stale_agents.stale == frozenset()
    assert fleet.planner.state.nodes["uid-3"].ready


def test_what_a_silent_node_would_say_is_heard_once_it_is(agent: SimulatedAgent) -> None:
    silent, down = Fault(100.0, 1000.0, 3, "unheard"), Fault(500.0, 500.0 + HOUR, 3, "port-down")
    diary = Diary()
    watched(agent, [silent, down], 2000.0, diary)
    [when] = [float(str(line[2])) for line in diary.lines if line[0] == "quarantined"]
    assert 1000.0 <= when < 1010.0


def test_the_same_seed_gives_the_same(agent: SimulatedAgent) -> None:
    troubles = [Fault(60.0 * at, 60.0 * at + HOUR, at, "port-down", at % 2) for at in range(20)]
    first, second = Diary(), Diary()
    watched(agent, troubles, 3 * HOUR, first)
    watched(agent, troubles, 3 * HOUR, second)
    assert first.lines == second.lines


def test_moments_of_several_troubles_are_in_the_order_of_time(agent: SimulatedAgent) -> None:
    troubles = [
        Fault(0.0, HOUR, 1, "port-down"),
        Fault(600.0, 600.0 + HOUR, 1, "gpu-lost"),
        Fault(300.0, 900.0, 1, "silent"),
    ]
    moments = SimulatedAgents(agent).events(troubles, Random(1))
    assert [one.at for one in moments] == sorted(one.at for one in moments)
    assert [one.kind for one in moments].count("falls silent") == 2
    both = [one.report for one in moments if one.report is not None and len(one.report.findings) == 2]
    # What was found first has been there for longer.
    assert {one.check: one.age for one in both[0].findings} == {"gpu-lost": 0.0, "port-down": 600.0}


def test_nothing_happens_to_who_is_well(agent: SimulatedAgent) -> None:
    assert SimulatedAgents(agent).events([], Random(1)) == []
    moments: list[FleetEvent] = []
    account = OutcomeCounter()
    SimulatedFleet(PLACES, SimulatedAgents(agent), enforcing(Policy()), [account], Random(1)).run(
        moments, HOUR
    )
    assert (account.quarantines, account.incidents) == (0, 0)
