"""Counts of marks that were set, released and withheld, from the observed marks and each plan's decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from nodeguard.aggregator.metric_families import CheckLabels
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.model.device import Device
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant
from nodeguard.model.mark import Mark

# Seconds between two comparisons of the marks: with many marked nodes one takes a millisecond.
_INTERVAL = 1.0


class _MarkKey(NamedTuple):
    """A mark of a node or device. target: of the cause, or the degraded domain, which has no check."""

    uid: str
    device: Device | None
    check: str
    target: str
    mark: Mark
    injected: bool


class MarkCounter:
    """Counts the changes of marks while this aggregator is active.

    set_marks: marks that appeared on Nodes and devices, by mark, check (empty for that of a domain), and
    whether the fault was injected. released_marks: marks that disappeared, by mark, reason, and the same: see
    ReleasedMark, or `replaced`, `recovered` (its domain), `node-deleted`, `unmarked` (by an operator or
    another client). withheld_requests: requests that became withheld, by mark and kind of restraint, without
    those of injected faults. on_released: receives the seconds from the first passing result of a check to
    the removal of its mark.
    """

    def __init__(self, *, on_released: Callable[[float], object] = lambda _: None) -> None:
        self.set_marks: Counter[tuple[str, str, bool]] = Counter()
        self.released_marks: Counter[tuple[str, str, bool]] = Counter()
        self.withheld_requests: Counter[tuple[str, str]] = Counter()
        self._labels = CheckLabels()
        self._on_released = on_released
        self._marks: set[_MarkKey] | None = None
        self._withheld: set[tuple[tuple[str, str, str], str, str]] | None = None
        self._reasons: dict[tuple[str, str, str], str] = {}
        self._passing_since: dict[tuple[str, str, str], float] = {}
        self._compared_at = float("-inf")

    def plan_made(self, planner: Planner, plan: Plan, now: Instant, *, acts: bool) -> None:
        """Count the changes since the last call. acts: whether this aggregator applies the plan; the counts
        begin with the first plan that it applies.
        """
        if not acts:
            self._marks = self._withheld = None
            return
        self._reasons.update(
            ((uid, released.cause.check, released.cause.target), released.reason)
            for uid, released in plan.released
        )
        if self._marks is None or now.mono - self._compared_at >= _INTERVAL:
            self._compared_at = now.mono
            self._count_withheld(planner)
            self._count_marks(planner, now)

    def _count_withheld(self, planner: Planner) -> None:
        withheld: set[tuple[tuple[str, str, str], str, str]] = {
            (decision.request.key, decision.request.mark.value, decision.restraint)
            for decisions in planner.tracker.decisions.values()
            for decision in decisions
            if decision.state == IncidentState.WITHHELD and not decision.request.injected
        }
        before, self._withheld = self._withheld, withheld
        if before is not None:
            self.withheld_requests.update((mark, kind) for _, mark, kind in withheld - before)

    def _count_marks(self, planner: Planner, now: Instant) -> None:
        marks = _observed_marks(planner)
        before, self._marks = self._marks, marks
        if before is not None:
            catalogue = planner.state.checks.catalogue
            self.set_marks.update(
                (key.mark, self._labels.label(key.check, catalogue), key.injected)
                for key in sorted(marks - before, key=lambda key: key.check)
            )
            for key in before - marks:
                self._count_release(planner, key, now)
        present = {(key.uid, key.check, key.target) for key in marks}
        self._reasons = {key: reason for key, reason in self._reasons.items() if key in present}
        since = {
            (uid, check, target): proof.since
            for uid, proofs in planner.releases.proofs.items()
            for (_, check, target), proof in proofs.items()
        }
        self._passing_since = {
            key: at for key, at in {**self._passing_since, **since}.items() if key in present
        }

    def _count_release(self, planner: Planner, key: _MarkKey, now: Instant) -> None:
        cause = key.uid, key.check, key.target
        reason = self._reasons.get(cause) or self._other_reason(planner, key)
        self.released_marks[key.mark, reason, key.injected] += 1
        if reason == "proven" and not key.injected and cause in self._passing_since:
            self._on_released(now.mono - self._passing_since[cause])

    def _other_reason(self, planner: Planner, key: _MarkKey) -> str:
        """Return why a mark disappeared that no plan has released."""
        if key.uid not in planner.state.nodes:
            return "node-deleted"
        marks = planner.state.marks.observed(key.uid).records
        if key.mark == Mark.DOMAIN_DEGRADED:
            return "replaced" if marks.node.degraded else "recovered"
        is_replaced = any(
            (cause.check, cause.target) == (key.check, key.target) for _, cause in marks.causes()
        )
        return "replaced" if is_replaced else "unmarked"


def _observed_marks(planner: Planner) -> set[_MarkKey]:
    """Return the marks that are observed on Nodes and devices."""
    marks = set()
    for uid in planner.state.marks.marked_nodes():
        observed = planner.state.marks.observed(uid).records
        marks |= {
            _MarkKey(uid, device, cause.check, cause.target, cause.mark, cause.injected)
            for device in observed.carriers
            for cause in observed.record_of(device).all_causes
        }
    return marks
