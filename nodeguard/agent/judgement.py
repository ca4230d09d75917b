"""From readings to a verdict, round after round: derivation and judgement with their memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodeguard.derive.derive import Site, derive
from nodeguard.derive.state import DeriveState, wanted
from nodeguard.judge.judge import Outlook, judge
from nodeguard.judge.rules import rules
from nodeguard.judge.state import JudgeState
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Reading
from nodeguard.model.signal import Signal


class Judgement:
    """A catalogue, and what is remembered of one node.

    signals: all that exist. site: what the site says of the node. families: judge these alone; None for all.
    one_look: whether there may be no later look, see judge.Outlook.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        signals: Mapping[str, Signal],
        site: Site,
        families: frozenset[str] | None = None,
        *,
        one_look: bool = False,
    ) -> None:
        self._families = families
        self._site = site
        self._one_look = one_look
        self._derived = DeriveState()
        self._judged = JudgeState()
        self.adopt(catalogue, signals)

    def adopt(self, catalogue: Catalogue, signals: Mapping[str, Signal]) -> None:
        """Judge by another catalogue from now on; what is remembered of the node stays."""
        self._catalogue = catalogue
        self._rules = rules(catalogue, signals, self._families)
        self._wanted = wanted(catalogue, signals)
        # What was settled was said by the old rules.
        self._judged = replace(self._judged, settled={})

    def judge(self, readings: Sequence[Reading], instant: Instant) -> Verdict:
        """The node's verdict after some more readings."""
        self._derived, derived = derive(
            self._catalogue, self._wanted, self._derived, readings, instant, self._site
        )
        platform = derived.platform
        outlook = Outlook(
            platform=platform.id if platform else "",
            expect=platform.expect if platform else {},
            one_look=self._one_look,
        )
        self._judged, verdict = judge(self._rules, self._judged, derived.readings, instant, outlook)
        return verdict
