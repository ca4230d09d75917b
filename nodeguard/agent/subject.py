"""What an agent watches, and what is remembered of it: this machine, or a recorded one as if it were live."""

from __future__ import annotations

import random
from collections.abc import Sequence

from msgspec import Struct

from nodeguard.agent.memory import Memory
from nodeguard.agent.paced import PacedMachine
from nodeguard.agent.state_file import StateFile
from nodeguard.bundle.watched import WatchedBundle
from nodeguard.derive.derive import Site
from nodeguard.model.instant import Instant
from nodeguard.sources.live import LiveMachine
from nodeguard.sources.source import Source

# Seconds that the disk may take to give back a memory before the agent begins without.
_PATIENCE = 10.0


class Subject(Struct, frozen=True):
    """What is watched.

    lost: why a memory from before could not be used, and when that was seen, by the wall clock; empty where
    nothing is amiss. offset: see Agenda. speed:
    how many times as fast as the clock the machine's own goes.
    """

    machine: LiveMachine | PacedMachine
    sources: Sequence[Source]
    site: Site
    memory: Memory
    lost: tuple[str, float]
    offset: float = 0.0
    speed: float = 1.0

    def close(self) -> None:
        """End the machine's workers."""
        if isinstance(self.machine, LiveMachine):
            self.machine.close()


def live(root: str, sources: Sequence[Source], site: Site, file: StateFile | None) -> Subject:
    """This machine. root: see LiveMachine. file: where it is remembered."""
    now = LiveMachine(root).now()
    memory, lost = _remembered(file, now, now.wall)
    machine = LiveMachine(root, memory.cursor, memory.hangs)
    return Subject(machine, sources, site, memory, lost, random.random())  # noqa: S311 - jitter


def recorded(
    bundle: WatchedBundle, speed: float, sources: Sequence[Source], site: Site, file: StateFile | None
) -> Subject:
    """The machine of a bundle, which tells what the site does not. It goes on where it is remembered to have
    been.
    """
    start = bundle.recording.at(0.0).instant
    memory, lost = _remembered(file, Instant(start.wall, float("inf"), start.boot_id), start.wall)
    began = memory.mono - start.mono if memory.boot_id == start.boot_id else 0.0
    manifest = bundle.recording.manifest
    present = [source for source in sources if bundle.is_recorded(source.name, source.paths)]
    machine = PacedMachine(bundle, speed, began=max(0.0, began), logged=memory.cursor, hung=memory.hangs)
    return Subject(
        machine,
        present,
        Site(site.platform or manifest.platform, site.instance_type or manifest.instance_type),
        memory,
        lost,
        speed=speed,
    )


def _remembered(file: StateFile | None, now: Instant, wall: float) -> tuple[Memory, tuple[str, float]]:
    memory, lost = file.load(now, _PATIENCE) if file else (Memory(), "")
    return memory, (lost, wall) if lost else (memory.lost, memory.lost_at)
