"""Random kills and stops of aggregators and agents, with marks, incidents and clears in flight.

`python bench/kills.py [--kills 64] [--seed 1]`. On a real API server two aggregators and three agents are
killed, or stopped for up to 20 seconds, at random times. Meanwhile simulated nodes fail and heal, one check
has more faults than its budget, and operators clear the faults of the three nodes. Exits with 1 if a budget
is exceeded, a mark is set, released or charged twice, an incident is doubled, or anything is forgotten.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parent.parent))

from nodeguard.kube.action_store import actions_path
from tests.controlplane.cluster import Cluster, cluster
from tests.daemonset.manifests import NAMESPACE
from tests.e2e import scene
from tests.e2e.bulk_nodes import make_nodes, wait_until_schedulable
from tests.e2e.fleet import Agent, Aggregator, Fleet, Process, deployed_fleet
from tests.e2e.mark_history import MarkHistory, Snapshot
from tests.e2e.swarm import Swarm, fatal_finding, faulty_report, healthy_report, swarm
from tests.e2e.watcher import Watcher, max_marked
from tests.waiting import until

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/nodeguard-aggregator"
ACTIONS = actions_path(NAMESPACE)

NAMES = tuple(f"gpu-{number:03}" for number in range(80))
REAL = ("real-0", "real-1", "real-2")

# Nodes that fail and heal, with one of these checks; nodes that fail all the time with another check, and how
# many of them its budget allows to mark.
CHANGING, CHECKS = (
    NAMES[:36],
    ("gpu-lost", "pcie-fatal", "disk-lost", "nvswitch-fatal", "fs-read-only", "gpu-memory"),
)
FAILING, ALLOWED = NAMES[36:48], 8
HEALTHY = healthy_report((*CHECKS, "gpu-retired-pages-limit"))

# Most nodes that fail at one time, beside those with marks from the start; the fleet budget in nodes: 40%.
MOST, BUDGET = 12, 33

POLICY = f"""
defaultMode: enforce
gracePeriod: {{quarantine: 1s, suspect: 1s, sharedHardware: 1s}}
soak: {{initial: 1s, max: 1s, resetAfter: 1d}}
budget: {{fleet: 40%, pool: 100%, domain: 100%, suspect: 100%,
  perCheck: {{new: {ALLOWED}, within: 1s, active: {ALLOWED}}}}}
diagnosis: {{suppression: {{minNodes: 10000}}}}
"""


class Scene:
    """The fleet and what happened to it. failed, healed: how often, by node. clears: how many, by node."""

    def __init__(self, fleet: Fleet, agents: Swarm, random: Random) -> None:
        self.fleet, self.agents, self.random = fleet, agents, random
        self.failed, self.healed, self.clears = Counter[str](), Counter[str](), Counter[str]()
        # Whether each node that changes will have a mark. Until it is so, the node does not change again.
        self._expected: dict[str, bool] = dict.fromkeys((*CHANGING, *REAL), False)

    @property
    def cluster(self) -> Cluster:
        """Return the cluster of the fleet."""
        return self.fleet.cluster

    def change(self) -> None:
        """Let some nodes fail, heal, or be cleared: of those that have come to rest."""
        marked = Snapshot.of(self.cluster).marked()
        settled = [name for name, is_marked in self._expected.items() if is_marked == (name in marked)]
        failing = sum(self._expected.values())
        for name in self.random.sample(settled, min(len(settled), self.random.randint(1, 5))):
            fails = not self._expected[name]
            if fails and failing >= MOST:
                continue
            failing += 1 if fails else -1
            self._change(name, fails=fails)

    def _change(self, name: str, *, fails: bool) -> None:
        if name in REAL:
            if not self._change_real(name, fails=fails):
                return
        else:
            check = CHECKS[CHANGING.index(name) % len(CHECKS)]
            self.agents.set_reports(
                {name: faulty_report(HEALTHY, fatal_finding(check)) if fails else HEALTHY}
            )
        self._expected[name] = fails
        (self.failed if fails else self.healed)[name] += 1

    def _change_real(self, name: str, *, fails: bool) -> bool:
        """Let the next GPU of a real agent fail, or clear the fault. Returns whether that was done.

        A GPU fails once: all lines of its log have early times, and a clear ends the events before it.
        """
        if fails and self.failed[name] < len(scene.GPUS):
            scene.inject_gpu_fault(self.fleet.agents[name], scene.GPUS[self.failed[name]])
        if fails:
            return self.failed[name] < len(scene.GPUS)
        opened = [
            item for item in scene.incidents(self.cluster, name) if item["status"].get("state") == "Marked"
        ]
        if not opened:
            return False
        self.clears[name] += 1
        clear = {
            "by": "ada",
            "at": f"2027-01-15T08:{self.clears[name] // 60:02}:{self.clears[name] % 60:02}Z",
        }
        path = f"{scene.INCIDENTS}/{opened[0]['metadata']['name']}"
        self.cluster.api.patch(path, {"spec": {"clear": clear}})
        return True

    def disturb(self) -> str:
        """Kill a process, or two, and start it again; or stop it and let it go on. Returns what was done."""
        aggregators, agents = self.fleet.aggregators, [self.fleet.agents[name] for name in REAL]
        leaders = [item for item in aggregators if item.metric("nodeguard_aggregator_leader") == 1]
        victims: list[Process] = [self.random.choice(leaders or aggregators)]
        match self.random.randrange(6):
            case 0:
                victims = list(aggregators)
            case 1 | 2:
                victims = [self.random.choice(agents)]
            case 3:
                victims = [self.random.choice([*aggregators, *agents]), self.random.choice(agents)]
        stops = self.random.random() < 0.45
        seconds = self.random.uniform(1.0, 20.0) if stops else self.random.uniform(0.0, 4.0)
        distinct = list(dict.fromkeys(victims))
        for victim in distinct:
            victim.suspend() if stops else victim.kill()
        time.sleep(seconds)
        for victim in distinct:
            if stops:
                victim.resume()
            else:
                assert isinstance(victim, Agent | Aggregator)
                victim.start()
        return f"{'stopped' if stops else 'killed'} {', '.join(victim.name for victim in distinct)}"

    def heal_all(self) -> None:
        """Heal all nodes that failed once they are marked, and wait until no mark of theirs is left."""
        until(self._heal_marked, lambda: f"not as expected: {self._unsettled()}", every=0.5)

    def _heal_marked(self) -> bool:
        for name in self._expected.keys() - self._unsettled():
            if self._expected[name]:
                self._change(name, fails=False)
        return not any(self._expected.values()) and not self._unsettled()

    def _unsettled(self) -> set[str]:
        marked = Snapshot.of(self.cluster).marked()
        return {name for name, is_marked in self._expected.items() if is_marked != (name in marked)}

    def carried_out(self) -> Counter[str]:
        """Return how many clears the agents have carried out, by node."""
        logs = {name: self.cluster.processes.log(self.fleet.agents[name].name) for name in REAL}
        return Counter({name: log.read_text().count("instruction carried out") for name, log in logs.items()})

    def action_states(self) -> Counter[str]:
        """Return the number of actions in each state."""
        items = self.cluster.api.get(ACTIONS)["items"]
        return Counter(item.get("status", {}).get("state", "Reserved") for item in items)


def main() -> int:
    """Print the figures. Returns the exit status."""
    parser = ArgumentParser(prog="python bench/kills.py", description=__doc__)
    parser.add_argument("--kills", type=int, default=64, help="kills and stops (64)")
    parser.add_argument("--seed", type=int, default=1, help="of what happens (1)")
    options = parser.parse_args()
    with cluster() as made, deployed_fleet(made) as fleet:
        fleet.policy.write_text(POLICY)
        return run(fleet, Random(options.seed), options.kills)


def run(fleet: Fleet, random: Random, kills: int) -> int:
    """Disturb a fleet, and print what happened. Returns the exit status."""
    real = [fleet.add_node(name) for name in REAL]
    uids = make_nodes(fleet.cluster, NAMES)
    wait_until_schedulable(fleet.cluster)
    aggregators = fleet.add_aggregators()
    for aggregator in aggregators:
        aggregator.start()
    fleet.distribute_ca()
    for agent in real:
        agent.start()
    with swarm(fleet, uids, HEALTHY, *aggregators) as agents:
        agents.start()
        failing = faulty_report(HEALTHY, fatal_finding("gpu-retired-pages-limit"))
        agents.set_reports(dict.fromkeys(FAILING, failing))
        until(lambda: len(Snapshot.of(fleet.cluster).marked()) == ALLOWED, every=0.2)
        for agent in real:
            agent.ready()
        time.sleep(10.0)  # the incidents of withheld marks
        disturbed = Scene(fleet, agents, random)
        leaders = _transitions(fleet.cluster)
        with MarkHistory(fleet.cluster) as history, Watcher(fleet.cluster) as watcher:
            done = Counter[str]()
            for number in range(kills):
                disturbed.change()
                time.sleep(random.uniform(0.0, 1.5))
                what = disturbed.disturb()
                done[what.partition(" ")[0]] += 1
                print(f"{number + 1}: {what}; failed {disturbed.failed.total()}", flush=True)
                if number % 5 == 4:
                    time.sleep(20.0)  # a new leader needs 15 s to begin
            try:
                disturbed.heal_all()
            except AssertionError as error:
                print(f"forgotten: {error}")
            time.sleep(15.0)
            leaders = _transitions(fleet.cluster) - leaders
            problems = history.problems(disturbed.failed, disturbed.healed, leaders + 1)
            allowed = Snapshot.of(fleet.cluster).marked()
            most = max_marked(watcher.states)
            writes = history.writes()
    if most > BUDGET - ALLOWED or len(allowed) != ALLOWED:
        problems.append(f"{most} nodes marked at one time beside {sorted(allowed)}")
    if disturbed.carried_out() != disturbed.clears:
        problems.append(f"clears: {disturbed.carried_out()} carried out, {disturbed.clears} asked")
    states = disturbed.action_states()
    if states != Counter(Succeeded=disturbed.clears.total()):
        problems.append(f"actions: {states}, in place of {disturbed.clears.total()} that succeeded")
    print(
        f"{done['killed']} kills, {done['stopped']} stops, {leaders} changes of the leader; "
        f"{disturbed.failed.total()} faults, {disturbed.healed.total()} ends of faults, "
        f"{disturbed.clears.total()} clears, "
        f"at most {most} nodes marked; changes: {writes}"
    )
    print("\n".join(problems) or "nothing was exceeded, doubled or forgotten")
    return 1 if problems else 0


def _transitions(made: Cluster) -> int:
    count: int = made.api.get(LEASE)["spec"].get("leaseTransitions", 0)
    return count


if __name__ == "__main__":
    sys.exit(main())
