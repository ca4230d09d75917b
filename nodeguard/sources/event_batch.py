"""The events of one reading of the kernel log, bounded so that a storm of lines costs little to evaluate.

Evaluation runs in the agent's event loop. A storm therefore becomes few events with high counts, not many
events. Figures are ours: a node has fewer than 200 slots that the log names, and a fault of one slot becomes
fewer than 20 kinds of event.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.model.observation import Event, Observation
from nodeguard.model.signal import Scalar

# Events of one kind on one slot that stay single events; the last one counts the rest.
_SINGLE = 64
# Events of one reading that stay single events; from then on each kind of event on a slot only counts.
_EVENTS = 512
# Kinds of event on one slot, as many as the judge remembers of it, and on all slots together.
_KINDS_OF_SLOT = 64
_KINDS = 1024

# Fields by which events of one pattern differ in what they mean: a storm of corrected errors must not hide a
# fatal one, nor one Xid another.
_DISTINCT = (
    "xid", "sxid", "sev", "severity", "words", "constraint", "state", "dev", "label", "server", "interface",
    "adapter", "problem",
)  # fmt: skip
# Hexadecimal digits of the status of a machine check that have its severity: bits 63 to 56.
_SEVERITY_DIGITS = 2

# What makes the kind of an event: its slot, the pattern that found it, and its distinct fields.
_Kind = tuple[str, str, tuple[Scalar, ...]]


class EventBatch:
    """Collects events in the order in which they came.

    dropped: events of more kinds than are kept; they are counted and not evaluated.
    """

    def __init__(self) -> None:
        self._kinds: dict[_Kind, list[Event]] = {}
        self._kinds_of_slot: dict[str, int] = {}
        self._events = 0
        self.dropped = 0

    def add(self, slot: str, pattern: str, event: Event) -> None:
        """Add one event. pattern: id of the pattern that found it."""
        kind = (slot, pattern, _distinct(event))
        events = self._kinds.get(kind)
        if events is None:
            self._begin(kind, event)
        elif len(events) < _SINGLE and self._events < _EVENTS:
            events.append(event)
            self._events += 1
        else:
            last = events[-1]
            events[-1] = Event(last.signal, event.at, event.text, event.fields, last.count + 1)

    def _begin(self, kind: _Kind, event: Event) -> None:
        slot = kind[0]
        of_slot = self._kinds_of_slot.get(slot, 0)
        if of_slot >= _KINDS_OF_SLOT or len(self._kinds) >= _KINDS:
            self.dropped += 1
            return
        self._kinds[kind] = [event]
        self._kinds_of_slot[slot] = of_slot + 1
        self._events += 1

    def observations(self, source: str) -> Iterator[Observation]:
        """Yield an observation for each kind of event on each slot."""
        for (slot, _, _), events in self._kinds.items():
            yield Observation(source, slot, events=tuple(events))


def _distinct(event: Event) -> tuple[Scalar, ...]:
    """Return what events of one pattern must share to be counted as one."""
    status = str(event.fields.get("status", ""))[:_SEVERITY_DIGITS]
    return (status, *(event.fields.get(name, "") for name in _DISTINCT))
