"""Schema of the policy file: its fields, their types and defaults. Keys in the file are lowerCamelCase."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from nodeguard.aggregator.policy.diagnosis import DiagnosisSpec
from nodeguard.aggregator.policy.field_types import (
    Checks,
    Count,
    DomainPath,
    LabelKeys,
    Marks,
    NodePattern,
    TableFile,
    Text,
    Timestamp,
)
from nodeguard.config.amounts import write_amounts
from nodeguard.model.amounts import Duration, ReservedShare, Share
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    CheckPattern,
    GracePeriods,
    InjectionPolicy,
    Labels,
    MarkWrites,
    Mode,
    Policy,
    Pool,
    SoakPeriod,
    StalePolicy,
)

_BUDGET, _LIMIT = Budget(), CheckLimit()


class ModeRuleSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The mode of some checks, `check` or `checks`, for some marks. The last rule that matches applies."""

    mode: Mode
    check: CheckPattern | UnsetType = UNSET
    checks: Checks | UnsetType = UNSET
    marks: Marks = ("quarantine", "suspect")


class PerCheckSpec(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """How many nodes each check may mark: `new` within a time, and `active` at a time."""

    new: Count = _LIMIT.new
    within: Duration = _LIMIT.within
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

    fleet: Share = _BUDGET.fleet
    reserve: ReservedShare = field(name="fatalReserve", default=_BUDGET.reserve)
    pool: Share = _BUDGET.pool
    domain: Share = _BUDGET.domain
    suspect: Share = _BUDGET.suspect
    degraded: Share = field(name="degradedDomains", default=_BUDGET.degraded)
    first: Share = field(name="firstDegradedDomain", default=_BUDGET.first)
    domains: Count = field(name="newDegradedDomainsPerHour", default=_BUDGET.domains)
    check: PerCheckSpec = field(name="perCheck", default=PerCheckSpec())
    check_overrides: Annotated[tuple[CheckOverrideSpec, ...], Meta(max_length=100)] = ()


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

    mode: Mode = field(name="defaultMode", default=Policy().mode)
    modes: Annotated[tuple[ModeRuleSpec, ...], Meta(max_length=100)] = field(name="modeRules", default=())
    pools: Annotated[tuple[Pool, ...], Meta(max_length=200)] = ()
    budget: BudgetSpec = BudgetSpec()
    grace: GracePeriods = field(name="gracePeriod", default=GracePeriods())
    soak: SoakPeriod = SoakPeriod()
    marks: MarkWrites = field(name="markWith", default=MarkWrites())
    holds: Annotated[tuple[HoldSpec, ...], Meta(max_length=500)] = ()
    silences: Annotated[tuple[SilenceSpec, ...], Meta(max_length=500)] = ()
    stale: StalePolicy = field(name="staleNodes", default=StalePolicy())
    topologies: TopologiesSpec = TopologiesSpec()
    locations: NodeLocationsSpec = field(name="nodeLocations", default=())
    diagnosis: DiagnosisSpec = DiagnosisSpec()
    injection: InjectionPolicy = InjectionPolicy()
    pause: bool = False


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the policy file, for editors."""
    schema = write_amounts(msgspec.json.schema(PolicySpec))
    for definition in schema["$defs"].values():
        definition["description"] = " ".join(definition["description"].split())
    title = "Policy of nodeguard's aggregator"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
