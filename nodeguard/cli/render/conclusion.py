"""The conclusion of nodeguard check, and the errors of applications that are no fault of the node. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodeguard.cli.scope import reported_health
from nodeguard.fleet_api.text.wording import count_noun, target_text
from nodeguard.model.finding import Action, DataStatus, Evidence, Finding, Health, Verdict
from nodeguard.model.hardware import Hardware
from nodeguard.model.instant import rfc3339
from nodeguard.model.target import NODE

# Seconds within which the driver logs all that follows from one error of an application. It takes
# milliseconds on an idle node; a slow console delays lines by seconds.
_FOLLOWS = 10.0

# Seconds within which a job ends after a fault of the node: its other processes fail in NCCL, or are killed.
_AFTER_FAULT = 60.0

# The work that a node can take, by its health.
_WORK = {
    Health.WARNING: "can take work",
    Health.SUSPECT: "should take no work that spans nodes",
    Health.FATAL: "should take no work",
}


class ApplicationError(NamedTuple):
    """Errors of one process, or of several that met the same error, with the evidence of the latest one.

    What follows from the error of a process is left out.
    """

    target: str
    hardware: Hardware | None
    evidence: Evidence


def conclusion(
    subject: str,
    verdict: Verdict,
    reason: str = "",
    selection: str = "",
    elsewhere: Sequence[Finding] = (),
    *,
    is_incomplete: bool = False,
) -> str:
    """Return what a verdict means for the node, in one or a few sentences.

    subject: the host name, or GPUs of it. reason: why the health is unknown, where it is known.
    selection: the checks that were evaluated, as in `the checks of gpu`; empty for all. elsewhere: findings
    of the node that are not about the subject. is_incomplete: whether a recording lacks a part of the node.
    """
    text = _conclusion(subject, verdict, reason, selection, is_incomplete=is_incomplete)
    if not elsewhere:
        return text
    noun = "finding" if len(elsewhere) == 1 else "findings"
    return f"{text} Elsewhere on the node: {_counts(elsewhere)} {noun}."


def _conclusion(subject: str, verdict: Verdict, reason: str, selection: str, *, is_incomplete: bool) -> str:
    unread = ""
    if verdict.read_failures:
        unread = (
            f" Not read: {', '.join(dict.fromkeys(failure.source for failure in verdict.read_failures))}."
        )
    if reported_health(verdict) == DataStatus.UNKNOWN:
        worst = f" {_worst(verdict.findings)}" if verdict.findings else ""
        because = reason or "no check could be evaluated"
        return f"the health of {subject} is unknown: {because}.{worst}{unread}"
    if verdict.findings:
        programs = _applications(verdict) if are_programs_first(verdict) else ""
        return f"{subject} {_WORK[verdict.health]}.{programs} {_worst(verdict.findings)}{unread}"
    if is_incomplete:
        text = f"no fault was found on {subject}, but not all of it was recorded."
    elif selection:
        text = f"{subject} passed {selection}."
    elif verdict.read_failures:
        text = f"no fault was found on {subject}, but not all of it could be read."
    else:
        text = f"{subject} is healthy."
    return f"{text}{_applications(verdict)}{unread}"


def is_healthy(verdict: Verdict) -> bool:
    """Return whether all that applies was read and nothing is wrong."""
    return verdict.known_health == Health.OK and not verdict.read_failures


def are_programs_first(verdict: Verdict) -> bool:
    """Return whether the errors of applications come before the findings.

    A warning leaves the node in service, so the program that ended is the first question, unless a warning
    may be its cause.
    """
    errors = [error for finding in verdict.informational for error in application_errors(finding)]
    return bool(errors) and verdict.health == Health.WARNING and are_gpus_unsuspected(verdict, errors)


def are_gpus_unsuspected(verdict: Verdict, errors: Iterable[ApplicationError]) -> bool:
    """Return whether each error names its GPU, and no finding is about such a GPU or one of its links."""
    gpus = {error.target for error in errors}
    return NODE not in gpus and not any(
        _is_about(finding, gpu) for gpu in gpus for finding in verdict.findings
    )


def suspected_gpus(verdict: Verdict, targets: Iterable[str]) -> list[str]:
    """Return the targets, except the node, that have a suspect or fatal finding or a link with one."""
    faults = [finding for finding in verdict.findings if finding.health.rank > Health.WARNING.rank]
    return [
        target for target in targets if target != NODE and any(_is_about(fault, target) for fault in faults)
    ]


def _is_about(finding: Finding, gpu: str) -> bool:
    """Return whether a finding is about a GPU or one of its links."""
    targets = (finding.target, *finding.targets)
    return any(target == gpu or target.startswith(f"{gpu}/") for target in targets)


def _worst(findings: Sequence[Finding]) -> str:
    worst = findings[0]
    text = finding_text(worst, target_text(worst.target, worst.hardware))
    if len(findings) == 1:
        return text
    return f"{_counts(findings)}. Worst: {text}"


def _counts(findings: Sequence[Finding]) -> str:
    """Return the number of findings by health, as in `1 fatal, 2 warning`."""
    counts = Counter(finding.health for finding in findings)
    order = sorted((health for health in Health if counts[health]), key=lambda health: -health.rank)
    return ", ".join(f"{counts[health]} {health.value}" for health in order)


def finding_text(finding: Finding, target: str) -> str:
    """Return a finding in one line: its title, its target as it is called, and its action."""
    action = "" if finding.action in {Action.NONE, Action.MONITOR} else f" {finding.action.sentence}"
    return f"{finding.title}: {target}.{action}"


def _applications(verdict: Verdict) -> str:
    errors = [error for finding in verdict.informational for error in application_errors(finding)]
    count = sum(error.evidence.count for error in errors)
    if not count:
        return ""
    # The driver logs one error in one to three lines.
    logged = all(error.evidence.source == "kmsg" for error in errors)
    text = f"{count_noun(count, 'line' if logged else 'event')} of application errors"
    return f" {text} {'is' if count == 1 else 'are'} {'in the kernel log' if logged else 'known'}."


def application_errors(finding: Finding) -> list[ApplicationError]:
    """Return the errors of applications in a finding, by time; none if it is about something else.

    A process meets several Xids at its end: the first one is its error, and the others follow from it. One
    that names no process follows from an error shortly before it.
    """
    if not finding.is_application_error:
        return []
    errors: list[Evidence] = []
    for evidence in sorted(finding.evidence, key=lambda evidence: evidence.at):
        if evidence.pid:
            follows = any(error.pid == evidence.pid for error in errors)
        else:
            follows = any(evidence.at - error.at < _FOLLOWS for error in errors)
        if not follows:
            errors.append(evidence)
    return [ApplicationError(finding.target, finding.hardware, error) for error in errors]


def preceding_fault(error: ApplicationError, findings: Sequence[Finding]) -> Finding | None:
    """Return the fatal finding that began at most a minute before an error, so that it may be its cause."""
    return next(
        (
            finding
            for finding in findings
            if finding.health == Health.FATAL and 0 <= error.evidence.at - finding.since <= _AFTER_FAULT
        ),
        None,
    )


def process_text(evidence: Evidence) -> str:
    """Return the process of an event, with its workload: `python3 (pid 41000), job 12`; empty if unknown."""
    process = f"{evidence.process or 'process'} (pid {evidence.pid})" if evidence.pid else ""
    return ", ".join(filter(None, (process, evidence.workload)))


def error_text(error: ApplicationError, now: float) -> str:
    """Return an error as text: `10:00:00 python3 (pid 41000): illegal memory access, Xid 31`.

    now: seconds since the epoch; an error of another day has its date.
    """
    evidence = error.evidence
    day, _, time = rfc3339(evidence.at).rstrip("Z").partition("T")
    is_today = rfc3339(now).startswith(day)
    when = time if is_today else f"{day} {time}"
    who = process_text(evidence)
    meaning = evidence.meaning or evidence.text
    if not meaning[:2].isupper():
        meaning = f"{meaning[:1].lower()}{meaning[1:]}"
    times = f", the last of {evidence.count}" if evidence.count > 1 else ""
    return f"{when}{f' {who}' if who else ''}: {meaning}{times}"


def no_commands(_finding: Finding) -> tuple[str, ...]:
    """Return no commands, for an output without them."""
    return ()
