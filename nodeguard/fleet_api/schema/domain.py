"""Schema of topologies and failure domains: one domain in full, and the list of domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from nodeguard.fleet_api.schema.job import JobOutcomeView
from nodeguard.model.diagnosis import Guidance
from nodeguard.model.incident import IncidentState


class VoteView(Struct, frozen=True):
    """A node of a domain with the fault for which the domain is or would be degraded."""

    node: str
    at: str
    """When the fault last began on the node."""
    age: float
    check: str = ""
    """Check of its active finding; empty after the end of the fault."""
    target: str = ""
    """Target of that finding."""
    message: str = ""
    """Message of that finding."""


class FaultClassView(Struct, frozen=True):
    """A fault class for which a domain may be degraded."""

    fault_class: str
    symptom: str
    """What a node with the fault does, such as `lost a link`."""
    window: float
    """Time within which votes count together, in seconds."""
    voters: int
    """Number of nodes of the domain with a vote."""
    share_threshold: int
    """Minimum number of votes by the share of the class."""
    chance_threshold: int
    """Minimum number of votes that chance does not explain."""
    threshold: int
    """The larger of the two."""


class MemberGroupView(Struct, frozen=True):
    """Nodes of a domain in a special state."""

    reason: str
    can_vote: bool
    """Whether these nodes vote."""
    nodes: int
    """Number of these nodes."""
    names: tuple[str, ...]
    """Names of the first few."""


class MissingLabelView(Struct, frozen=True):
    """Nodes without a domain in a topology."""

    key: str
    """The missing label; `places` where node locations are missing."""
    nodes: int
    """Number of nodes that lack it."""
    names: tuple[str, ...]
    """Names of the first few."""
    placeholders: Mapping[str, int] = {}
    """Number of these nodes that have a placeholder in it, such as `unknown`, by placeholder."""


class TopologyView(Struct, frozen=True):
    """A topology."""

    topology: str
    """Name of the topology, such as `fabric`."""
    domains: int
    """Number of its domains."""
    keys: tuple[str, ...] = ()
    """Labels of a node's path, coarsest first; `places` if the policy lists node locations; empty for
    versions."""
    missing_labels: tuple[MissingLabelView, ...] = ()
    """Labels or node locations that some nodes lack."""


class DomainSummary(Struct, frozen=True):
    """A domain in a list."""

    domain: str
    members: int
    """Number of its nodes."""
    voters: int
    """Number of its nodes with any fault."""
    state: IncidentState | None = None
    """State of the mark of a degraded domain; null for a domain that is not degraded."""
    fault_classes: tuple[str, ...] = ()
    """Fault classes for which it is degraded; empty if it is not."""
    reason: str = ""
    """Why the mark is in this state; empty for none."""


class SuppressedCheckView(Struct, frozen=True):
    """A suppressed check."""

    check: str
    domain: str
    """The version on which it is suppressed; empty for everywhere."""
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
    """Topology of the domain."""
    state: IncidentState | None
    """State of the mark of a degraded domain; null where it is not degraded."""
    reason: str
    """Why the mark is in this state."""
    fault_classes: tuple[str, ...]
    """Fault classes for which it is degraded."""
    since: str
    """When it became degraded."""
    age: float
    began: str
    """When the first node voted."""
    began_age: float
    times_degraded: int
    """How often it was degraded recently."""
    evidence: str
    clears_when: str
    """The condition of its end, such as `fewer than 2 of its nodes show it for 30 min`."""
    incident: str
    """Name of its incident."""
    marked: int
    """Number of nodes that carry its mark."""
    members: int
    """Number of its nodes."""
    voting: int
    """Number of nodes that may vote."""
    member_groups: tuple[MemberGroupView, ...]
    """Groups of nodes that do not vote or are in a special state."""
    classes: tuple[FaultClassView, ...]
    """For each fault class, the votes within its window before `at`."""
    votes: tuple[VoteView, ...]
    """Nodes with the fault: the first few."""
    votes_omitted: int
    """Number of further votes."""
    siblings: int
    """Number of domains beside it."""
    siblings_members: int
    """Number of nodes of these domains."""
    siblings_voters: int
    """Number of these nodes with the same fault."""
    parent: DomainSummary | None
    """The domain of which it is a part; null for none."""
    children: tuple[DomainSummary, ...]
    """The domains that are parts of it: the first few."""
    children_omitted: int
    """Number of further children."""
    suppressed_checks: tuple[SuppressedCheckView, ...]
    """Checks that are suppressed on this domain."""
    jobs: tuple[str, ...] = ()
    """The jobs on its nodes, as far as they were read."""
    jobs_omitted: int = 0
    job_outcomes: tuple[JobOutcomeView, ...] = ()
    """What drains do with the pods of these jobs, at most 64; nothing else is known of a job without one."""
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
    """Topologies, and their domains: those that are degraded or have a fault, or all."""

    version: Literal[1]
    at: str
    topologies: tuple[TopologyView, ...]
    """All topologies."""
    domains: tuple[DomainSummary, ...]
    """The domains."""
    omitted: int
    """Number of domains above the limit of a response."""
    suppressed_checks: tuple[SuppressedCheckView, ...]
    """All suppressed checks."""
