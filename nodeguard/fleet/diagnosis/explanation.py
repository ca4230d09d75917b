"""A diagnosis in words: what is blamed, on which evidence, and what would change that. Pure."""

from __future__ import annotations

from math import ceil

from nodeguard.fleet.diagnosis.recurrence import clearing_time, fewest_nodes
from nodeguard.fleet.diagnosis.results import DegradedDomain, SuppressedCheck
from nodeguard.judge.formatting import format_duration
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy


def degraded_message(one: DegradedDomain, rule: DiagnosisPolicy) -> str:
    """What is held against a domain, with the counter-evidence."""
    if one.restored:
        return f"{one.domain} was to blame before this aggregator began; its nodes are heard anew"
    says = next((kind.phrase for kind in rule.classes if kind.name == one.fault_classes[0]), "show the same")
    found = f"{one.domain}: {len(one.voters)} of {one.size} nodes {says}{_within(one.within)}"
    if not one.siblings:
        return found
    many = "its one sibling" if one.siblings == 1 else f"its {one.siblings} siblings"
    if one.elsewhere:
        return f"{found}; of {many}, {_nodes(one.elsewhere)} did"
    return f"{found}; {many} did not"


def clearing_message(one: DegradedDomain, rule: DiagnosisPolicy) -> str:
    """What would change that."""
    kinds = [kind for kind in rule.classes if kind.name in one.fault_classes]
    least = max([2, *(ceil(fewest_nodes(kind.share, one.size)) for kind in kinds)])
    clearing = format_duration(clearing_time(rule, one.times))
    return f"over when fewer than {least} of its nodes show it for {clearing}"


def suppressed_message(one: SuppressedCheck) -> str:
    """Why a check is not acted upon."""
    if not one.nodes:
        return "it was before this aggregator began, and is until it is quiet"
    who = _nodes(len(one.nodes))
    if one.domain:
        return f"it fires on {who}, nearly all of them with {one.domain}: see what changed there"
    if one.check == STALE_CHECK:
        also = "kubelets among them, too" if one.confirmed else "the observer or its network"
        return f"{who} fell silent that share nothing: {also}"
    if one.limit < 1:
        return f"it fires on {who}, as it did before this aggregator began"
    chance = f"{one.limit - 1} within {format_duration(one.within)} may be chance"
    borne_out = (
        "other sources bear it out: it is real" if one.confirmed else "nothing bears it out: it misfires"
    )
    return f"it fires on {who} that share nothing, where {chance}; {borne_out}"


def _nodes(many: int) -> str:
    return f"{many} node{'' if many == 1 else 's'}"


def _within(seconds: float) -> str:
    return f" within {format_duration(seconds)}" if seconds >= 1.0 else " at once"
