"""The state of an admission: the marks and the usage of the budgets after each grant. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.budget_limits import BudgetRefusal
from nodeguard.fleet.decide.mark_requests import MarkRequest
from nodeguard.fleet.decide.restraints import Restraint
from nodeguard.fleet.state.budget_usage import SUSPECT, BudgetUsage, NodeUsage
from nodeguard.fleet.state.node_marks import MAX_CAUSES_BYTES, charges_of, encode_record, node_usage
from nodeguard.fleet.state.node_placement import NodePlacement
from nodeguard.fleet.state.wall_clock import RecordedAge
from nodeguard.model.mark import STATE_ANNOTATION, Charge, MarkCause, NodeMarks
from nodeguard.model.policy import Policy

# The key of a request: see MarkRequest.key.
RequestKey = tuple[str, str, str]

# The marks of a node without any: compared by identity.
NO_MARKS = NodeMarks()


class Grant(Struct, frozen=True):
    """A request that was granted, and when. ended: when its finding ended; None while it lasts. Times in
    seconds since the epoch.
    """

    request: MarkRequest
    at: float
    ended: float | None = None


class AdmissionContext(Struct, frozen=True):
    """The inputs of the admission.

    placements, marks: of every node with a request, by uid. usage: charges of each node that the budgets
    count already. restraint: returns why nothing new may be marked on a node, None if it may. now: seconds
    since the epoch. age: of a recorded time. unwritable: nodes with a write that failed or takes too long, by
    uid, in the order in which they are tried again. incident_checks: checks with an incident, by uid of the
    Node.
    """

    policy: Policy
    placements: Mapping[str, NodePlacement]
    marks: Mapping[str, NodeMarks]
    usage: Mapping[str, NodeUsage]
    restraint: Callable[[MarkRequest], Restraint | None]
    now: float
    age: RecordedAge
    unwritable: Sequence[str] = ()
    incident_checks: Mapping[str, frozenset[str]] = {}

    def usage_of(self, uid: str, marks: NodeMarks) -> NodeUsage:
        """Return the usage of the budgets by a node with some marks."""
        return node_usage(self.placements[uid], marks, incident_checks=self.incident_checks.get(uid, ()))


class AdmissionState:
    """The admission in progress. marks, usage: of the nodes that changed so far, by uid. grants: by key of
    the request. budgets: with all that was granted.
    """

    def __init__(self, context: AdmissionContext, budgets: BudgetUsage) -> None:
        """budgets: each grant is charged to them."""
        self.marks: dict[str, NodeMarks] = {}
        self.usage: dict[str, NodeUsage] = {}
        self.budgets = budgets
        self._context = context
        self.grants: dict[RequestKey, Grant] = {}
        self._refusals: dict[object, BudgetRefusal | None] = {}

    def marks_of(self, uid: str) -> NodeMarks:
        """Return the marks of a node, with those granted so far."""
        return self.marks.get(uid) or self._context.marks.get(uid) or NO_MARKS

    def size_restraint(self, request: MarkRequest) -> Restraint | None:
        """Return why a request cannot be recorded in the annotation; None if it can."""
        marks = self.marks_of(request.uid)
        letters = _letters(request, request.part)
        letters += sum(_letters(cause, cause.component) for cause in marks.record_of(request.device).causes)
        # Most records are far below the limit and need no encoding.
        if letters * _LONGEST < MAX_CAUSES_BYTES:
            return None
        record = _with_grant(marks, request, 0.0).record_of(request.device)
        if len(encode_record(record).encode()) <= MAX_CAUSES_BYTES:
            return None
        reason = (
            f"the annotation {STATE_ANNOTATION} is full: another cause would exceed its size limit; "
            "repair another fault of this node, or clear it with nodeguard clear"
        )
        return Restraint("annotation-size", reason)

    def refusal(self, request: MarkRequest) -> BudgetRefusal | None:
        """Return the budget that refuses a request; None if all allow it."""
        if self.marks_of(request.uid) is NO_MARKS and request.uid not in self.usage:
            return self._refusal_of_unmarked_node(request)
        before, after, _ = self._cost(request, self._context.now)
        return self.budgets.refusal(before, after, self._context.age, confirmed=request.confirmed)

    def grant(self, request: MarkRequest, at: float) -> None:
        """Grant a request, and charge it. at: seconds since the epoch."""
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

    def set_marks(self, uid: str, marks: NodeMarks) -> None:
        """Set the marks of a node, and charge their usage in place of its usage so far."""
        after = self._context.usage_of(uid, marks)
        self._replace_usage(uid, self._usage_of(uid), after)
        self.marks[uid] = marks

    def _charge(self, request: MarkRequest, at: float) -> NodeMarks:
        before, after, marks = self._cost(request, at)
        self._replace_usage(request.uid, before, after)
        return marks

    def _replace_usage(self, uid: str, before: NodeUsage, after: NodeUsage) -> None:
        self.budgets.charge(before, -1)
        self.budgets.charge(after)
        self.usage[uid] = after
        self._refusals.clear()

    def _usage_of(self, uid: str) -> NodeUsage:
        return (
            self.usage.get(uid)
            or self._context.usage.get(uid)
            or self._context.usage_of(uid, self.marks_of(uid))
        )

    def _refusal_of_unmarked_node(self, request: MarkRequest) -> BudgetRefusal | None:
        """Return the refusal for a node without marks: it is equal for many nodes, until the next grant."""
        placement, suspect = self._context.placements[request.uid], request.mark.kind.budget == SUSPECT
        free = placement.cordoned_by_user
        key = request.check, free
        if key not in self._refusals:
            self._refusals[key] = self.budgets.check_refusal(request.check, self._context.age, free=free)
        spent = self._refusals[key]
        if spent is not None or free:
            return spent
        alike = placement.budgets, placement.gpus if request.device else 0, suspect, request.confirmed
        if alike not in self._refusals:
            quarantined = frozenset() if suspect else frozenset({request.device})
            self._refusals[alike] = self.budgets.nodes_refusal(
                NodeUsage(placement), NodeUsage(placement, quarantined, suspect), confirmed=request.confirmed
            )
        return self._refusals[alike]

    def _cost(self, request: MarkRequest, at: float) -> tuple[NodeUsage, NodeUsage, NodeMarks]:
        placement, marks = self._context.placements[request.uid], self.marks_of(request.uid)
        before = self._usage_of(request.uid)
        after = _with_grant(marks, request, at)
        return before, _charged(placement, before, marks, after), after


# Maximum bytes of a character in an annotation's JSON.
_LONGEST = 6


def _letters(cause: MarkCause | MarkRequest, component: str) -> int:
    """Return an upper bound of the length of a cause, or of that of a request, in characters."""
    words = cause.check, cause.target, cause.fault_class, component, *cause.targets
    return 64 + sum(map(len, words)) + 4 * len(words)


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
        at = charge.at if charge.check == request.check else now
        charge = Charge(request.check, request.mark, at)
    return marks.with_record(request.device, replace(record, causes=(*others, cause), charge=charge))


def _charged(placement: NodePlacement, before: NodeUsage, marks: NodeMarks, after: NodeMarks) -> NodeUsage:
    """Return the usage after a grant: earlier charges stay, as the write may fail, and new ones come last. A
    charge that a real fault takes over from an injected one is new, unless both are of one check.
    """
    charged = charges_of(marks)
    new = [charge for key, charge in charges_of(after).items() if key not in charged]
    grown = node_usage(placement, after)
    return replace(
        before,
        quarantined=before.quarantined | grown.quarantined,
        suspect=before.suspect or grown.suspect,
        charges=(*before.charges, *new),
    )
