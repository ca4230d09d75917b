"""The faults, marks, nodes and gaps of a fleet over time, from the transitions of its history. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.fleet.state.history_events import (
    AgentLivenessChanged,
    HistoryEvent,
    HistoryNote,
    NodeObserved,
    NodeRemoved,
    NoteKind,
)
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.model.finding import Action
from nodeguard.model.incident import Incident, OperatorDecision
from nodeguard.model.instant import parse_or_zero
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.mark import Mark, MarkCause, MarkRecord
from nodeguard.model.target import target_label


class Cause(Struct, frozen=True):
    """The group of a fault or a mark by each grouping; an empty one is unknown, or there is none.

    domain: the degraded domain that it is part of. part: the serial number of the GPU, or its node and
    target.
    """

    check: str
    domain: str = ""
    part: str = ""
    action: str = ""


class RecordedFault(Struct, frozen=True):
    """A fault that is no part of another one, or a false alarm. began, ended: seconds since the epoch; None
    while it lasts.
    """

    cause: Cause
    began: float
    ended: float | None


class Outage(Struct, frozen=True):
    """The time during which one cause marked a node, or a device of it.

    carrier: empty for the node, else the name of the device's record. began, ended: as in RecordedFault.
    """

    node: str
    carrier: str
    mark: Mark
    cause: Cause
    target: str
    began: float
    ended: float | None

    @property
    def check(self) -> str:
        """Return the check of the cause."""
        return self.cause.check


class Presence(Struct, frozen=True):
    """The time during which a node was in the fleet with a number of GPUs. began, ended: as in
    RecordedFault.
    """

    node: str
    gpus: int
    began: float
    ended: float | None


class Gap(Struct, frozen=True):
    """A time without observations: of one node, because its agent was stale, or of the fleet (empty)."""

    node: str
    began: float
    ended: float | None


class FleetRecord(Struct, frozen=True):
    """The record of a fleet.

    false_alarms: incidents of any health that operators recorded as false alarms; they are no faults, and
    their marks are outages. injected: number of faults of rehearsals, which are in no other field.
    """

    faults: tuple[RecordedFault, ...] = ()
    outages: tuple[Outage, ...] = ()
    presences: tuple[Presence, ...] = ()
    gaps: tuple[Gap, ...] = ()
    injected: int = 0
    false_alarms: tuple[RecordedFault, ...] = ()


_INCIDENT = JsonDecoder(Incident)
_DECISION = JsonDecoder(OperatorDecision)
_SECONDS = JsonDecoder(float)


def fleet_record(events: Iterable[HistoryEvent]) -> FleetRecord:
    """Return the record of a fleet. Raises msgspec.DecodeError.

    events: nodes, stale agents, and the notes of incidents, decisions, marks and gaps; in any order. Reports
    are ignored.
    """
    ordered = sorted(events, key=lambda event: event.at)
    notes = [event for event in ordered if isinstance(event, HistoryNote)]
    incidents = _latest_incidents(notes)
    domains = {incident.name: incident.domain for incident in incidents if incident.domain}
    false_occurrences = _false_occurrences(notes, incidents)
    faults, false_alarms = list[RecordedFault](), list[RecordedFault]()
    for incident in incidents:
        fault = RecordedFault(_cause(incident, domains), incident.first_seen, incident.resolved_at or None)
        if incident.injected:
            continue
        if (incident.name, incident.first_seen) in false_occurrences:
            false_alarms.append(fault)
        elif incident.is_fault:
            faults.append(fault)
    return FleetRecord(
        tuple(faults),
        tuple(_outages(notes, incidents, domains)),
        tuple(_presences(ordered)),
        tuple(_gaps(ordered)),
        sum(incident.injected and incident.is_fault for incident in incidents),
        tuple(false_alarms),
    )


def _false_occurrences(notes: Iterable[HistoryNote], incidents: Iterable[Incident]) -> set[tuple[str, float]]:
    """Return the occurrences that operators recorded as false alarms, by name and begin: the latest one at
    the time of the statement. The note may be later: an aggregator that starts records all decisions. An
    occurrence that begins after the note is never meant, also if the history has no earlier one. The latest
    statement about an occurrence counts.
    """
    begins: dict[str, list[float]] = defaultdict(list)
    for incident in incidents:
        begins[incident.name].append(incident.first_seen)
    occurrences = set()
    for note in notes:
        statement = _DECISION.decode(note.text).false_alarm if note.kind == NoteKind.DECISION else None
        if statement is None:
            continue
        # The text of a time has whole seconds.
        stated_at = min(note.at, parse_or_zero(statement.at) + 1.0) if statement.at else note.at
        begun = [at for at in begins[note.name] if at <= note.at]
        began = [at for at in begun if at <= stated_at] or begun
        if began and statement.withdrawn:
            occurrences.discard((note.name, max(began)))
        elif began:
            occurrences.add((note.name, max(began)))
    return occurrences


def _latest_incidents(notes: Iterable[HistoryNote]) -> list[Incident]:
    """Return the last state of each occurrence of an incident. One that is resolved has no action, and may
    have left its domain: what it had before counts.
    """
    latest: dict[tuple[str, float], Incident] = {}
    for note in notes:
        if note.kind == NoteKind.INCIDENT:
            incident = _INCIDENT.decode(note.text)
            key = incident.name, incident.first_seen
            before = latest.get(key, incident)
            latest[key] = replace(
                incident,
                action=before.action if incident.action == Action.NONE else incident.action,
                parent=incident.parent or before.parent,
                hardware=incident.hardware or before.hardware,
            )
    return list(latest.values())


def _cause(incident: Incident, domains: Mapping[str, str]) -> Cause:
    """Return the groups of an incident. domains: paths of the degraded domains, by name of the incident."""
    domain = incident.domain or domains.get(incident.parent, "")
    action = "" if incident.action == Action.NONE else incident.action.value
    return Cause(incident.cause, domain, _part(incident), action)


def _part(incident: Incident) -> str:
    if incident.hardware is not None and incident.hardware.serial:
        return f"serial {incident.hardware.serial}"
    if not incident.node:
        return ""
    return f"{incident.node}: {target_label(incident.component or incident.target)}"


def _outages(
    notes: Iterable[HistoryNote], incidents: Iterable[Incident], domains: Mapping[str, str]
) -> Iterator[Outage]:
    """Yield the marks. The cause of a mark has the action and part of its latest incident."""
    causes: dict[tuple[str, str, str], Cause] = {}
    for incident in incidents:
        cause = _cause(incident, domains)
        if incident.domain:
            causes["", "", incident.domain] = cause
        for symptom in incident.symptoms:
            causes[incident.node, symptom.check, symptom.target] = replace(cause, check=symptom.check)
        causes[incident.node, incident.cause, incident.target] = cause
    active: dict[tuple[str, str], dict[tuple[Mark, str, str], Outage]] = {}
    for note in notes:
        if note.kind not in {NoteKind.MARKS, NoteKind.RULE}:
            continue
        record = decode_record(note.text) or MarkRecord()
        carrier = "" if note.kind == NoteKind.MARKS else note.name
        before = active.setdefault((note.node, carrier), {})
        present = {(cause.mark, cause.check, cause.target): cause for cause in record.all_causes}
        for gone in before.keys() - present.keys():
            yield replace(before.pop(gone), ended=note.at)
        for key, mark in present.items():
            if key in before or mark.injected:
                continue
            node = note.node if isinstance(mark, MarkCause) else ""
            cause = causes.get((node, mark.check, mark.target), Cause(mark.check))
            before[key] = Outage(note.node, carrier, mark.mark, cause, mark.target, mark.since, None)
    for remaining in active.values():
        yield from remaining.values()


def _presences(events: Iterable[HistoryEvent]) -> Iterator[Presence]:
    present: dict[str, Presence] = {}
    for event in events:
        if isinstance(event, NodeObserved):
            node, before = event.node, present.get(event.node.key)
            if before is not None and (before.node, before.gpus) == (node.name, node.gpus):
                continue
            if before is not None:
                yield replace(before, ended=event.at)
            present[node.key] = Presence(node.name, node.gpus, event.at, None)
        elif isinstance(event, NodeRemoved) and event.uid in present:
            yield replace(present.pop(event.uid), ended=event.at)
    yield from present.values()


def _gaps(events: Iterable[HistoryEvent]) -> Iterator[Gap]:
    stale: dict[str, Gap] = {}
    for event in events:
        if isinstance(event, HistoryNote) and event.kind == NoteKind.GAP:
            yield Gap("", _SECONDS.decode(event.text), event.at)
        elif isinstance(event, AgentLivenessChanged) and event.stale:
            stale.setdefault(event.uid, Gap(event.node, event.at, None))
        elif isinstance(event, (AgentLivenessChanged, NodeRemoved)) and event.uid in stale:
            yield replace(stale.pop(event.uid), ended=event.at)
    yield from stale.values()
