from __future__ import annotations

from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.signal_registry import agent_reading


def judged(judgement: Pipeline, at: float, trouble: str, lost: str = "") -> Verdict:
    return judgement.evaluate([agent_reading(at, trouble, lost)], Instant(1e9 + at, at, "boot"))


def test_a_memory_that_is_kept_is_no_finding_and_one_that_is_not_is_one_until_it_is() -> None:
    judgement = Pipeline(*load_catalogue(), PlatformHints())
    assert judged(judgement, 1.0, "").findings == ()
    [found] = judged(judgement, 2.0, "/state/memory cannot be written: the disk is full").findings
    assert (found.check, found.message) == (
        "agent-state-not-saved",
        "/state/memory cannot be written: the disk is full",
    )
    assert judged(judgement, 3.0, "").findings == ()


def test_a_memory_that_was_lost_is_told() -> None:
    judgement = Pipeline(*load_catalogue(), PlatformHints())
    [found] = judged(judgement, 1.0, "", "/state/memory is truncated").findings
    assert (found.check, found.message) == ("agent-state-lost", "/state/memory is truncated")
    assert judged(judgement, 2.0, "").findings == ()
