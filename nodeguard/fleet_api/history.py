"""The history of the fleet as changes: from recorded notes, each beside the one before it. Pure.

A note that this version cannot read is left out: the file may have been written by another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from nodeguard.fleet.decide.release import ReleasedMark
from nodeguard.fleet.state.history_events import POLICY_FORMAT, NodeSettings, NoteKind, RecordedChange
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.fleet_api.action import action_text, drain_purpose
from nodeguard.fleet_api.policy_changes import policy_changes
from nodeguard.fleet_api.schema.history import HistoryChange, HistoryEntry, HistoryView
from nodeguard.model.action import ActionKind, ActionState, NodeAction
from nodeguard.model.finding import Health
from nodeguard.model.incident import IncidentState, OperatorDecision, WriteState
from nodeguard.model.instant import rfc3339
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.mark import MarkRecord
from nodeguard.model.target import target_label

# Changes in one response, the latest, and characters of a text.
MAX_ENTRIES = 1000
_TEXT_LENGTH = 400

# Changes of a policy that an entry lists.
_POLICY_CHANGES = 12

# Changes that concern all nodes.
_OF_FLEET = frozenset({NoteKind.PAUSE, NoteKind.RESUME, NoteKind.POLICY})

_ACTION_ENDS = {
    ActionState.SUCCEEDED: "succeeded",
    ActionState.FAILED: "failed",
    ActionState.SUPERSEDED: "been superseded",
    ActionState.CANCELLED: "been cancelled",
    ActionState.UNKNOWN: "an unknown result",
}

_Decoded = TypeVar("_Decoded")


class _IncidentFacts(Struct, frozen=True):
    """The fields of a recorded Incident that a change shows: to decode all takes three times as long."""

    name: str
    target: str
    cause: str
    health: Health
    state: IncidentState
    domain: str = ""
    message: str = ""
    detail: str = ""
    parent: str = ""
    write: WriteState | None = None

    @property
    def is_open(self) -> bool:
        return self.state != IncidentState.RESOLVED


_INCIDENT = JsonDecoder(_IncidentFacts)
_DECISION = JsonDecoder(OperatorDecision)
_ACTION = JsonDecoder(NodeAction)
_SETTINGS = JsonDecoder(NodeSettings)
_RELEASED = JsonDecoder(ReleasedMark)
_POLICY = JsonDecoder(dict[str, str])


def history_view(
    changes: Iterable[RecordedChange],
    name: str,
    since: float,
    now: float,
    *,
    recorded_since: float,
    with_fleet: bool = False,
) -> HistoryView:
    """Return the view of changes, latest first. name: of a node, incident or domain, empty for the fleet.
    since, now, recorded_since: seconds since the epoch. with_fleet: whether pauses and policies belong to it.
    """
    entries: list[HistoryEntry] = []
    is_complete = True
    for change in changes:
        is_about_all = not name or (with_fleet and change.kind in _OF_FLEET)
        entries += reversed([entry for entry in _entries(change) if is_about_all or _is_about(entry, name)])
        if len(entries) > MAX_ENTRIES:
            is_complete = False
            break
    oldest_first = entries[:MAX_ENTRIES][::-1]
    return HistoryView(
        version=1,
        at=rfc3339(now),
        name=name,
        since=rfc3339(since),
        recorded_since=rfc3339(recorded_since),
        is_complete=is_complete,
        entries=tuple(sorted(oldest_first, key=_order)),
    )


def _order(entry: HistoryEntry) -> tuple[str, int]:
    """Return the order of an entry. In one second an incident opens before its mark is set, and ends before
    the mark is released, although the records are in another order.
    """
    return entry.at, {"opened": 0, "released": 2}.get(entry.change, 1)


def _is_about(entry: HistoryEntry, name: str) -> bool:
    """Return whether an entry is about a name; a domain may have the end of its path."""
    return name in {entry.node, entry.incident, entry.domain} or entry.domain.endswith(f"/{name}")


def _entries(change: RecordedChange) -> Iterator[HistoryEntry]:
    """Yield the entries of a change, none if it is not worth one."""
    project = _PROJECTIONS.get(change.kind)
    for entry in project(change) if project is not None else ():
        yield msgspec.structs.replace(entry, text=_shortened(entry.text))


def _shortened(text: str) -> str:
    """Return a text of a readable length, cut between two words."""
    if len(text) <= _TEXT_LENGTH:
        return text
    start = text[: _TEXT_LENGTH - 1]
    return f"{start.rpartition(' ')[0] or start}…"


def _decode(decoder: JsonDecoder[_Decoded], text: str | None) -> _Decoded | None:
    """Return a decoded text; None if there is none, or if it cannot be read."""
    if not text:
        return None
    try:
        return decoder.decode(text)
    except msgspec.DecodeError:
        return None


def _incident(change: RecordedChange) -> Iterator[HistoryEntry]:
    """Yield the beginning and the end of an incident, a changed health, and why its mark is not set."""
    incident, before = _decode(_INCIDENT, change.text), _decode(_INCIDENT, change.before)
    if incident is None:
        return
    about = f"{incident.cause} on {target_label(incident.target)}"
    was_open = before is not None and before.is_open
    if not incident.is_open:
        if was_open:
            reason = f": {incident.detail}" if incident.detail else ""
            yield _of_incident(change, incident, "resolved", f"{about} is resolved{reason}")
        return
    if before is None or not was_open:
        yield _of_incident(change, incident, "opened", f"{incident.health}: {about}: {incident.message}")
        return
    if incident.health != before.health:
        text = f"{about} is {incident.health} now, it was {before.health}"
        yield _of_incident(change, incident, "changed", text)
    if incident.parent != before.parent and incident.parent:
        yield _of_incident(change, incident, "changed", f"{about} is part of incident {incident.parent}")
    if incident.state != before.state and incident.state == IncidentState.WITHHELD:
        yield _of_incident(change, incident, "changed", f"{about} is not marked: {incident.detail}")
    elif incident.state == IncidentState.RECOVERING and incident.write not in {None, before.write}:
        yield _of_incident(change, incident, "changed", f"{about} is not released: {incident.detail}")


def _of_incident(
    change: RecordedChange, incident: _IncidentFacts, name: HistoryChange, text: str
) -> HistoryEntry:
    return _entry(change, name, text, incident=incident.name, domain=incident.domain)


def _entry(
    change: RecordedChange, name: HistoryChange, text: str, incident: str = "", domain: str = ""
) -> HistoryEntry:
    return HistoryEntry(rfc3339(change.at), name, text, change.node, incident, domain)


def _marks(change: RecordedChange) -> Iterator[HistoryEntry]:
    """Yield the marks that appeared on and disappeared from a Node or a device."""
    record, before = decode_record(change.text), decode_record(change.before or "")
    if record is None or before is None:
        return
    present, earlier = _mark_texts(record), _mark_texts(before)
    released = _decode(_RELEASED, change.reason)
    for text in earlier.keys() - present.keys():
        reason = ""
        if released is not None and released.cause.check == earlier[text]:
            reason = f" ({released.reason})"
        yield _entry(change, "released", text + reason)
    for text in present.keys() - earlier.keys():
        yield _entry(change, "marked", text)


def _mark_texts(record: MarkRecord) -> Mapping[str, str]:
    """Return a text for each mark of a record, with its check."""
    return {cause.text: cause.check for cause in record.all_causes}


def _decision(change: RecordedChange) -> Iterator[HistoryEntry]:
    decision, before = _decode(_DECISION, change.text), _decode(_DECISION, change.before)
    if decision is None:
        return
    earlier = before or OperatorDecision(decision.incident)
    if decision.acknowledged and decision.acknowledged != earlier.acknowledged:
        text = f"acknowledged by {decision.acknowledged}"
        yield _entry(change, "acknowledged", text, incident=decision.incident)
    if decision.clear and decision.clear != earlier.clear:
        yield _entry(change, "cleared", f"clear requested by {decision.clear}", incident=decision.incident)
    if decision.false_alarm is not None and decision.false_alarm != earlier.false_alarm:
        statement = "recorded as a false alarm" if decision.is_false_alarm else "false alarm withdrawn"
        text = f"{statement} by {decision.false_alarm.text}"
        yield _entry(change, "false-alarm", text, incident=decision.incident)


def _action(change: RecordedChange) -> Iterator[HistoryEntry]:
    """Yield the begin and the end of an action."""
    action, before = _decode(_ACTION, change.text), _decode(_ACTION, change.before)
    if action is None:
        return
    about = action_text(action)
    if before is None:
        text = f"the agent is asked to {about}, by {action.request}"
        if not action.kind.is_for_agent:
            text = f"a {_drain_noun(action)} begins to {about}, for the {drain_purpose(action)}"
        yield _entry(change, "action", text, incident=action.incident)
    if action.state.is_finished and not (before is not None and before.state.is_finished):
        message = f": {action.message}" if action.message else ""
        what = "request" if action.kind.is_for_agent else _drain_noun(action)
        text = f"the {what} to {about} has {_ACTION_ENDS[action.state]}{message}"
        yield _entry(change, "action", text, incident=action.incident)


def _drain_noun(action: NodeAction) -> str:
    return "notice" if action.kind == ActionKind.DRAIN_NOTICE else "drain"


def _pause(change: RecordedChange) -> Iterator[HistoryEntry]:
    if change.text:
        yield _entry(change, "paused", change.text)


def _resume(change: RecordedChange) -> Iterator[HistoryEntry]:
    yield _entry(change, "resumed", change.text)


def _policy(change: RecordedChange) -> Iterator[HistoryEntry]:
    """Yield the changed values of the policy; none for the first policy that is recorded, or that this
    version's fields describe.
    """
    values, before = _decode(_POLICY, change.text), _decode(_POLICY, change.before)
    if values is None or before is None or values.get(POLICY_FORMAT) != before.get(POLICY_FORMAT):
        return
    texts = policy_changes(before, values)
    if len(texts) == 1:
        yield _entry(change, "policy", f"another policy is in use: {texts[0]}")
    elif texts:
        shown = tuple(map(_shortened, texts[:_POLICY_CHANGES]))
        more = (f"and {len(texts) - len(shown)} more",) if len(texts) > len(shown) else ()
        entry = _entry(change, "policy", f"another policy is in use, with {len(texts)} changes")
        yield msgspec.structs.replace(entry, details=shown + more)


def _stale(change: RecordedChange) -> Iterator[HistoryEntry]:
    if change.text == "true":
        yield _entry(change, "stale", "the agent does not report")
    elif change.before is not None:
        yield _entry(change, "reporting", "the agent reports again")


def _node(change: RecordedChange) -> Iterator[HistoryEntry]:
    """Yield what operators changed on a Node."""
    after, before = _decode(_SETTINGS, change.text), _decode(_SETTINGS, change.before)
    if after is None or before is None:
        return
    if after.deleted:
        yield _entry(change, "deleted", "the Node was deleted")
        return
    if after.cordoned != before.cordoned:
        yield _entry(change, "cordon", "cordoned by an operator" if after.cordoned else "uncordoned")
    settings: tuple[tuple[HistoryChange, str | None, str | None], ...] = (
        ("hold", after.hold, before.hold),
        ("maintenance", after.maintenance, before.maintenance),
    )
    for name, value, earlier in settings:
        if value != earlier:
            yield _entry(change, name, f"{name} is removed" if value is None else f"{name}: {value or 'set'}")


_PROJECTIONS: Mapping[str, Callable[[RecordedChange], Iterator[HistoryEntry]]] = {
    NoteKind.INCIDENT: _incident,
    NoteKind.MARKS: _marks,
    NoteKind.RULE: _marks,
    NoteKind.DECISION: _decision,
    NoteKind.ACTION: _action,
    NoteKind.PAUSE: _pause,
    NoteKind.RESUME: _resume,
    NoteKind.POLICY: _policy,
    "stale": _stale,
    "node": _node,
}
