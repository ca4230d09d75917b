from __future__ import annotations

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.signal_registry import agent_reading


def judged(judgement: Pipeline, at: float, trouble: str, lost: str = "") -> Verdict:
    return judgement.evaluate([agent_reading(at, trouble, lost)], Instant(1e9 + at, at, "boot"))


def test_an_unsaved_state_is_a_finding_until_it_is_saved() -> None:
    judgement = Pipeline(*load_catalogue(), PlatformHints())
    assert judged(judgement, 1.0, "").findings == ()
    [finding] = judged(judgement, 2.0, "/state/state cannot be written: the disk is full").findings
    assert (finding.check, finding.message) == (
        "agent-state-not-saved",
        "/state/state cannot be written: the disk is full",
    )
    assert judged(judgement, 3.0, "").findings == ()


def test_a_lost_state_is_a_finding() -> None:
    judgement = Pipeline(*load_catalogue(), PlatformHints())
    [finding] = judged(judgement, 1.0, "", "/state/state is truncated").findings
    assert (finding.check, finding.message) == ("agent-state-lost", "/state/state is truncated")
    assert judged(judgement, 2.0, "").findings == ()
