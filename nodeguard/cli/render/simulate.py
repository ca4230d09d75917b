"""Text output of nodeguard simulate. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.cli.render.terminal import StyledLine, StyledText, field_line
from nodeguard.judge.formatting import format_duration
from nodeguard.model.policy import Mode, Policy
from nodeguard.simulate.simulation import SimulationResult


def result_page(result: SimulationResult, policy: Policy | None) -> list[StyledLine]:
    """Return the lines for a result. policy: None if all marks were enforced."""
    return list(_lines(result, policy))


def _lines(result: SimulationResult, policy: Policy | None) -> Iterator[StyledLine]:
    settings = result.settings
    yield StyledLine(
        (StyledText("simulation - ", "strong"),),
        f"{_count(settings.nodes, 'node')}, {settings.days:g} day{'' if settings.days == 1 else 's'},"
        f" seed {settings.seed}",
    )
    yield field_line("policy", "all marks are enforced" if policy is None else _mode(policy))
    yield field_line("shared faults", _shared_faults(result))
    yield field_line("false domains", f"{result.false_domains_per_day:.3g} a day")
    checks = sorted({event.check for event in result.suppressed_checks})
    if checks:
        yield field_line("suppressed", f"{len(result.suppressed_checks)} times a check: {', '.join(checks)}")
    yield field_line(
        "incidents",
        f"{result.incidents_per_day:.4g} a day, {result.domain_incidents_per_day:.3g} of domains and checks",
    )
    correct = f", {result.correct_quarantines / result.quarantines:.1%} correct" if result.quarantines else ""
    yield field_line(
        "quarantines", f"{result.quarantines}{correct}; {result.shared_fault_quarantines} for a shared fault"
    )
    yield field_line(
        "capacity lost",
        f"{result.justified_capacity_lost:.3%} justified, {result.unjustified_capacity_lost:.3%} unjustified;"
        f" at most {_count(result.max_quarantined, 'node')} at a time",
    )


def _mode(policy: Policy) -> str:
    if policy.pause:
        return "paused: no new marks"
    if policy.mode == Mode.OBSERVE and not policy.modes:
        return "observe mode: no marks"
    topologies = ", ".join(policy.diagnosis.enforce)
    return f"as in the file; degraded domains of {topologies} are marked" if topologies else "as in the file"


def _shared_faults(result: SimulationResult) -> str:
    if not result.shared_faults:
        return "none"
    times = ""
    median, slowest = result.diagnosis_seconds_p50, result.diagnosis_seconds_p95
    if median is not None and slowest is not None:
        times = (
            f" after {format_duration(round(median))} (median), "
            f"{format_duration(round(slowest))} (95th percentile)"
        )
    precision = "" if result.diagnosis_precision is None else f"; precision {result.diagnosis_precision:.1%}"
    return f"{result.diagnosed_shared_faults} of {result.shared_faults} diagnosed{times}{precision}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
