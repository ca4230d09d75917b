"""The node that an agent watches and its stored state: this machine, or a recording that is replayed live."""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec import Struct

from nodeguard.agent.live_replay import LiveReplayMachine
from nodeguard.agent.state import AgentState
from nodeguard.agent.state_file import StateFile
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.instant import Instant
from nodeguard.sources.machines.live import LiveMachine
from nodeguard.sources.source import Source

# Seconds for the disk to return a state before the agent starts without.
_LOAD_TIMEOUT = 10.0


class WatchedNode(Struct, frozen=True):
    """A machine, its sources, and its state of before.

    load_error: why and when, by the wall clock, an earlier state could not be used; empty for no error.
    offset: see SourceSchedule. speed: seconds of the machine in one of the clock's.
    """

    machine: LiveMachine | LiveReplayMachine
    sources: Sequence[Source]
    site: PlatformHints
    state: AgentState
    load_error: tuple[str, float]
    offset: float = 0.0
    speed: float = 1.0

    def close(self) -> None:
        """End the machine's workers."""
        if isinstance(self.machine, LiveMachine):
            self.machine.close()


def watch_live(
    root: str, sources: Sequence[Source], site: PlatformHints, file: StateFile | None
) -> WatchedNode:
    """Return this machine. root: see LiveMachine. file: of its state."""
    now = LiveMachine(root).now()
    state, load_error = _load(file, now, now.wall)
    machine = LiveMachine(root, state.pipeline.cursor, state.hangs)
    return WatchedNode(machine, sources, site, state, load_error, random.random())  # noqa: S311 - jitter


def watch_recording(
    bundle: WatchedBundle,
    speed: float,
    sources: Sequence[Source],
    site: PlatformHints,
    file: StateFile | None,
) -> WatchedNode:
    """Return the machine of a bundle, which continues where its state ends. The manifest completes site."""
    start = bundle.recording.state_at(0.0).instant
    state, load_error = _load(file, Instant(start.wall, float("inf"), start.boot_id), start.wall)
    began = max(0.0, state.mono - start.mono) if state.boot_id == start.boot_id else 0.0
    manifest = bundle.recording.manifest
    recorded = [source for source in sources if bundle.is_recorded(source.name, source.paths)]
    cursor, hangs = state.pipeline.cursor, state.hangs
    machine = LiveReplayMachine(bundle, speed, began=began, logged=cursor, hung=hangs)
    site = PlatformHints(site.platform or manifest.platform, site.instance_type or manifest.instance_type)
    return WatchedNode(machine, recorded, site, state, load_error, speed=speed)


def _load(file: StateFile | None, now: Instant, wall: float) -> tuple[AgentState, tuple[str, float]]:
    state, error = file.load(now, _LOAD_TIMEOUT) if file else (AgentState(), "")
    return state, (error, wall) if error else (state.load_error, state.load_error_at)
