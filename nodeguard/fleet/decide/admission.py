"""Admission: which mark requests are granted, the most severe first, within the budgets. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.budget_limits import BudgetRefusal
from nodeguard.fleet.decide.mark_requests import MarkRequest, grace_end, is_marked_for
from nodeguard.fleet.decide.restraints import Restraint, RestraintKind
from nodeguard.fleet.policy_rules import mode_of
from nodeguard.fleet.state.budget_usage import BudgetUsage, NodeUsage
from nodeguard.fleet.state.node_marks import MAX_CAUSES_BYTES, NodeMarks, encode_record, node_usage
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.incident import GRANTED_STATES, IncidentState
from nodeguard.model.mark import STATE_ANNOTATION, Charge, Mark, MarkCause
from nodeguard.model.policy import Mode, Policy


class MarkDecision(Struct, frozen=True):
    """The decision on a mark request, with its reason.

    state: `Marked` (`Advised` without a cluster); `Pending`: in its grace period, which ends at `until`,
    seconds since the epoch; `DryRun`: its check is not enforced; `Withheld`; or `Open`: a mark of its domain
    replaces it. reason: why the mark is not set; of a dry run, why it would be withheld, empty if it
    would be set. restraint: the kind of this reason, empty without one. refusal: the budget that is used up,
    if that is the reason.
    """

    request: MarkRequest
    state: IncidentState
    reason: str = ""
    until: float = 0.0
    restraint: RestraintKind | Literal[""] = ""
    refusal: BudgetRefusal | None = None

    @property
    def is_granted(self) -> bool:
        """Return whether the mark is set, or is about to be."""
        return self.state in GRANTED_STATES


# The key of a request: see MarkRequest.key.
RequestKey = tuple[str, str, str]


class Grant(Struct, frozen=True):
    """A request that was granted, and when. ended: when its finding ended; None while it lasts. Times in
    seconds since the epoch.
    """

    request: MarkRequest
    at: float
    ended: float | None = None


_NONE: dict[RequestKey, Grant] = {}


class AdmissionContext(Struct, frozen=True):
    """The inputs of the admission.

    placements, marks: of every node with a request, by uid. usage: charges of each node that the
    budgets count already. restraint: returns why nothing new may be marked on a node, None if it may.
    now: seconds since the epoch.
    """

    policy: Policy
    placements: Mapping[str, NodePlacement]
    marks: Mapping[str, NodeMarks]
    usage: Mapping[str, NodeUsage]
    restraint: Callable[[MarkRequest], Restraint | None]
    now: float


class Admission(Struct, frozen=True):
    """The result of the admission.

    marks: of each node that gets a mark. usage: what these nodes then use of the budgets. decisions: one for
    each request. grants: the requests that were granted, those of earlier plans too.
    """

    marks: dict[str, NodeMarks]
    usage: dict[str, NodeUsage]
    decisions: list[MarkDecision]
    grants: dict[RequestKey, Grant]


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

    A quarantined node gets no suspect mark, as quarantine keeps the same work away: the request is granted
    and uses no budget. After the quarantine it is decided like that of any other node.
    """
    state = _AdmissionState(context, budgets)
    dry_run = granted == IncidentState.DRY_RUN
    refused_state = IncidentState.DRY_RUN if dry_run else IncidentState.WITHHELD
    decisions, over_budget = [], []
    in_order = sorted(requests, key=lambda request: request.order)
    asked = {request.key for request in in_order}
    for name, grant in sorted(already.items(), key=lambda item: (item[1].at, item[1].request.order)):
        if name not in asked:
            state.grant_ended(grant)
        elif state.size_restraint(grant.request) is None:
            state.grant(grant.request, grant.at)
    for request in in_order:
        marks = state.marks_of(request.uid)
        if is_marked_for(marks, request) or (request.mark == Mark.SUSPECT and marks.is_quarantined):
            decisions.append(MarkDecision(request, granted))
        elif until := grace_end(context.policy, request, context.now):
            decisions.append(MarkDecision(request, IncidentState.PENDING, until=until))
        elif restraint := context.restraint(request) or state.size_restraint(request):
            decisions.append(
                MarkDecision(request, refused_state, restraint.message, restraint=restraint.kind)
            )
        elif refusal := state.refusal(request):
            over_budget.append((request, refusal))
        else:
            state.grant(request, already[request.key].at if request.key in already else context.now)
            decisions.append(MarkDecision(request, granted))
    # Asked again at the end, so that the next plan names the same budget.
    for request, before in over_budget:
        refusal = state.refusal(request) or before
        reason = refusal.message(dry_run=dry_run)
        decisions.append(MarkDecision(request, refused_state, reason, restraint="budget", refusal=refusal))
    return Admission(state.marks, state.usage, decisions, state.grants)


class _AdmissionState:
    """The admission in progress. marks, usage, grants: see Admission."""

    def __init__(self, context: AdmissionContext, budgets: BudgetUsage) -> None:
        self.marks: dict[str, NodeMarks] = {}
        self._context, self._budgets = context, budgets
        self.usage: dict[str, NodeUsage] = {}
        self.grants: dict[RequestKey, Grant] = {}
        self._refusals: dict[object, BudgetRefusal | None] = {}

    def marks_of(self, uid: str) -> NodeMarks:
        return self.marks.get(uid) or self._context.marks.get(uid) or _EMPTY

    def size_restraint(self, request: MarkRequest) -> Restraint | None:
        """Return why a request cannot be recorded in the annotation; None if it can."""
        record = _with_grant(self.marks_of(request.uid), request, 0.0).record_of(request.device)
        # Most records are far below the limit and need no encoding.
        if (
            sum(map(_letters, record.causes)) * _LONGEST < MAX_CAUSES_BYTES
            or len(encode_record(record).encode()) <= MAX_CAUSES_BYTES
        ):
            return None
        reason = f"the annotation {STATE_ANNOTATION} has no room for another cause"
        return Restraint("annotation-size", reason)

    def refusal(self, request: MarkRequest) -> BudgetRefusal | None:
        """Return the budget that is used up for a request; None if all allow it."""
        if self.marks_of(request.uid) is _EMPTY and request.uid not in self.usage:
            return self._refusal_of_unmarked_node(request)
        before, after, _ = self._cost(request, self._context.now)
        return self._budgets.refusal(before, after, self._context.now)

    def grant(self, request: MarkRequest, at: float) -> None:
        self.marks[request.uid] = self._charge(request, at)
        self.grants[request.key] = Grant(request, at)

    def grant_ended(self, grant: Grant) -> None:
        """Charge the budgets with a grant after its finding has ended. It lasts for the soak period, and
        counts in the plan that releases it.
        """
        request, now = grant.request, self._context.now
        if request.uid not in self._context.placements:
            return
        marks, ended = self._charge(request, grant.at), now if grant.ended is None else grant.ended
        if now - ended < self._context.policy.soak.first:
            self.marks[request.uid] = marks
            self.grants[request.key] = Grant(request, grant.at, ended)

    def _charge(self, request: MarkRequest, at: float) -> NodeMarks:
        before, after, marks = self._cost(request, at)
        self._budgets.charge(before, -1)
        self._budgets.charge(after)
        self.usage[request.uid] = after
        self._refusals.clear()
        return marks

    def _refusal_of_unmarked_node(self, request: MarkRequest) -> BudgetRefusal | None:
        """Return the refusal for a node without marks: it is equal for many nodes, until the next grant."""
        placement, suspect = self._context.placements[request.uid], request.mark == Mark.SUSPECT
        if request.check not in self._refusals:
            self._refusals[request.check] = self._budgets.check_refusal(request.check, self._context.now)
        spent = self._refusals[request.check]
        if spent is not None or placement.cordoned_by_user:
            return spent
        alike = placement.budgets, placement.gpus if request.device else 0, suspect
        if alike not in self._refusals:
            quarantined = frozenset() if suspect else frozenset({request.device})
            self._refusals[alike] = self._budgets.nodes_refusal(
                NodeUsage(placement), NodeUsage(placement, quarantined, suspect)
            )
        return self._refusals[alike]

    def _cost(self, request: MarkRequest, at: float) -> tuple[NodeUsage, NodeUsage, NodeMarks]:
        placement, marks = self._context.placements[request.uid], self.marks_of(request.uid)
        before = (
            self.usage.get(request.uid)
            or self._context.usage.get(request.uid)
            or node_usage(placement, marks)
        )
        after = _with_grant(marks, request, at)
        return before, _charged(placement, before, marks, after), after


_EMPTY = NodeMarks()


# Maximum bytes of a character in an annotation's JSON.
_LONGEST = 6


def _letters(cause: MarkCause) -> int:
    """Return an upper bound of the length of a cause, in characters."""
    words = cause.check, cause.target, cause.fault_class, cause.component, *cause.targets
    return 64 + sum(len(part) + 4 for part in words)


def _with_grant(marks: NodeMarks, request: MarkRequest, now: float) -> NodeMarks:
    """Return the marks of a node after a grant. A finding that got worse replaces its earlier cause."""
    record = marks.record_of(request.device)
    cause = MarkCause(
        request.mark,
        request.check,
        request.target,
        request.fault_class,
        now,
        request.targets,
        request.part,
        request.injected,
    )
    others = (part for part in record.causes if (part.check, part.target) != (request.check, request.target))
    charge = record.charge or Charge(request.check, request.mark, now, request.injected)
    if not request.injected and charge.injected:
        # The real fault takes over the charge: the check of the injected one has found nothing.
        charge = Charge(request.check, request.mark, charge.at)
    return marks.with_record(request.device, replace(record, causes=(*others, cause), charge=charge))


def _charged(placement: NodePlacement, before: NodeUsage, marks: NodeMarks, after: NodeMarks) -> NodeUsage:
    """Return the usage after a grant: earlier charges stay, and a new charge comes last."""
    new = [
        charge
        for device in after.carriers
        if (charge := after.record_of(device).charge) is not None and marks.record_of(device).charge is None
    ]
    grown = node_usage(placement, after)
    return replace(
        before,
        quarantined=before.quarantined | grown.quarantined,
        suspect=before.suspect or grown.suspect,
        charges=(*before.charges, *new),
    )


class Admissions:
    """The admission of each plan: enforced requests first, then the dry run of the others.

    A dry run continues with its earlier grants: those of the latest plan before `keep_grants`.
    """

    def __init__(self, granted: IncidentState) -> None:
        """granted: the state of a granted mark."""
        self._granted = granted
        self._dry_run: dict[RequestKey, Grant] = {}
        self._latest_dry_run: dict[RequestKey, Grant] = {}

    def keep_grants(self) -> None:
        """Let the next dry run continue with the grants of the latest one."""
        self._dry_run = self._latest_dry_run

    def admit(
        self, requests: list[MarkRequest], context: AdmissionContext, budgets: BudgetUsage
    ) -> tuple[dict[str, NodeMarks], list[MarkDecision]]:
        """Decide on all requests. Returns the marks of the nodes that get one, without those of the dry run,
        and the decisions.

        budgets: the granted requests are charged to them.
        """
        policy = context.policy
        enforced = [request for request in requests if _is_enforced(policy, context.marks, request)]
        admission = admit(enforced, context, budgets, self._granted)
        self._latest_dry_run = {}
        enforced_keys = {request.key for request in enforced}
        earlier = {key: grant for key, grant in self._dry_run.items() if key not in enforced_keys}
        if len(enforced) == len(requests) and not earlier:
            return admission.marks, admission.decisions
        marks = {**context.marks, **admission.marks}
        rest = [request for request in requests if not _is_enforced(policy, marks, request)]
        context = replace(context, marks=marks, usage={**context.usage, **admission.usage})
        dry_run = admit(rest, context, budgets, IncidentState.DRY_RUN, earlier)
        self._latest_dry_run = dry_run.grants
        return admission.marks, [*admission.decisions, *dry_run.decisions]


def _is_enforced(policy: Policy, marks: Mapping[str, NodeMarks], request: MarkRequest) -> bool:
    """Return whether the mark of a request is enforced, or set already; else it is a dry run."""
    node_marks = marks.get(request.uid)
    if node_marks is not None and is_marked_for(node_marks, request):
        return True
    return mode_of(policy, request.check, request.mark) == Mode.ENFORCE
