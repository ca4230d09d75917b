"""Folding of findings into one for each cause: symptoms merge into their cause, equal findings fold. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec.structs import replace

from nodeguard.judge.findings import merge_symptoms
from nodeguard.model.check import Check
from nodeguard.model.finding import Finding, Health, worst
from nodeguard.model.target import NODE, NOUNS, parent_target, target_kind, target_label, target_order

# A check and the target of its finding.
FindingKey = tuple[str, str]

# Kinds of targets with findings that fold into one of the node.
_FOLDED_ON_NODE = frozenset({"nvlink", "gpu", "port", "nvswitch", "pci"})

# Findings of the node's targets fold from this number on, and only where they affect all GPUs or more than
# half of another kind. A healthy GPU can go on working, and a node has ports without a cable; until then each
# of the targets is repaired on its own.
_MIN_TO_FOLD = 3

# Words of a message that may differ between equal findings: values, addresses and names of targets.
_WITH_DIGIT = re.compile(r"\S*\d\S*")


def attach_symptoms(
    findings: Iterable[Finding], checks: Mapping[str, Check], dependencies: Mapping[str, str]
) -> list[Finding]:
    """Return the findings without symptoms: the root cause takes over the evidence of its symptoms.

    A cause that is less bad than its symptom becomes evidence of the symptom, because the worst finding
    decides about the node. checks: by id. dependencies: target → the target it depends on besides its parent.
    A cause is on the same target, its parents or its dependency. For a GPU or link it may also be on any
    NVSwitch, for a check of only the node on any target.
    """
    active = {(finding.check, finding.target): finding for finding in findings}
    symptoms: dict[FindingKey, list[Finding]] = defaultdict(list)
    for key, cause in root_causes(active, checks, dependencies).items():
        symptoms[cause].append(active.pop(key))
    return [
        merge_symptoms(finding, symptoms[key]) if key in symptoms else finding
        for key, finding in active.items()
    ]


def root_causes(
    active: Mapping[FindingKey, Finding], checks: Mapping[str, Check], dependencies: Mapping[str, str]
) -> dict[FindingKey, FindingKey]:
    """Return the root cause of each finding that is a symptom; see attach_symptoms."""
    causes: dict[FindingKey, FindingKey] = {}
    targets: dict[str, set[str]] = defaultdict(set)
    for check, target in active:
        targets[check].add(target)
    for key in sorted(active, key=lambda key: (active[key].health.rank, key)):
        cause = _cause(key, targets, checks[key[0]], dependencies)
        root = key if cause is None or key in causes else _root(cause, causes)
        if root == key:
            continue
        is_weaker = active[root].health.rank < active[key].health.rank
        causes[root if is_weaker else key] = key if is_weaker else root
    return {key: _root(key, causes) for key in causes}


def _cause(
    key: FindingKey, active: Mapping[str, set[str]], check: Check, dependencies: Mapping[str, str]
) -> FindingKey | None:
    """Return the active finding that explains this one; None without one. active: targets, by check."""
    target = key[1]
    for other in check.symptom_of:
        if other not in active:
            continue
        elsewhere = sorted(at for at in active[other] if _may_affect(at, target, check))
        for at in (*_ancestors(target), dependencies.get(target, target), *elsewhere):
            if at in active[other] and (other, at) != key:
                return other, at
    return None


def _root(key: FindingKey, causes: Mapping[FindingKey, FindingKey]) -> FindingKey:
    while key in causes:
        key = causes[key]
    return key


def _may_affect(cause: str, target: str, check: Check) -> bool:
    """Return whether a fault of one target may show on another one that is not below it.

    A finding of the node may come from a log line that names no target: it may belong to any target or none.
    """
    if target == NODE:
        return check.targets == (NODE,)
    return target_kind(cause) == "nvswitch" and target_kind(target) in {"gpu", "nvlink"}


def _ancestors(target: str) -> Iterable[str]:
    """Yield a target and its parents up to the node."""
    yield target
    while target != NODE:
        target = parent_target(target)
        yield target


def fold_findings(findings: Iterable[Finding], counts: Mapping[str, int]) -> list[Finding]:
    """Return the findings, with equal findings of one check on many targets folded into one of their parent.

    Findings are equal if their messages differ in words with digits only. counts: targets of the node by
    kind. Links of one GPU fold from two on; targets of the node fold where all or most of their kind are
    affected.
    """
    links: list[Finding] = []
    others: list[Finding] = []
    for finding in findings:
        (links if target_kind(finding.target) == "nvlink" else others).append(finding)
    return _fold_on_node(others + _fold_links(links), counts)


def _fold_links(links: list[Finding]) -> list[Finding]:
    groups: dict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for finding in links:
        groups[finding.check, _message_pattern(finding.message), parent_target(finding.target)].append(
            finding
        )
    return [_folded(group, target) if len(group) > 1 else group[0] for (*_, target), group in groups.items()]


def _fold_on_node(findings: list[Finding], counts: Mapping[str, int]) -> list[Finding]:
    groups: dict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[finding.check, _message_pattern(finding.message), target_kind(finding.target)].append(finding)
    result: list[Finding] = []
    for (*_, kind_name), group in groups.items():
        total = counts.get(kind_name, 0)
        needed = max(_MIN_TO_FOLD, total if kind_name == "gpu" else total // 2 + 1)
        if kind_name in _FOLDED_ON_NODE and len(group) >= needed:
            result.append(_folded(group, NODE))
        else:
            result.extend(group)
    return result


@lru_cache(maxsize=256)
def _message_pattern(message: str) -> str:
    return _WITH_DIGIT.sub("", message)


def _folded(group: list[Finding], folded_into: str) -> Finding:
    """Return the findings of one check as one of their parent, with message, action and remedy of the worst.

    Of equally severe findings, the one with the strongest action is the worst.
    """
    first = min(group, key=lambda finding: (-finding.health.rank, -finding.action.rank, finding.target))
    targets = tuple(
        sorted(
            (target for finding in group for target in finding.targets or (finding.target,)),
            key=target_order,
        )
    )
    component = first.component if len({finding.component for finding in group}) == 1 else ""
    _, plural = NOUNS[target_kind(targets[0])]
    owner = f" of {target_label(folded_into)}" if folded_into != NODE else ""
    message = first.message.split(": ", 1)[1] if ": " in first.message and first.targets else first.message
    message = message.replace(target_label(first.target), "each")
    return replace(
        first,
        target=folded_into,
        component=component,
        data_status=worst(*(finding.data_status for finding in group)),
        since=min(finding.since for finding in group),
        message=f"{len(targets)} {plural}{owner}: {message}",
        targets=targets,
    )


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings, worst first, then by target and check."""
    return tuple(
        sorted(
            findings, key=lambda finding: (-finding.health.rank, target_order(finding.target), finding.check)
        )
    )


def worst_health(findings: Iterable[Finding]) -> Health:
    """Return the worst health among findings, ok without any."""
    return max((finding.health for finding in findings), key=lambda health: health.rank, default=Health.OK)
