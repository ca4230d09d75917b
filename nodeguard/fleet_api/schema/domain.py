"""What people are told of what nodes share, as the API's JSON has it: see forms."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from nodeguard.model.incident import IncidentState


class VoteView(Struct, frozen=True):
    """A node of a domain that shows what it is blamed for, or would be. at: when it began there last. check,
    target, message: of what it shows still, empty where it is over.
    """

    node: str
    at: str
    age: float
    check: str = ""
    target: str = ""
    message: str = ""


class FaultClassView(Struct, frozen=True):
    """A class of faults for which a domain may be blamed, and how many of its nodes show it.

    kind: its name; says: what a node does that shows it. within: seconds. voters: nodes. by_share, by_chance:
    how many it would take to be so large a part, and more than chance explains; needs: the larger.
    """

    fault_class: str
    symptom: str
    window: float
    voters: int
    share_threshold: int
    chance_threshold: int
    threshold: int


class MemberGroupView(Struct, frozen=True):
    """Nodes of a domain that are in some case, and whether they may vote. names: the first few."""

    reason: str
    can_vote: bool
    nodes: int
    names: tuple[str, ...]


class MissingLabelView(Struct, frozen=True):
    """Nodes that lack what places others in a view. key: a label's, or `places`. names: the first few."""

    key: str
    nodes: int
    names: tuple[str, ...]


class TopologyView(Struct, frozen=True):
    """A view. domains: how many there are. keys: labels that make a node's path, coarsest first; `places`
    where people say it; none of versions.
    """

    topology: str
    domains: int
    keys: tuple[str, ...] = ()
    missing_labels: tuple[MissingLabelView, ...] = ()


class DomainSummary(Struct, frozen=True):
    """A domain in short. voters: nodes of it that show anything. kinds: classes of faults, and state: of its
    mark, where it is to blame; None where not. why: in words.
    """

    domain: str
    members: int
    voters: int
    state: IncidentState | None = None
    fault_classes: tuple[str, ...] = ()
    reason: str = ""


class SuppressedCheckView(Struct, frozen=True):
    """A check that is held. domain: the version with which alone it is, empty for everywhere."""

    check: str
    domain: str
    since: str
    age: float
    nodes: int
    reason: str


class DomainView(Struct, frozen=True):
    """Everything of one domain.

    state: None where it is not to blame; why: of that state, in words. kinds, since, began, times, says,
    until: where it is to blame, for which classes of faults, when that was found, when it began, how often
    lately, on which evidence, and what would change that. marked: nodes that carry its mark. incident: its
    name. members: nodes; voting: those that may vote. siblings: domains beside it, and of these: how many
    nodes they have, and on how many of them the same is seen. held: checks that are held on it alone.
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


class DomainList(Struct, frozen=True):
    """What nodes share: the views, and the domains that are to blame or show something, or all of them. held:
    checks.
    """

    version: Literal[1]
    at: str
    topologies: tuple[TopologyView, ...]
    domains: tuple[DomainSummary, ...]
    omitted: int
    suppressed_checks: tuple[SuppressedCheckView, ...]
