"""Verdicts with restarts of the agent equal those without restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fixtures.bundles import bundle_names, bundle_path
from fixtures.verdicts import expected
from nodeguard.agent.state import AgentState, capture_state, decode_state, encode_state
from nodeguard.bundle.recording import Recording
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.judge.rules import Rules, compile_rules
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Verdict
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


@pytest.fixture(autouse=True)
def _rules_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile the rules only once: they depend only on the catalogue, and compiling takes long."""
    made: dict[int, tuple[Catalogue, Rules]] = {}

    def once(catalogue: Catalogue, signals: dict[str, Signal], families: None = None) -> Rules:
        if id(catalogue) not in made:
            made[id(catalogue)] = catalogue, compile_rules(catalogue, signals, families)
        return made[id(catalogue)][1]

    monkeypatch.setattr(judgement, "compile_rules", once)


class Agent:
    """An agent on a recording, which can be restarted between any two rounds."""

    def __init__(self, directory: Path) -> None:
        self.recording = Recording.open(str(directory))
        self.catalogue, self.signals = load_catalogue()
        sources = all_sources(self.catalogue.patterns)
        self.sources = [source for source in sources if self.recording.is_recorded(source.name, source.paths)]
        self.end = self.recording.end + 30.0 if self.recording.end else 0.0
        self.start(0.0, AgentState())

    def start(self, at: float, memory: AgentState) -> None:
        manifest = self.recording.manifest
        self.judgement = Pipeline(
            self.catalogue,
            self.signals,
            PlatformHints(manifest.platform, manifest.instance_type),
            state=memory.pipeline,
        )
        self.machine = ReplayMachine(self.recording, at or None, memory.pipeline.cursor, memory.hangs)

    def round(self, at: float) -> Verdict:
        self.machine.seek(at)
        due = [source for source in self.sources if at == self.end or at % source.interval == 0]
        readings = [read_source(source, self.machine) for source in due]
        now = self.machine.now()
        return self.judgement.evaluate(readings, now)

    def memory(self) -> AgentState:
        return capture_state(self.judgement.state, self.machine.now(), self.machine.hangs())

    def restart(self, at: float) -> int:
        """Return the size of the stored state."""
        data = encode_state(self.memory())
        self.start(at, decode_state(data))
        return len(data)

    def due_times(self) -> list[float]:
        return list(due_times([source.interval for source in self.sources], self.end))


def verdicts(directory: Path, restart: bool) -> list[Verdict]:
    agent, verdicts = Agent(directory), []
    for at in agent.due_times():
        verdicts.append(agent.round(at))
        if restart:
            assert agent.restart(at) < MAX_STATE_BYTES
    return verdicts


FRAMED = [path for path in map(bundle_path, bundle_names()) if (path / "frames").is_dir()]


@pytest.mark.parametrize("directory", FRAMED, ids=lambda path: path.name)
def test_a_restart_between_any_two_rounds_changes_no_verdict(directory: Path) -> None:
    assert verdicts(directory, restart=True) == verdicts(directory, restart=False)


@pytest.mark.parametrize(
    "name", ["ecc-uncorrectable", "gpu-off-bus", "xid-after-reboot", "services-restarting"]
)
def test_rounds_after_the_last_write_are_evaluated_again(name: str) -> None:
    """The agent is killed after every second round, before the state is stored."""
    directory = bundle_path(name)
    agent, written, since = Agent(directory), AgentState(), 0.0
    for number, at in enumerate(agent.due_times()):
        verdict = agent.round(at)
        if number % 2 and at < agent.end:
            agent.start(since, written)
        else:
            written, since = agent.memory(), at
    assert expected(verdict) == expected(verdicts(directory, restart=False)[-1])


def test_the_state_is_small() -> None:
    directory = bundle_path("healthy-dgx-h100")
    agent = Agent(directory)
    for at in agent.due_times():
        agent.round(at)
    assert agent.restart(at) < MAX_STATE_BYTES // 8
