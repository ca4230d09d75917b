"""Observed marks: which granted marks and which removals are on their objects, and why the others are not.

A plan decides that a mark is set or removed; the API server may refuse the write. Incidents, Events, views,
metrics and notifications project the decisions as `PlanObservation` returns them, so that none of them
reports a mark that is not there. No input, output or clock.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.decide.admission import MarkDecision
from nodeguard.fleet.decide.domain_decision import DomainDecision
from nodeguard.fleet.decide.release import CauseKey, cause_key
from nodeguard.fleet.decide.restraints import Restraint
from nodeguard.fleet.state.fleet_state import FleetState
from nodeguard.fleet.state.marks_in_effect import is_in_effect
from nodeguard.model.device import Device, device_mark_name
from nodeguard.model.incident import IncidentState, WriteState
from nodeguard.model.instant import Instant, rfc3339
from nodeguard.model.mark import Mark, MarkCause, NodeMarks

# Seconds after which a write that is not observed is reported. Most are observed within a tenth of a second.
REPORTED_AFTER = 5.0

_NAMES = 3


class WriteError(Struct, frozen=True):
    """The error of the latest attempt of a write. is_refused: whether the server answered and refused it."""

    message: str
    is_refused: bool


class ObjectChange(NamedTuple):
    """A change of an object. name: of the object. what: the mark or the domain that is set, or what is
    removed.
    """

    name: str
    what: object


class WriteProblem(Struct, frozen=True):
    """Why a mark, or its removal, is not on its object for longer than REPORTED_AFTER. message: a clause
    about the write, such as "is refused: …".
    """

    state: WriteState
    message: str


class NodeRemoval(Struct, frozen=True):
    """The removal of causes that is not observed yet. problems: by their keys, and whether the fault is
    injected; see WriteProblem, None before REPORTED_AFTER.
    """

    problems: dict[tuple[CauseKey, bool], WriteProblem | None] = {}

    def includes(self, device: Device | None, cause: MarkCause) -> bool:
        """Return whether a cause on a node (None) or a device is removed."""
        return _key(device, cause) in self.problems

    def problem(self, causes: Iterable[tuple[Device | None, MarkCause]]) -> WriteProblem | None:
        """Return the problem of the removal of some causes; None for none."""
        problems = (self.problems.get(_key(device, cause)) for device, cause in causes)
        return next(filter(None, problems), None)


class DomainRemoval(Struct, frozen=True):
    """The removal of the mark of a domain. nodes: number of the Nodes that still have it. problem: of the
    writes; None while they may be observed soon.
    """

    nodes: int
    problem: WriteProblem | None = None


class UnobservedWrites:
    """The changes that are not observed yet, by object: the uid of a Node, or the name of a device rule. One
    write may have several changes, which began at other times; an error is of the object.
    """

    def __init__(self) -> None:
        self._since: dict[ObjectChange, Instant] = {}
        self._errors: dict[str, WriteError] = {}
        # Seconds of the monotonic clock at which a write of any object was observed last.
        self._latest_observed = float("-inf")

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self._since)

    def record_error(self, name: str, error: WriteError) -> None:
        """Record the error of a write. One of the same kind is kept, so that its text stays the same."""
        before = self._errors.get(name)
        if before is None or before.is_refused != error.is_refused:
            self._errors[name] = error

    def forget_errors(self) -> None:
        """Forget all errors: no write continues."""
        self._errors.clear()

    def begin(self, change: ObjectChange, now: Instant) -> None:
        """Record that a change is not observed."""
        self._since.setdefault(change, now)

    def keep(self, changes: Container[ObjectChange], observed: Container[str], now: Instant) -> None:
        """Forget the changes that are observed, or not wanted any more. changes: the wanted ones; observed:
        names of objects with a mark that is wanted.
        """
        for change in [change for change in self._since if change not in changes]:
            del self._since[change]
            if change.name in observed:
                self._latest_observed = now.mono
        changed = {change.name for change in self._since}
        for name in [name for name in self._errors if name not in changed]:
            del self._errors[name]

    def problem(self, change: ObjectChange, now: Instant, owner: str = "") -> WriteProblem | None:
        """Return the problem of a change that is not observed for too long; None for none. owner: the webhook
        that owns the node; empty for none.

        A write without an error waits for its turn while others succeed.
        """
        since, error = self._since.get(change), self._errors.get(change.name)
        if since is None or now.mono - since.mono < REPORTED_AFTER:
            return None
        if owner:
            cause = f" ({error.message})" if error is not None and error.message else ""
            text = (
                f"waits for a 2xx response of the webhook {owner}, which owns the node, since "
                f"{rfc3339(since.wall)}{cause}: nodeguard sends it again; look at the log of the receiver"
            )
            return WriteProblem(WriteState.NOT_ACCEPTED, text)
        detail = f": {error.message}" if error is not None else ""
        if error is None and now.mono - self._latest_observed < REPORTED_AFTER:
            return None
        if error is not None and error.is_refused:
            return WriteProblem(WriteState.REFUSED, f"is refused{detail}")
        text = f"has been pending since {rfc3339(since.wall)}{detail}"
        return WriteProblem(WriteState.PENDING, text)


class PlanObservation:
    """Compares the decisions of one plan with the objects, as they were observed.

    marks: the planned marks, by uid. deferred: uids of nodes with a mark that a later plan issues.
    """

    def __init__(
        self,
        state: FleetState,
        writes: UnobservedWrites,
        marks: Mapping[str, NodeMarks],
        deferred: Container[str],
        now: Instant,
    ) -> None:
        self._state, self._writes, self._marks, self._now = state, writes, marks, now
        self._deferred = deferred
        # The wanted changes that are not observed, and the names of objects with a wanted mark.
        self._missing: set[ObjectChange] = set()
        self._observed: set[str] = set()
        self._degraded: Set[str] = frozenset()

    def decisions(self, decided: Sequence[MarkDecision]) -> list[MarkDecision]:
        """Return the decisions on mark requests with their observed states."""
        return [self._decision(decision) if decision.is_granted else decision for decision in decided]

    def domain_decisions(self, decided: Mapping[str, DomainDecision]) -> dict[str, DomainDecision]:
        """Return the decisions on degraded domains, by domain, with their observed states."""
        self._degraded = decided.keys()
        if not any(decision.is_granted for decision in decided.values()):
            return dict(decided)
        members: dict[str, list[str]] = {domain: [] for domain in decided}
        for uid, node_marks in self._marks.items():
            for mark in node_marks.node.degraded:
                # A kubelet may write any record: only the mark that was decided is waited for.
                if mark.domain in members and mark == decided[mark.domain].mark:
                    members[mark.domain].append(uid)
        return {
            domain: self._domain_decision(decision, members[domain]) if decision.is_granted else decision
            for domain, decision in decided.items()
        }

    def is_steady(self, uid: str) -> bool:
        """Return whether the planned marks of a node are the observed ones, without any cause."""
        records = self._state.marks.observed(uid).records
        return self._marks.get(uid) is records and not records.node.causes and not records.devices

    def removal(self, uid: str) -> NodeRemoval | None:
        """Return the removal of marks of a node that is not observed yet; None for none."""
        planned = self._marks.get(uid)
        if planned is None or planned is self._state.marks.observed(uid).records:
            return None
        in_effect = self._state.marks_in_effect(uid)
        removed = _keys(in_effect) - _keys(planned)
        if not removed:
            return None
        changes = {key: ObjectChange(_object_name(uid, key[0][0]), key) for key in removed}
        return NodeRemoval({key: self._unobserved(change) for key, change in changes.items()})

    def domain_removal(self, domain: str) -> DomainRemoval | None:
        """Return the removal of the mark of a domain that has recovered; None if no Node is to lose it.
        Nodes keep it during a hold, and while the mark of a wider domain is withheld.
        """
        if domain in self._degraded:
            return None
        uids = [uid for uid in sorted(self._state.marks.marked_nodes()) if self._loses(uid, domain)]
        removed = "the mark of", domain
        problems = [self._unobserved(ObjectChange(uid, removed)) for uid in uids]
        return DomainRemoval(len(uids), next(filter(None, problems), None)) if uids else None

    def finish(self) -> None:
        """Forget the writes that this plan does not want any more."""
        self._writes.keep(self._missing, self._observed, self._now)

    def _decision(self, decision: MarkDecision) -> MarkDecision:
        request = decision.request
        uid, device = request.uid, request.device
        name = _object_name(uid, device)
        if is_in_effect(self._state.marks_in_effect(uid), request.mark, device):
            self._observed.add(name)
            return decision
        if restraint := self._lasting_restraint(uid, request.mark, device):
            return replace(
                decision, state=IncidentState.WITHHELD, reason=restraint.message, restraint=restraint.kind
            )
        if uid in self._deferred:
            return _being_written(decision)
        problem = self._unobserved(ObjectChange(name, request.mark))
        if problem is None:
            return _being_written(decision)
        return replace(
            decision,
            state=IncidentState.WITHHELD,
            reason=f"its write {problem.message}",
            restraint="write",
            write=problem.state,
        )

    def _lasting_restraint(self, uid: str, mark: Mark, device: Device | None) -> Restraint | None:
        """Return why the mark keeps no work away though its write succeeds; None if it will."""
        writes = self._state.writes(uid)
        if device is not None or writes.taint:
            return None
        if not (mark.kind.cordons and writes.cordon):
            return _NO_TAINT
        # A cordon is set once, when the mark begins.
        is_recorded = any(cause.mark == mark for cause in self._state.marks.observed(uid).records.node.causes)
        return _UNCORDONED if is_recorded and not self._state.marks.is_pending(uid) else None

    def _domain_decision(self, decision: DomainDecision, members: Sequence[str]) -> DomainDecision:
        domain = decision.degraded.domain
        missing = []
        for uid in members:
            if self._carries(uid, domain):
                self._observed.add(uid)
            else:
                missing.append(uid)
        if not missing:
            return decision
        if not any(self._state.writes(uid).taint for uid in missing):
            return replace(
                decision, state=IncidentState.WITHHELD, reason=_NO_TAINT.message, restraint=_NO_TAINT.kind
            )
        unobserved = {uid: self._unobserved(ObjectChange(uid, domain)) for uid in missing}
        problems = [problem for problem in unobserved.values() if problem is not None]
        if not problems:
            return replace(decision, state=IncidentState.PENDING, restraint="write", write=WriteState.PENDING)
        problem = problems[0]
        count = f"{len(members) - len(missing)} of {len(members)} nodes"
        reason = f"it is on {count}, not on {self._names(missing)}: the write {problem.message}"
        return replace(
            decision, state=IncidentState.WITHHELD, reason=reason, restraint="write", write=problem.state
        )

    def _names(self, uids: Sequence[str]) -> str:
        names = sorted(self._state.nodes[uid].name for uid in uids)
        return ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if names[_NAMES:] else "")

    def _loses(self, uid: str, domain: str) -> bool:
        """Return whether a Node has the mark of a domain, and the plan removes it."""
        planned = self._marks.get(uid) or self._state.marks.latest(uid)
        is_kept = any(mark.domain == domain for mark in planned.node.degraded)
        return not is_kept and self._carries(uid, domain)

    def _carries(self, uid: str, domain: str) -> bool:
        return any(mark.domain == domain for mark in self._state.marks_in_effect(uid).node.degraded)

    def _unobserved(self, change: ObjectChange) -> WriteProblem | None:
        """Record that a change is not observed; return its problem, None for none yet."""
        self._missing.add(change)
        self._writes.begin(change, self._now)
        node = self._state.nodes.get(change.name)
        return self._writes.problem(change, self._now, node.owner if node is not None else "")


_NO_TAINT = Restraint(
    "no-taint", "the mark keeps no work away: the policy writes no taint for it (see `markWith`)"
)
_UNCORDONED = Restraint(
    "uncordoned", "the mark keeps no work away: the node was uncordoned, and nodeguard cordons it only once"
)


def _keys(marks: NodeMarks) -> frozenset[tuple[CauseKey, bool]]:
    return frozenset(_key(device, cause) for device, cause in marks.causes())


def _key(device: Device | None, cause: MarkCause) -> tuple[CauseKey, bool]:
    return cause_key(device, cause), cause.injected


def _object_name(uid: str, device: Device | None) -> str:
    return uid if device is None else device_mark_name(uid, device)


def _being_written(decision: MarkDecision) -> MarkDecision:
    """Return a granted decision with a mark that is not observed yet."""
    return replace(decision, state=IncidentState.PENDING, restraint="write", write=WriteState.PENDING)
