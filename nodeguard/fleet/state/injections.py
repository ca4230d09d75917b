"""Injected faults of a report, and which of them the policy accepts. Pure.

Only the accepted ones ask for marks. None of them is among the findings of a report, so none votes, clears a
mark or counts in statistics.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.policy_rules import matches_any
from nodeguard.model.injection import MAX_INJECTIONS, MAX_SECONDS, PREFIX
from nodeguard.model.policy import InjectionPolicy
from nodeguard.wire.report import ReportedFinding, ReportedInjection

# Characters of an operator's name.
_MAX_BY = 64


class InjectedFault(Struct, frozen=True):
    """An injected fault. finding: with PREFIX in its message. began, until: seconds since the epoch by the
    receiver's clock. by: the operator. refusal: why it has no effect; empty for an accepted one.
    """

    finding: ReportedFinding
    began: float
    by: str
    until: float
    refusal: str = ""


def injected_faults(injections: Iterable[ReportedInjection], verdict_at: float) -> tuple[InjectedFault, ...]:
    """Return the injected faults of a report, not accepted yet. verdict_at: seconds since the epoch."""
    return tuple(
        InjectedFault(
            finding=replace(item.finding, message=f"{PREFIX}{item.finding.message}"),
            began=max(0.0, verdict_at - item.finding.age),
            by=item.by[:_MAX_BY],
            until=verdict_at + min(item.seconds, MAX_SECONDS),
            refusal="it is not evaluated yet",
        )
        for item, _ in zip(injections, range(MAX_INJECTIONS), strict=False)
    )


def apply_policy(
    faults: Iterable[InjectedFault],
    findings: Iterable[ReportedFinding],
    policy: InjectionPolicy,
    checks: Container[str],
) -> tuple[InjectedFault, ...]:
    """Return injected faults with the refusals by a policy.

    findings: of the checks, in the same report. checks: that exist.
    """
    real = {(finding.check, finding.target) for finding in findings}
    decided: list[InjectedFault] = []
    for fault in faults:
        key = fault.finding.check, fault.finding.target
        refusal = _refusal(key[0], policy, checks)
        if key in real:
            refusal = f"{key[0]} finds a fault there itself"
        elif any((earlier.finding.check, earlier.finding.target) == key for earlier in decided):
            refusal = "it is injected twice"
        decided.append(replace(fault, refusal=refusal))
    return tuple(decided)


def injectable_checks(policy: InjectionPolicy) -> tuple[str, ...]:
    """Return the patterns of the checks that a policy allows to inject."""
    return policy.checks if policy.allowed else ()


def _refusal(check: str, policy: InjectionPolicy, checks: Container[str]) -> str:
    if not policy.allowed:
        return "the policy allows no injected faults: injection.allowed is false"
    if not matches_any(policy.checks)(check):
        return f"the policy allows no injected fault of {check}: see injection.checks"
    return "" if check in checks else f"no check {check} is known"
