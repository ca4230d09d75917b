"""A world: it applies the steps of a history, and after each the time passes and the plans are carried out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import inf
from random import Random

from nodeguard.executors.kube.desired import DesiredNode, DeviceRule
from nodeguard.fleet.plan_loop import PlanLoop
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION
from nodeguard.model.node import PREFIX
from tests.fleet.cluster_planner import ClusterPlan
from tests.worlds.agents import FAULTS, WorldAgent
from tests.worlds.aggregator import WorldAggregator
from tests.worlds.cluster import FOREIGN, WorldCluster
from tests.worlds.forgeries import forge
from tests.worlds.history import History, Step
from tests.worlds.invariants import Invariants
from tests.worlds.options import policy_of

# Seconds between two turns of the plan loop after a change; they grow while nothing changes. And between two
# heartbeats; and until a Node with a kubelet that stopped is not ready.
_TURNS = (1.0, 5.0, 10.0, 15.0, 60.0, 400.0, 1_800.0, 1_800.0, 3_600.0)
_HEARTBEAT, _NOT_READY_AFTER = 10.0, 45.0

# The annotation that an operator sets or removes in a step.
_ANNOTATIONS = {
    "hold": (HOLD_ANNOTATION, "an operator's work"),
    "unhold": (HOLD_ANNOTATION, None),
    "maintain": (MAINTENANCE_ANNOTATION, "new cables"),
    "unmaintain": (MAINTENANCE_ANNOTATION, None),
}


class World:
    """One world. counts: steps and situations so far. changes: `+` and `-` for each taint of nodeguard that
    was set and removed, by Node and key. preempted: Nodes that lost the mark of an injected fault to a real one.
    suppressed_versions: versions in which a check was suppressed.
    """

    turns: tuple[float, ...] = _TURNS

    def __init__(self, history: History, *, crashes: bool = False) -> None:
        self.leaf, self.crashes = history.leaf, crashes
        self.wall, self.mono = 1_700_000_000.0, 10_000.0
        self.jumps: list[tuple[float, float]] = []  # of the wall clock: when, and by how many seconds
        self.options = set(history.options)
        self.policy = policy_of(self.options)
        self.paused = ""
        self.cluster = WorldCluster(lambda node: None, lambda uid: None)
        self.counts: Counter[str] = Counter()
        self.changes: dict[tuple[str, str], str] = {}
        self.preempted: set[str] = set()
        self.flying: dict[str, tuple[DesiredNode | DeviceRule | str, str]] = {}
        self.lost = self.slow = 0
        self.dismissed: set[str] = set()
        self.suppressed_versions: set[str] = set()
        self._quiet_turns = 0
        self.started: float | None = None  # the wall clock at the start of the aggregator
        self.agents: dict[int, WorldAgent] = {}
        for number in range(history.nodes):
            self.cluster.create(number, self.leaf)
            self.agents[number] = WorldAgent(number, self.cluster.uid(number), self.mono)
        for number in history.devices:
            self.cluster.publish(number)
        self.start()
        self.pass_time(history.age)

    def now(self) -> Instant:
        """Return the time of the aggregator's clocks."""
        return Instant(self.wall, self.mono, "")

    def start(self) -> None:
        """Start a new aggregator; the old one has ended."""
        self.aggregator = WorldAggregator(self.policy, self.cluster, self.paused, self.now)
        if self.started is not None:
            self.aggregator.planner.restore_term(self.started, self.wall, self.now())
        self.started = self.wall
        self.planner, self.inputs = self.aggregator.planner, self.aggregator.inputs
        self.loop = PlanLoop(self.planner, max_interval=inf)
        self.cluster._on_node = self.aggregator.node_changed
        self.cluster._on_deleted = self.inputs.node_deleted
        self.invariants = Invariants(self)
        self._quiet_turns = 0
        for agent in self.agents.values():
            agent.sent = -inf

    # Time.

    def pass_time(self, seconds: float) -> None:
        """Let time pass; the plan loop turns often after a change, and rarely while nothing changes."""
        end = self.mono + seconds
        while self.mono < end:
            turn = min(self.turns[min(self._quiet_turns, len(self.turns) - 1)], end - self.mono)
            self.wall += turn
            self.mono += turn
            self._kubelets_stop()
            for agent in self.agents.values():
                if self.mono - agent.sent >= _HEARTBEAT:
                    self.beat(agent)
            self._quiet_turns = 0 if self.turn() else self._quiet_turns + 1

    def _kubelets_stop(self) -> None:
        for number, agent in self.agents.items():
            if agent.down is not None and agent.kubelet_stops and self.mono - agent.down >= _NOT_READY_AFTER:
                agent.kubelet_stops = False
                self.cluster.change(number, ready=False, not_ready_since=self.wall)

    def beat(self, agent: WorldAgent) -> None:
        """Send an agent's heartbeat, and its report if that is asked for."""
        if agent.down is not None:
            return
        agent.sent = self.mono
        reply = self.aggregator.receive(agent.heartbeat(self.mono), agent.name, agent.uid)
        if reply is not None and reply.resend:
            self.aggregator.receive(agent.report(self.mono), agent.name, agent.uid)

    def turn(self) -> bool:
        """Plan once and carry the plan out. Returns whether anything was written."""
        if not self.aggregator.tick():
            return True
        self._land()
        plan = self.plan()
        self.invariants.check_plan(plan)
        self._record(plan)
        for node in plan.nodes:
            self.flying[node.uid] = node, self.cluster.nodes[node.uid].version
        for rule in plan.rules:
            self.flying[rule.name] = rule, ""
        for name in plan.rules_gone:
            self.flying[name] = name, ""
        if self.slow:
            self.slow -= 1
        else:
            self._land()
        return bool(plan.nodes or plan.rules or plan.rules_gone or plan.released or self.slow)

    def plan(self) -> ClusterPlan:
        """Return the plan for now, which is issued."""
        plan = self.loop.step(self.now()).plan
        assert isinstance(plan, ClusterPlan)
        return plan

    def _record(self, plan: ClusterPlan) -> None:
        for incident in plan.incidents:
            self.cluster.record(incident)

    def _land(self) -> None:
        """Carry out the pending writes; some are lost."""
        writes, self.flying = self.flying, {}
        for key, (write, version) in writes.items():
            if self.lost:
                self.lost -= 1
                if isinstance(write, str):
                    self.flying[key] = write, version  # its writer repeats a deletion
                else:
                    self.inputs.marks_failed(write.uid)
            elif isinstance(write, str):
                self.cluster.rules.pop(write, None)
                self.aggregator.rule_deleted(write)
            elif isinstance(write, DeviceRule):
                self.counts["device rule"] += 1
                self.cluster.rules[write.name] = write
                self.aggregator.rule_changed(write)
            else:
                self._land_node(write, version)

    def _land_node(self, write: DesiredNode, version: str) -> None:
        before = self.cluster.nodes.get(write.uid)
        if before is None or before.version != version:
            self.inputs.marks_failed(write.uid)
            return
        self.inputs.marks_written(write.uid, write.record)
        self.cluster.write(write, version)
        after = self.cluster.nodes[write.uid]
        self.invariants.check_write(before, after)
        own = [
            {taint.key for taint in node.taints if taint.key.startswith(PREFIX)} for node in (before, after)
        ]
        for key in own[0] ^ own[1]:
            name = before.name, key
            self.changes[name] = self.changes.get(name, "") + ("+" if key in own[1] else "-")
            self.counts[f"{'+' if key in own[1] else '-'} {key.removeprefix(PREFIX)}"] += 1

    # Steps.

    def apply(self, step: Step) -> None:
        """Apply a step, and let its time pass."""
        self.counts[step.kind] += 1
        if step.kind in _ANNOTATIONS:
            for number in step.nodes:
                self.cluster.annotate(number, *_ANNOTATIONS[step.kind])
        else:
            getattr(self, f"_{step.kind}")(step)
        self._quiet_turns = 0
        self.pass_time(step.seconds)

    def _agents_of(self, step: Step, *, running: bool = True) -> Iterator[tuple[int, WorldAgent]]:
        for number in step.nodes:
            agent = self.agents.get(number)
            if agent is not None and (agent.down is None or not running):
                yield number, agent

    def _report(self, agent: WorldAgent, age: float = 0.0, *, leaving: bool = False) -> None:
        report = agent.report(self.mono, age, leaving=leaving)
        self.aggregator.receive(report, agent.name, agent.uid)

    def _fault(self, step: Step) -> None:
        for _, agent in self._agents_of(step):
            agent.begin(step.value, self.mono)
            self._report(agent)

    def _inject(self, step: Step) -> None:
        for _, agent in self._agents_of(step):
            agent.inject(step.value, self.mono)
            self._report(agent)

    def _escalate(self, step: Step) -> None:
        health = FAULTS["gpu-lost"].health
        for _, agent in self._agents_of(step):
            agent.begin(step.value, self.mono, health)
            self._report(agent)

    def _clear(self, step: Step) -> None:
        for _, agent in self._agents_of(step):
            agent.end(step.value)
            self._report(agent)

    def _unread(self, step: Step) -> None:
        for _, agent in self._agents_of(step):
            agent.unread = not agent.unread
            self._report(agent)

    def _late(self, step: Step) -> None:
        for _, agent in self._agents_of(step):
            agent.begin("gpu-lost", self.mono - 200.0)
            self._report(agent, age=100.0)

    def _silent(self, step: Step) -> None:
        for _, agent in self._agents_of(step):
            agent.down, agent.kubelet_stops = self.mono, bool(step.value)

    def _leave(self, step: Step) -> None:
        for _, agent in self._agents_of(step):
            self._report(agent, leaving=True)
            agent.down = self.mono

    def _return(self, step: Step) -> None:
        for number, agent in self._agents_of(step, running=False):
            if agent.down is not None:
                agent.down, agent.kubelet_stops, agent.sent = None, False, -inf
                self.cluster.change(number, ready=True, not_ready_since=0.0)

    def _reboot(self, step: Step) -> None:
        for _, agent in self._agents_of(step):
            agent.restart(self.mono)

    def _delete(self, step: Step) -> None:
        for number, agent in self._agents_of(step, running=False):
            self.cluster.delete(number)
            agent.down, agent.kubelet_stops = self.mono, False

    def _create(self, step: Step) -> None:
        """Create a Node that is deleted; a Node that exists is deleted first."""
        for number in step.nodes:
            self.cluster.delete(number)
            self.cluster.create(number, self.leaf)
            agent = WorldAgent(number, self.cluster.uid(number), self.mono)
            agent.boot = self.agents[number].boot + 1
            self.agents[number] = agent

    def _cordon(self, step: Step) -> None:
        for number in step.nodes:
            node = self.cluster.nodes.get(self.cluster.uid(number))
            if node is not None and not node.unschedulable:
                self.cluster.cordoned.add(node.uid)
                self.cluster.change(number, unschedulable=True)

    def _uncordon(self, step: Step) -> None:
        for number in step.nodes:
            self.cluster.cordoned.discard(self.cluster.uid(number))
            self.cluster.change(number, unschedulable=False)

    def _taint(self, step: Step) -> None:
        for number in step.nodes:
            node = self.cluster.nodes.get(self.cluster.uid(number))
            if node is not None and FOREIGN not in node.taints:
                self.cluster.change(number, taints=(FOREIGN, *node.taints))

    def _untaint(self, step: Step) -> None:
        """Remove nodeguard's taints by hand."""
        for number in step.nodes:
            node = self.cluster.nodes.get(self.cluster.uid(number))
            if node is not None:
                theirs = tuple(taint for taint in node.taints if not taint.key.startswith(PREFIX))
                self.cluster.change(number, taints=theirs)

    def _pause(self, step: Step) -> None:
        self.paused = "an operator's work"
        for uid in self.inputs.fleet_decided(self.paused):
            self._withdraw(uid)

    def _resume(self, step: Step) -> None:
        self.paused = ""
        self.inputs.fleet_decided("")

    def _policy(self, step: Step) -> None:
        """Load another policy file: an option is added or removed."""
        self.options ^= {step.value}
        self.policy = policy_of(self.options)
        self.planner.set_policy(self.policy)
        for uid in self.planner.state.marks.pending_nodes():
            self.planner.state.record_failed(uid)
        self.flying.clear()

    def _withdraw(self, uid: str) -> None:
        for key, (write, _) in list(self.flying.items()):
            rule = self.planner.cluster.rules.get(key)
            if uid in (key, getattr(write, "uid", ""), rule.uid if rule is not None else ""):
                del self.flying[key]

    def _relabel(self, step: Step) -> None:
        label, _, value = step.value.partition(" ")
        for number in step.nodes:
            node = self.cluster.nodes.get(self.cluster.uid(number))
            if node is not None:
                self.cluster.change(number, labels={**node.labels, label: value})

    def _driver(self, step: Step) -> None:
        for _, agent in self._agents_of(step):
            agent.driver = step.value
            self._report(agent)

    def _clock(self, step: Step) -> None:
        self.wall += float(step.value)
        self.jumps.append((self.mono, float(step.value)))

    def _restart(self, step: Step) -> None:
        """Kill the aggregator: of its pending writes, some are carried out."""
        random = Random(len(self.flying))
        for write, version in list(self.flying.values()):
            if random.random() < 0.5 and isinstance(write, DesiredNode):
                self.cluster.write(write, version)
        self.flying.clear()
        self.start()

    def _crash(self, step: Step) -> None:
        """Restart the aggregator in the second run of a history only."""
        if self.crashes:
            self._restart(step)

    def _leader(self, step: Step) -> None:
        """The lease is lost, and taken again."""
        self.flying.clear()
        self.inputs.leadership_lost()

    def _lose(self, step: Step) -> None:
        self.lost = 3

    def _slow(self, step: Step) -> None:
        self.slow = 2

    def _forge(self, step: Step) -> None:
        for number, agent in self._agents_of(step, running=False):
            forge(self, number, agent, step.value)

    def _dismiss(self, step: Step) -> None:
        """Clear the incidents of domains and checks."""
        for incident in list(self.planner.tracker.recorded.by_uid.get("", {}).values()):
            if incident.is_open:
                self.dismissed.add(incident.domain)
                decision = OperatorDecision(incident.name, clear=f"an operator at {rfc3339(self.wall)}")
                self.cluster.decisions[incident.name] = decision
                self.inputs.incident_decided(decision, is_new=True)

    def _wait(self, step: Step) -> None:
        """Let time pass."""
