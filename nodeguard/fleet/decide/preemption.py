"""Preemption: which marks of injected faults are released, as real faults need their budget. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.budget_limits import BudgetRefusal
from nodeguard.fleet.decide.admission_state import AdmissionContext, AdmissionState
from nodeguard.fleet.decide.mark_requests import MarkRequest
from nodeguard.fleet.decide.release import ReleasedMark
from nodeguard.model.mark import NodeMarks


class Preemption(Struct, frozen=True):
    """The preempted marks of injected faults.

    marks: of the nodes that lose marks, by uid. released: these marks, by uid. preempted_by: the request of a
    real fault for which a node loses them, and the budget that refuses it now. waiting: the requests that are
    granted once all writes are carried out. Until then no injected fault is marked.
    """

    marks: Mapping[str, NodeMarks] = {}
    released: tuple[tuple[str, ReleasedMark], ...] = ()
    preempted_by: Mapping[str, tuple[MarkRequest, BudgetRefusal]] = {}
    waiting: tuple[tuple[MarkRequest, BudgetRefusal], ...] = ()


_NONE = Preemption()


def preempt(
    refused: Iterable[tuple[MarkRequest, BudgetRefusal]],
    context: AdmissionContext,
    state: AdmissionState,
    *,
    has_injected: bool,
) -> Preemption:
    """Return which marks of injected faults are released for requests of real faults.

    refused: these requests in their order, each with the budget that refuses it. state: with the granted
    requests. has_injected: whether any injected fault asks for a mark.

    A mark is released only if its budget is then enough for a request: never for one that real faults keep
    from its mark as well. So each release is followed by the mark of a real fault. The latest injected faults
    are preempted first, and only as many as needed. A node on hold keeps its marks. Unwritable nodes come
    last, and their pending releases do not count: a Node that can never be written keeps no real fault from
    the budget of another injected one.
    """
    refused = list(refused)
    if not refused:
        return _NONE
    planned = {**context.marks, **state.marks}
    candidates = [
        uid
        for uid, marks in planned.items()
        if uid not in state.marks
        and uid in context.placements
        and not context.placements[uid].hold
        and any(cause.injected for _, cause in marks.causes())
    ]
    if not (candidates or has_injected):
        return _NONE
    turns = {uid: turn for turn, uid in enumerate(context.unwritable)}
    # The latest first.
    candidates.sort(
        key=lambda uid: (turns.get(uid, -1), -_latest_injection(planned[uid]), context.placements[uid].name)
    )
    settled, without = (_settled_state(context, state, planned) for _ in range(2))
    for uid in candidates:
        without.set_marks(uid, without_injected(planned[uid]))
    waiting: list[tuple[MarkRequest, BudgetRefusal]] = []
    preempted_by: dict[str, tuple[MarkRequest, BudgetRefusal]] = {}
    for request, refusal in refused:
        if without.refusal(request) is not None:
            continue
        uids = _make_room(request, settled, [uid for uid in candidates if uid not in preempted_by])
        if uids is None:
            continue
        preempted_by |= dict.fromkeys(uids, (request, refusal))
        waiting.append((request, refusal))
        for trial in (settled, without):
            trial.grant(request, context.now)
    released = (
        (uid, ReleasedMark(cause, "preempted"))
        for uid in preempted_by
        for _, cause in planned[uid].causes()
        if cause.injected
    )
    marks = {uid: without_injected(planned[uid]) for uid in preempted_by}
    return Preemption(marks, tuple(released), preempted_by, tuple(waiting))


def without_injected(marks: NodeMarks) -> NodeMarks:
    """Return the marks of a node without the causes that are injected, and without the charge of a mark that
    has no other cause.
    """
    for device in marks.carriers:
        record = marks.record_of(device)
        causes = tuple(cause for cause in record.causes if not cause.injected)
        if len(causes) < len(record.causes):
            charge = record.charge if causes else None
            marks = marks.with_record(device, replace(record, causes=causes, charge=charge))
    return marks


def _latest_injection(marks: NodeMarks) -> float:
    return max(cause.since for _, cause in marks.causes() if cause.injected)


def _settled_state(
    context: AdmissionContext, state: AdmissionState, planned: Mapping[str, NodeMarks]
) -> AdmissionState:
    """Return the state of the budgets once all writes are carried out, with the releases of this plan.
    Unwritable nodes keep their usage.
    """
    budgets = state.budgets.copy()
    usage = {**context.usage, **state.usage}
    unwritable = {uid: usage.pop(uid) for uid in context.unwritable if uid in usage}
    for uid, before in usage.items():
        budgets.charge(before, -1)
        budgets.charge(context.usage_of(uid, planned.get(uid, NodeMarks())))
    return AdmissionState(replace(context, marks=planned, usage=unwritable), budgets)


def _make_room(request: MarkRequest, settled: AdmissionState, candidates: list[str]) -> list[str] | None:
    """Remove marks of injected faults from as few candidates as the budgets of a request need. Returns their
    uids; None if that is not possible.
    """
    before = {uid: settled.marks_of(uid) for uid in candidates}
    removed: list[str] = []
    for uid in candidates:
        if settled.refusal(request) is None:
            break
        settled.set_marks(uid, without_injected(before[uid]))
        removed.append(uid)
    is_possible = settled.refusal(request) is None
    needed: list[str] = []
    for uid in removed:
        settled.set_marks(uid, before[uid])
        if is_possible and settled.refusal(request) is not None:
            settled.set_marks(uid, without_injected(before[uid]))
            needed.append(uid)
    return needed if is_possible else None
