from __future__ import annotations

from itertools import pairwise

from nodeguard.agent.judgement import Judgement
from nodeguard.agent.replay import replayed
from nodeguard.backtest.bundles import steps
from nodeguard.bundle.recording import Recording
from nodeguard.cli.knowledge import knowledge
from nodeguard.derive.derive import Site
from nodeguard.fleet.steps import Reported, Seen, Step
from nodeguard.model.finding import Health, Verdict
from nodeguard.sources.every import every_source
from tests.paths import FIXTURES


def played(name: str) -> tuple[list[Step], Verdict]:
    """Steps of a recording, and its last verdict."""
    catalogue, signals = knowledge()
    recording = Recording.open(str(FIXTURES / name))
    sources = every_source(catalogue.patterns)

    def judgement() -> Judgement:
        return Judgement(catalogue, signals, Site(), one_look=not recording.end)

    *_, (_, last) = replayed(recording, sources, judgement())
    return list(steps(name, recording, sources, judgement(), catalogue)), last


def test_a_recorded_machine_is_a_node_that_tells_its_transitions() -> None:
    found, last = played("xid-after-reboot")
    [seen] = [one.node for one in found if isinstance(one, Seen)]
    assert (seen.name, seen.uid, seen.gpus, seen.labels) == ("xid-after-reboot", "xid-after-reboot", 2, {})
    reports = [one.report for one in found if isinstance(one, Reported)]
    assert reports[-1].health == last.health
    assert {one.check for one in reports[-1].findings} == {one.check for one in last.findings}
    assert len({one.boot_id for one in reports}) == 2
    states = [(one.boot_id, one.digest, one.proven) for one in reports]
    assert all(one != other for one, other in pairwise(states))
    assert [one.sequence for one in reports] == sorted(one.sequence for one in reports)


def test_a_recording_of_one_look_is_one_transition() -> None:
    found, _ = played("driver-not-loaded")
    assert [type(one) for one in found] == [Seen, Reported]
    report = found[1].report  # type: ignore[union-attr]
    assert (report.health, report.node) == (Health.FATAL, "driver-not-loaded")
