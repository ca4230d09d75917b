"""Restarts of the aggregator during shared faults: whether the new one soon has the same diagnosis.

`python bench/restarts.py --episodes 20`. In each episode one shared fault begins after an hour of normal
operation. The aggregator is killed at a random time in the next hour. Its successor reads the Nodes and the
recorded incidents, and receives the latest report of each agent that runs, with its age. After two minutes,
its degraded domains and suppressed checks are compared with those of the same fleet without the restart.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from functools import cache
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent))

from msgspec import Struct

from bench.evaluation.figures import share
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.cli.usage import whole_number
from nodeguard.model.policy import default_policy
from nodeguard.simulate.agent_reports import SimulatedAgent
from nodeguard.simulate.faults import SimulatedAgents
from nodeguard.simulate.fleet_topology import simulated_topology
from nodeguard.simulate.random_faults import DEFAULT_RATES, node_faults
from nodeguard.simulate.shared_faults import SHARED_FAULT_KINDS, make_shared_fault
from nodeguard.simulate.simulated_fleet import SimulatedFleet
from nodeguard.simulate.simulation import enforce_all

# Seconds of normal operation before a fault, within which the aggregator is killed, and until the comparison.
BEFORE, WITHIN, UNTIL = 3_600.0, 3_600.0, 120.0

# Nodes of the fleet by default, and the first seed: one that no constant was chosen by.
NODES, SEED = 1_280, 20_000


class Outcome(Struct, frozen=True):
    """The outcome of one episode. causes: domains and checks without the restart, two minutes after it.
    missing: those of them that the restarted aggregator does not have; added: those that it has in addition.
    """

    causes: int
    missing: int
    added: int


@cache
def _agent() -> SimulatedAgent:
    return SimulatedAgent(*load_catalogue())


def episode(kind: str, seed: int, nodes: int) -> Outcome:
    """Run an episode."""
    random, topology = Random(f"{seed} {kind} restart"), simulated_topology(nodes)
    fault = make_shared_fault(kind, topology, BEFORE, random)
    normal = node_faults(topology, DEFAULT_RATES, BEFORE + WITHIN + UNTIL, random)
    agents = SimulatedAgents(_agent())
    policy = enforce_all(default_policy(load_catalogue()[0].fault_classes))
    fleet = SimulatedFleet(topology, agents, policy, [], random)
    events = list(agents.events([*normal, *fault.faults], random))
    killed = BEFORE + random.uniform(0.0, WITHIN)
    fleet.run([event for event in events if event.at <= killed], killed)
    rest = [event for event in events if event.at > killed]
    restarted = deepcopy(fleet)
    restarted.restart(killed)
    found = []
    for run in (fleet, restarted):
        run.run(rest, killed + UNTIL)
        diagnosis = run.planner.diagnosis
        found.append({*diagnosis.degraded_domains, *diagnosis.suppressed_checks})
    return Outcome(len(found[0]), len(found[0] - found[1]), len(found[1] - found[0]))


def main() -> None:
    """Run the episodes and print a row for each kind of shared fault."""
    parser = ArgumentParser(prog="python bench/restarts.py", description=__doc__)
    add = parser.add_argument
    add("--episodes", metavar="N", type=whole_number(1, 10_000), default=20, help="of each kind (20)")
    add("--nodes", metavar="N", type=whole_number(16, 100_000), default=NODES, help="of the fleet (1280)")
    add("--seed", metavar="N", type=whole_number(0, 2**31), default=SEED, help="first seed (20000)")
    add("--jobs", metavar="N", type=whole_number(1, 1024), default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    topology = simulated_topology(options.nodes)
    head = f"{'shared fault':<24}{'same':>6}{'of':>6}  {'interval at 95%':<16}"
    print(f"{head}{'causes':>8}{'missing':>8}{'added':>6}")
    total: list[Outcome] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        for kind, of in SHARED_FAULT_KINDS.items():
            if not of.fits(topology):
                continue
            seeds = range(options.seed, options.seed + options.episodes)
            kinds, nodes = [kind] * len(seeds), [options.nodes] * len(seeds)
            outcomes = list(pool.map(episode, kinds, seeds, nodes))
            row(kind, outcomes)
            total += outcomes
    row("all", total)


def row(kind: str, outcomes: list[Outcome]) -> None:
    """Print a row."""
    same = share(sum(not (outcome.missing or outcome.added) for outcome in outcomes), len(outcomes))
    interval = f"[{same.low:.2f}, {same.high:.2f}]"
    causes, missing, added = (
        sum(getattr(outcome, name) for outcome in outcomes) for name in ("causes", "missing", "added")
    )
    print(
        f"{kind:<24}{same.hits:>6}{same.of:>6}  {interval:<16}{causes:>8}{missing:>8}{added:>6}", flush=True
    )


if __name__ == "__main__":
    main()
