"""Validation of the policy file beyond its schema: contradictions, ranges and Kubernetes label syntax."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, UnsetType

from nodeguard.aggregator.policy.diagnosis import RecoverySpec
from nodeguard.aggregator.policy.field_types import MAX_DURATION, parse_duration, parse_share
from nodeguard.aggregator.policy.schema import (
    CheckOverrideSpec,
    HoldSpec,
    ModeRuleSpec,
    PerCheckSpec,
    PolicySpec,
    SilenceSpec,
    SoakSpec,
)
from nodeguard.config.errors import FieldPath
from nodeguard.config.yaml_document import YamlDocument, require_unique

# Source: Kubernetes, labels and selectors, syntax and character set.
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def validate_policy(located: YamlDocument, spec: PolicySpec) -> None:
    """Validate a policy. Raises ConfigError for the first contradiction or value out of range."""
    for place, text in _shares(spec):
        _validate_share(located, place, text)
    for place, duration in _durations(spec):
        if not isinstance(duration, UnsetType):
            _validate_duration(located, place, duration)
    _validate_rows(located, spec)
    _validate_limits(located, spec)
    _validate_pools(located, spec)
    _validate_topologies(located, spec)
    _validate_growth(located, ("soak",), spec.soak)
    _validate_growth(located, ("diagnosis", "recovery"), spec.diagnosis.recovery)


def _validate_growth(located: YamlDocument, place: FieldPath, spec: SoakSpec | RecoverySpec) -> None:
    if parse_duration(spec.max) < parse_duration(spec.initial):
        problem = f"`max`, {spec.max}, is less than `initial`, {spec.initial}"
        field = "max" if (*place, "max") in located.lines else "initial"
        raise located.error((*place, field), problem, "write `initial` no longer than `max`")


def _shares(spec: PolicySpec) -> Iterator[tuple[FieldPath, str]]:
    budget = spec.budget
    yield ("budget", "fleet"), budget.fleet
    yield ("budget", "fatalReserve"), budget.fatal_reserve
    yield ("budget", "pool"), budget.pool
    yield ("budget", "domain"), budget.domain
    yield ("budget", "suspect"), budget.suspect
    yield ("budget", "degradedDomains"), budget.degraded_domains
    yield ("budget", "firstDegradedDomain"), budget.first_degraded_domain
    for at, pool in enumerate(spec.pools):
        if not isinstance(pool.share, UnsetType):
            yield ("pools", at, "share"), pool.share
    yield ("staleNodes", "freezeAbove"), spec.stale_nodes.freeze_above
    yield ("diagnosis", "weakEvidence", "share"), spec.diagnosis.weak_evidence.share
    yield ("diagnosis", "suppression", "confirmedShare"), spec.diagnosis.suppression.confirmed_share
    for name, fault_class in spec.diagnosis.fault_classes.items():
        if not isinstance(fault_class.share, UnsetType):
            yield ("diagnosis", "faultClasses", name, "share"), fault_class.share


def _validate_share(located: YamlDocument, place: FieldPath, text: str) -> None:
    value = parse_share(text)
    if place == ("budget", "fatalReserve"):
        if value >= 1:
            problem = f"{text} leaves nothing for suspect nodes"
            raise located.error(place, problem, "write less than 100%, such as 20%")
    elif value > 1:
        raise located.error(place, f"{text} is more than all", "write at most 100%")
    elif value == 0:
        remedy = "write more than 0%; to set no marks, use observe mode or `pause: true`"
        if place[0] == "staleNodes":
            remedy = "write more than 0%"
        raise located.error(place, f"{text} is invalid", remedy)


def _durations(spec: PolicySpec) -> Iterator[tuple[FieldPath, str | UnsetType]]:
    grace, diagnosis = spec.grace_period, spec.diagnosis
    yield ("gracePeriod", "quarantine"), grace.quarantine
    yield ("gracePeriod", "suspect"), grace.suspect
    yield ("gracePeriod", "sharedHardware"), grace.shared_hardware
    growing: tuple[tuple[FieldPath, SoakSpec | RecoverySpec], ...] = (
        (("soak",), spec.soak),
        (("diagnosis", "recovery"), diagnosis.recovery),
    )
    for place, growth in growing:
        yield (*place, "initial"), growth.initial
        yield (*place, "max"), growth.max
        yield (*place, "resetAfter"), growth.reset_after
    yield ("staleNodes", "after"), spec.stale_nodes.after
    yield ("diagnosis", "gracePeriod"), diagnosis.grace_period
    yield ("diagnosis", "weakEvidence", "wait"), diagnosis.weak_evidence.wait
    yield ("diagnosis", "weakEvidence", "recent"), diagnosis.weak_evidence.recent
    for at, window in enumerate(diagnosis.suppression.windows):
        yield ("diagnosis", "suppression", "windows", at), window
    for name, fault_class in diagnosis.fault_classes.items():
        for at, window in enumerate(fault_class.windows or ()):
            yield ("diagnosis", "faultClasses", name, "windows", at), window
    yield ("budget", "perCheck", "within"), spec.budget.per_check.within
    for at, override in enumerate(spec.budget.check_overrides):
        yield ("budget", "checkOverrides", at, "within"), override.within


def _validate_duration(located: YamlDocument, place: FieldPath, text: str) -> None:
    try:
        parse_duration(text)
    except ValueError:
        longest = f"{MAX_DURATION / 86_400:.0f}d"
        raise located.error(place, f"{text} is longer than a year", f"write at most {longest}") from None


def _validate_rows(located: YamlDocument, spec: PolicySpec) -> None:
    """Validate that a row has either `check` or `checks`, and that a hold is of checks or of nodes."""
    rows: list[tuple[FieldPath, ModeRuleSpec | CheckOverrideSpec | HoldSpec | SilenceSpec]] = [
        *((("modeRules", at), rule) for at, rule in enumerate(spec.mode_rules)),
        *((("budget", "checkOverrides", at), row) for at, row in enumerate(spec.budget.check_overrides)),
        *((("holds", at), hold) for at, hold in enumerate(spec.holds)),
        *((("silences", at), silence) for at, silence in enumerate(spec.silences)),
    ]
    for place, row in rows:
        names = [name for name in ("check", "checks") if getattr(row, name) is not UNSET]
        if len(names) > 1:
            raise located.error((*place, "check"), "excludes `checks`", "remove one of them")
        if isinstance(row, (ModeRuleSpec, CheckOverrideSpec)) and not names:
            raise located.error(place, "has no checks", "add `check: gpu-lost` or `checks: [gpu-*]`")
        if isinstance(row, HoldSpec):
            _validate_hold(located, place, row, names)


def _validate_hold(located: YamlDocument, place: FieldPath, hold: HoldSpec, check_fields: list[str]) -> None:
    node_fields = [name for name in ("node", "labels") if getattr(hold, name)]
    if not check_fields and not node_fields:
        raise located.error(place, "holds nothing", "add `node`, `labels` or `checks`")
    if check_fields and node_fields:
        problem = f"excludes `{node_fields[0]}`: a hold is of nodes or of checks"
        raise located.error((*place, check_fields[0]), problem, "write two holds")


def _validate_limits(located: YamlDocument, spec: PolicySpec) -> None:
    default = spec.budget.per_check
    rows: list[tuple[FieldPath, PerCheckSpec | CheckOverrideSpec]] = [(("budget", "perCheck"), default)]
    rows += [
        (("budget", "checkOverrides", at), override)
        for at, override in enumerate(spec.budget.check_overrides)
    ]
    for place, limit in rows:
        new, active = limit.new or default.new, limit.active or default.active
        if active < new:
            field = "active" if (*place, "active") in located.lines else "new"
            problem = f"`active`, {active}, is less than `new`, {new}, which could never be used up"
            raise located.error((*place, field), problem, f"raise `active` to {new} or lower `new`")


def _validate_pools(located: YamlDocument, spec: PolicySpec) -> None:
    require_unique(located, ((("pools", at, "name"), pool.name) for at, pool in enumerate(spec.pools)))
    for at, pool in enumerate(spec.pools):
        for before in spec.pools[:at]:
            if before.labels.items() <= pool.labels.items():
                problem = f"'{pool.name}' has no nodes: '{before.name}', an earlier pool, matches them all"
                raise located.error(("pools", at, "name"), problem, "move it before that pool, or remove it")


def _validate_topologies(located: YamlDocument, spec: PolicySpec) -> None:
    for topology in spec.topologies.__struct_fields__:
        labels = getattr(spec.topologies, topology) or ()
        require_unique(located, ((("topologies", topology, at), label) for at, label in enumerate(labels)))


def validate_labels(located: YamlDocument) -> None:
    """Validate the labels of pools and holds, with better messages than the schema has. Raises
    ConfigError for a label that no Node can have.
    """
    for place, labels in _labels(located.data):
        for key, value in labels.items():
            _validate_label(located, (*place, key), key, value)


def _labels(data: Any) -> Iterator[tuple[FieldPath, dict[Any, Any]]]:
    for part in ("pools", "holds"):
        rows = data.get(part) if isinstance(data, dict) else None
        for at, row in enumerate(rows if isinstance(rows, list) else ()):
            labels = row.get("labels") if isinstance(row, dict) else None
            if isinstance(labels, dict):
                yield (part, at, "labels"), labels


def _validate_label(located: YamlDocument, place: FieldPath, key: Any, value: Any) -> None:
    prefix, slash, name = str(key).rpartition("/")
    if not _LABEL_NAME.fullmatch(name) or (
        slash and not (_LABEL_PREFIX.fullmatch(prefix) and len(prefix) <= 253)
    ):
        problem = f"'{key}' is not a valid label key"
        raise located.error(place, problem, "write it like rack or topology.kubernetes.io/zone")
    if isinstance(value, (bool, int, float)):
        problem = f"{str(value).lower()} is not text"
        raise located.error(place, problem, "put it in quotes, as labels are text")
    if not isinstance(value, str):
        raise located.error(place, "is not a label value", "write one value as text")
    if value and not _LABEL_NAME.fullmatch(value):
        problem = f"'{value}' is not a valid label value"
        remedy = "write up to 63 letters, digits, '-', '_' and '.', a letter or digit first and last"
        raise located.error(place, problem, remedy)
