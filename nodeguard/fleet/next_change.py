"""When a plan may change without a new input: its caller plans then, and after each input. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator
from math import inf

from nodeguard.fleet.planner import Planner
from nodeguard.fleet.policy_rules import check_limit
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant


def next_change(planner: Planner, now: Instant) -> float:
    """Return when the plan may change after `now`, in seconds of the monotonic clock; inf for never.

    A grace period, a soak period or the time of a check's limit ends, or the diagnosis is due. Not among
    these: agents that become stale, and writes that take too long.
    """
    ends = (*_grace_ends(planner, now), *_soak_ends(planner), *_limit_ends(planner, now))
    evaluation = planner.diagnosis.next_evaluation()
    due = inf if evaluation is None else max(evaluation, now.mono)
    return min((due, *(end for end in ends if end > now.mono)))


def _grace_ends(planner: Planner, now: Instant) -> Iterator[float]:
    for decisions in planner.decisions.values():
        for decision in decisions:
            if decision.state == IncidentState.PENDING and not decision.is_granted:
                yield now.mono_of(decision.until)


def _soak_ends(planner: Planner) -> Iterator[float]:
    # Only the nodes that are marked now: they are few, and any node may have been marked before.
    for uid in planner.state.marked_nodes():
        for proof in planner.releases.proofs.get(uid, {}).values():
            yield proof.until


def _limit_ends(planner: Planner, now: Instant) -> Iterator[float]:
    """Yield when each mark of the checks that refuse further marks no longer counts as new."""
    refusals = (decision.refusal for decisions in planner.decisions.values() for decision in decisions)
    checks = {refusal.check for refusal in refusals if refusal is not None and refusal.check}
    yield from _charge_ends(planner, checks, now) if checks else ()


def _charge_ends(planner: Planner, checks: Container[str], now: Instant) -> Iterator[float]:
    for usage in planner.state.usage.values():
        charges = ((charge.check, charge.at) for charge in usage.charges)
        past = ((charge.check, charge.at) for charge in usage.past)
        for check, at in (*charges, *past):
            if check in checks:
                age = planner.state.clock.age(at, now)
                yield now.mono + check_limit(planner.policy, check).within - age
