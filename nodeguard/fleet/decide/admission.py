"""Admission: which mark requests are granted, the most severe first, within the budgets. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.budget_limits import BudgetRefusal
from nodeguard.fleet.decide.admission_state import (
    NO_MARKS,
    AdmissionContext,
    AdmissionState,
    Grant,
    RequestKey,
)
from nodeguard.fleet.decide.mark_requests import MarkRequest, grace_end, is_marked_for
from nodeguard.fleet.decide.preemption import Preemption, preempt
from nodeguard.fleet.decide.release import ReleasedMark
from nodeguard.fleet.decide.restraints import UNOBSERVED, RestraintKind
from nodeguard.fleet.policy_rules import mode_of
from nodeguard.fleet.state.budget_usage import BudgetUsage, NodeUsage
from nodeguard.model.incident import GRANTED_STATES, IncidentState, WriteState
from nodeguard.model.mark import NodeMarks
from nodeguard.model.policy import Mode, Policy


class MarkDecision(Struct, frozen=True):
    """The decision on a mark request, with its reason.

    state: `Marked` (`Advised` without a cluster); `Pending`: in its grace period, which ends at `until`,
    seconds since the epoch; `DryRun`: its check is not enforced; `Withheld`; or `Open`: a mark of its domain
    replaces it. reason: why the mark is not set; of a dry run, why it would be withheld, empty if it
    would be set. restraint: the kind of this reason, empty without one. refusal: the budget at its limit,
    if that is the reason. write: why a granted mark is not on its object yet, see observed_marks: `Pending`
    at first, `Withheld` if that lasts.
    """

    request: MarkRequest
    state: IncidentState
    reason: str = ""
    until: float = 0.0
    restraint: RestraintKind | Literal[""] = ""
    refusal: BudgetRefusal | None = None
    write: WriteState | None = None

    @property
    def is_granted(self) -> bool:
        """Return whether the plan sets the mark, whether or not it is in effect on its object."""
        return self.state in GRANTED_STATES or self.restraint in UNOBSERVED

    @property
    def is_being_written(self) -> bool:
        """Return whether the mark is granted, and its write may still be observed soon."""
        return self.state == IncidentState.PENDING and self.write is not None


class Admission(Struct, frozen=True):
    """The result of the admission.

    marks: of each node that gets a mark. usage: what these nodes then use of the budgets. decisions: one for
    each request. grants: the requests that were granted, those of earlier plans too. preemption: marks of
    injected faults that are released for requests of real ones.
    """

    marks: dict[str, NodeMarks]
    usage: dict[str, NodeUsage]
    decisions: list[MarkDecision]
    grants: dict[RequestKey, Grant]
    preemption: Preemption


_NONE: dict[RequestKey, Grant] = {}


def admit(
    requests: Iterable[MarkRequest],
    context: AdmissionContext,
    budgets: BudgetUsage,
    granted: IncidentState,
    already: Mapping[RequestKey, Grant] = _NONE,
) -> Admission:
    """Decide on each mark request, and charge the granted requests to the budgets.

    granted: the state of a request that is granted. `DryRun` counts marks that are not set: there a refused
    request is a dry run too, with the reason that would withhold it. already: requests that an earlier dry
    run granted. They stay granted while their findings last, and for the first soak period after that: they
    come first, no budget refuses them, and one that became more severe asks for its new mark. Capacity that
    is released in this plan is not granted again in it, as either may be written first. The same applies to a
    dry run if a request is withdrawn.

    A node with a mark that covers the requested one, as a quarantine covers a suspect mark, does not get it:
    the request is granted and uses no budget. After that mark it is decided like that of any other node.

    Injected faults come last, after the preemption of their marks by real ones.
    """
    progress = _Progress(context, budgets, granted, already)
    in_order = sorted(requests, key=lambda request: request.order)
    if already:
        progress.continue_grants({request.key for request in in_order})
    real = [request for request in in_order if not request.injected]
    for request in real:
        progress.decide(request)
    injected = in_order[len(real) :]
    progress.preempt(has_injected=bool(injected))
    for request in injected:
        progress.decide(request)
    return progress.result()


class _Progress:
    """An admission in progress."""

    def __init__(
        self,
        context: AdmissionContext,
        budgets: BudgetUsage,
        granted: IncidentState,
        already: Mapping[RequestKey, Grant],
    ) -> None:
        self._context, self._granted = context, granted
        # An injected fault keeps no budget from a real one.
        self._already = {key: grant for key, grant in already.items() if not grant.request.injected}
        self._state = AdmissionState(context, budgets)
        self._longest_grace = context.policy.grace.longest
        self._is_dry_run = granted == IncidentState.DRY_RUN
        self._refused_state = IncidentState.DRY_RUN if self._is_dry_run else IncidentState.WITHHELD
        self._decisions: list[MarkDecision] = []
        self._over_budget: list[tuple[MarkRequest, BudgetRefusal]] = []
        self._preemption = Preemption()

    def continue_grants(self, asked: set[RequestKey]) -> None:
        """Grant the requests that an earlier dry run granted. asked: the keys of all requests now."""
        for key, grant in sorted(self._already.items(), key=lambda item: (item[1].at, item[1].request.order)):
            if key not in asked:
                self._state.grant_ended(grant)
            elif self._state.size_restraint(grant.request) is None:
                self._state.grant(grant.request, grant.at)

    def decide(self, request: MarkRequest) -> None:
        """Decide on a request; on one that a budget refuses, `result` does."""
        context, state, preemption = self._context, self._state, self._preemption
        marks = state.marks_of(request.uid)
        if request.injected and request.uid in preemption.marks:
            self._withhold_for(request, preemption.preempted_by[request.uid])
        elif marks is not NO_MARKS and (is_marked_for(marks, request) or marks.covers(request.mark)):
            self._decisions.append(MarkDecision(request, self._granted))
        elif context.now < request.since + self._longest_grace and (
            until := grace_end(context.policy, request, context.now)
        ):
            self._decisions.append(MarkDecision(request, IncidentState.PENDING, until=until))
        elif restraint := context.restraint(request) or state.size_restraint(request):
            self._decisions.append(
                MarkDecision(request, self._refused_state, restraint.message, restraint=restraint.kind)
            )
        elif request.injected and preemption.waiting:
            self._withhold_for(request, preemption.waiting[0])
        elif refusal := state.refusal(request):
            self._over_budget.append((request, refusal))
        else:
            self._grant(request)

    def _grant(self, request: MarkRequest) -> None:
        grant = self._already.get(request.key)
        self._state.grant(request, self._context.now if grant is None else grant.at)
        self._decisions.append(MarkDecision(request, self._granted))

    def _withhold_for(self, request: MarkRequest, real: tuple[MarkRequest, BudgetRefusal]) -> None:
        """Withhold the mark of an injected fault for a real one."""
        other, refusal = real
        reason = f"preempted by a real fault: {other.check} on {other.node} needs the {refusal.budget}"
        self._decisions.append(
            MarkDecision(request, self._refused_state, reason, restraint="budget", refusal=refusal)
        )

    def preempt(self, *, has_injected: bool) -> None:
        """Release marks of injected faults for the requests of real ones that the budgets refused. A dry run
        releases none: it grants these requests. has_injected: whether any injected fault asks for a mark.
        """
        preemption = preempt(self._over_budget, self._context, self._state, has_injected=has_injected)
        if not self._is_dry_run:
            self._preemption = preemption
            return
        for request, refusal in preemption.waiting:
            self._over_budget.remove((request, refusal))
            self._grant(request)

    def result(self) -> Admission:
        """Return the result, once all requests are decided."""
        state, reasons = self._state, dict[BudgetRefusal, str]()
        waiting = {request.key for request, _ in self._preemption.waiting}
        # Asked again at the end, if any is charged, so that the next plan names the same budget.
        for request, before in self._over_budget:
            refusal = (state.refusal(request) if state.usage else None) or before
            # Many requests have the same refusal.
            if refusal not in reasons:
                reasons[refusal] = refusal.message(dry_run=self._is_dry_run)
            reason = reasons[refusal]
            if waiting and request.key in waiting and self._preemption.marks:
                reason = f"{reason}; marks of injected faults are removed first"
            self._decisions.append(
                MarkDecision(request, self._refused_state, reason, restraint="budget", refusal=refusal)
            )
        return Admission(state.marks, state.usage, self._decisions, state.grants, self._preemption)


class Admitted(Struct, frozen=True):
    """The result of the admission of all requests of a plan.

    granted: the marks of the nodes that get one, without those of the dry run. preempted: those of the nodes
    that lose marks of injected faults; released: these marks, by uid.
    """

    granted: dict[str, NodeMarks]
    decisions: list[MarkDecision]
    preempted: Mapping[str, NodeMarks]
    released: tuple[tuple[str, ReleasedMark], ...]


class Admissions:
    """The admission of each plan: enforced requests first, then the dry run of the others.

    A dry run continues with its earlier grants: those of the latest plan before `keep_grants`.
    """

    def __init__(self, granted: IncidentState) -> None:
        """granted: the state of a granted mark."""
        self._granted = granted
        self._dry_run: dict[RequestKey, Grant] = {}
        self._latest_dry_run: dict[RequestKey, Grant] = {}

    @property
    def dry_run(self) -> Mapping[RequestKey, Grant]:
        """Return the grants of the latest dry run."""
        return self._latest_dry_run

    @property
    def is_kept(self) -> bool:
        """Return whether the next dry run continues with the grants of the latest one."""
        return self._dry_run == self._latest_dry_run

    def keep_grants(self) -> None:
        """Let the next dry run continue with the grants of the latest one."""
        self._dry_run = self._latest_dry_run

    def admit(self, requests: list[MarkRequest], context: AdmissionContext, budgets: BudgetUsage) -> Admitted:
        """Decide on all requests. budgets: the granted requests are charged to them."""
        policy = context.policy
        enforced = [request for request in requests if _is_enforced(policy, context.marks, request)]
        admission = admit(enforced, context, budgets, self._granted)
        decisions, preemption = admission.decisions, admission.preemption
        self._latest_dry_run = {}
        enforced_keys = {request.key for request in enforced} if self._dry_run else set[RequestKey]()
        earlier = {key: grant for key, grant in self._dry_run.items() if key not in enforced_keys}
        if len(enforced) != len(requests) or earlier:
            marks = {**context.marks, **admission.marks}
            rest = [request for request in requests if not _is_enforced(policy, marks, request)]
            context = replace(context, marks=marks, usage={**context.usage, **admission.usage})
            dry_run = admit(rest, context, budgets, IncidentState.DRY_RUN, earlier)
            self._latest_dry_run = dry_run.grants
            decisions = [*decisions, *dry_run.decisions]
        return Admitted(admission.marks, decisions, preemption.marks, preemption.released)


def _is_enforced(policy: Policy, marks: Mapping[str, NodeMarks], request: MarkRequest) -> bool:
    """Return whether the mark of a request is enforced, or set already; else it is a dry run."""
    node_marks = marks.get(request.uid)
    if node_marks is not None and is_marked_for(node_marks, request):
        return True
    return mode_of(policy, request.check, request.mark) == Mode.ENFORCE
