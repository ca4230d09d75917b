"""Which of the marks that are asked for may be set: the worst first, while no ledger is full. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.budget_limits import BudgetRefusal
from nodeguard.fleet.decide.mark_requests import MarkRequest
from nodeguard.fleet.state.annotation_codec import MAX_CAUSES_BYTES, encode_record
from nodeguard.fleet.state.budget_usage import BudgetUsage, NodeUsage
from nodeguard.fleet.state.node_marks import NodeMarks, node_usage
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.model.incident import GRANTED_STATES, IncidentState
from nodeguard.model.mark import STATE_ANNOTATION, Charge, Mark, MarkCause
from nodeguard.model.policy import Policy


class MarkDecision(Struct, frozen=True):
    """What becomes of a mark that is asked for: the decision, with its reason.

    state: `Marked` (`Advised` without a cluster); `Pending`: in its grace period, which ends at `until`,
    seconds since the epoch; `DryRun`: its check is not enforced; `Withheld`; or `Open`: a mark of its domain
    stands in for it. why: the reason in words; of a dry run, what would withhold it, empty where nothing
    would. refusal: the budget that has no room, where that is the reason.
    """

    request: MarkRequest
    state: IncidentState
    reason: str = ""
    until: float = 0.0
    refusal: BudgetRefusal | None = None

    @property
    def is_granted(self) -> bool:
        """Whether the mark is set, or is about to be."""
        return self.state in GRANTED_STATES


# What names a want: see Want.name.
RequestKey = tuple[str, str, str]


class Grant(Struct, frozen=True):
    """A request that was granted, and when, in seconds since the epoch."""

    request: MarkRequest
    at: float


_NONE: dict[RequestKey, Grant] = {}


class AdmissionContext(Struct, frozen=True):
    """What marks are allotted in.

    seats, holdings: of every node that something is asked of, by uid. charged: what each is charged with,
    which the ledgers have already. bars: why nothing new may be marked on a node, empty where it may. now:
    seconds since the epoch.
    """

    policy: Policy
    placements: Mapping[str, NodePlacement]
    marks: Mapping[str, NodeMarks]
    usage: Mapping[str, NodeUsage]
    restraint: Callable[[MarkRequest], str]
    now: float


class Admission(Struct, frozen=True):
    """What became of requests.

    holdings: what each node that gets a mark holds then. charged: what these nodes are charged with then.
    outcomes: one for each request. grants: the requests that were granted, those that were before, too.
    """

    marks: dict[str, NodeMarks]
    usage: dict[str, NodeUsage]
    decisions: list[MarkDecision]
    grants: dict[RequestKey, Grant]


def admit(
    wants: Iterable[MarkRequest],
    scene: AdmissionContext,
    ledgers: BudgetUsage,
    granted: IncidentState,
    already: Mapping[RequestKey, Grant] = _NONE,
) -> Admission:
    """Return what each node that gets a mark is to hold, and what becomes of each request.

    granted: the state of a request that is granted. `DryRun` counts marks that are not set: there a request
    that is refused is a dry run as well, with the reason that would withhold it. already: requests of a dry
    run that were granted before. While their findings last, they stay as marks do: they come first, nothing
    refuses them, and one that got worse since asks for its new mark. The budgets are charged with what is
    granted. What is released meanwhile is not spent here, as either may be written first; so it is in a dry
    run with a request that is not made any more.

    A quarantined node gets no suspect mark beside that, as quarantine keeps the same work away: the request
    is granted and uses no budget. Once the quarantine is over, it is decided like that of any other node.
    """
    allotment = _Allotment(scene, ledgers)
    dry_run = granted == IncidentState.DRY_RUN
    refused_state = IncidentState.DRY_RUN if dry_run else IncidentState.WITHHELD
    outcomes, over_budget = [], []
    in_order = sorted(wants, key=lambda one: one.order)
    asked = {want.key for want in in_order}
    for name, grant in sorted(already.items(), key=lambda one: (one[1].at, one[1].request.order)):
        if name not in asked:
            allotment.count(grant)
        elif not allotment.crowded(grant.request):
            allotment.grant(grant.request, grant.at)
    for want in in_order:
        holding = allotment.holding(want.uid)
        if is_marked_for(holding, want) or (want.mark == Mark.SUSPECT and holding.is_quarantined):
            outcomes.append(MarkDecision(want, granted))
        elif until := grace_end(scene.policy, want, scene.now):
            outcomes.append(MarkDecision(want, IncidentState.PENDING, until=until))
        elif why := scene.restraint(want) or allotment.crowded(want):
            outcomes.append(MarkDecision(want, refused_state, why))
        elif refusal := allotment.refusal(want):
            over_budget.append((want, refusal))
        else:
            allotment.grant(want, already[want.key].at if want.key in already else scene.now)
            outcomes.append(MarkDecision(want, granted))
    # Asked again at the end, so that the same budget is named the next time.
    for want, before in over_budget:
        refusal = allotment.refusal(want) or before
        why = refusal.message(dry_run=dry_run)
        outcomes.append(MarkDecision(want, refused_state, why, refusal=refusal))
    return Admission(allotment.holdings, allotment.charged, outcomes, allotment.grants)


class _Allotment:
    """Marks on their way to being allotted. holdings, charged, grants: see Allotted."""

    def __init__(self, scene: AdmissionContext, ledgers: BudgetUsage) -> None:
        self.holdings: dict[str, NodeMarks] = {}
        self._scene, self._ledgers = scene, ledgers
        self.charged: dict[str, NodeUsage] = {}
        self.grants: dict[RequestKey, Grant] = {}
        self._refusals: dict[object, BudgetRefusal | None] = {}

    def holding(self, uid: str) -> NodeMarks:
        return self.holdings.get(uid) or self._scene.marks.get(uid) or _EMPTY

    def crowded(self, want: MarkRequest) -> str:
        """Return why a request cannot be recorded; empty where it can."""
        record = _with(self.holding(want.uid), want, 0.0).record_of(want.device)
        # Most are far from it, and are not written out to see.
        if (
            sum(map(_letters, record.causes)) * _LONGEST < MAX_CAUSES_BYTES
            or len(encode_record(record).encode()) <= MAX_CAUSES_BYTES
        ):
            return ""
        return f"the annotation {STATE_ANNOTATION} has no room for another cause"

    def refusal(self, want: MarkRequest) -> BudgetRefusal | None:
        """Return the budget that has no room for a request; None where all have."""
        if self.holding(want.uid) is _EMPTY and want.uid not in self.charged:
            return self._of_unmarked(want)
        before, after, _ = self._cost(want, self._scene.now)
        return self._ledgers.refusal(before, after, self._scene.now)

    def grant(self, want: MarkRequest, at: float) -> None:
        self.holdings[want.uid] = self._charge(want, at)
        self.grants[want.key] = Grant(want, at)

    def count(self, grant: Grant) -> None:
        """Charge the budgets with what is being released."""
        if grant.request.uid in self._scene.placements:
            self._charge(grant.request, grant.at)

    def _charge(self, want: MarkRequest, at: float) -> NodeMarks:
        before, after, holding = self._cost(want, at)
        self._ledgers.charge(before, -1)
        self._ledgers.charge(after)
        self.charged[want.uid] = after
        self._refusals.clear()
        return holding

    def _of_unmarked(self, want: MarkRequest) -> BudgetRefusal | None:
        """The same for a node that holds nothing: for many nodes alike, until something is granted again."""
        seat, suspect = self._scene.placements[want.uid], want.mark == Mark.SUSPECT
        if want.check not in self._refusals:
            self._refusals[want.check] = self._ledgers.check_refusal(want.check, self._scene.now)
        spent = self._refusals[want.check]
        if spent is not None or seat.cordoned_by_user:
            return spent
        alike = seat.budgets, seat.gpus if want.device else 0, suspect
        if alike not in self._refusals:
            quarantined = frozenset() if suspect else frozenset({want.device})
            self._refusals[alike] = self._ledgers.nodes_refusal(
                NodeUsage(seat), NodeUsage(seat, quarantined, suspect)
            )
        return self._refusals[alike]

    def _cost(self, want: MarkRequest, at: float) -> tuple[NodeUsage, NodeUsage, NodeMarks]:
        seat, holding = self._scene.placements[want.uid], self.holding(want.uid)
        before = self.charged.get(want.uid) or self._scene.usage.get(want.uid) or node_usage(seat, holding)
        after = _with(holding, want, at)
        return before, _charged(seat, before, holding, after), after


_EMPTY = NodeMarks()


def is_marked_for(holding: NodeMarks, want: MarkRequest) -> bool:
    """Whether a mark at least as bad stands already for the same finding, on the node or on a device."""
    return any(
        (cause.check, cause.target) == (want.check, want.target)
        and cause.mark in {want.mark, Mark.QUARANTINE}
        for place in holding.carriers
        for cause in holding.record_of(place).causes
    )


# Bytes of a letter at most, in an annotation's JSON.
_LONGEST = 6


def _letters(cause: MarkCause) -> int:
    """How long a cause is, rather too much than too little."""
    words = cause.check, cause.target, cause.fault_class, cause.component, *cause.targets
    return 64 + sum(len(one) + 4 for one in words)


def grace_period(policy: Policy, want: MarkRequest) -> float:
    """Return the grace period of a request: for how many seconds its finding has to last before the mark."""
    own = policy.grace.quarantine if want.mark == Mark.QUARANTINE else policy.grace.suspect
    return max(own, policy.grace.shared) if want.shared else own


def grace_end(policy: Policy, want: MarkRequest, now: float) -> float:
    """Return when the grace period of a request ends, in seconds since the epoch; 0 when it is over."""
    end = want.since + grace_period(policy, want)
    # A finding that began in the future began before the clock was set back.
    return end if want.since <= now < end else 0.0


def _with(holding: NodeMarks, want: MarkRequest, now: float) -> NodeMarks:
    """What a node holds once a want is granted. A finding that got worse takes its own place."""
    record = holding.record_of(want.device)
    cause = MarkCause(want.mark, want.check, want.target, want.fault_class, now, want.targets, want.part)
    others = (one for one in record.causes if (one.check, one.target) != (want.check, want.target))
    charge = record.charge or Charge(want.check, want.mark, now)
    return holding.with_record(want.device, replace(record, causes=(*others, cause), charge=charge))


def _charged(seat: NodePlacement, before: NodeUsage, holding: NodeMarks, after: NodeMarks) -> NodeUsage:
    """The standing after a grant: what is charged stays so, and a new charge comes last."""
    new = [
        charge
        for place in after.carriers
        if (charge := after.record_of(place).charge) is not None and holding.record_of(place).charge is None
    ]
    grown = node_usage(seat, after)
    return replace(
        before,
        quarantined=before.quarantined | grown.quarantined,
        suspect=before.suspect or grown.suspect,
        charges=(*before.charges, *new),
    )
