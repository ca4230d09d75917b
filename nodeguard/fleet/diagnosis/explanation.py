"""The diagnosis as text: what is degraded, the evidence, and what ends it. Pure."""

from __future__ import annotations

from math import ceil

from nodeguard.fleet.diagnosis.recurrence import clearing_time, fewest_nodes
from nodeguard.fleet.diagnosis.results import DegradedDomain, SuppressedCheck
from nodeguard.judge.formatting import format_duration
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy


def degraded_message(degraded: DegradedDomain, rule: DiagnosisPolicy) -> str:
    """Return the evidence against a domain, with the counter-evidence."""
    if degraded.restored:
        return f"{degraded.domain} was degraded before this aggregator started; its nodes are evaluated again"
    phrase = next(
        (fault_class.phrase for fault_class in rule.classes if fault_class.name == degraded.fault_classes[0]),
        "show the same",
    )
    share = f"{len(degraded.voters)} of {degraded.size} nodes"
    message = f"{degraded.domain}: {share} {phrase}{_within(degraded.within)}"
    if not degraded.siblings:
        return message
    siblings = "its one sibling" if degraded.siblings == 1 else f"its {degraded.siblings} siblings"
    if degraded.elsewhere:
        return f"{message}; of {siblings}, {_nodes(degraded.elsewhere)} did"
    return f"{message}; {siblings} did not"


def clearing_message(degraded: DegradedDomain, rule: DiagnosisPolicy) -> str:
    """Return what clears a degraded domain."""
    fault_classes = [
        fault_class for fault_class in rule.classes if fault_class.name in degraded.fault_classes
    ]
    least = max([2, *(ceil(fewest_nodes(fault_class.share, degraded.size)) for fault_class in fault_classes)])
    clearing = format_duration(clearing_time(rule, degraded.times))
    return f"over when fewer than {least} of its nodes show it for {clearing}"


def suppressed_message(check: SuppressedCheck) -> str:
    """Return why a check is suppressed."""
    if not check.nodes:
        return "it was before this aggregator started, and is until it is quiet"
    nodes = _nodes(len(check.nodes))
    if check.domain:
        return f"it fires on {nodes}, nearly all of them with {check.domain}: see what changed there"
    if check.check == STALE_CHECK:
        cause = "kubelets among them, too" if check.confirmed else "the observer or its network"
        return f"{nodes} fell silent that share nothing: {cause}"
    if check.limit < 1:
        return f"it fires on {nodes}, as it did before this aggregator started"
    chance = f"{check.limit - 1} within {format_duration(check.within)} may be chance"
    confirmation = (
        "other sources confirm it: it is real" if check.confirmed else "no source confirms it: a false alarm"
    )
    return f"it fires on {nodes} that share nothing, where {chance}; {confirmation}"


def _nodes(many: int) -> str:
    return f"{many} node{'' if many == 1 else 's'}"


def _within(seconds: float) -> str:
    return f" within {format_duration(seconds)}" if seconds >= 1.0 else " at once"
