"""Releases of the fleet: for each node, the marks that end, and the waits of the others.

It holds the proofs from one plan to the next. No input, output or clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Set
from functools import partial

from msgspec import Struct

from nodeguard.fleet.decide.domain_marks import DomainMarks
from nodeguard.fleet.decide.release import (
    NOT_EVALUATED,
    RELEASING,
    CauseKey,
    Proof,
    ReleasedMark,
    ReleaseEvidence,
    ReleaseWait,
    cause_key,
    no_such_check,
    proofs,
    release_marks,
    still_failing,
    wait_for_all,
    without_causes,
)
from nodeguard.fleet.policy_rules import check_limit
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import reports_fault
from nodeguard.model.device import Device
from nodeguard.model.instant import Instant
from nodeguard.model.mark import DegradedMark, MarkCause, NodeMarks

_NO_REPORT = ReleaseWait("silence", "the node's agent to report: without a report no mark is released")


def _hold_wait(reason: str) -> ReleaseWait:
    return ReleaseWait("hold", f"the hold to end ({reason}); until then nothing is changed here")


class ActiveMark(Struct, frozen=True):
    """A mark of a node or a device. cause: a fault of the node, or the mark of a degraded domain. wait: what
    its release waits for. is_written: whether it is in effect on its object.
    """

    cause: MarkCause | DegradedMark
    device: Device | None
    wait: ReleaseWait
    is_written: bool


class ReleaseTracker:
    """Releases marks. proofs: which causes are over, by uid of the node. deferred: uids of nodes with marks
    that are released once fewer marks of a suppressed check were released recently.
    """

    def __init__(self, state: FleetState, domains: DomainMarks) -> None:
        self.proofs: dict[str, dict[CauseKey, Proof]] = {}
        self.deferred: set[str] = set()
        self._state = state
        self._domains = domains
        self._waits: dict[str, dict[CauseKey, ReleaseWait]] = {}
        # When the marks of suppressed checks were released, by check and uid.
        self._retracted: dict[str, dict[str, float]] = {}

    def remove_node(self, uid: str) -> None:
        """Remove a Node that no longer exists."""
        self.proofs.pop(uid, None)
        self.deferred.discard(uid)
        self._waits.pop(uid, None)

    def wait(self, uid: str, device: Device | None, cause: MarkCause) -> ReleaseWait:
        """Return the wait of a mark, as of the latest plan; a new mark waits for its finding to end."""
        wait = self._waits.get(uid, {}).get(cause_key(device, cause)) or self._not_planned(uid, cause)
        # A node is not planned again only because other agents have a check now, or none has it any more.
        is_unknown = wait.kind == "proof" and cause.check not in self._state.checks
        return no_such_check(cause.check) if is_unknown else wait

    def active_marks(self, uid: str) -> Iterator[ActiveMark]:
        """Yield the marks of a node and its devices, with those to be written or removed."""
        marks, observed = self._state.marks.latest(uid), self._state.marks_in_effect(uid)
        current = {cause_key(device, cause) for device, cause in marks.causes()}
        written = {cause_key(device, cause) for device, cause in observed.causes()}
        for device, cause in marks.causes():
            is_written = cause_key(device, cause) in written
            yield ActiveMark(cause, device, self.wait(uid, device, cause), is_written)
        for device, cause in observed.causes():
            if cause_key(device, cause) not in current:
                yield ActiveMark(cause, device, RELEASING, is_written=True)
        placement = self._state.placements.get(uid)
        for mark in dict.fromkeys((*marks.node.degraded, *observed.node.degraded)):
            decision = self._domains.decision(mark.domain) if mark in marks.node.degraded else None
            wait = RELEASING
            if placement is not None and placement.hold:
                wait = _hold_wait(placement.hold)
            elif decision is not None:
                wait = ReleaseWait("domain", f"{mark.domain} to recover: ends when {decision.clears_when}")
            elif message := self._domains.claim_message(uid, mark):
                wait = ReleaseWait("proof", message)
            yield ActiveMark(mark, None, wait, mark in observed.node.degraded)

    def _not_planned(self, uid: str, cause: MarkCause) -> ReleaseWait:
        """Return the wait of a mark that the latest plan did not evaluate."""
        report = self._state.reports.get(uid)
        is_found = report is not None and reports_fault(report, cause)
        return still_failing(cause.check) if is_found or uid in self._waits else NOT_EVALUATED

    def release(
        self, uid: str, stale: Set[str], now: Instant, released: list[tuple[str, ReleasedMark]]
    ) -> NodeMarks:
        """Return the marks of a node after the release; add the released ones to `released`. stale: uids of
        nodes with stale agents.
        """
        state, policy = self._state, self._state.policy
        marks, placement = state.marks.latest(uid), state.placements.get(uid)
        self.deferred.discard(uid)
        if placement is None:
            self._waits[uid] = wait_for_all(marks, _NO_REPORT)
            return marks
        if placement.hold:
            self._waits[uid] = wait_for_all(marks, _hold_wait(placement.hold))
            return marks
        report, absent = self._state.reports.get(uid), _NO_REPORT
        if placement.maintenance:
            absent = ReleaseWait(
                "maintenance", f"maintenance to end ({placement.maintenance}), and its check to pass after it"
            )
        if placement.maintenance or uid in stale:
            report = None
        age = partial(state.clock.age, now=now)
        proven = proofs(self.proofs.get(uid, {}), marks, report, policy.soak, age, now)
        self.proofs[uid] = proven
        release = release_marks(
            policy,
            marks,
            ReleaseEvidence(report, absent, proven),
            lambda device, cause: self._is_removed(uid, device, cause),
            lambda cause: self._retracts(uid, cause, now),
            age,
            now,
        )
        marks, self._waits[uid] = release.marks, release.waits
        released += [(uid, mark) for mark in release.released]
        for device, record in marks.devices.items():
            if state.devices.is_gone(device):
                released += [(uid, ReleasedMark(cause, "gone")) for cause in record.causes]
                marks = without_causes(marks, device, record.causes, policy.soak, now.wall, age)
        return marks

    def _retracts(self, uid: str, cause: MarkCause, now: Instant) -> bool:
        """Return whether a mark of a suppressed check is released now: no faster than the check may set
        marks, so that an operator can intervene.
        """
        if not self._domains.is_retracted(cause, uid, now):
            return False
        limit = check_limit(self._state.policy, cause.check)
        recent = {
            other: at
            for other, at in self._retracted.get(cause.check, {}).items()
            if now.mono - at < limit.within
        }
        if uid not in recent and len(recent) >= limit.new:
            self.deferred.add(uid)
            return False
        self._retracted[cause.check] = {uid: now.mono, **recent}
        return True

    def _is_removed(self, uid: str, device: Device | None, cause: MarkCause) -> bool:
        """Return whether an operator removed a mark by hand."""
        state = self._state
        node = state.nodes.get(uid)
        if node is None or device is not None or not state.policy.marks.taint or state.marks.is_pending(uid):
            return False
        return state.marks.is_removed(uid, cause.mark)
