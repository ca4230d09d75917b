"""The policy file: parsed, validated and converted to the policy that the planner follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import UNSET, structs

from nodeguard.aggregator.policy.lint import lint_policy
from nodeguard.aggregator.policy.node_locations import resolve_node_locations
from nodeguard.aggregator.policy.schema import PolicySpec
from nodeguard.aggregator.policy.validation import require_policy, validate_labels, validate_policy
from nodeguard.config.amounts import decode_amounts
from nodeguard.config.errors import ConfigError
from nodeguard.config.file_version import require_version
from nodeguard.config.yaml_document import YamlDocument, collect_errors, convert, load_yaml
from nodeguard.model.diagnosis import DiagnosisPolicy, DiagnosisSettings, FaultClass, FaultClassChange
from nodeguard.model.finding import Health
from nodeguard.model.policy import NodeLocation, Policy, TopologyLabels
from nodeguard.model.projection import project


class LoadedPolicy(NamedTuple):
    """A policy and its warnings, each with file, line, field and remedy."""

    policy: Policy
    warnings: tuple[ConfigError, ...]


def read_policy(
    path: Path,
    checks: Mapping[str, Health],
    now: float,
    fault_classes: tuple[FaultClass, ...],
    *,
    has_pods: bool = True,
) -> LoadedPolicy:
    """Return the policy of a YAML file and of its tables of node locations. Missing fields have the defaults.

    checks: health of each check by id, for the validation of rules. now: seconds since the epoch.
    fault_classes: of the catalogue; the policy can change them. has_pods: False without Kubernetes.
    Raises ConfigError with file, line, field and remedy for the first error.
    """
    document = load_yaml(path)
    policy = _parse_policy(document, fault_classes)
    return LoadedPolicy(policy, tuple(lint_policy(document, policy, checks, now, has_pods=has_pods)))


def policy_errors(path: Path, fault_classes: Iterable[FaultClass]) -> list[ConfigError]:
    """Return all errors of a policy file, by line; none for a valid file. fault_classes: see read_policy."""
    try:
        document = load_yaml(path)
    except ConfigError as error:
        return [error]
    return collect_errors(document, lambda rest: _parse_policy(rest, fault_classes))


def _parse_policy(document: YamlDocument, fault_classes: Iterable[FaultClass]) -> Policy:
    require_policy(document)
    require_version(document)
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
        topologies=tuple(TopologyLabels(name, labels) for name, labels in topologies if labels is not UNSET),
        locations=locations,
        diagnosis=diagnosis_policy(spec.diagnosis, fault_classes),
    )


def diagnosis_policy(settings: DiagnosisSettings, fault_classes: Iterable[FaultClass]) -> DiagnosisPolicy:
    """Return the settings with the fault classes that they change. fault_classes: of the catalogue."""
    classes = [
        structs.replace(fault_class, **_changes(settings, fault_class.name)) for fault_class in fault_classes
    ]
    enforced = tuple(dict.fromkeys(settings.enforce))
    return project(DiagnosisPolicy, settings, enforce=enforced, classes=tuple(classes))


def _changes(settings: DiagnosisSettings, fault_class: str) -> dict[str, Any]:
    changes = structs.asdict(settings.fault_classes.get(fault_class, FaultClassChange()))
    return {name: value for name, value in changes.items() if value is not UNSET}
