"""Schema of topologies and failure domains: one domain in full, and the list of domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from nodeguard.model.diagnosis import Guidance
from nodeguard.model.incident import IncidentState


class VoteView(Struct, frozen=True):
    """A node of a domain with the fault for which the domain is or would be degraded. at: the latest start of
    the fault on the node. check, target, message: of its active finding, empty after the end of the fault.
    """

    node: str
    at: str
    age: float
    check: str = ""
    target: str = ""
    message: str = ""


class FaultClassView(Struct, frozen=True):
    """A fault class for which a domain may be degraded. symptom: the behavior of a node with the fault.
    window: seconds. voters: nodes of the domain with the fault. share_threshold: minimum number of voters for
    the required share; chance_threshold: for significance; threshold: the larger.
    """

    fault_class: str
    symptom: str
    window: float
    voters: int
    share_threshold: int
    chance_threshold: int
    threshold: int


class MemberGroupView(Struct, frozen=True):
    """Nodes of a domain in a special state. can_vote: whether they vote. nodes: number; names: the first
    few.
    """

    reason: str
    can_vote: bool
    nodes: int
    names: tuple[str, ...]


class MissingLabelView(Struct, frozen=True):
    """Nodes without a domain in a topology. key: the missing label, or `places`. nodes: number; names: the
    first few. placeholders: how many of them have each placeholder in it, such as `unknown`.
    """

    key: str
    nodes: int
    names: tuple[str, ...]
    placeholders: Mapping[str, int] = {}


class TopologyView(Struct, frozen=True):
    """A topology. domains: number of its domains. keys: labels of a node's path, coarsest first; `places` if
    the policy lists node locations; empty for versions.
    """

    topology: str
    domains: int
    keys: tuple[str, ...] = ()
    missing_labels: tuple[MissingLabelView, ...] = ()


class DomainSummary(Struct, frozen=True):
    """A domain in a list. voters: its nodes with any fault. fault_classes, state, reason: of a
    degraded domain and its mark; state is None for a domain that is not degraded.
    """

    domain: str
    members: int
    """Number of its nodes."""
    voters: int
    state: IncidentState | None = None
    fault_classes: tuple[str, ...] = ()
    reason: str = ""


class SuppressedCheckView(Struct, frozen=True):
    """A suppressed check. domain: the version on which it is suppressed, empty for everywhere."""

    check: str
    domain: str
    since: str
    age: float
    nodes: int
    """Number of nodes on which it fires."""
    reason: str


class DomainView(Struct, frozen=True):
    """A failure domain in full. Most fields are empty or 0 where the domain is not degraded."""

    version: Literal[1]
    at: str
    domain: str
    topology: TopologyView
    state: IncidentState | None
    """Of the mark of a degraded domain; null where it is not degraded."""
    reason: str
    """Of the state."""
    fault_classes: tuple[str, ...]
    since: str
    age: float
    began: str
    """When the first node voted."""
    began_age: float
    times_degraded: int
    """How often it was degraded recently."""
    evidence: str
    clears_when: str
    """The condition of its end."""
    incident: str
    """Name of its incident."""
    marked: int
    """Number of nodes that carry its mark."""
    members: int
    """Number of its nodes."""
    voting: int
    """Number of nodes that may vote."""
    member_groups: tuple[MemberGroupView, ...]
    """Nodes that do not vote or are in a special state."""
    classes: tuple[FaultClassView, ...]
    """Counts of new votes, within the window of each class before `at`."""
    votes: tuple[VoteView, ...]
    votes_omitted: int
    """Number of further votes."""
    siblings: int
    """Number of domains beside it."""
    siblings_members: int
    """Number of nodes of these."""
    siblings_voters: int
    """Number of these nodes with the same fault."""
    parent: DomainSummary | None
    children: tuple[DomainSummary, ...]
    children_omitted: int
    """Number of further children."""
    suppressed_checks: tuple[SuppressedCheckView, ...]
    """Checks that are suppressed on this domain."""
    jobs: tuple[str, ...] = ()
    """As of its incident."""
    jobs_omitted: int = 0
    guidance: Guidance | None = None
    """What people do about its fault class; null if that has none."""
    diagnosed_at: str = ""
    """Time of the latest vote that counted for the diagnosis; empty if unknown."""
    diagnosed_voters: int = 0
    """Number of nodes that had voted by then."""
    diagnosed_members: int = 0
    """Number of all nodes by then."""
    showing_now: int = 0
    """Number of the voters that show the fault at `at`."""


class DomainList(Struct, frozen=True):
    """Topologies, and their domains: those that are degraded or have a fault, or all. omitted: number of
    domains above the limit of a response.
    """

    version: Literal[1]
    at: str
    topologies: tuple[TopologyView, ...]
    domains: tuple[DomainSummary, ...]
    omitted: int
    suppressed_checks: tuple[SuppressedCheckView, ...]
