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


def test_a_recorded_machine_is_a_node_that_reports_its_transitions() -> None:
    found, last = played("xid-after-reboot")
    [seen] = [item.node for item in found if isinstance(item, NodeObserved)]
    assert (seen.name, seen.key, seen.gpus, seen.labels) == ("xid-after-reboot", "xid-after-reboot", 2, {})
    reports = [item.report for item in found if isinstance(item, ReportReceived)]
    assert reports[-1].health == last.health
    assert {finding.check for finding in reports[-1].findings} == {finding.check for finding in last.findings}
    assert len({report.boot_id for report in reports}) == 2
    states = [(report.boot_id, report.digest, report.passing) for report in reports]
    assert all(item != other for item, other in pairwise(states))
    assert [report.sequence for report in reports] == sorted(report.sequence for report in reports)


def test_a_recording_of_one_reading_is_one_transition() -> None:
    found, _ = played("driver-not-loaded")
    [observed, received] = found
    assert isinstance(observed, NodeObserved)
    assert isinstance(received, ReportReceived)
    report = received.report
    assert (report.health, report.node) == (Health.FATAL, "driver-not-loaded")
