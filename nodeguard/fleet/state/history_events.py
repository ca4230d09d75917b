"""What was told of a fleet over time, step by step: what a history keeps, and what is replayed of it.

Each has `at`, seconds since the epoch by its receiver's clock. Nodes are told by uid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.state.annotation_codec import decode_record
from nodeguard.model.mark import HOLD_ANNOTATION, MAINTENANCE_ANNOTATION, STATE_ANNOTATION
from nodeguard.model.node import Node
from nodeguard.wire.report import Report


class ReportReceived(Struct, frozen=True):
    """A node's report came."""

    at: float
    uid: str
    report: Report


class NodeObserved(Struct, frozen=True):
    """A Node is as it is without nodeguard, see `bare`."""

    at: float
    node: Node


class NodeRemoved(Struct, frozen=True):
    """A Node is no more."""

    at: float
    uid: str
    node: str


class AgentLivenessChanged(Struct, frozen=True):
    """A node has fallen silent, or is heard again."""

    at: float
    uid: str
    node: str
    stale: bool


class NoteKind(StrEnum):
    """What was told besides: `incident`: changed. `plan`: what a Node was to carry, by who acts. `freed`: a
    mark was given back. `marks`: what is remembered on a Node, as it was seen there. `decision`: of people,
    on an incident. `pause`: of people, on the fleet.
    """

    INCIDENT = "incident"
    PLAN = "plan"
    RELEASED = "released"
    MARKS = "marks"
    DECISION = "decision"
    PAUSE = "pause"


class HistoryNote(Struct, frozen=True):
    """Something that was told, written down or decided. name: of the incident, or the Node's uid. text: JSON,
    or people's own words.
    """

    at: float
    kind: NoteKind
    name: str
    node: str
    text: str


HistoryEvent = ReportReceived | NodeObserved | NodeRemoved | AgentLivenessChanged | HistoryNote


def without_nodeguard(node: Node) -> Node:
    """A Node with nothing on it that nodeguard writes, and nothing of it that changes by itself."""
    record = decode_record(node.annotations.get(STATE_ANNOTATION, ""))
    ours = record is not None and record.cordoned
    return replace(
        node,
        version="",
        annotations={
            key: node.annotations[key]
            for key in (HOLD_ANNOTATION, MAINTENANCE_ANNOTATION)
            if key in node.annotations
        },
        taints=(),
        unschedulable=node.unschedulable and not ours,
        condition=None,
    )


def in_time_order(steps: Iterable[HistoryEvent]) -> Iterator[HistoryEvent]:
    """Steps as they are, but that none comes before the one that was told before it: a clock was put back."""
    latest = float("-inf")
    for one in steps:
        latest = max(latest, one.at)
        yield one if one.at == latest else replace(one, at=latest)
