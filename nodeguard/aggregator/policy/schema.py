"""Schema of the policy file: its fields, their types and defaults. Keys in the file are lowerCamelCase."""

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
    format_duration,
    format_share,
)
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    GracePeriods,
    InjectionPolicy,
    MarkWrites,
    Mode,
    Policy,
    SoakPeriod,
    StalePolicy,
)

_BUDGET, _LIMIT, _SOAK = Budget(), CheckLimit(), SoakPeriod()
_GRACE, _STALE, _MARKS = GracePeriods(), StalePolicy(), MarkWrites()
_INJECTION = InjectionPolicy()


class ModeRuleSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The mode of some checks, `check` or `checks`, for some marks. The last rule that matches applies."""

    mode: Mode
    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    marks: Marks = ("quarantine", "suspect")


class PoolSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Nodes that share a budget: those with all these labels. A node is in the first pool that matches.

    share: of the pool's nodes that may be marked at a time; default: `budget.pool`.
    """

    name: Name
    labels: Labels = {}
    share: Share | UnsetType = UNSET


class PerCheckSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How many nodes each check may mark: `new` within a time, and `active` at a time."""

    new: Count = _LIMIT.new
    within: Duration = format_duration(_LIMIT.within)
    active: Count = _LIMIT.active


class CheckOverrideSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Limits of some checks, `check` or `checks`; the default is `perCheck`. The first match applies."""

    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    new: Count | UnsetType = UNSET
    within: Duration | UnsetType = UNSET
    active: Count | UnsetType = UNSET


class BudgetSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How many nodes may be marked at a time. Each share is at least one node.

    fleet: of all nodes. fatalReserve: of the fleet budget, reserved for quarantine. pool: of each pool.
    domain: of each failure domain. suspect: of all nodes, for `suspect` marks. degradedDomains: of all nodes,
    in degraded domains; firstDegradedDomain: the same while there is only one; newDegradedDomainsPerHour:
    domains. perCheck: nodes of each check; checkOverrides: of some checks.
    """

    fleet: Share = format_share(_BUDGET.fleet)
    fatal_reserve: Share = format_share(_BUDGET.reserve)
    pool: Share = format_share(_BUDGET.pool)
    domain: Share = format_share(_BUDGET.domain)
    suspect: Share = format_share(_BUDGET.suspect)
    degraded_domains: Share = format_share(_BUDGET.degraded)
    first_degraded_domain: Share = format_share(_BUDGET.first)
    new_degraded_domains_per_hour: Count = _BUDGET.domains
    per_check: PerCheckSpec = PerCheckSpec()
    check_overrides: Annotated[tuple[CheckOverrideSpec, ...], Meta(max_length=100)] = ()


class GracePeriodSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How long a finding is active before a mark is set, by mark; `0s`: no grace period.

    sharedHardware: for findings that shared hardware can cause, so that the diagnosis comes first.
    """

    quarantine: GraceDuration = format_duration(_GRACE.quarantine)
    suspect: GraceDuration = format_duration(_GRACE.suspect)
    shared_hardware: GraceDuration = format_duration(_GRACE.shared)


class SoakSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How long a check must pass before its mark is released: `initial`, then twice as long after each
    relapse, at most `max`. Faults older than `resetAfter` do not count.
    """

    initial: Duration = format_duration(_SOAK.first)
    max: Duration = format_duration(_SOAK.maximum)
    reset_after: Duration = format_duration(_SOAK.forget)


class HoldSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Do not touch: nodes, by name or labels or both; or checks, `check` or `checks`. reason: for people."""

    node: NodePattern | UnsetType = UNSET
    labels: Labels = {}
    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    reason: Text = ""


class SilenceSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """No incidents and Events of some checks on some nodes; default: all checks, all nodes. Marks are set.

    until: end of the silence; default: never.
    """

    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    node: NodePattern = "*"
    until: Timestamp | UnsetType = UNSET
    reason: Text = ""


class StaleNodesSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A node without a report for `after` is stale. While more than one node and more than the share
    `freezeAbove` of all are stale, and no failure domain explains it, no new marks are set. A few nodes that
    are not ready, or have been stale for 15 minutes, do not count.
    """

    after: Duration = format_duration(_STALE.after)
    freeze_above: Share = format_share(_STALE.freeze)


class MarkWithSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What a mark writes. deviceTaint: a taint on one GPU instead of its node, if the cluster supports it."""

    taint: bool = _MARKS.taint
    cordon: bool = _MARKS.cordon
    condition: bool = _MARKS.condition
    device_taint: bool = _MARKS.device


class InjectionSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Faults that operators inject with `nodeguard inject`, to rehearse alerts and marks.

    allowed: accept them; otherwise they are refused and mark nothing. checks: of these checks only.
    """

    allowed: bool = _INJECTION.allowed
    checks: Annotated[tuple[CheckPattern, ...], Meta(min_length=1, max_length=50)] = _INJECTION.checks


class TopologiesSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Label keys of topologies, coarsest first; they replace the built-in label keys."""

    fabric: LabelKeys | UnsetType = UNSET
    nvlink: LabelKeys | UnsetType = UNSET
    rack: LabelKeys | UnsetType = UNSET
    power: LabelKeys | UnsetType = UNSET
    zone: LabelKeys | UnsetType = UNSET


class NodeLocationSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The failure domains of the nodes with a name or a pattern, coarsest first, separated by `/`; or the
    `file` of a table beside this file. A name precedes patterns; the first pattern that matches applies.
    """

    file: TableFile | UnsetType = UNSET
    node: NodePattern | UnsetType = UNSET
    fabric: DomainPath | UnsetType = UNSET
    nvlink: DomainPath | UnsetType = UNSET
    rack: DomainPath | UnsetType = UNSET
    power: DomainPath | UnsetType = UNSET
    zone: DomainPath | UnsetType = UNSET


NodeLocationsSpec = TableFile | Annotated[tuple[NodeLocationSpec, ...], Meta(max_length=10_000)]


class PolicySpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The policy of nodeguard's aggregator: what it may mark, how much, and when marks are released.

    defaultMode: for checks without a matching rule in `modeRules`. nodeLocations: the file of a table, or
    rows. pause: set no new marks.
    """

    default_mode: Mode = Policy().mode
    mode_rules: Annotated[tuple[ModeRuleSpec, ...], Meta(max_length=100)] = ()
    pools: Annotated[tuple[PoolSpec, ...], Meta(max_length=200)] = ()
    budget: BudgetSpec = BudgetSpec()
    grace_period: GracePeriodSpec = GracePeriodSpec()
    soak: SoakSpec = SoakSpec()
    mark_with: MarkWithSpec = MarkWithSpec()
    holds: Annotated[tuple[HoldSpec, ...], Meta(max_length=500)] = ()
    silences: Annotated[tuple[SilenceSpec, ...], Meta(max_length=500)] = ()
    stale_nodes: StaleNodesSpec = StaleNodesSpec()
    topologies: TopologiesSpec = TopologiesSpec()
    node_locations: NodeLocationsSpec = ()
    diagnosis: DiagnosisSpec = DiagnosisSpec()
    injection: InjectionSpec = InjectionSpec()
    pause: bool = False


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the policy file, for editors."""
    schema = msgspec.json.schema(PolicySpec)
    for definition in schema["$defs"].values():
        definition["description"] = " ".join(definition["description"].split())
    title = "Policy of nodeguard's aggregator"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
