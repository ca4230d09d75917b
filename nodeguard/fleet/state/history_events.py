"""Events of the fleet's history: recorded by the aggregator, replayed by a backtest.

Each has `at`, seconds since the epoch by the receiver's clock. Nodes are named by uid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.inventory import InventoryNode
from nodeguard.wire.report import Report


class ReportReceived(Struct, frozen=True):
    """A report of a node was received."""

    at: float
    uid: str
    report: Report


class NodeObserved(Struct, frozen=True):
    """A node changed; without the fields that change by themselves, see `recorded_node`."""

    at: float
    node: InventoryNode


class NodeRemoved(Struct, frozen=True):
    """A node was deleted."""

    at: float
    uid: str
    node: str


class FleetListed(Struct, frozen=True):
    """All nodes and marks are as they were recorded before this: any others in the file are gone. A recorder
    that starts has not observed their end.

    nodes: uids. marks: the kind and name of each note with a mark.
    """

    at: float
    nodes: frozenset[str]
    marks: frozenset[tuple[str, str]]


class AgentLivenessChanged(Struct, frozen=True):
    """A node's agent became stale, or reports again."""

    at: float
    uid: str
    node: str
    stale: bool


# The key beside the values of a recorded policy: it is another one when the values get other paths.
POLICY_FORMAT = "format"


class NoteKind(StrEnum):
    """The kind of a note. `incident`: an incident changed. `plan`: the leader issued the desired state of a
    Node. `released`: a mark that it released is gone, with the reason. `marks`, `rule`: the record on a
    Node, or on a device's rule, changed. `decision`: an operator's, on an incident. `action`: one began or
    ended. `pause`, `resume`: an operator's, on the fleet. `policy`: another one is in use. `gap`: nothing was
    recorded before it, since the time in its text, in seconds since the epoch.
    """

    INCIDENT = "incident"
    PLAN = "plan"
    RELEASED = "released"
    MARKS = "marks"
    DECISION = "decision"
    ACTION = "action"
    PAUSE = "pause"
    RESUME = "resume"
    POLICY = "policy"
    RULE = "rule"
    GAP = "gap"


class HistoryNote(Struct, frozen=True):
    """A note in the history. name: of the incident or action, or the Node's uid. text: JSON, or an operator's
    text.
    """

    at: float
    kind: NoteKind
    name: str
    node: str
    text: str


class RecordedChange(Struct, frozen=True):
    """A note of the history beside the one before it, or a change of a Node by an operator (kind `node`).

    kind: a NoteKind, `stale` or `node`. text, before: of the note and of the earlier note of the same name,
    None if there is none. reason: of the latest release on this Node, as JSON; empty for none.
    """

    at: float
    kind: str
    name: str
    node: str
    text: str
    before: str | None
    reason: str = ""


class NodeSettings(Struct, frozen=True, omit_defaults=True):
    """What operators set on a Node. hold, maintenance: the reasons; None for none."""

    cordoned: bool = False
    deleted: bool = False
    hold: str | None = None
    maintenance: str | None = None


HistoryEvent = ReportReceived | NodeObserved | NodeRemoved | AgentLivenessChanged | HistoryNote
# What a recorder passes on: the file has the transitions that follow from a list.
RecordedEvent = HistoryEvent | FleetListed


def recorded_node(node: InventoryNode) -> InventoryNode:
    """Return a node without the fields that change by themselves."""
    return node if node.job is None else replace(node, job=None)


def in_time_order(
    events: Iterable[HistoryEvent], now: float = float("inf"), future: list[float] | None = None
) -> Iterator[HistoryEvent]:
    """Yield the events with times that never decrease: a clock was set back.

    now: seconds since the epoch. An event after it has the time of the event before it, or else of the first
    one that is not: a clock was ahead. future: list to which the times of such events are added.
    """
    latest = float("-inf")
    early: list[HistoryEvent] = []
    for event in events:
        if event.at <= now:
            latest = max(latest, event.at)
        elif future is not None:
            future.append(event.at)
        if latest == float("-inf"):
            early.append(event)
            continue
        while early:
            yield replace(early.pop(0), at=latest)
        yield event if event.at == latest else replace(event, at=latest)
    yield from (replace(event, at=now) for event in early)
