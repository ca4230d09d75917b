from __future__ import annotations

from itertools import pairwise

from fixtures.bundles import bundle_path
from nodeguard.backtest.recordings import recording_steps
from nodeguard.bundle.recording import Recording
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.fleet.state.history_events import HistoryEvent, NodeObserved, ReportReceived
from nodeguard.model.finding import Health, Verdict
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.replay import replay_verdicts
from nodeguard.sources.registry import all_sources


def played(name: str) -> tuple[list[HistoryEvent], Verdict]:
    """Steps of a recording, and its last verdict."""
    catalogue, signals = load_catalogue()
    recording = Recording.open(str(bundle_path(name)))
    sources = all_sources(catalogue.patterns)

    def judgement() -> Pipeline:
        return Pipeline(catalogue, signals, PlatformHints(), one_shot=not recording.end)

    *_, (_, last) = replay_verdicts(recording, sources, judgement())
    return list(recording_steps(name, recording, sources, judgement(), catalogue)), last


def test_a_recorded_machine_is_a_node_that_tells_its_transitions() -> None:
    found, last = played("xid-after-reboot")
    [seen] = [one.node for one in found if isinstance(one, NodeObserved)]
    assert (seen.name, seen.uid, seen.gpus, seen.labels) == ("xid-after-reboot", "xid-after-reboot", 2, {})
    reports = [one.report for one in found if isinstance(one, ReportReceived)]
    assert reports[-1].health == last.health
    assert {one.check for one in reports[-1].findings} == {one.check for one in last.findings}
    assert len({one.boot_id for one in reports}) == 2
    states = [(one.boot_id, one.digest, one.passing) for one in reports]
    assert all(one != other for one, other in pairwise(states))
    assert [one.sequence for one in reports] == sorted(one.sequence for one in reports)


def test_a_recording_of_one_look_is_one_transition() -> None:
    found, _ = played("driver-not-loaded")
    assert [type(one) for one in found] == [NodeObserved, ReportReceived]
    report = found[1].report  # type: ignore[union-attr]
    assert (report.health, report.node) == (Health.FATAL, "driver-not-loaded")
