"""Errors of applications that come again and again from one place of a GPU. Pure.

An application that errs does so wherever it runs; what breaks one job after the other in one unit may be that
unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from nodeguard.derive.world import World
from nodeguard.model.observation import Event, Reading
from nodeguard.model.signal import Scalar

# For so many seconds an error counts.
WINDOW = 86_400.0

# Processes remembered of one GPU, and GPUs; a log can name any.
_PROCESSES = 64
_GPUS = 64

_PROCESS = re.compile(r"pid='?(\d+)")
_PLACE = re.compile(r"\(GPC (\d+), TPC (\d+)")


class Trap(Struct, frozen=True, array_like=True):
    """A process that ran into an Xid 13 on a GPU.

    part: what sat there. place: GPC and TPC, or `several` where it was more than one. at: seconds since boot
    of its latest.
    """

    process: int
    part: str
    place: str
    at: float


Traps = Mapping[str, tuple[Trap, ...]]


def traps(world: World, known: Traps, readings: Iterable[Reading]) -> dict[str, tuple[Trap, ...]]:
    """Processes that ran into an Xid 13, by GPU, after these readings; those of the last day."""
    after = dict(known)
    for reading in readings:
        for observation in reading.observations:
            for event in observation.events:
                found = _trap(event, _part(world, observation.slot))
                if found is not None:
                    after[observation.slot] = _with(after.get(observation.slot, ()), found)
    lately = {slot: tuple(one for one in row if one.at > world.mono - WINDOW) for slot, row in after.items()}
    slots = sorted((slot for slot in lately if lately[slot]), key=lambda slot: lately[slot][-1].at)
    return {slot: lately[slot] for slot in slots[-_GPUS:]}


def _part(world: World, slot: str) -> str:
    part = world.parts.get(slot)
    return part.id if part is not None else ""


def _trap(event: Event, part: str) -> Trap | None:
    if event.signal != "gpu.xid.line" or event.fields.get("xid") != 13:
        return None
    rest = str(event.fields.get("rest", ""))
    process, place = _PROCESS.match(rest), _PLACE.search(rest)
    if process is None or place is None:
        return None
    return Trap(int(process[1]), part, f"GPC {place[1]}, TPC {place[2]}", event.at)


def _with(row: tuple[Trap, ...], new: Trap) -> tuple[Trap, ...]:
    """What is known of a GPU's processes and one more error; a process that erred elsewhere did so in several
    places.
    """
    same = next((one for one in row if (one.process, one.part) == (new.process, new.part)), None)
    if same is None:
        return (*row, new)[-_PROCESSES:]
    place = new.place if same.place == new.place else "several"
    others = (one for one in row if one is not same)
    return (*others, Trap(new.process, new.part, place, max(same.at, new.at)))


def repeats(world: World, known: Traps) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each GPU with such errors, `gpu.trap.processes` that ran into them in one place alone, and that
    `gpu.trap.place`.

    Only where no process of the day ran into them in another place: what errs wherever it runs is no unit's
    fault.
    """
    for slot in sorted(known.keys() & world.signals.keys()):
        row, part = known[slot], _part(world, slot)
        places = {one.place for one in row if one.part == part}
        if len(places) == 1 and "several" not in places:
            processes = sum(one.part == part for one in row)
            yield slot, {"gpu.trap.processes": processes, "gpu.trap.place": places.pop()}
        elif places:
            yield slot, {"gpu.trap.processes": 0, "gpu.trap.place": "several"}
