"""Application errors (Xid 13) of several processes in one unit of a GPU. Pure.

A faulty application fails wherever it runs. Errors of one job after the other in the same unit may be a fault
of that unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.observation import Event, Reading

# Seconds for which an error counts.
WINDOW = 86_400.0

# Processes kept of one GPU, and GPUs: a log can name any.
_MAX_PROCESSES = 64
_MAX_GPUS = 64

_PROCESS = re.compile(r"pid='?(\d+)")
_PLACE = re.compile(r"\(GPC (\d+), TPC (\d+)")


class Trap(Struct, frozen=True, array_like=True):
    """A process with an Xid 13 on a GPU.

    place: GPC and TPC, or `several`. at: seconds since boot of the latest error.
    """

    process: int
    component: str
    place: str
    at: float


Traps = Mapping[str, tuple[Trap, ...]]


def record_traps(
    latest: LatestReadings, before: Traps, readings: Iterable[Reading]
) -> dict[str, tuple[Trap, ...]]:
    """Return the processes with an Xid 13 in the last day, by GPU, after these readings."""
    after = dict(before)
    for reading in readings:
        for observation in reading.observations:
            for event in observation.events:
                trap = _trap(event, latest.component_id(observation.target))
                if trap is not None:
                    after[observation.target] = _with_trap(after.get(observation.target, ()), trap)
    recent = {
        target: tuple(trap for trap in row if trap.at > latest.mono - WINDOW) for target, row in after.items()
    }
    targets = sorted(
        (target for target in recent if recent[target]), key=lambda target: recent[target][-1].at
    )
    return {target: recent[target] for target in targets[-_MAX_GPUS:]}


def _trap(event: Event, component: str) -> Trap | None:
    if event.signal != "gpu.xid.line" or event.fields.get("xid") != 13:
        return None
    rest = str(event.fields.get("rest", ""))
    process, place = _PROCESS.match(rest), _PLACE.search(rest)
    if process is None or place is None:
        return None
    return Trap(int(process[1]), component, f"GPC {place[1]}, TPC {place[2]}", event.at)


def _with_trap(row: tuple[Trap, ...], new: Trap) -> tuple[Trap, ...]:
    """Return the processes of a GPU after one more error; `several` places if a process had another."""
    same = next(
        (trap for trap in row if (trap.process, trap.component) == (new.process, new.component)), None
    )
    if same is None:
        return (*row, new)[-_MAX_PROCESSES:]
    place = new.place if same.place == new.place else "several"
    others = (trap for trap in row if trap is not same)
    return (*others, Trap(new.process, new.component, place, max(same.at, new.at)))


def trap_derivation(before: Traps) -> Derivation:
    """Return the derivation of `gpu.trap.processes`, the number of processes, and their `gpu.trap.place`.

    The number is 0 where the errors of the day have several places: then they are no fault of one unit.
    """

    def trap(latest: LatestReadings, gpu: str) -> Values:
        component = latest.component_id(gpu)
        places = [trap.place for trap in before.get(gpu, ()) if trap.component == component]
        if places and len(set(places)) == 1 and "several" not in places:
            yield "gpu.trap.processes", len(places)
            yield "gpu.trap.place", places[0]
        elif places:
            yield "gpu.trap.processes", 0
            yield "gpu.trap.place", "several"

    return Derivation("gpu", ("gpu.trap.processes", "gpu.trap.place"), trap)
