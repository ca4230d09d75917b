"""The evaluation of one node: readings -> derived signals -> findings and verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.derive.derive import DerivedSignals, PlatformHints, derive
from nodeguard.derive.references import forget_inventory
from nodeguard.derive.state import DeriveState, plan_derivation
from nodeguard.derive.xid import xid_events
from nodeguard.judge.clear import ClearRequest, ClearResult, apply_clears, clear
from nodeguard.judge.judge import JudgeSettings, judge
from nodeguard.judge.rules import compile_rules
from nodeguard.judge.state import JudgeState
from nodeguard.judge.verdict import compute_verdict
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import LOG_POSITION, Component, Reading
from nodeguard.model.signal import Signal
from nodeguard.model.target import target_label
from nodeguard.pipeline.components import update_components, with_hardware
from nodeguard.sources.machine import LogCursor


class PipelineState(Struct, frozen=True):
    """The state that the next evaluation continues.

    cursor: the last kernel log record that was evaluated, None if none was read. derived, judged: the state
    of the two stages. components: last known ones, by target.
    """

    cursor: LogCursor | None = None
    derived: DeriveState = DeriveState()
    judged: JudgeState = JudgeState()
    components: dict[str, Component] = {}


class Pipeline:
    """Evaluates the readings of one node against a catalogue.

    signals: every signal that exists. site: what the site configures about the node. selection: ids of the
    checks to evaluate; None for all. one_shot: there may be no later evaluation, see judge.JudgeSettings.
    state: of an earlier pipeline of this node; the parts of it that survive a reboot are used on a new boot
    too.

    catalogue: the present one. xid_events: number of Xids that were evaluated, by target and code; code 0 for
    an Xid that the catalogue does not have.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        signals: Mapping[str, Signal],
        site: PlatformHints,
        selection: frozenset[str] | None = None,
        *,
        one_shot: bool = False,
        state: PipelineState | None = None,
    ) -> None:
        self._selection = selection
        self._site = site
        self._one_shot = one_shot
        self.state = state or PipelineState()
        self.xid_events: Counter[tuple[str, int]] = Counter()
        self.adopt(catalogue, signals)

    def adopt(self, catalogue: Catalogue, signals: Mapping[str, Signal]) -> None:
        """Replace the catalogue; the state of the node stays."""
        self.catalogue = catalogue
        self._rules = compile_rules(catalogue, signals, self._selection)
        self._wanted = plan_derivation(catalogue, signals)
        # Signals of a port that a check or a derived signal uses.
        self.port_signals = self._rules.signals_used["port"] | self._wanted.bits.keys()
        # The results were computed with the old rules.
        self._derived: DerivedSignals | None = None
        self.state = replace(self.state, judged=replace(self.state.judged, results={}))

    @property
    def units(self) -> Mapping[str, str]:
        """The units of the signals that have one, by signal."""
        return self._rules.units

    def evaluate(self, readings: Sequence[Reading], instant: Instant) -> Verdict:
        """Return the verdict after some more readings. If a stage raises, the state does not change."""
        derived, derivation = derive(
            self._wanted,
            self.state.derived,
            readings,
            instant,
            self._site,
            self._derived,
            self.state.judged.logged_events(instant.boot_id),
        )
        platform = derivation.platform
        settings = JudgeSettings(
            platform=platform.id if platform else "",
            expect=platform.expect if platform else {},
            one_shot=self._one_shot,
        )
        judged, verdict = judge(self._rules, self.state.judged, derivation.readings, instant, settings)
        cursor = self.state.cursor
        for cursor in _cursors(readings, instant.boot_id):  # noqa: B007 - the last one counts
            pass
        components = update_components(self.state.components, readings)
        self.state = PipelineState(cursor, derived, judged, components)
        self._derived = derivation.signals
        for target, code, count in xid_events(derivation.readings, self.catalogue):
            self.xid_events[target, code] += count
        return with_hardware(verdict, components)

    def verdict_of(self, is_selected: Callable[[str], bool], platform: str) -> Verdict:
        """Return the verdict of the last evaluation on some targets. platform: of the verdict on all."""
        judged = self.state.judged
        verdict = compute_verdict(self._rules, judged.results, judged.sources, platform, is_selected)
        return with_hardware(verdict, self.state.components)

    def clear(self, request: ClearRequest, instant: Instant) -> ClearResult:
        """Clear a finding for an operator; the next verdict does not contain it.

        A finding that compares the node with its own last good inventory is cleared by making the present
        inventory the reference.
        """
        judged, clearing = clear(self._rules, self.state.judged, request, instant)
        if clearing.reason != "holds":
            self.state = replace(self.state, judged=judged)
            return clearing
        before = self.state
        [check] = (check for check in self.catalogue.checks if check.id == request.check)
        targets = [target for name, target in clearing.still_active if name == check.id]
        reference = forget_inventory(before.derived.best, check, targets)
        if reference == before.derived.best:
            return clearing
        self.state = replace(before, derived=replace(before.derived, best=reference))
        self.evaluate([], instant)
        over = tuple((check.id, target) for target in targets if self._is_over(check.id, target))
        if not over:
            self.state = before
            return clearing
        self.state = replace(self.state, judged=apply_clears(self.state.judged, request, over, instant))
        subject = f"{request.check} on {target_label(request.target)}"
        message = f"{subject} is cleared: the present hardware is now the reference"
        return ClearResult(message, over)

    def _is_over(self, check: str, target: str) -> bool:
        state = self.state.judged.targets.get(target)
        return state is not None and check not in state.active


def _cursors(readings: Iterable[Reading], boot_id: str) -> Iterator[LogCursor]:
    """Yield how far the kernel log was read with each reading."""
    for reading in readings:
        for observation in reading.observations:
            sequence = observation.signals.get(LOG_POSITION)
            if isinstance(sequence, int):
                yield LogCursor(boot_id, sequence)
