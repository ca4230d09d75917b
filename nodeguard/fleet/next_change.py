"""When a plan may change without a new input: its caller plans then, and after each input. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator
from math import inf

from nodeguard.fleet.planner import Planner
from nodeguard.fleet.policy_rules import check_limit
from nodeguard.model.incident import IncidentState
from nodeguard.model.instant import Instant


def next_change(planner: Planner, now: Instant, margin: float = 0.0) -> float:
    """Return when the plan may change after `now`, in seconds of the monotonic clock; inf for never.

    A grace period, a soak period, the time of a check's limit, a silence or a grant of the dry run ends, a
    past charge is forgotten, or the diagnosis is due. Not among these: agents that become stale, which a tick
    of the planner finds, and what `changes_each_second` names. margin: seconds before `now` at which a change
    may not have been seen, as sums of floats are not exact.
    """
    ends = (
        *_grace_ends(planner, now),
        *_soak_ends(planner),
        *_limit_ends(planner, now),
        *_dry_run_ends(planner, now),
        *_past_charge_ends(planner, now),
        now.mono_of(planner.tracker.changes_at),
    )
    evaluation = planner.diagnosis.next_evaluation()
    due = inf if evaluation is None else max(evaluation, now.mono)
    return min((due, *(end for end in ends if end > now.mono - margin)))


def changes_each_second(planner: Planner) -> bool:
    """Return whether the plan may change at a time that is not computed: its caller then plans each second.

    These states are rare, or last for seconds: writes that are not observed, marks of a suppressed check that
    are released in turns, and degraded domains, which have limits on rates, recoveries and claims of Nodes.
    """
    state = planner.state
    return bool(
        state.marks.pending_nodes()
        or planner.unobserved_writes
        or planner.releases.deferred
        or planner.domain_marks.decisions
        or any(state.marks.latest(uid).node.degraded for uid in state.marks.marked_nodes())
    )


def _grace_ends(planner: Planner, now: Instant) -> Iterator[float]:
    for decisions in planner.tracker.decisions.values():
        for decision in decisions:
            if decision.state == IncidentState.PENDING and not decision.is_granted:
                yield now.mono_of(decision.until)


def _soak_ends(planner: Planner) -> Iterator[float]:
    # Only the nodes that are marked now: they are few, and any node may have been marked before.
    for uid in planner.state.marks.marked_nodes():
        for proof in planner.releases.proofs.get(uid, {}).values():
            yield proof.until


def _limit_ends(planner: Planner, now: Instant) -> Iterator[float]:
    """Yield when each mark of the checks that refuse further marks no longer counts as new."""
    by_node = planner.tracker.decisions.values()
    refusals = (decision.refusal for decisions in by_node for decision in decisions)
    checks = {refusal.check for refusal in refusals if refusal is not None and refusal.check}
    yield from _charge_ends(planner, checks, now) if checks else ()


def _charge_ends(planner: Planner, checks: Container[str], now: Instant) -> Iterator[float]:
    charges = [(grant.request.check, grant.at) for grant in planner.admissions.dry_run.values()]
    for usage in planner.state.usage.values():
        charges += ((charge.check, charge.at) for charge in usage.charges)
        charges += ((charge.check, charge.at) for charge in usage.past)
    for check, at in charges:
        if check in checks:
            yield from _age_ends(planner, at, check_limit(planner.policy, check).within, now)


def _dry_run_ends(planner: Planner, now: Instant) -> Iterator[float]:
    """Yield the ends of the dry run's grants with findings that have ended."""
    for grant in planner.admissions.dry_run.values():
        if grant.ended is not None:
            yield now.mono_of(grant.ended + planner.policy.soak.first)


def _past_charge_ends(planner: Planner, now: Instant) -> Iterator[float]:
    """Yield when each past charge does not lengthen a soak period any more."""
    for uid in planner.state.marks.marked_nodes():
        for charge in planner.state.marks.latest(uid).node.past_charges:
            yield from _age_ends(planner, charge.ended, planner.policy.soak.forget, now)


def _age_ends(planner: Planner, at: float, limit: float, now: Instant) -> Iterator[float]:
    """Yield when a recorded time is older than a limit; one in the future first becomes younger."""
    clock = planner.state.clock
    if not clock.mono_times(at, now):
        yield now.mono_of(at - limit)
        yield now.mono_of(at + limit)
    else:
        yield now.mono + limit - clock.age(at, now)
