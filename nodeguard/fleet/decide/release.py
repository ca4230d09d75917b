"""Release decisions: which marks end after proof and the soak period, and the waits of the rest. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.policy_rules import hold_on_check
from nodeguard.fleet.state.latest_report import LatestReport, proves, reports_fault
from nodeguard.fleet.state.node_marks import record_release
from nodeguard.fleet.state.wall_clock import RecordedAge
from nodeguard.model.device import Device
from nodeguard.model.instant import Instant
from nodeguard.model.mark import MarkCause, NodeMarks
from nodeguard.model.policy import Policy, SoakPeriod
from nodeguard.model.target import target_label

# Conditions for the release of a mark: see ReleaseWait.
WaitKind = Literal[
    "finding", "proof", "soak", "check", "hold", "maintenance", "silence", "domain", "evaluation", "write"
]

# Targets that are named before the rest is counted.
_SHOWN = 4


class Proof(Struct, frozen=True):
    """The proof that a cause is over. since: when the check began to report it as passing without a break;
    until: when its mark is released. Seconds of the monotonic clock.
    """

    since: float
    until: float


class ReleasedMark(Struct, frozen=True):
    """A cause with a released mark, and the reason: `proven`, `retracted` (its check is suppressed),
    `superseded` (the mark of a domain covers the node), `preempted` (its fault is injected, and a real one
    needs the budget), `removed` (by an operator, and the check finds nothing any more), or `gone` (with its
    device).
    """

    cause: MarkCause
    reason: str


# The key of a cause on a node: its device (None for the Node), its check, and the target.
CauseKey = tuple[Device | None, str, str]


def cause_key(device: Device | None, cause: MarkCause) -> CauseKey:
    """Return the key of a cause that is recorded on the Node or on a device."""
    return device, cause.check, cause.target


def proofs(
    before: Mapping[CauseKey, Proof],
    marks: NodeMarks,
    report: LatestReport | None,
    soak: SoakPeriod,
    age: RecordedAge,
    now: Instant,
) -> dict[CauseKey, Proof]:
    """Return the proofs that causes are over, with their start. report: None if the node's agent is stale:
    then no cause has a proof.
    """
    if report is None:
        return {}
    proven = {}
    for device, cause in marks.causes():
        if proves(report, cause):
            name = cause_key(device, cause)
            since = before[name].since if name in before else now.mono
            proven[name] = Proof(since, since + _soak(marks, cause.check, soak, age))
    return proven


class ReleaseWait(Struct, frozen=True):
    """The reason why a mark stays: the condition for its release.

    kind: `finding`: its check must stop finding the fault; `proof`: the check must report that it is over;
    `soak`: it has, and time must pass; `check`: no agent has that check any more; `hold`, `maintenance`: an
    operator must end it; `silence`: the node's agent must report; `domain`: the domain must not be degraded
    any more; `evaluation`: the aggregator must evaluate it, for the first time since its start; `write`:
    only the write. message: as text. until: seconds of the monotonic clock at which a soak period ends; 0 for
    any other.
    """

    kind: WaitKind
    message: str
    until: float = 0.0


RELEASING = ReleaseWait("write", "the write that removes it")
NOT_EVALUATED = ReleaseWait(
    "evaluation", "the aggregator to evaluate it, which it has not done since it started"
)


class ReleaseEvidence(Struct, frozen=True):
    """The inputs of the release of a node's marks.

    report: its latest report, None if it cannot be a proof; absent: the reason for None. proven: see
    `proofs`.
    """

    report: LatestReport | None
    absent: ReleaseWait
    proven: Mapping[CauseKey, Proof]


class NodeRelease(Struct, frozen=True):
    """The marks of a node after the release, the released marks, and the wait of each other mark."""

    marks: NodeMarks
    released: tuple[ReleasedMark, ...]
    waits: dict[CauseKey, ReleaseWait]


def release_marks(
    policy: Policy,
    marks: NodeMarks,
    evidence: ReleaseEvidence,
    removed: Callable[[Device | None, MarkCause], bool],
    suppressed: Callable[[MarkCause], bool],
    age: RecordedAge,
    now: Instant,
) -> NodeRelease:
    """Return the released marks of a node, and the waits of its other marks.

    removed: whether a cause's mark is gone though nodeguard did not remove it. suppressed: whether a cause's
    check is suppressed and no other source confirms the cause.
    """
    released: list[ReleasedMark] = []
    waits: dict[CauseKey, ReleaseWait] = {}

    def release_reason(device: Device | None, cause: MarkCause) -> str:
        proof = evidence.proven.get(cause_key(device, cause))
        if proof is not None and now.mono >= proof.until:
            return "proven"
        if hold_on_check(policy, cause.check) is not None or suppressed(cause):
            return "retracted"
        is_reported = evidence.report is not None and reports_fault(evidence.report, cause)
        return "removed" if not is_reported and removed(device, cause) else ""

    for device in marks.carriers:
        ended = [
            ReleasedMark(cause, reason)
            for cause in marks.record_of(device).causes
            if (reason := release_reason(device, cause))
        ]
        if ended:
            released += ended
            causes = [mark.cause for mark in ended]
            marks = without_causes(marks, device, causes, policy.soak, now.wall, age)
        for cause in marks.record_of(device).causes:
            waits[cause_key(device, cause)] = _wait(evidence, device, cause)
    return NodeRelease(_forgotten(marks, policy.soak, age), tuple(released), waits)


def wait_for_all(marks: NodeMarks, wait: ReleaseWait) -> dict[CauseKey, ReleaseWait]:
    """Return the same wait for every mark of a node."""
    return {cause_key(device, cause): wait for device, cause in marks.causes()}


def still_failing(check: str) -> ReleaseWait:
    """Return the wait of a mark with a check that still finds the fault."""
    return ReleaseWait("finding", f"{check} to pass (still failing)")


def no_such_check(check: str) -> ReleaseWait:
    """Return the wait of a mark with a check that no agent runs any more: no report can prove it over."""
    remedy = "hold the check in the policy, or remove the mark by hand"
    return ReleaseWait("check", f"check {check}, which no agent has any more: {remedy}")


def _wait(evidence: ReleaseEvidence, device: Device | None, cause: MarkCause) -> ReleaseWait:
    proof = evidence.proven.get(cause_key(device, cause))
    if proof is not None:
        return ReleaseWait(
            "soak", f"the soak period to end, while {cause.check} continues to pass", proof.until
        )
    if evidence.report is None:
        return evidence.absent
    if reports_fault(evidence.report, cause):
        return still_failing(cause.check)
    return ReleaseWait(
        "proof", f"{cause.check} to pass on {_unproven(evidence.report, cause)} with fresh data"
    )


def _unproven(report: LatestReport, cause: MarkCause) -> str:
    """Return the targets that a check has not reported as passing yet, as text."""
    unproven = dict.fromkeys(cause.targets or (cause.target,))
    for group in report.proven:
        if cause.check in group.checks:
            for target in group.targets:
                unproven.pop(target, None)
    # Once the check reports all targets as passing, the next plan releases the mark.
    missing = [target_label(target) for target in unproven or cause.targets or (cause.target,)]
    rest = len(missing) - _SHOWN
    return ", ".join(missing[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def without_causes(
    marks: NodeMarks,
    device: Device | None,
    causes: Collection[MarkCause],
    soak: SoakPeriod,
    now: float,
    age: RecordedAge,
) -> NodeMarks:
    """Return the marks without some causes of a device, and its charge released if no cause is left.

    now: seconds since the epoch.
    """
    record = marks.record_of(device)
    remaining = tuple(cause for cause in record.causes if all(cause is not other for other in causes))
    if remaining or record.charge is None:
        return marks.with_record(device, replace(record, causes=remaining))
    marks = marks.with_record(device, replace(record, causes=(), charge=None))
    return record_release(marks, record.charge, soak, now, age)


def _forgotten(marks: NodeMarks, soak: SoakPeriod, age: RecordedAge) -> NodeMarks:
    """Return the marks without past charges once those are too old to count and nothing is marked."""
    past = marks.node.past_charges
    if not past or marks.is_marked or any(age(charge.ended) < soak.forget for charge in past):
        return marks
    return replace(marks, node=replace(marks.node, past_charges=()))


def _soak(marks: NodeMarks, check: str, soak: SoakPeriod, age: RecordedAge) -> float:
    occurrences = max(
        (
            charge.occurrences
            for charge in marks.node.past_charges
            if charge.check == check and age(charge.ended) < soak.forget
        ),
        default=0,
    )
    return float(min(soak.maximum, soak.first * 2.0 ** min(occurrences, 30)))
