"""The bodies that a webhook for marks receives. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec
from msgspec import Struct

from nodeguard.model.decision import NodeDecision, WantedMark
from nodeguard.model.device import Device
from nodeguard.model.finding import Action
from nodeguard.model.injection import PREFIX
from nodeguard.model.instant import rfc3339
from nodeguard.model.mark import DegradedMark, MarkCause

VERSION = 1

# What a request is about; see PostedMarks.
Change = Literal["node", "all", "part"]

# Characters of the message of a finding, and causes of one mark: a node of 8 GPUs and 16 ports has fewer.
_LONGEST = 300
_MOST_CAUSES = 50


class PostedCause(Struct, frozen=True):
    """One cause of a mark, as a webhook receives it."""

    since: str
    """When the cause was added to the mark, RFC 3339."""
    check: str = ""
    """The check; empty for a degraded domain."""
    target: str = ""
    """The faulty part, such as `gpu/3`, or the path of the degraded domain."""
    fault_class: str = ""
    message: str = ""
    """What the check found; empty while the node does not report it."""
    action: Action | None = None
    """What to do; null while the node does not report the fault."""
    injected: bool = False
    """Whether an operator injected the fault for a rehearsal."""


class PostedMark(Struct, frozen=True):
    """One mark of a node, as a webhook receives it."""

    kind: str
    """`quarantine`, `suspect`, `domain-degraded`, or a kind of a newer version."""
    keeps_off: str
    """The work that must not start: `all new work` or `new gang work`."""
    device: str | None
    """Name of the only device that has the mark, as `DRIVER/POOL/NAME`; null for the whole node."""
    causes: tuple[PostedCause, ...]


class PostedNode(Struct, frozen=True):
    """All marks that a node is to have now; none: release it."""

    node: str
    """Name of the node."""
    key: str
    """Unique key of the node: in Kubernetes the uid, elsewhere the name."""
    revision: str
    """Changes with each change of the marks or their causes."""
    marks: tuple[PostedMark, ...]


class PostedMarks(Struct, frozen=True):
    """The body of a request: the marks of one node that have changed, or of all nodes.

    A request can arrive twice, and late: a receiver keeps the epoch and sequence that it applied last for
    each node, and ignores a node of a request with a lower one.
    """

    change: Change
    """`node`: one node has changed. `all`: these are all nodes with marks; the receiver releases all others
    that it knows. `part`: a part of such a list; with all parts, the receiver does so."""
    epoch: int
    """Increases with each aggregator that becomes active; 1 without Kubernetes."""
    sequence: int
    """Increases with each request of an epoch, also over a restart. The parts of a list have the same."""
    at: str
    """When the request was made, RFC 3339."""
    nodes: tuple[PostedNode, ...]
    part: int = 1
    """Number of this part of the list, from 1."""
    parts: int = 1
    """Number of parts of the list."""
    version: int = VERSION


def posted_marks(
    change: Change,
    decisions: Iterable[NodeDecision],
    *,
    epoch: int,
    sequence: int,
    wall: float,
    part: int = 1,
    parts: int = 1,
) -> bytes:
    """Return the body for the decisions about one node, or about all nodes with marks, or a part of them.
    wall: seconds since the epoch.
    """
    nodes = tuple(map(_posted_node, decisions))
    return msgspec.json.encode(PostedMarks(change, epoch, sequence, rfc3339(wall), nodes, part, parts))


def _posted_node(decision: NodeDecision) -> PostedNode:
    marks = tuple(_posted_mark(mark, decision) for mark in decision.marks)
    return PostedNode(decision.name, decision.node, decision.revision, marks)


def _posted_mark(mark: WantedMark, decision: NodeDecision) -> PostedMark:
    device = None if mark.device is None else "/".join(_path(mark.device))
    causes = tuple(_posted_cause(cause, decision) for cause in mark.causes[:_MOST_CAUSES])
    return PostedMark(mark.kind.value, mark.kind.kind.excluded_work, device, causes)


def _posted_cause(cause: MarkCause | DegradedMark, decision: NodeDecision) -> PostedCause:
    facts = next((item for item in decision.facts.causes if item.cause == cause), None)
    return PostedCause(
        since=rfc3339(cause.since),
        check=cause.check,
        target=cause.target,
        fault_class=cause.fault_class,
        message=facts.message.removeprefix(PREFIX)[:_LONGEST] if facts is not None else "",
        action=facts.action if facts is not None else None,
        injected=cause.injected,
    )


def _path(device: Device) -> tuple[str, str, str]:
    return device.driver, device.pool, device.name
