"""What was found, for how long, and how it ended: facts, whatever a policy makes of them. Pure."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum

from msgspec import Struct

from nodeguard.fleet.steps import Gone, Reported, Step
from nodeguard.fleet.want import resource
from nodeguard.model.finding import Health
from nodeguard.wire.report import Active, Report


class Over(StrEnum):
    """How a finding ended. `itself`: with nothing else that is known. `reboot`: its node booted. `part`:
    another part sits in its slot. `left`: its node was no more. `open`: it has not.
    """

    ITSELF = "itself"
    REBOOT = "reboot"
    PART = "part"
    LEFT = "left"
    OPEN = "open"


class Spell(Struct):
    """A finding that was suspect or fatal, from when it was first told to when it no longer was.

    resource: the slot of what failed. fatal: when it was first fatal, None for never. Times in seconds since
    the epoch.
    """

    uid: str
    check: str
    target: str
    resource: str
    began: float
    fatal: float | None = None
    ended: float | None = None
    over: Over = Over.OPEN


# A finding's place on its node: check and slot.
_Place = tuple[str, str]


class Spells:
    """of: all spells, by uid of the node, in the order in which they began. nodes: who reported, by uid;
    reports: how many.
    """

    def __init__(self) -> None:
        self.of: dict[str, list[Spell]] = defaultdict(list)
        self.nodes: set[str] = set()
        self.reports = 0
        self._open: dict[str, dict[_Place, Spell]] = {}
        self._last: dict[str, Report] = {}

    def take(self, step: Step) -> None:
        """A step, in its order."""
        match step:
            case Reported(at, uid, report):
                self.nodes.add(uid)
                self.reports += 1
                self._report(at, uid, report)
            case Gone(at, uid, _):
                for spell in self._open.pop(uid, {}).values():
                    spell.ended, spell.over = at, Over.LEFT
                self._last.pop(uid, None)

    def _report(self, at: float, uid: str, report: Report) -> None:
        found = {(one.check, one.target): one for one in report.findings if one.health in _BAD}
        still = self._open.get(uid)
        if found or still:
            still = self._open.setdefault(uid, {})
            for place in still.keys() - found.keys():
                spell = still.pop(place)
                spell.ended, spell.over = at, self._how(spell, uid, report)
            for place, one in found.items():
                self._found(still, place, at, uid, one)
            if not still:
                del self._open[uid]
        self._last[uid] = report

    def _found(self, still: dict[_Place, Spell], place: _Place, at: float, uid: str, one: Active) -> None:
        spell = still.get(place)
        if spell is None:
            spell = still[place] = Spell(uid, one.check, one.target, resource(one), at)
            self.of[uid].append(spell)
        if one.health == Health.FATAL and spell.fatal is None:
            spell.fatal = at

    def _how(self, spell: Spell, uid: str, report: Report) -> Over:
        last = self._last[uid]
        if report.boot_id != last.boot_id:
            return Over.REBOOT
        was, now = (one.inventory.parts.get(spell.resource) for one in (last, report))
        return Over.PART if was and now and was.id and now.id and was.id != now.id else Over.ITSELF


_BAD = frozenset({Health.SUSPECT, Health.FATAL})
