"""What is given back: for proof and a soak, and never for anything else but where it is said here. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.policy_rules import hold_on_check
from nodeguard.fleet.state.latest_report import LatestReport, proves, reports_fault
from nodeguard.fleet.state.node_marks import NodeMarks, record_release
from nodeguard.model.instant import Instant
from nodeguard.model.mark import MarkCause, MarkRecord
from nodeguard.model.node import Device
from nodeguard.model.policy import Policy, SoakPeriod
from nodeguard.model.target import target_label

# What a mark waits for: see Stay.
WaitKind = Literal[
    "finding", "proof", "soak", "check", "hold", "maintenance", "silence", "domain", "evaluation", "write"
]

# Slots that are named before the rest is counted.
_SHOWN = 4


class Proof(Struct, frozen=True):
    """A cause that is proven to be over. since: seconds of the monotonic clock from when it has been, without
    a break; until: from then on its mark goes.
    """

    since: float
    until: float


class ReleasedMark(Struct, frozen=True):
    """A cause whose mark was given back, and why: `proven`, `retracted` (its check is held), `superseded` (a
    domain's mark covers the node), `removed` (by a person's own hand, and nothing is found there any more),
    or `gone` (with its device).
    """

    cause: MarkCause
    reason: str


# What identifies a cause on a node: where it is remembered, its check, and the slot.
CauseKey = tuple[Device | None, str, str]


def cause_key(place: Device | None, cause: MarkCause) -> CauseKey:
    """What identifies a cause that is remembered in some place."""
    return place, cause.check, cause.target


def proofs(
    before: Mapping[CauseKey, Proof],
    holding: NodeMarks,
    heard: LatestReport | None,
    soak: SoakPeriod,
    now: Instant,
) -> dict[CauseKey, Proof]:
    """Which causes are proven to be over now, and since when. heard: None while nothing is heard of the node,
    which proves nothing.
    """
    if heard is None:
        return {}
    found = {}
    for place in holding.carriers:
        for cause in holding.record_of(place).causes:
            if proves(heard, cause):
                name = cause_key(place, cause)
                since = before[name].since if name in before else now.mono
                found[name] = Proof(since, since + _soak(holding, cause.check, soak, now.wall))
    return found


class ReleaseWait(Struct, frozen=True):
    """Why a mark stays: what has to happen before it is released.

    on: `finding`: its check must stop finding the fault; `proof`: the check must report that it is over;
    `soak`: it has, and time must pass; `check`: no agent has that check any more; `hold`, `maintenance`:
    people must end theirs; `silence`: the node's agent must report; `domain`: the domain must not be degraded
    any more; `evaluation`: the aggregator must evaluate it, for the first time since its start; `write`:
    nothing but the write. says: in words. until: seconds of the monotonic clock at which a
    soak period ends; 0 for any other.
    """

    kind: WaitKind
    message: str
    until: float = 0.0


RELEASING = ReleaseWait("write", "is being released")
NOT_EVALUATED = ReleaseWait(
    "evaluation", "the aggregator to evaluate it, which it has not done since it started"
)


class ReleaseEvidence(Struct, frozen=True):
    """What the release of a node's marks follows from.

    heard: its latest report, None while that proves nothing; absent: why that is so. proven: see `proofs`.
    """

    report: LatestReport | None
    absent: ReleaseWait
    proven: Mapping[CauseKey, Proof]


class NodeRelease(Struct, frozen=True):
    """What is left of what a node holds, what is released, and why the rest stays, by what identifies it."""

    marks: NodeMarks
    released: tuple[ReleasedMark, ...]
    waits: dict[CauseKey, ReleaseWait]


def release_marks(
    policy: Policy,
    holding: NodeMarks,
    facts: ReleaseEvidence,
    removed: Callable[[Device | None, MarkCause], bool],
    suppressed: Callable[[MarkCause], bool],
    now: Instant,
) -> NodeRelease:
    """Return what is released of what a node holds, and why the rest stays.

    removed: whether a cause's mark is not there any more though nodeguard did not take it away. suppressed:
    whether a cause's check is suppressed and nothing else confirms the cause.
    """
    freed: list[ReleasedMark] = []
    stays: dict[CauseKey, ReleaseWait] = {}

    def why(place: Device | None, cause: MarkCause) -> str:
        proof = facts.proven.get(cause_key(place, cause))
        if proof is not None and now.mono >= proof.until:
            return "proven"
        if hold_on_check(policy, cause.check) is not None or suppressed(cause):
            return "retracted"
        told = facts.report is not None and reports_fault(facts.report.findings, cause)
        return "removed" if not told and removed(place, cause) else ""

    for place in holding.carriers:
        record = holding.record_of(place)
        gone = [ReleasedMark(cause, said) for cause in record.causes if (said := why(place, cause))]
        left = tuple(cause for cause in record.causes if all(cause is not one.cause for one in gone))
        stays.update((cause_key(place, cause), _stay(facts, place, cause)) for cause in left)
        if gone:
            freed += gone
            holding = without_causes(holding, place, replace(record, causes=left), policy.soak, now.wall)
    return NodeRelease(_forgotten(holding, policy.soak, now.wall), tuple(freed), stays)


def wait_for_all(holding: NodeMarks, why: ReleaseWait) -> dict[CauseKey, ReleaseWait]:
    """Return the same reason for everything that a node holds."""
    return {
        cause_key(place, cause): why
        for place in holding.carriers
        for cause in holding.record_of(place).causes
    }


def still_failing(check: str) -> ReleaseWait:
    """Return why a mark stays whose check finds the fault still."""
    return ReleaseWait("finding", f"{check} to find it no more; it finds it still")


def no_such_check(check: str) -> ReleaseWait:
    """Return why a mark stays whose check no agent has any more: nothing can prove that it is over."""
    remedy = "hold the check in the policy, or remove the mark by hand"
    return ReleaseWait("check", f"check {check}, which no agent has any more: {remedy}")


def _stay(facts: ReleaseEvidence, place: Device | None, cause: MarkCause) -> ReleaseWait:
    proof = facts.proven.get(cause_key(place, cause))
    if proof is not None:
        return ReleaseWait(
            "soak", f"the soak period to end, while {cause.check} goes on proving it", proof.until
        )
    if facts.report is None:
        return facts.absent
    if reports_fault(facts.report.findings, cause):
        return still_failing(cause.check)
    return ReleaseWait("proof", f"{cause.check} to prove that {_unproven(facts.report, cause)} in order")


def _unproven(one: LatestReport, cause: MarkCause) -> str:
    """Return the slots of which a check has not reported yet that they are in order."""
    places = dict.fromkeys(cause.targets or (cause.target,))
    for group in one.proven:
        if cause.check in group.checks:
            for slot in group.targets:
                places.pop(slot, None)
    # All of them are proven, and the next plan says so.
    missing = [target_label(slot) for slot in places or cause.targets or (cause.target,)]
    rest = len(missing) - _SHOWN
    names = ", ".join(missing[:_SHOWN]) + (f" and {rest} more" if rest > 0 else "")
    return f"{names} {'is' if len(missing) == 1 else 'are'}"


def without_causes(
    holding: NodeMarks, place: Device | None, record: MarkRecord, soak: SoakPeriod, now: float
) -> NodeMarks:
    """With another record in a place, whose charge is given back where no cause is left. now: seconds since
    the epoch.
    """
    charge = record.charge
    if record.causes or charge is None:
        return holding.with_record(place, record)
    return record_release(holding.with_record(place, replace(record, charge=None)), charge, soak, now)


def _forgotten(holding: NodeMarks, soak: SoakPeriod, now: float) -> NodeMarks:
    """Without a past that counts for nothing any more, once nothing stands."""
    past = holding.node.past_charges
    if not past or holding.is_marked or any(now - one.ended < soak.forget for one in past):
        return holding
    return replace(holding, node=replace(holding.node, past_charges=()))


def _soak(holding: NodeMarks, check: str, soak: SoakPeriod, now: float) -> float:
    times = max(
        (
            one.occurrences
            for one in holding.node.past_charges
            if one.check == check and now - one.ended < soak.forget
        ),
        default=0,
    )
    return float(min(soak.maximum, soak.first * 2.0 ** min(times, 30)))
