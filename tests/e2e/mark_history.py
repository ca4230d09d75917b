"""What a cluster had of marks and incidents at each time, and what must not happen when aggregators take turns."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.instant import rfc3339
from nodeguard.model.mark import STATE_ANNOTATION
from nodeguard.model.node import PREFIX
from tests.controlplane.api import Object
from tests.controlplane.cluster import Cluster
from tests.e2e.devices import RULES
from tests.e2e.scene import INCIDENTS
from tests.e2e.watcher import CollectionWatcher

NODES = "/api/v1/nodes"
EVENTS = "/api/v1/namespaces/default/events"


class MarkState(Struct, frozen=True):
    """A version of a Node or a DeviceTaintRule. carrier: its name. node: name of the Node. marks: taints of nodeguard
    with their values, none of a deleted rule. record: of the marks, decoded. condition: status and reason of
    NodeguardHealthy, empty for none. cordoned: whether the Node is unschedulable.
    """

    carrier: str
    node: str
    marks: tuple[str, ...]
    record: dict[str, Any]
    condition: tuple[str, ...] = ()
    cordoned: bool = False

    @property
    def status(self) -> str:
        """Return the status of the condition; empty for none."""
        return self.condition[0] if self.condition else ""

    @property
    def causes(self) -> tuple[object, ...]:
        """Return what the marks are for."""
        return self.marks, self.record.get("causes"), self.record.get("degraded")

    @property
    def charges(self) -> list[tuple[str, float]]:
        """Return the check and the time of each charge, active or released."""
        active = [self.record["charge"]] if "charge" in self.record else []
        return [(charge["check"], charge["at"]) for charge in (*active, *self.record.get("past_charges", ()))]


class IncidentState(Struct, frozen=True):
    """A version of an incident. subject: what it is about. state: empty of a deleted one."""

    name: str
    subject: tuple[str, ...]
    state: str
    occurrences: int
    first_seen: str
    last_transition: str

    @property
    def is_open(self) -> bool:
        return self.state not in {"", "Resolved"}


class Snapshot(Struct, frozen=True):
    """The marks and incidents of a cluster at one time. marks: by carrier; incidents: by name."""

    marks: dict[str, MarkState]
    incidents: dict[str, IncidentState]

    @classmethod
    def of(cls, cluster: Cluster) -> Self:
        """Read a cluster."""
        nodes = map(_node_state, cluster.api.get(NODES)["items"])
        rules = map(_rule_state, cluster.api.get(RULES)["items"])
        incidents = map(_incident_state, cluster.api.get(INCIDENTS)["items"])
        marks = {state.carrier: state for state in (*nodes, *rules)}
        return cls(marks, {incident.name: incident for incident in incidents})

    def marked(self) -> set[str]:
        """Return the names of the Nodes with a mark, of them or of a device."""
        return {state.node for state in self.marks.values() if state.marks}

    def open_incidents(self) -> Counter[tuple[str, ...]]:
        """Return the number of open incidents of each subject."""
        return Counter(incident.subject for incident in self.incidents.values() if incident.is_open)


class MarkHistory:
    """Watches all marks, incidents and Events of a cluster, from its start on. before: the state at the start."""

    def __init__(self, cluster: Cluster) -> None:
        self.before = Snapshot.of(cluster)
        self._nodes = CollectionWatcher(cluster, NODES, partial(_decode, _node_state))
        self._rules = CollectionWatcher(cluster, RULES, partial(_decode, _rule_state))
        self._incidents = CollectionWatcher(cluster, INCIDENTS, partial(_decode, _incident_state))
        self._events = CollectionWatcher(cluster, EVENTS, _event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for watcher in (self._nodes, self._rules, self._incidents, self._events):
            watcher.__exit__()

    def writes(self) -> dict[str, int]:
        """Return the number of changes so far, by kind of object."""
        watchers = {"Nodes": self._nodes, "DeviceTaintRules": self._rules, "NodeIncidents": self._incidents}
        return {kind: len(watcher.states) for kind, watcher in watchers.items()}

    def problems(self, failed: Mapping[str, int], healed: Mapping[str, int], leaders: int) -> list[str]:
        """Return what must not have happened, as text; empty if all is well.

        failed, healed: how often each node failed and healed, and has its mark or its release by now. leaders: how
        often another aggregator became the leader: each may describe a mark in its own words, once.
        """
        marks = [*self._nodes.states, *self._rules.states]
        changes = _Changes(failed, healed, leaders, [*self.before.marks.values(), *marks])
        return [
            *changes.of_marks(self.before.marks, marks),
            *changes.of_incidents(self.before.incidents, self._incidents.states),
            *changes.of_events(self._events.states),
        ]


class _Changes:
    """Compares changes with the number of times that each node failed and healed; see MarkHistory.problems.

    marks: all that were seen.
    """

    def __init__(
        self, failed: Mapping[str, int], healed: Mapping[str, int], leaders: int, marks: Iterable[MarkState]
    ) -> None:
        self._failed, self._healed, self._leaders = failed, healed, leaders
        # The times of the causes of marks, by node.
        self._mark_times: dict[str, set[str]] = defaultdict(set)
        for state in marks:
            self._mark_times[state.node] |= {
                rfc3339(cause["since"]) for cause in state.record.get("causes", ())
            }

    def of_marks(self, before: Mapping[str, MarkState], states: list[MarkState]) -> Iterator[str]:
        latest, begun, ended = dict(before), Counter[str](), Counter[str]()
        for state in states:
            earlier = latest.get(state.carrier, MarkState(state.carrier, state.node, (), {}))
            latest[state.carrier] = state
            begun[state.node] += bool(state.marks and not earlier.marks)
            ended[state.node] += bool(earlier.marks and not state.marks)
            yield from self._of_mark(earlier, state)
        for carrier, count in Counter(state.carrier for state in states).items():
            if not self._is_expected(carrier) and count > self._leaders:
                yield f"{carrier}, of which nothing changed, was written {count} times by {self._leaders} leaders"
        for node in {*begun, *ended, *self._failed, *self._healed}:
            expected = self._failed.get(node, 0), self._healed.get(node, 0)
            if (begun[node], ended[node]) != expected:
                yield f"{node}: {begun[node]} marks set and {ended[node]} released, in place of {expected}"
        earlier_charges, charges = _charges(before.values()), _charges([*before.values(), *states])
        for node, items in charges.items():
            if len(items) != len(earlier_charges[node]) + self._failed.get(node, 0):
                yield f"{node}: other charges than of its faults: {sorted(items)}"

    def _of_mark(self, earlier: MarkState, state: MarkState) -> Iterator[str]:
        if len(set(state.charges)) != len(state.charges):
            yield f"{state.carrier}: a charge counts twice: {state.record}"
        if earlier.marks and state.marks and earlier.causes != state.causes:
            yield f"{state.carrier}: another mark: {earlier} became {state}"
        reworded = replace(earlier, condition=state.condition)
        if not self._is_expected(state.node) and (state != reworded or earlier.status != state.status):
            yield f"{state.carrier}, of which nothing changed: {earlier} became {state}"

    def _is_expected(self, node: str) -> bool:
        """Return whether a node failed or healed."""
        return node in self._failed or node in self._healed

    def of_incidents(self, before: Mapping[str, IncidentState], states: list[IncidentState]) -> Iterator[str]:
        latest = dict(before)
        for state in states:
            if not (state.state or state.name in latest):
                continue  # a new object has no status yet
            earlier = latest.get(state.name)
            latest[state.name] = state
            if not self._is_expected(state.subject[0]):
                if earlier is None or (earlier.state, earlier.occurrences) != (
                    state.state,
                    state.occurrences,
                ):
                    yield f"incident {state.name}, of which nothing changed: {earlier} became {state}"
                # A leader that has only the mark, and neither report nor incident, begins the incident at the mark.
                elif state.first_seen not in {earlier.first_seen, *self._mark_times[state.subject[0]]}:
                    yield f"incident {state.name} began at {earlier.first_seen}, then at {state.first_seen}"
            same = [other for other in latest.values() if other.subject == state.subject and other.is_open]
            if len(same) > 1:
                yield f"{len(same)} open incidents of {state.subject}"

    def of_events(self, states: list[tuple[str, str]]) -> Iterator[str]:
        for (node, reason), count in Counter(states).items():
            if reason == "NodeguardMarked" and count > self._failed.get(node, 0):
                yield f"{count} Events {reason} of {node}"


def _charges(states: Iterable[MarkState]) -> dict[str, set[tuple[str, float]]]:
    """Return all charges of each node."""
    charges: dict[str, set[tuple[str, float]]] = defaultdict(set)
    for state in states:
        charges[state.node].update(state.charges)
    return charges


def _decode(convert: Any, line: bytes, _: float) -> Any:
    event = msgspec.json.decode(line)
    return convert(event["object"], is_deleted=event["type"] == "DELETED")


def _node_state(item: Object, *, is_deleted: bool = False) -> MarkState:
    assert not is_deleted
    metadata, conditions = item["metadata"], item.get("status", {}).get("conditions", ())
    own = [condition for condition in conditions if condition["type"] == "NodeguardHealthy"]
    return MarkState(
        carrier=metadata["name"],
        node=metadata["name"],
        marks=tuple(sorted(map(_taint, filter(_is_own, item["spec"].get("taints", ()))))),
        record=_record(metadata),
        condition=tuple(text for condition in own for text in (condition["status"], condition["reason"])),
        cordoned=item["spec"].get("unschedulable", False),
    )


def _rule_state(item: Object, *, is_deleted: bool = False) -> MarkState:
    metadata = item["metadata"]
    [owner] = metadata["ownerReferences"]
    marks = () if is_deleted else (_taint(item["spec"]["taint"]),)
    return MarkState(metadata["name"], owner["name"], marks, _record(metadata))


def _incident_state(item: Object, *, is_deleted: bool = False) -> IncidentState:
    status = item.get("status", {})
    subject = (
        status.get("node") or status.get("subject", ""),
        status.get("target", ""),
        status.get("cause", ""),
    )
    return IncidentState(
        name=item["metadata"]["name"],
        subject=subject,
        state="" if is_deleted else status.get("state", ""),
        occurrences=status.get("occurrences", 0),
        first_seen=status.get("firstSeen", ""),
        last_transition=status.get("lastTransitionTime", ""),
    )


def _event(line: bytes, _: float) -> tuple[str, str]:
    """Return the object and the reason of an Event."""
    item = msgspec.json.decode(line)["object"]
    return item["involvedObject"]["name"], item["reason"]


def _record(metadata: Object) -> dict[str, Any]:
    record: dict[str, Any] = msgspec.json.decode(metadata.get("annotations", {}).get(STATE_ANNOTATION, "{}"))
    return record


def _is_own(taint: Object) -> bool:
    return str(taint["key"]).startswith(PREFIX)


def _taint(taint: Object) -> str:
    return f"{taint['key'].removeprefix(PREFIX)}={taint.get('value', '')}"
