"""From readings to a verdict, round after round: derivation and judgement with their memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodeguard.agent.state import AgentState
from nodeguard.derive.derive import PlatformHints, derive
from nodeguard.derive.references import forget_inventory
from nodeguard.derive.state import plan_derivation
from nodeguard.judge.clear import ClearRequest, ClearResult, apply_clears, clear
from nodeguard.judge.judge import JudgeSettings, judge
from nodeguard.judge.rules import compile_rules
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Reading
from nodeguard.model.signal import Signal
from nodeguard.model.target import target_label
from nodeguard.sources.machine import LaneHangs, LogCursor


class Pipeline:
    """A catalogue, and what is remembered of one node.

    signals: all that exist. site: what the site says of the node. families: judge these alone; None for all.
    one_look: whether there may be no later look, see judge.Outlook. memory: what was
    remembered of the node before; what of it outlives a reboot stands on a new boot, too.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        signals: Mapping[str, Signal],
        site: PlatformHints,
        families: frozenset[str] | None = None,
        *,
        one_shot: bool = False,
        memory: AgentState | None = None,
    ) -> None:
        self._families = families
        self._site = site
        self._one_look = one_shot
        before = memory or AgentState()
        self._cursor = before.cursor
        self._derived = before.derived
        self._judged = before.judged
        self.adopt(catalogue, signals)

    def adopt(self, catalogue: Catalogue, signals: Mapping[str, Signal]) -> None:
        """Judge by another catalogue from now on; what is remembered of the node stays."""
        self._catalogue = catalogue
        self._rules = compile_rules(catalogue, signals, self._families)
        self._wanted = plan_derivation(catalogue, signals)
        # Signals of a port that make a difference to anybody here.
        self.port_signals = self._rules.signals_used["port"] | self._wanted.bits.keys()
        # What was settled was said by the old rules.
        self._judged = replace(self._judged, settled={})

    def evaluate(self, readings: Sequence[Reading], instant: Instant) -> Verdict:
        """The node's verdict after some more readings; nothing of them is kept where it cannot be reached."""
        after, derived = derive(self._catalogue, self._wanted, self._derived, readings, instant, self._site)
        platform = derived.platform
        outlook = JudgeSettings(
            platform=platform.id if platform else "",
            expect=platform.expect if platform else {},
            one_shot=self._one_look,
        )
        self._judged, verdict = judge(self._rules, self._judged, derived.readings, instant, outlook)
        self._derived = after
        for cursor in _cursors(readings, instant.boot_id):
            self._cursor = cursor
        return verdict

    def clear(self, wanted: ClearRequest, instant: Instant) -> ClearResult:
        """Clear a finding on a person's word; the next verdict is without it.

        Where it is held against the node's own last good inventory, what is there now is the reference from
        now on.
        """
        judged, clearing = clear(self._rules, self._judged, wanted, instant)
        if clearing.reason != "holds":
            self._judged = judged
            return clearing
        before = self._derived, self._judged
        [check] = (one for one in self._catalogue.checks if one.id == wanted.check)
        slots = [slot for name, slot in clearing.still_active if name == check.id]
        best = forget_inventory(self._derived.best, check, slots)
        if best == self._derived.best:
            return clearing
        self._derived = replace(self._derived, best=best)
        self.evaluate([], instant)
        over = tuple((check.id, slot) for slot in slots if self._is_over(check.id, slot))
        if not over:
            self._derived, self._judged = before
            return clearing
        self._judged = apply_clears(self._judged, wanted, over, instant)
        said = f"{wanted.check} on {target_label(wanted.target)} is cleared: what is there now is what should be there"
        return ClearResult(said, over)

    def _is_over(self, check: str, slot: str) -> bool:
        row = self._judged.targets.get(slot)
        return row is not None and check not in row.active

    def memory(self, instant: Instant, hangs: LaneHangs) -> AgentState:
        """What is remembered after a round.

        instant: of that round. hangs: of the machine's lanes.
        """
        return AgentState(
            boot_id=instant.boot_id,
            mono=instant.mono,
            wall=instant.wall,
            cursor=self._cursor,
            hangs=hangs,
            derived=self._derived,
            judged=self._judged,
        )


def _cursors(readings: Iterable[Reading], boot_id: str) -> Iterator[LogCursor]:
    """How far the kernel log was read with each of some readings."""
    for reading in readings:
        for one in reading.observations:
            last = one.signals.get("kmsg.sequence")
            if isinstance(last, int):
                yield LogCursor(boot_id, last)
