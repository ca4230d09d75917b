"""The recorded incidents of the fleet, within their limits. No input, output or clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from functools import partial

from nodeguard.fleet.incidents.limits import (
    MAX_INJECTED,
    MAX_INJECTED_PER_NODE,
    MAX_PER_NODE,
    MAX_TOTAL,
    IncidentKind,
    incident_kind,
    is_removable,
    limit_incidents,
    limit_without_mark,
    seconds_resolved,
    surplus,
)
from nodeguard.fleet.state.wall_clock import RecordedAge, WallClock
from nodeguard.model.incident import Incident
from nodeguard.model.instant import Instant

# Seconds for which a resolved incident is recorded, so that it is recognised when it comes back.
_REMEMBERED = 86_400.0

# Seconds after the start for which none is removed for its age: a wrong clock is corrected by then.
_CLOCK_SETTLES = 3_600.0

# Above this share of the limit for incidents without marks, those that were resolved longest ago are removed.
_FULL = 0.9


class RecordedIncidents:
    """Records incidents up to the limits, and forgets those that were resolved long ago."""

    by_uid: dict[str, dict[str, Incident]]
    """Those of each Node, by its uid, and by name: at most MAX_PER_NODE of a Node, and max_total in all.
    Those of injected faults have a limit of their own, max_injected."""
    left_out: dict[str, frozenset[str]]
    """Names of the real incidents beyond the limits now, by uid."""
    left_out_total: int
    """Number of these since the start."""

    def __init__(self, clock: WallClock) -> None:
        self.by_uid = {}
        self.left_out = {}
        self.left_out_total = 0
        self.max_total = MAX_TOTAL
        self.max_injected = MAX_INJECTED
        self._clock = clock
        # Number of recorded incidents: of injected faults, and of real ones.
        self._counts: Counter[bool] = Counter()
        # The kinds of the left-out incidents, by uid.
        self._left_out_kinds: dict[str, frozenset[IncidentKind]] = {}
        # No resolved incident is old enough before then, in seconds of the monotonic clock; None at first.
        self._next_forget: float | None = None

    def restore(self, incidents: Iterable[Incident]) -> None:
        """Record incidents from before this start, which may be more than the limits."""
        for incident in incidents:
            self.by_uid.setdefault(incident.uid, {})[incident.name] = incident
        self._update_counts()

    def every(self) -> Iterator[Incident]:
        """Yield the incidents of all nodes, domains and checks."""
        for incidents in self.by_uid.values():
            yield from incidents.values()

    def incident(self, name: str) -> Incident | None:
        """Return the incident of a name; None if there is none."""
        return next((incidents[name] for incidents in self.by_uid.values() if name in incidents), None)

    def has_any(self, uid: str) -> bool:
        """Return whether a node has incidents, or had some beyond the limits."""
        return uid in self.by_uid or uid in self._left_out_kinds

    def record(
        self, uid: str, incidents: Mapping[str, Incident], now: Instant, limit: int = MAX_PER_NODE
    ) -> list[Incident]:
        """Record the incidents of a node, by name, up to the limits. Returns those that changed, or are new.
        limit: of its real ones.
        """
        before = self.by_uid.get(uid, {})
        recorded, left_out = self._limit(before, incidents, limit, now, injected=False)
        if any(incident.injected for incident in (*before.values(), *incidents.values())):
            injected, beyond = self._limit(before, incidents, MAX_INJECTED_PER_NODE, now, injected=True)
            recorded, left_out = {**recorded, **injected}, {**left_out, **beyond}
        past = self.left_out.get(uid, frozenset())
        self.set_left_out(uid, left_out.values())
        self.left_out_total += len(self.left_out.get(uid, frozenset()) - past)
        if recorded:
            self.by_uid[uid] = recorded
        else:
            self.by_uid.pop(uid, None)
        return [incident for name, incident in recorded.items() if incident is not before.get(name)]

    def set_left_out(self, uid: str, incidents: Collection[Incident]) -> None:
        """Record which incidents of a node are beyond the limits."""
        real = frozenset(incident.name for incident in incidents if not incident.injected)
        kinds = frozenset(map(incident_kind, incidents))
        self.left_out.pop(uid, None)
        self._left_out_kinds.pop(uid, None)
        if real:
            self.left_out[uid] = real
        if kinds:
            self._left_out_kinds[uid] = kinds

    def forget(self, now: Instant) -> None:
        """Remove incidents that were resolved long ago, or longest ago if there are many."""
        age = partial(self._clock.age, now=now)
        if self._next_forget is None:
            self._next_forget = now.mono + _CLOCK_SETTLES
        if now.mono >= self._next_forget:
            self._remove(lambda incident: seconds_resolved(incident, age, now) >= _REMEMBERED)
            oldest = max((seconds_resolved(incident, age, now) for incident in self.every()), default=0.0)
            self._next_forget = now.mono + _REMEMBERED - oldest
        for injected in (False, True):
            full = int(_FULL * limit_without_mark(self._most(injected=injected)))
            if self._counts[injected] > full:
                incidents = (incident for incident in self.every() if incident.injected == injected)
                self._remove_names(surplus(incidents, full, age))

    def with_room(self, now: Instant) -> list[str]:
        """Return the uids of the nodes with a left-out incident that may be recorded now."""
        age = partial(self._clock.age, now=now)
        return [uid for uid in self._left_out_kinds if self._has_room(uid, age)]

    def _has_room(self, uid: str, age: RecordedAge) -> bool:
        stay = Counter(
            incident.injected
            for incident in self.by_uid.get(uid, {}).values()
            if not is_removable(incident, age)
        )
        for kind in self._left_out_kinds[uid]:
            in_all = self._most(injected=kind.injected)
            of_node = MAX_INJECTED_PER_NODE if kind.injected else MAX_PER_NODE
            if not kind.asks:
                in_all, of_node = limit_without_mark(in_all), limit_without_mark(of_node)
            if self._counts[kind.injected] < in_all and stay[kind.injected] < of_node:
                return True
        return False

    def _limit(
        self,
        before: Mapping[str, Incident],
        after: Mapping[str, Incident],
        limit: int,
        now: Instant,
        *,
        injected: bool,
    ) -> tuple[dict[str, Incident], dict[str, Incident]]:
        """Return the incidents of a node to record, and those beyond the limits: of injected faults, or of
        real ones. Counts the recorded ones.
        """
        before = {name: incident for name, incident in before.items() if incident.injected == injected}
        after = {name: incident for name, incident in after.items() if incident.injected == injected}
        most, count = self._most(injected=injected), self._counts[injected]
        room = min(limit, len(before) + max(0, most - count))
        fewer = min(limit_without_mark(limit), limit_without_mark(most) - count + len(before))
        recorded, left_out = limit_incidents(before, after, room, fewer, partial(self._clock.age, now=now))
        self._counts[injected] += len(recorded) - len(before)
        return recorded, left_out

    def _most(self, *, injected: bool) -> int:
        return self.max_injected if injected else self.max_total

    def _remove_names(self, names: Set[str]) -> None:
        if names:
            self._remove(lambda incident: incident.name in names)

    def _remove(self, is_gone: Callable[[Incident], bool]) -> None:
        for uid, incidents in list(self.by_uid.items()):
            self.by_uid[uid] = {
                name: incident for name, incident in incidents.items() if not is_gone(incident)
            }
            if not self.by_uid[uid]:
                del self.by_uid[uid]
        self._update_counts()

    def _update_counts(self) -> None:
        self._counts = Counter(incident.injected for incident in self.every())
