"""What was told of a fleet over time, step by step: what a history keeps, and what is replayed of it.

Each has `at`, seconds since the epoch by its receiver's clock. Nodes are told by uid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.record import read
from nodeguard.model.mark import HOLD, MAINTENANCE, STATE
from nodeguard.model.node import Node
from nodeguard.wire.report import Report


class Reported(Struct, frozen=True):
    """A node's report came."""

    at: float
    uid: str
    report: Report


class Seen(Struct, frozen=True):
    """A Node is as it is without nodeguard, see `bare`."""

    at: float
    node: Node


class Gone(Struct, frozen=True):
    """A Node is no more."""

    at: float
    uid: str
    node: str


class Quiet(Struct, frozen=True):
    """A node has fallen silent, or is heard again."""

    at: float
    uid: str
    node: str
    silent: bool


class Kind(StrEnum):
    """What was told besides: `incident`: changed. `plan`: what a Node was to carry, by who acts. `freed`: a
    mark was given back. `marks`: what is remembered on a Node, as it was seen there. `decision`: of people,
    on an incident. `pause`: of people, on the fleet.
    """

    INCIDENT = "incident"
    PLAN = "plan"
    FREED = "freed"
    MARKS = "marks"
    DECISION = "decision"
    PAUSE = "pause"


class Told(Struct, frozen=True):
    """Something that was told, written down or decided. name: of the incident, or the Node's uid. text: JSON,
    or people's own words.
    """

    at: float
    kind: Kind
    name: str
    node: str
    text: str


Step = Reported | Seen | Gone | Quiet | Told


def bare(node: Node) -> Node:
    """A Node with nothing on it that nodeguard writes, and nothing of it that changes by itself."""
    record = read(node.annotations.get(STATE, ""))
    ours = record is not None and record.cordoned
    return replace(
        node,
        version="",
        annotations={key: node.annotations[key] for key in (HOLD, MAINTENANCE) if key in node.annotations},
        taints=(),
        unschedulable=node.unschedulable and not ours,
        condition=None,
    )


def rising(steps: Iterable[Step]) -> Iterator[Step]:
    """Steps as they are, but that none comes before the one that was told before it: a clock was put back."""
    latest = float("-inf")
    for one in steps:
        latest = max(latest, one.at)
        yield one if one.at == latest else replace(one, at=latest)
