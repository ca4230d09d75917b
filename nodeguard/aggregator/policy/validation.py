"""Validation of the policy file beyond its schema: contradictions, ranges and Kubernetes label syntax."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET

from nodeguard.aggregator.policy.schema import PolicySpec
from nodeguard.config.amounts import format_duration
from nodeguard.config.errors import ConfigError, FieldPath
from nodeguard.config.yaml_document import YamlDocument, require_unique
from nodeguard.model.drain import DrainRule, DrainWhen
from nodeguard.model.policy import CheckLimit, CheckOverride, Hold, ModeRule, Silence

# Source: Kubernetes, labels and selectors, syntax and character set.
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_LABEL_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


def validate_policy(located: YamlDocument, spec: PolicySpec) -> None:
    """Validate a policy. Raises ConfigError for the first contradiction or value out of range."""
    _validate_rows(located, spec)
    _validate_limits(located, spec)
    _validate_pools(located, spec)
    _validate_topologies(located, spec)
    soak, recovery = spec.soak, spec.diagnosis.recovery
    _validate_growth(located, ("soak",), soak.first, soak.maximum)
    _validate_growth(located, ("diagnosis", "recovery"), recovery.initial, recovery.max)


def _validate_growth(located: YamlDocument, place: FieldPath, initial: float, most: float) -> None:
    if most < initial:
        texts = format_duration(most), format_duration(initial)
        problem = f"`max`, {texts[0]}, is less than `initial`, {texts[1]}"
        field = "max" if (*place, "max") in located.lines else "initial"
        raise located.error((*place, field), problem, "write `initial` no longer than `max`")


def _validate_rows(located: YamlDocument, spec: PolicySpec) -> None:
    """Validate that a row has either `check` or `checks`, and that a hold is of checks or of nodes."""
    rows: list[tuple[FieldPath, ModeRule | CheckOverride | Hold | Silence | DrainRule]] = [
        *((("modeRules", at), rule) for at, rule in enumerate(spec.modes)),
        *((("budget", "checkOverrides", at), row) for at, row in enumerate(spec.budget.check_overrides)),
        *((("holds", at), hold) for at, hold in enumerate(spec.holds)),
        *((("silences", at), silence) for at, silence in enumerate(spec.silences)),
        *((("drain", "rules", at), rule) for at, rule in enumerate(spec.drain.rules)),
    ]
    for place, row in rows:
        names = [name for name in ("check", "checks") if getattr(row, name) is not UNSET]
        if len(names) > 1:
            raise located.error((*place, "check"), "excludes `checks`", "remove one of them")
        if isinstance(row, (ModeRule, CheckOverride, DrainRule)) and not names:
            raise located.error(place, "has no checks", "add `check: gpu-lost` or `checks: [gpu-*]`")
        if isinstance(row, DrainRule) and row.after is not UNSET and row.when != DrainWhen.DEADLINE:
            problem = f"has no effect with `when: {row.when}`"
            raise located.error((*place, "after"), problem, "remove it, or write `when: deadline`")
        if isinstance(row, Hold):
            _validate_hold(located, place, row, names)


def _validate_hold(located: YamlDocument, place: FieldPath, hold: Hold, check_fields: list[str]) -> None:
    node_fields = [name for name in ("node", "labels") if getattr(hold, name)]
    if not check_fields and not node_fields:
        raise located.error(place, "holds nothing", "add `node`, `labels` or `checks`")
    if check_fields and node_fields:
        problem = f"excludes `{node_fields[0]}`: a hold is of nodes or of checks"
        raise located.error((*place, check_fields[0]), problem, "write two holds")


def _validate_limits(located: YamlDocument, spec: PolicySpec) -> None:
    default = spec.budget.check
    rows: list[tuple[FieldPath, CheckLimit | CheckOverride]] = [(("budget", "perCheck"), default)]
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


# Top-level keys of the Helm chart's values; `policy` has the policy.
_CHART_VALUES = ("policy", "aggregator", "agent", "image")
_VALUES_REMEDY = "the policy is the value of `policy`: run `yq -r .policy FILE | nodeguard policy check -`"
_MANIFEST_REMEDY = (
    "the policy is a text in its `data`: run "
    """`yq -r '.data["policy.yaml"]' FILE | nodeguard policy check -`"""
)

_NO_POLICY = "name the file with the policy: this one has none"


def require_policy(located: YamlDocument) -> None:
    """Refuse a file that contains a policy in a field: Helm values, or the manifest of a ConfigMap. Raises
    ConfigError without a path: no other field of the file is judged.
    """
    data = located.data if isinstance(located.data, dict) else {}
    if "apiVersion" in data and "kind" in data:
        found, problem = "kind", "is of a Kubernetes manifest, not of a policy"
        content = data.get("data")
        has_policy = isinstance(content, dict) and "policy.yaml" in content
        remedy = _MANIFEST_REMEDY if has_policy else _NO_POLICY
    elif key := next((key for key in _CHART_VALUES if key in data), ""):
        found, problem = key, "is of the Helm chart's values, not of a policy"
        remedy = _VALUES_REMEDY if "policy" in data else _NO_POLICY
    else:
        return
    raise ConfigError(located.file, located.line((found,)), found, problem, remedy)


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
