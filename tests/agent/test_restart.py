"""Verdicts with restarts of the agent equal those without restarts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from fixtures.bundles import bundle_names, bundle_path
from fixtures.verdicts import expected
from nodeguard.agent.state import AgentState, capture_state, decode_state, encode_state
from nodeguard.bundle.recording import Recording
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.derive.state import plan_derivation
from nodeguard.judge.rules import compile_rules
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Verdict
from nodeguard.model.observation import Reading
from nodeguard.model.signal import Signal
from nodeguard.pipeline import pipeline as judgement
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.reader import read_source
from nodeguard.pipeline.replay import due_times
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.registry import all_sources

pytestmark = pytest.mark.slow

# Bytes of the state file of a healthy node with eight GPUs and eight ports.
MAX_STATE_BYTES = 256 << 10

# Sources that continue where they stopped: the log, and the lanes that can hang. All others read files only.
RESUMING = {"filesystem", "kmsg", "nvml"}


@cache
def catalogue() -> tuple[Catalogue, dict[str, Signal]]:
    return load_catalogue()


@pytest.fixture(autouse=True)
def _rules_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the rules only once: they depend only on the catalogue, and compiling takes long."""
    rules, wanted = cache(lambda: compile_rules(*catalogue())), cache(lambda: plan_derivation(*catalogue()))
    monkeypatch.setattr(judgement, "compile_rules", lambda *_: rules())
    monkeypatch.setattr(judgement, "plan_derivation", lambda *_: wanted())


class Agent:
    """An agent on a recording, which can be restarted between any two rounds."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.readings: dict[str, Reading] = {}
        sources = all_sources(catalogue()[0].patterns)
        self.sources = [source for source in sources if self.recording.is_recorded(source.name, source.paths)]
        self.end = self.recording.end + 30.0 if self.recording.end else 0.0
        self.start(0.0, AgentState())

    def start(self, at: float, memory: AgentState) -> None:
        manifest = self.recording.manifest
        hints = PlatformHints(manifest.platform, manifest.instance_type)
        self.judgement = Pipeline(*catalogue(), hints, state=memory.pipeline)
        self.machine = ReplayMachine(self.recording, at or None, memory.pipeline.cursor, memory.hangs)

    def round(self, at: float, shared: Mapping[str, Reading] = {}) -> Verdict:
        """Evaluate a round. shared: readings of another agent at this second, by source."""
        self.machine.seek(at)
        due = [source for source in self.sources if at == self.end or at % source.interval == 0]
        self.readings = {
            source.name: shared.get(source.name) or read_source(source, self.machine) for source in due
        }
        return self.judgement.evaluate(list(self.readings.values()), self.machine.now())

    def memory(self) -> AgentState:
        return capture_state(self.judgement.state, self.machine.now(), self.machine.hangs())

    def restart(self, at: float) -> int:
        """Return the size of the stored state."""
        data = encode_state(self.memory())
        self.start(at, decode_state(data))
        return len(data)

    def due_times(self) -> list[float]:
        return list(due_times([source.interval for source in self.sources], self.end))


FRAMED = [path for path in map(bundle_path, bundle_names()) if (path / "frames").is_dir()]


@pytest.mark.parametrize("directory", FRAMED, ids=lambda path: path.name)
def test_a_restart_between_any_two_rounds_changes_no_verdict(directory: Path) -> None:
    recording = Recording.open(str(directory))
    steady, restarted = Agent(recording), Agent(recording)
    for at in steady.due_times():
        verdict = steady.round(at)
        files = {name: reading for name, reading in steady.readings.items() if name not in RESUMING}
        assert restarted.round(at, files) == verdict
        assert restarted.restart(at) < MAX_STATE_BYTES


class StatelessMachine(ReplayMachine):
    """A machine without the calls with results that depend on earlier ones."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        pytest.fail("a source of RESUMING only makes this call")

    log = statvfs = nvml = nvml_events = _refuse


def test_the_other_sources_do_not_depend_on_earlier_readings() -> None:
    recording = Recording.open(str(bundle_path("healthy-dgx-h100")))
    sources = all_sources(catalogue()[0].patterns)
    assert {source.name for source in sources} > RESUMING
    for source in sources:
        if source.name not in RESUMING:
            read_source(source, StatelessMachine(recording))


@pytest.mark.parametrize(
    "name", ["ecc-uncorrectable", "gpu-off-bus", "xid-after-reboot", "services-restarting"]
)
def test_rounds_after_the_last_write_are_evaluated_again(name: str) -> None:
    """The agent is killed after every second round, before the state is stored."""
    recording = Recording.open(str(bundle_path(name)))
    agent, steady, written, since = Agent(recording), Agent(recording), AgentState(), 0.0
    for number, at in enumerate(agent.due_times()):
        verdict = agent.round(at)
        if number % 2 and at < agent.end:
            agent.start(since, written)
        else:
            written, since = agent.memory(), at
    for at in steady.due_times():
        steady_verdict = steady.round(at)
    assert expected(verdict) == expected(steady_verdict)


def test_the_state_is_small() -> None:
    agent = Agent(Recording.open(str(bundle_path("healthy-dgx-h100"))))
    for at in agent.due_times():
        agent.round(at)
    assert agent.restart(at) < MAX_STATE_BYTES // 8
