"""What an agent watches, and what is remembered of it: this machine, or a recorded one as if it were live."""

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

# Seconds that the disk may take to give back a memory before the agent begins without.
_PATIENCE = 10.0


class WatchedNode(Struct, frozen=True):
    """What is watched.

    lost: why a memory from before could not be used, and when that was seen, by the wall clock; empty where
    nothing is amiss. offset: see Agenda. speed:
    how many times as fast as the clock the machine's own goes.
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
    """This machine. root: see LiveMachine. file: where it is remembered."""
    now = LiveMachine(root).now()
    memory, lost = _remembered(file, now, now.wall)
    machine = LiveMachine(root, memory.cursor, memory.hangs)
    return WatchedNode(machine, sources, site, memory, lost, random.random())  # noqa: S311 - jitter


def watch_recording(
    bundle: WatchedBundle,
    speed: float,
    sources: Sequence[Source],
    site: PlatformHints,
    file: StateFile | None,
) -> WatchedNode:
    """The machine of a bundle, which tells what the site does not. It goes on where it is remembered to have
    been.
    """
    start = bundle.recording.state_at(0.0).instant
    memory, lost = _remembered(file, Instant(start.wall, float("inf"), start.boot_id), start.wall)
    began = memory.mono - start.mono if memory.boot_id == start.boot_id else 0.0
    manifest = bundle.recording.manifest
    present = [source for source in sources if bundle.is_recorded(source.name, source.paths)]
    machine = LiveReplayMachine(bundle, speed, began=max(0.0, began), logged=memory.cursor, hung=memory.hangs)
    return WatchedNode(
        machine,
        present,
        PlatformHints(site.platform or manifest.platform, site.instance_type or manifest.instance_type),
        memory,
        lost,
        speed=speed,
    )


def _remembered(file: StateFile | None, now: Instant, wall: float) -> tuple[AgentState, tuple[str, float]]:
    memory, lost = file.load(now, _PATIENCE) if file else (AgentState(), "")
    return memory, (lost, wall) if lost else (memory.load_error, memory.load_error_at)
