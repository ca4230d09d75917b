"""The policy as people write it: the form of its file."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from nodeguard.aggregator.policy.diagnosis import DiagnosisSpec
from nodeguard.aggregator.policy.field_types import (
    CheckPattern,
    Checks,
    Count,
    DomainPath,
    Duration,
    GraceDuration,
    LabelKeys,
    Labels,
    Marks,
    Name,
    NodePattern,
    Share,
    TableFile,
    Text,
    Timestamp,
)
from nodeguard.aggregator.policy.units import format_duration, format_share
from nodeguard.model.mark import Mark
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    GracePeriods,
    MarkWrites,
    Mode,
    Policy,
    SoakPeriod,
    StalePolicy,
)

_BUDGET, _LIMIT, _SOAK = Budget(), CheckLimit(), SoakPeriod()
_SETTLE, _SILENT, _MARKS = GracePeriods(), StalePolicy(), MarkWrites()


class ModeRuleSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A mode for some checks, `check` or `checks`, and marks. The last one that fits counts."""

    mode: Mode
    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    marks: Marks = (Mark.QUARANTINE, Mark.SUSPECT)


class PoolSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Nodes that share a budget: those with all these labels, and the first pool that fits. share: how many
    of them may be marked at a time; where it is not said, `budget.pool`.
    """

    name: Name
    labels: Labels = {}
    share: Share | UnsetType = UNSET


class PerCheckSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes any one check may take out: `new` within a time, and `standing` in all."""

    new: Count = _LIMIT.new
    within: Duration = format_duration(_LIMIT.within)
    standing: Count = _LIMIT.active


class CheckOverrideSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The same for some checks, `check` or `checks`; what is not said is as for any. The first one that fits
    counts.
    """

    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    new: Count | UnsetType = UNSET
    within: Duration | UnsetType = UNSET
    standing: Count | UnsetType = UNSET


class BudgetSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How many nodes may be marked at a time; each share comes to one node at least.

    fleet: of all nodes. reserve: of the fleet's budget, kept for what is fatal. pool: of each pool. domain:
    of each failure domain. suspect: of all nodes, by `suspect` marks. degraded: of all nodes, in domains that
    are to blame; first: of all, in one such domain while there is no other; domains: how many may be new in
    an hour. check: for each check; checks: for some.
    """

    fleet: Share = format_share(_BUDGET.fleet)
    reserve: Share = format_share(_BUDGET.reserve)
    pool: Share = format_share(_BUDGET.pool)
    domain: Share = format_share(_BUDGET.domain)
    suspect: Share = format_share(_BUDGET.suspect)
    degraded: Share = format_share(_BUDGET.degraded)
    first: Share = format_share(_BUDGET.first)
    domains: Count = _BUDGET.domains
    check: PerCheckSpec = PerCheckSpec()
    checks: Annotated[tuple[CheckOverrideSpec, ...], Meta(max_length=100)] = ()


class GracePeriodSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long a finding stands before it is marked, by mark; `0s` not at all. shared: where a part that
    nodes share may have caused it, which is then to be found first.
    """

    quarantine: GraceDuration = format_duration(_SETTLE.quarantine)
    suspect: GraceDuration = format_duration(_SETTLE.suspect)
    shared: GraceDuration = format_duration(_SETTLE.shared)


class SoakSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """For how long a fault is proven to be over before its mark goes: `first`, then twice as long each time,
    at most `most`; what lies further back than `forget` does not count.
    """

    first: Duration = format_duration(_SOAK.first)
    most: Duration = format_duration(_SOAK.maximum)
    forget: Duration = format_duration(_SOAK.forget)


class HoldSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Do not touch: nodes, by name or labels or both; or checks, `check` or `checks`. why: for the others."""

    node: NodePattern | UnsetType = UNSET
    labels: Labels = {}
    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    why: Text = ""


class SilenceSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Tell nobody of some checks on some nodes, all where it does not say which. Marks are set all the same.

    until: when it ends; where it is not said, never.
    """

    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    node: NodePattern = "*"
    until: Timestamp | UnsetType = UNSET
    why: Text = ""


class StaleNodesSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """A node that has said nothing for `after` is stale; when more than the share `freeze` of all are, with
    no domain to explain it, nothing new is marked.
    """

    after: Duration = format_duration(_SILENT.after)
    freeze: Share = format_share(_SILENT.freeze)


class MarkWithSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """What a mark writes. device: a taint on the one GPU instead of its node, where the cluster can."""

    taint: bool = _MARKS.taint
    cordon: bool = _MARKS.cordon
    condition: bool = _MARKS.condition
    device: bool = _MARKS.device


class TopologiesSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """How nodes share something, by label keys, coarsest first; instead of those that are built in."""

    fabric: LabelKeys | UnsetType = UNSET
    nvlink: LabelKeys | UnsetType = UNSET
    rack: LabelKeys | UnsetType = UNSET
    power: LabelKeys | UnsetType = UNSET
    zone: LabelKeys | UnsetType = UNSET


class NodeLocationSpec(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the nodes of a name or a pattern are, coarsest first with `/` between the steps; or the `file` of
    a table that says it, beside this one. A name goes before a pattern; the first pattern that fits counts.
    """

    file: TableFile | UnsetType = UNSET
    node: NodePattern | UnsetType = UNSET
    fabric: DomainPath | UnsetType = UNSET
    nvlink: DomainPath | UnsetType = UNSET
    rack: DomainPath | UnsetType = UNSET
    power: DomainPath | UnsetType = UNSET
    zone: DomainPath | UnsetType = UNSET


NodeLocationsSpec = TableFile | Annotated[tuple[NodeLocationSpec, ...], Meta(max_length=10_000)]


class PolicySpec(Struct, frozen=True, forbid_unknown_fields=True):
    """The policy of nodeguard's aggregator: what may be marked, how much of it, and when it is given back.

    mode: for what no rule of `modes` fits. places: a table's file, or rows. pause: mark nothing new.
    """

    mode: Mode = Policy().mode
    modes: Annotated[tuple[ModeRuleSpec, ...], Meta(max_length=100)] = ()
    pools: Annotated[tuple[PoolSpec, ...], Meta(max_length=200)] = ()
    budget: BudgetSpec = BudgetSpec()
    settle: GracePeriodSpec = GracePeriodSpec()
    soak: SoakSpec = SoakSpec()
    marks: MarkWithSpec = MarkWithSpec()
    holds: Annotated[tuple[HoldSpec, ...], Meta(max_length=500)] = ()
    silences: Annotated[tuple[SilenceSpec, ...], Meta(max_length=500)] = ()
    silent: StaleNodesSpec = StaleNodesSpec()
    views: TopologiesSpec = TopologiesSpec()
    places: NodeLocationsSpec = ()
    blame: DiagnosisSpec = DiagnosisSpec()
    pause: bool = False


def json_schema() -> dict[str, Any]:
    """The form as a JSON Schema, for editors."""
    made = msgspec.json.schema(PolicySpec)
    for part in made["$defs"].values():
        part["description"] = " ".join(part["description"].split())
    title = "Policy of nodeguard's aggregator"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **made}
