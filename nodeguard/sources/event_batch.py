"""Event batch: the log events of one reading, bounded so that a storm of lines costs little to evaluate.

Evaluation runs in the agent's event loop. A storm therefore becomes few events with high counts, not many
events. Limits: the log names fewer than 200 targets of a node, and a fault of one target gives fewer than 20
kinds of event.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.model.observation import Event, Observation
from nodeguard.model.signal import Scalar

# Events of one kind on one target that stay single events; the last one counts the others.
_SINGLE = 64
# Events of one reading that stay single events; after that each kind of event on a target is only counted.
_EVENTS = 512
# Kinds of event on one target, as many as the judge keeps, and on all targets together.
_KINDS_OF_TARGET = 64
_KINDS = 1024

# Fields that change the meaning of an event within one pattern: a storm of corrected errors must not hide a
# fatal one, nor one Xid another.
_DISTINCT = (
    "xid", "sxid", "sev", "severity", "words", "constraint", "state", "dev", "label", "server", "interface",
    "adapter", "problem",
)  # fmt: skip
# Hexadecimal digits of the status of a machine check that have its severity: bits 63 to 56.
_SEVERITY_DIGITS = 2

# The kind of an event: its target, the pattern that matched, and its distinct fields.
_Kind = tuple[str, str, tuple[Scalar, ...]]


class EventBatch:
    """Collects events in their order.

    dropped: number of events beyond the limit on kinds; they are counted and not evaluated.
    """

    def __init__(self) -> None:
        self._kinds: dict[_Kind, list[Event]] = {}
        self._kinds_of_target: dict[str, int] = {}
        self._events = 0
        self.dropped = 0

    def add(self, target: str, pattern: str, event: Event) -> None:
        """Add one event. pattern: id of the pattern that matched."""
        kind = (target, pattern, _distinct(event))
        events = self._kinds.get(kind)
        if events is None:
            self._begin(kind, event)
        elif len(events) < _SINGLE and self._events < _EVENTS:
            events.append(event)
            self._events += 1
        else:
            last = events[-1]
            events[-1] = Event(last.signal, event.at, event.text, event.fields, last.count + event.count)

    def _begin(self, kind: _Kind, event: Event) -> None:
        target = kind[0]
        of_target = self._kinds_of_target.get(target, 0)
        if of_target >= _KINDS_OF_TARGET or len(self._kinds) >= _KINDS:
            self.dropped += 1
            return
        self._kinds[kind] = [event]
        self._kinds_of_target[target] = of_target + 1
        self._events += 1

    def observations(self, source: str) -> Iterator[Observation]:
        """Yield an observation for each kind of event on each target."""
        for (target, _, _), events in self._kinds.items():
            yield Observation(source, target, events=tuple(events))


def _distinct(event: Event) -> tuple[Scalar, ...]:
    """Return the fields that events of one pattern must share to be counted as one."""
    status = str(event.fields.get("status", ""))[:_SEVERITY_DIGITS]
    return (status, *(event.fields.get(name, "") for name in _DISTINCT))
