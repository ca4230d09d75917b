"""The releases of a fleet: for each node, what goes of what it holds, and why the rest stays.

It keeps what is proven to be over from one plan to the next. No input, output or clock.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Set

from nodeguard.fleet.domains.domains import Domains
from nodeguard.fleet.heard import Heard, tells_of
from nodeguard.fleet.holding import Holding, given_back
from nodeguard.fleet.release import (
    NOT_EVALUATED,
    Freed,
    Key,
    NodeFacts,
    Proof,
    Stay,
    all_stay,
    finds_still,
    key,
    no_such_check,
    proofs,
    released,
)
from nodeguard.fleet.roster import Roster
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Cause, Record
from nodeguard.model.node import Device

_NO_REPORT = Stay("silence", "the node's agent to report: nothing is released because no report comes")


class Releases:
    """proofs: what is proven to be over, by uid of the node."""

    def __init__(
        self, roster: Roster, heard: Mapping[str, Heard], domains: Domains, checks: Container[str]
    ) -> None:
        """heard: latest reports, by uid. checks: that exist."""
        self.proofs: dict[str, dict[Key, Proof]] = {}
        self._roster = roster
        self._heard = heard
        self._domains = domains
        self._checks = checks
        self._stays: dict[str, dict[Key, Stay]] = {}

    def gone(self, uid: str) -> None:
        """Forget a Node that no longer exists."""
        self.proofs.pop(uid, None)
        self._stays.pop(uid, None)

    def stay(self, uid: str, place: Device | None, cause: Cause) -> Stay:
        """Return why a mark stays, as of the latest plan; one that this plan granted has its finding."""
        stay = self._stays.get(uid, {}).get(key(place, cause)) or self._not_planned(uid, cause)
        # A node is not planned for again because other agents have a check now, or none has it any more.
        return no_such_check(cause.check) if stay.on == "proof" and cause.check not in self._checks else stay

    def _not_planned(self, uid: str, cause: Cause) -> Stay:
        """Return why a mark stays that the latest plan did not evaluate."""
        heard = self._heard.get(uid)
        is_found = heard is not None and tells_of(heard.findings, cause)
        return finds_still(cause.check) if is_found or uid in self._stays else NOT_EVALUATED

    def left(self, uid: str, silent: Set[str], now: Instant, freed: list[tuple[str, Freed]]) -> Holding:
        """Return what a node is to hold after what is released, which is added to `freed`. silent: uids of
        nodes whose agents do not report.
        """
        roster, policy = self._roster, self._roster.policy
        holding, seat = roster.holding(uid), roster.seats.get(uid)
        if seat is None:
            self._stays[uid] = all_stay(holding, _NO_REPORT)
            return holding
        if seat.hold:
            text = f"the hold to end ({seat.hold}); until then nothing is changed here"
            self._stays[uid] = all_stay(holding, Stay("hold", text))
            return holding
        heard, absent = self._heard.get(uid), _NO_REPORT
        if seat.maintenance:
            absent = Stay("maintenance", f"maintenance to end ({seat.maintenance}), and proof after it")
        if seat.maintenance or uid in silent:
            heard = None
        proven = proofs(self.proofs.get(uid, {}), holding, heard, policy.soak, now)
        self.proofs[uid] = proven
        found = released(
            policy,
            holding,
            NodeFacts(heard, absent, proven),
            lambda place, cause: self._is_removed(uid, place, cause),
            lambda cause: self._domains.holds(cause, uid),
            now,
        )
        left, self._stays[uid] = found.holding, found.stays
        freed += [(uid, one) for one in found.freed]
        for device, record in left.devices.items():
            if roster.is_gone(device):
                freed += [(uid, Freed(cause, "gone")) for cause in record.causes]
                left = left.put(device, Record())
                if record.charge is not None:
                    left = given_back(left, record.charge, policy.soak, now.wall)
        return left

    def _is_removed(self, uid: str, place: Device | None, cause: Cause) -> bool:
        """Whether a person took a mark away by hand."""
        roster = self._roster
        node = roster.nodes.get(uid)
        if node is None or place is not None or not roster.policy.marks.taint or roster.is_pending(uid):
            return False
        return roster.is_taken(uid, cause.mark.key)
