"""What the aggregator tells its history: transitions alone, as they are found, and nothing that waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
from msgspec.structs import replace

from nodeguard.aggregator.history.writer import Writer
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.fleet.silence import PATIENCE
from nodeguard.fleet.steps import Gone, Kind, Quiet, Reported, Seen, Told, bare
from nodeguard.model.incident import Decision
from nodeguard.model.instant import Instant
from nodeguard.model.mark import STATE
from nodeguard.model.node import Node
from nodeguard.wire.report import Report

# Seconds between two looks at what people decided, which is in the hands of others.
_DECISIONS = 10.0


class Remembers(Protocol):
    """Who is told what happens, and says nothing to it."""

    def reported(self, caller: Caller, report: Report, now: Instant) -> None:
        """A report was heard, and the planner has it."""

    def look(self, now: Instant) -> None:
        """A second has passed: Nodes, silence and people's decisions may have changed."""

    def planned(self, plan: Plan, now: Instant, *, acts: bool) -> None:
        """A plan was made. acts: whether it is carried out here."""


class Forgets:
    """No history is kept."""

    def reported(self, caller: Caller, report: Report, now: Instant) -> None:
        """Nothing."""

    def look(self, now: Instant) -> None:
        """Nothing."""

    def planned(self, plan: Plan, now: Instant, *, acts: bool) -> None:
        """Nothing."""


class History:
    """Remembers in a file.

    decisions: gives what people decided, by the incident's name. tell: takes sentences for the log. began:
    seconds of a clock that never jumps, from when on silence is told of.
    """

    def __init__(
        self,
        planner: Planner,
        decisions: Callable[[], Mapping[str, Decision]],
        writer: Writer,
        tell: Callable[[str], object],
        began: float,
    ) -> None:
        self.writer = writer
        self._planner = planner
        self._decisions = decisions
        self._tell = tell
        self._began = began
        self._nodes: dict[str, Node] = {}
        self._silent: frozenset[str] = frozenset()
        self._paused = ""
        self._decided: dict[str, Decision] = {}
        self._asked = float("-inf")

    def reported(self, caller: Caller, report: Report, now: Instant) -> None:
        """See Remembers. What is kept until it is written is what the planner keeps anyway."""
        heard = self._planner.heard.get(caller.uid)
        if heard is not None:
            kept = replace(report, node=caller.node, proven=heard.proven, findings=heard.findings)
            self.writer.put(Reported(now.wall, caller.uid, kept))

    def look(self, now: Instant) -> None:
        """See Remembers."""
        for said in self.writer.said():
            self._tell(said)
        self._see_nodes(now.wall)
        self._hear_silence(now)
        if now.mono - self._asked >= _DECISIONS:
            self._asked = now.mono
            self._read_decisions(now.wall)

    def planned(self, plan: Plan, now: Instant, *, acts: bool) -> None:
        """See Remembers. Each replica tells of incidents; of what is carried out, who acts."""
        for one in (*plan.incidents, *plan.brief):
            self._note(now.wall, Kind.INCIDENT, one.name, one.node, one)
        if not acts:
            return
        for what in plan.nodes:
            self._note(now.wall, Kind.PLAN, what.uid, what.name, what)
        for rule in plan.rules:
            self._note(now.wall, Kind.PLAN, rule.name, rule.node, rule)
        for uid, freed in plan.freed:
            node = self._planner.roster.nodes.get(uid)
            self._note(now.wall, Kind.FREED, uid, node.name if node is not None else "", freed)

    def _note(self, at: float, kind: Kind, name: str, node: str, what: msgspec.Struct) -> None:
        self.writer.put(Told(at, kind, name, node, msgspec.json.encode(what).decode()))

    def _see_nodes(self, at: float) -> None:
        """Nodes that are new, or other than they were. Most are the very same."""
        nodes, known = self._planner.roster.nodes, self._nodes
        for uid, node in nodes.items():
            before = known.get(uid)
            if before is node:
                continue
            known[uid] = node
            now = bare(node)
            if before is None or bare(before) != now:
                self.writer.put(Seen(at, now))
            marks = node.annotations.get(STATE, "")
            if marks != ("" if before is None else before.annotations.get(STATE, "")):
                self.writer.put(Told(at, Kind.MARKS, uid, node.name, marks))
        if len(known) > len(nodes):
            for uid in known.keys() - nodes.keys():
                self.writer.put(Gone(at, uid, known.pop(uid).name))

    def _hear_silence(self, now: Instant) -> None:
        """Who has fallen silent. Who was not heard yet at this aggregator's start may be about to speak."""
        silent = self._planner.silence.silent
        if silent == self._silent and now.mono - self._began > PATIENCE:
            return
        early = now.mono - self._began <= PATIENCE
        quiet = frozenset(uid for uid in silent if uid in self._planner.last) if early else silent
        for uid in quiet ^ self._silent:
            node = self._planner.roster.nodes.get(uid)
            if node is not None:
                self.writer.put(Quiet(now.wall, uid, node.name, uid in quiet))
        self._silent = quiet

    def _read_decisions(self, at: float) -> None:
        if self._planner.paused != self._paused:
            self._paused = self._planner.paused
            self.writer.put(Told(at, Kind.PAUSE, "", "", self._paused))
        decisions = dict(self._decisions())
        for name, one in decisions.items():
            if one != self._decided.get(name):
                self._note(at, Kind.DECISION, name, "", one)
        self._decided = decisions
