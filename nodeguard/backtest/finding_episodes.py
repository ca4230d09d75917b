"""What was found, for how long, and how it ended: facts, whatever a policy makes of them. Pure."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum

from msgspec import Struct

from nodeguard.fleet.decide.mark_requests import resource
from nodeguard.fleet.state.history_events import HistoryEvent, NodeRemoved, ReportReceived
from nodeguard.model.finding import Health
from nodeguard.wire.report import Report, ReportedFinding


class EpisodeEnd(StrEnum):
    """How a finding ended. `itself`: with nothing else that is known. `reboot`: its node booted. `part`:
    another part sits in its slot. `left`: its node was no more. `open`: it has not.
    """

    RESOLVED = "itself"
    REBOOT = "reboot"
    COMPONENT_REPLACED = "part"
    NODE_DELETED = "left"
    OPEN = "open"


class FindingEpisode(Struct):
    """A finding that was suspect or fatal, from when it was first told to when it no longer was.

    resource: the slot of what failed. fatal: when it was first fatal, None for never. Times in seconds since
    the epoch.
    """

    uid: str
    check: str
    target: str
    failed_target: str
    start: float
    fatal_since: float | None = None
    end: float | None = None
    end_reason: EpisodeEnd = EpisodeEnd.OPEN


# A finding's place on its node: check and slot.
_Place = tuple[str, str]


class FindingEpisodes:
    """of: all spells, by uid of the node, in the order in which they began. nodes: who reported, by uid;
    reports: how many.
    """

    def __init__(self) -> None:
        self.by_node: dict[str, list[FindingEpisode]] = defaultdict(list)
        self.nodes: set[str] = set()
        self.reports = 0
        self._open: dict[str, dict[_Place, FindingEpisode]] = {}
        self._last: dict[str, Report] = {}

    def apply_step(self, step: HistoryEvent) -> None:
        """A step, in its order."""
        match step:
            case ReportReceived(at, uid, report):
                self.nodes.add(uid)
                self.reports += 1
                self._report(at, uid, report)
            case NodeRemoved(at, uid, _):
                for spell in self._open.pop(uid, {}).values():
                    spell.end, spell.end_reason = at, EpisodeEnd.NODE_DELETED
                self._last.pop(uid, None)

    def _report(self, at: float, uid: str, report: Report) -> None:
        found = {(one.check, one.target): one for one in report.findings if one.health in _BAD}
        still = self._open.get(uid)
        if found or still:
            still = self._open.setdefault(uid, {})
            for place in still.keys() - found.keys():
                spell = still.pop(place)
                spell.end, spell.end_reason = at, self._how(spell, uid, report)
            for place, one in found.items():
                self._found(still, place, at, uid, one)
            if not still:
                del self._open[uid]
        self._last[uid] = report

    def _found(
        self, still: dict[_Place, FindingEpisode], place: _Place, at: float, uid: str, one: ReportedFinding
    ) -> None:
        spell = still.get(place)
        if spell is None:
            spell = still[place] = FindingEpisode(uid, one.check, one.target, resource(one), at)
            self.by_node[uid].append(spell)
        if one.health == Health.FATAL and spell.fatal_since is None:
            spell.fatal_since = at

    def _how(self, spell: FindingEpisode, uid: str, report: Report) -> EpisodeEnd:
        last = self._last[uid]
        if report.boot_id != last.boot_id:
            return EpisodeEnd.REBOOT
        was, now = (one.inventory.components.get(spell.failed_target) for one in (last, report))
        return (
            EpisodeEnd.COMPONENT_REPLACED
            if was and now and was.id and now.id and was.id != now.id
            else EpisodeEnd.RESOLVED
        )


_BAD = frozenset({Health.SUSPECT, Health.FATAL})
