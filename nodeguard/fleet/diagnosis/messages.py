"""Messages about the results of the diagnosis: their evidence, their effects, and what ends them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from nodeguard.fleet.diagnosis.results import (
    BadJobStart,
    DegradedDomain,
    SuppressedCheck,
    clearing_time,
    fewest_children,
    fewest_nodes,
)
from nodeguard.judge.formatting import format_duration
from nodeguard.model.diagnosis import STALE_CHECK, DiagnosisPolicy, FaultClass


def degraded_message(degraded: DegradedDomain, rule: DiagnosisPolicy) -> str:
    """Return the evidence against a domain, with the counter-evidence."""
    if degraded.restored:
        return f"{degraded.domain} was degraded before this aggregator started; its nodes are evaluated again"
    phrase = _phrase(degraded.fault_classes, rule)
    voters, moved = len(degraded.voters), len(degraded.moved)
    if not voters + moved:
        return f"{degraded.domain}: the nodes that {phrase} no longer exist"
    share = f"{voters + moved} of {degraded.size + moved} nodes"
    message = f"{degraded.domain}: {share} {phrase}{_within(degraded.within)}"
    if not degraded.siblings:
        return message
    parent = degraded.domain.rpartition("/")[0]
    count = "other domain" if degraded.siblings == 1 else f"other {degraded.siblings} domains"
    if degraded.elsewhere:
        return f"{message}; so did {_nodes(degraded.elsewhere)} of the {count} of {parent}"
    return f"{message}; the {count} of {parent} did not"


def clearing_message(degraded: DegradedDomain, children: int, rule: DiagnosisPolicy) -> str:
    """Return the condition that ends a degraded domain, as a clause. children: their number, 0 for a lowest
    domain.
    """
    shares = [item.share for item in rule.classes if item.name in degraded.fault_classes]
    least = min((fewest_nodes(share, degraded.size) for share in shares), default=2)
    clearing = format_duration(clearing_time(rule, degraded.times))
    parts = (
        f", or nodes in fewer than {fewest_children(children)} of its {children} parts," if children else ""
    )
    return f"fewer than {least} of its nodes{parts} show it for {clearing}"


def suppressed_message(check: SuppressedCheck) -> str:
    """Return why a check is suppressed."""
    if not check.nodes:
        return "it was suppressed before this aggregator started, and until it has no new findings for a time"
    nodes = _nodes(len(check.nodes))
    if check.domain:
        return f"it fires on {nodes}, nearly all of them with {check.domain}: see what changed there"
    if check.check == STALE_CHECK:
        cause = (
            "so did kubelets" if check.confirmed else "probably this aggregator or its network is the cause"
        )
        return f"the agents of {nodes} that no failure domain explains stopped reporting; {cause}"
    if check.limit < 1:
        return f"it fires on {nodes}, as it did before this aggregator started"
    chance = f"up to {check.limit - 1} within {format_duration(check.within)} may be chance"
    confirmation = (
        "other sources confirm it: the fault is real"
        if check.confirmed
        else "no other source confirms it: a false alarm"
    )
    return f"it fires on {nodes} that no failure domain explains; {chance}; {confirmation}"


def suppression_effect(check: SuppressedCheck, *, is_fact: bool = False) -> str:
    """Return what a suppression does to the marks of its check. is_fact: whether it finds facts."""
    if is_fact:
        return "it finds a fact, so that its nodes are marked within the budgets"
    if check.recovered:
        return "it marks nothing on the nodes on which it still fires since then; elsewhere it marks again"
    if check.retracts:
        return "it marks nothing new; its marks since it began to fire, without another source, are released"
    return "it marks nothing new; its marks stay, as too few nodes are affected to release them"


def bad_start_message(start: BadJobStart, rule: DiagnosisPolicy) -> str:
    """Return the evidence of a bad start of a job."""
    if not start.voters:
        return f"job {start.job} started badly before this aggregator started"
    after = format_duration(max(1.0, start.last - start.started))
    phrase = _phrase((start.fault_class,), rule)
    return f"job {start.job} started badly: {_nodes(len(start.voters))} {phrase} within {after} of its start"


def bad_start_effect(rule: DiagnosisPolicy) -> str:
    """Return what a bad start of a job does to the votes of its nodes."""
    quiet = format_duration(rule.recovery.initial)
    return f"no switch is suspected of them; ends when the job has started without them for {quiet}"


def fault_class_named(rule: DiagnosisPolicy, names: Sequence[str]) -> FaultClass | None:
    """Return the fault class that explains a domain: the first of its names; None if the policy has none."""
    return next((item for item in rule.classes if item.name in names[:1]), None)


def owner_of(degraded: DegradedDomain, rule: DiagnosisPolicy) -> str:
    """Return the team that acts on a degraded domain; empty if its fault class names none."""
    fault_class = fault_class_named(rule, degraded.fault_classes)
    guidance = fault_class.guidance if fault_class is not None else None
    return guidance.owner if guidance is not None else ""


def _phrase(fault_classes: tuple[str, ...], rule: DiagnosisPolicy) -> str:
    """Return what the voting nodes of the first of some fault classes do."""
    fault_class = fault_class_named(rule, fault_classes)
    return fault_class.phrase if fault_class is not None else "show the same"


def _nodes(many: int) -> str:
    return f"{many} node{'' if many == 1 else 's'}"


def _within(seconds: float) -> str:
    return f" within {format_duration(seconds)}" if seconds >= 1.0 else " at once"
