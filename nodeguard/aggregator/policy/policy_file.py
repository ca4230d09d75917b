"""The policy file: parsed, validated and converted to the policy that the planner follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import UNSET, UnsetType, structs

from nodeguard.aggregator.policy.diagnosis import diagnosis_settings
from nodeguard.aggregator.policy.lint import lint_policy
from nodeguard.aggregator.policy.node_locations import resolve_node_locations
from nodeguard.aggregator.policy.schema import (
    BudgetSpec,
    CheckOverrideSpec,
    HoldSpec,
    ModeRuleSpec,
    PolicySpec,
    SilenceSpec,
)
from nodeguard.aggregator.policy.validation import validate_labels, validate_policy
from nodeguard.config.amounts import decode_amounts
from nodeguard.config.errors import ConfigError
from nodeguard.config.yaml_document import YamlDocument, collect_errors, convert, load_yaml
from nodeguard.model.diagnosis import FaultClass
from nodeguard.model.finding import Health
from nodeguard.model.mark import Mark
from nodeguard.model.policy import (
    Budget,
    CheckLimit,
    Hold,
    ModeRule,
    NodeLocation,
    Policy,
    Silence,
    TopologyLabels,
)
from nodeguard.model.projection import project


class LoadedPolicy(NamedTuple):
    """A policy and its warnings, each with file, line, field and remedy."""

    policy: Policy
    warnings: tuple[ConfigError, ...]


def read_policy(
    path: Path, checks: Mapping[str, Health], now: float, fault_classes: tuple[FaultClass, ...]
) -> LoadedPolicy:
    """Return the policy of a YAML file and of its tables of node locations. Missing fields have the defaults.

    checks: health of each check by id, for the validation of rules. now: seconds since the epoch.
    fault_classes: of the catalogue; the policy can change them.
    Raises ConfigError with file, line, field and remedy for the first error.
    """
    document = load_yaml(path)
    policy = _parse_policy(document, fault_classes)
    return LoadedPolicy(policy, tuple(lint_policy(document, policy, checks, now)))


def policy_errors(path: Path, fault_classes: Iterable[FaultClass]) -> list[ConfigError]:
    """Return all errors of a policy file, by line; none for a valid file. fault_classes: see read_policy."""
    try:
        document = load_yaml(path)
    except ConfigError as error:
        return [error]
    return collect_errors(document, lambda rest: _parse_policy(rest, fault_classes))


def _parse_policy(document: YamlDocument, fault_classes: Iterable[FaultClass]) -> Policy:
    validate_labels(document)
    spec = convert(document, PolicySpec, decode=decode_amounts)
    validate_policy(document, spec)
    _require_fault_classes(document, spec, fault_classes)
    return _policy(spec, fault_classes, resolve_node_locations(document, spec.locations))


def _require_fault_classes(
    document: YamlDocument, spec: PolicySpec, fault_classes: Iterable[FaultClass]
) -> None:
    """Refuse settings of a fault class that the catalogue does not have."""
    names = sorted(fault_class.name for fault_class in fault_classes)
    for name in spec.diagnosis.fault_classes:
        if name not in names:
            path = ("diagnosis", "faultClasses", name)
            raise document.error(path, f"{name!r} is no fault class", f"name one of {', '.join(names)}")


def _policy(
    spec: PolicySpec, fault_classes: Iterable[FaultClass], locations: tuple[NodeLocation, ...]
) -> Policy:
    topologies = structs.asdict(spec.topologies).items()
    return project(
        Policy,
        spec,
        modes=tuple(map(_mode_rule, spec.modes)),
        budget=_budget(spec.budget),
        holds=tuple(map(_hold, spec.holds)),
        silences=tuple(map(_silence, spec.silences)),
        topologies=tuple(TopologyLabels(name, labels) for name, labels in topologies if labels is not UNSET),
        locations=locations,
        diagnosis=diagnosis_settings(spec.diagnosis, fault_classes),
    )


def _checks(row: ModeRuleSpec | CheckOverrideSpec | HoldSpec | SilenceSpec) -> tuple[str, ...]:
    """Return the patterns of `check` or `checks`, none if both are missing."""
    if not isinstance(row.check, UnsetType):
        return (row.check,)
    return () if isinstance(row.checks, UnsetType) else row.checks


def _mode_rule(rule: ModeRuleSpec) -> ModeRule:
    return ModeRule(_checks(rule), rule.mode, tuple(map(Mark, rule.marks)))


def _budget(spec: BudgetSpec) -> Budget:
    default = project(CheckLimit, spec.check)
    return project(
        Budget,
        spec,
        check=default,
        check_overrides=tuple(_check_limit(override, default) for override in spec.check_overrides),
    )


def _check_limit(override: CheckOverrideSpec, default: CheckLimit) -> CheckLimit:
    return CheckLimit(
        _checks(override),
        override.new or default.new,
        override.within or default.within,
        override.active or default.active,
    )


def _hold(hold: HoldSpec) -> Hold:
    return Hold(hold.node or "", hold.labels, _checks(hold), hold.reason)


def _silence(silence: SilenceSpec) -> Silence:
    until = silence.until.timestamp() if silence.until else 0.0
    return Silence(_checks(silence) or ("*",), silence.node, until, silence.reason)
