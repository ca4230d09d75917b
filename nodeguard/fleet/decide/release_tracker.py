"""The releases of a fleet: for each node, what goes of what it holds, and why the rest stays.

It keeps what is proven to be over from one plan to the next. No input, output or clock.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Set

from nodeguard.fleet.decide.domain_marks import DomainMarks
from nodeguard.fleet.decide.release import (
    NOT_EVALUATED,
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
)
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.latest_report import LatestReport, reports_fault
from nodeguard.fleet.state.node_marks import NodeMarks, record_release
from nodeguard.model.instant import Instant
from nodeguard.model.mark import MarkCause, MarkRecord
from nodeguard.model.node import Device

_NO_REPORT = ReleaseWait("silence", "the node's agent to report: nothing is released because no report comes")


class ReleaseTracker:
    """proofs: what is proven to be over, by uid of the node."""

    def __init__(
        self,
        roster: FleetState,
        heard: Mapping[str, LatestReport],
        domains: DomainMarks,
        checks: Container[str],
    ) -> None:
        """heard: latest reports, by uid. checks: that exist."""
        self.proofs: dict[str, dict[CauseKey, Proof]] = {}
        self._roster = roster
        self._heard = heard
        self._domains = domains
        self._checks = checks
        self._stays: dict[str, dict[CauseKey, ReleaseWait]] = {}

    def remove_node(self, uid: str) -> None:
        """Forget a Node that no longer exists."""
        self.proofs.pop(uid, None)
        self._stays.pop(uid, None)

    def wait(self, uid: str, place: Device | None, cause: MarkCause) -> ReleaseWait:
        """Return why a mark stays, as of the latest plan; one that this plan granted has its finding."""
        stay = self._stays.get(uid, {}).get(cause_key(place, cause)) or self._not_planned(uid, cause)
        # A node is not planned for again because other agents have a check now, or none has it any more.
        return (
            no_such_check(cause.check) if stay.kind == "proof" and cause.check not in self._checks else stay
        )

    def _not_planned(self, uid: str, cause: MarkCause) -> ReleaseWait:
        """Return why a mark stays that the latest plan did not evaluate."""
        heard = self._heard.get(uid)
        is_found = heard is not None and reports_fault(heard.findings, cause)
        return still_failing(cause.check) if is_found or uid in self._stays else NOT_EVALUATED

    def release(
        self, uid: str, silent: Set[str], now: Instant, freed: list[tuple[str, ReleasedMark]]
    ) -> NodeMarks:
        """Return what a node is to hold after what is released, which is added to `freed`. silent: uids of
        nodes whose agents do not report.
        """
        roster, policy = self._roster, self._roster.policy
        holding, seat = roster.marks(uid), roster.placements.get(uid)
        if seat is None:
            self._stays[uid] = wait_for_all(holding, _NO_REPORT)
            return holding
        if seat.hold:
            text = f"the hold to end ({seat.hold}); until then nothing is changed here"
            self._stays[uid] = wait_for_all(holding, ReleaseWait("hold", text))
            return holding
        heard, absent = self._heard.get(uid), _NO_REPORT
        if seat.maintenance:
            absent = ReleaseWait(
                "maintenance", f"maintenance to end ({seat.maintenance}), and proof after it"
            )
        if seat.maintenance or uid in silent:
            heard = None
        proven = proofs(self.proofs.get(uid, {}), holding, heard, policy.soak, now)
        self.proofs[uid] = proven
        found = release_marks(
            policy,
            holding,
            ReleaseEvidence(heard, absent, proven),
            lambda place, cause: self._is_removed(uid, place, cause),
            lambda cause: self._domains.is_retracted(cause, uid),
            now,
        )
        left, self._stays[uid] = found.marks, found.waits
        freed += [(uid, one) for one in found.released]
        for device, record in left.devices.items():
            if roster.is_device_gone(device):
                freed += [(uid, ReleasedMark(cause, "gone")) for cause in record.causes]
                left = left.with_record(device, MarkRecord())
                if record.charge is not None:
                    left = record_release(left, record.charge, policy.soak, now.wall)
        return left

    def _is_removed(self, uid: str, place: Device | None, cause: MarkCause) -> bool:
        """Whether a person took a mark away by hand."""
        roster = self._roster
        node = roster.nodes.get(uid)
        if node is None or place is not None or not roster.policy.marks.taint or roster.is_pending(uid):
            return False
        return roster.is_taint_removed(uid, cause.mark.key)
