"""A node that is judged with restarts of the agent comes to the verdict that it comes to without."""

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

# Of a healthy eight-GPU, eight-port node; what a state file may take.
_MOST = 256 << 10


@pytest.fixture(autouse=True)
def _rules_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules come of the catalogue alone: to make them for each restart takes longer than all else."""
    made: dict[int, tuple[Catalogue, Rules]] = {}

    def once(catalogue: Catalogue, signals: dict[str, Signal], families: None = None) -> Rules:
        if id(catalogue) not in made:
            made[id(catalogue)] = catalogue, compile_rules(catalogue, signals, families)
        return made[id(catalogue)][1]

    monkeypatch.setattr(judgement, "compile_rules", once)


class Agent:
    """An agent on a recording, which can be ended and started between any two rounds."""

    def __init__(self, directory: Path) -> None:
        self.recording = Recording.open(str(directory))
        self.catalogue, self.signals = load_catalogue()
        sources = all_sources(self.catalogue.patterns)
        self.sources = [one for one in sources if self.recording.is_recorded(one.name, one.paths)]
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
        due = [one for one in self.sources if at == self.end or at % one.interval == 0]
        readings = [read_source(one, self.machine) for one in due]
        now = self.machine.now()
        return self.judgement.evaluate(readings, now)

    def memory(self) -> AgentState:
        return capture_state(self.judgement.state, self.machine.now(), self.machine.hangs())

    def restart(self, at: float) -> int:
        """The size of what was written down."""
        data = encode_state(self.memory())
        self.start(at, decode_state(data))
        return len(data)

    def moments(self) -> list[float]:
        return list(due_times([one.interval for one in self.sources], self.end))


def told(directory: Path, restart: bool) -> list[Verdict]:
    agent, verdicts = Agent(directory), []
    for at in agent.moments():
        verdicts.append(agent.round(at))
        if restart:
            assert agent.restart(at) < _MOST
    return verdicts


FRAMED = [path for path in map(bundle_path, bundle_names()) if (path / "frames").is_dir()]


@pytest.mark.parametrize("directory", FRAMED, ids=lambda path: path.name)
def test_a_restart_between_any_two_rounds_changes_no_verdict(directory: Path) -> None:
    assert told(directory, restart=True) == told(directory, restart=False)


@pytest.mark.parametrize(
    "name", ["ecc-uncorrectable", "gpu-off-bus", "xid-after-reboot", "services-restarting"]
)
def test_what_was_judged_after_the_last_write_is_judged_again_and_not_twice(name: str) -> None:
    """Killed after every second round, before it was written down."""
    directory = bundle_path(name)
    agent, written, since = Agent(directory), AgentState(), 0.0
    for number, at in enumerate(agent.moments()):
        verdict = agent.round(at)
        if number % 2 and at < agent.end:
            agent.start(since, written)
        else:
            written, since = agent.memory(), at
    assert expected(verdict) == expected(told(directory, restart=False)[-1])


def test_a_memory_is_small() -> None:
    directory = bundle_path("healthy-dgx-h100")
    agent = Agent(directory)
    for at in agent.moments():
        agent.round(at)
    assert agent.restart(at) < _MOST // 8
