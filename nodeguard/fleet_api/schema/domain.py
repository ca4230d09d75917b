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
    reason: str


class DomainView(Struct, frozen=True):
    """A failure domain in full.

    state, reason: of the mark of a degraded domain; None where it is not degraded. fault_classes, since,
    began, times_degraded, evidence, clears_when: of a degraded domain. marked: nodes that carry its mark.
    incident: its name. members: nodes; voting: nodes that may vote. member_groups: nodes that do not vote or
    are in a special state. siblings: number of domains beside it; siblings_members, siblings_voters: nodes of
    these, and those with the same fault. suppressed_checks: checks that are suppressed on this domain. jobs,
    jobs_omitted: as of its incident. guidance: what people do about its fault class; None if that has none.
    diagnosed_at: time of the latest vote that counted for the diagnosis, empty if unknown; diagnosed_voters,
    diagnosed_members: nodes that had voted by then, and all. showing_now: those of them that
    show it at `at`. The counts in `classes` are of new votes, within the window of each before `at`.
    """

    version: Literal[1]
    at: str
    domain: str
    topology: TopologyView
    state: IncidentState | None
    reason: str
    fault_classes: tuple[str, ...]
    since: str
    age: float
    began: str
    began_age: float
    times_degraded: int
    evidence: str
    clears_when: str
    incident: str
    marked: int
    members: int
    voting: int
    member_groups: tuple[MemberGroupView, ...]
    classes: tuple[FaultClassView, ...]
    votes: tuple[VoteView, ...]
    votes_omitted: int
    siblings: int
    siblings_members: int
    siblings_voters: int
    parent: DomainSummary | None
    children: tuple[DomainSummary, ...]
    children_omitted: int
    suppressed_checks: tuple[SuppressedCheckView, ...]
    jobs: tuple[str, ...] = ()
    jobs_omitted: int = 0
    guidance: Guidance | None = None
    diagnosed_at: str = ""
    diagnosed_voters: int = 0
    diagnosed_members: int = 0
    showing_now: int = 0


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
