"""Errors of applications that come again and again from one place of a GPU. Pure.

An application that errs does so wherever it runs; what breaks one job after the other in one unit may be that
unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.observation import Event, Reading

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
    component: str
    place: str
    at: float


Traps = Mapping[str, tuple[Trap, ...]]


def record_traps(
    latest: LatestReadings, known: Traps, readings: Iterable[Reading]
) -> dict[str, tuple[Trap, ...]]:
    """Processes that ran into an Xid 13, by GPU, after these readings; those of the last day."""
    after = dict(known)
    for reading in readings:
        for observation in reading.observations:
            for event in observation.events:
                found = _trap(event, latest.component_id(observation.target))
                if found is not None:
                    after[observation.target] = _with(after.get(observation.target, ()), found)
    lately = {slot: tuple(one for one in row if one.at > latest.mono - WINDOW) for slot, row in after.items()}
    slots = sorted((slot for slot in lately if lately[slot]), key=lambda slot: lately[slot][-1].at)
    return {slot: lately[slot] for slot in slots[-_GPUS:]}


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
    same = next((one for one in row if (one.process, one.component) == (new.process, new.component)), None)
    if same is None:
        return (*row, new)[-_PROCESSES:]
    place = new.place if same.place == new.place else "several"
    others = (one for one in row if one is not same)
    return (*others, Trap(new.process, new.component, place, max(same.at, new.at)))


def trap_derivation(known: Traps) -> Derivation:
    """Return the derivation of `gpu.trap.processes`, that met such errors in one place alone, and of that
    `gpu.trap.place`.

    Only where no process of the day met them in another place: an application that errs wherever it runs is
    no fault of one unit.
    """

    def trap(latest: LatestReadings, gpu: str) -> Values:
        part = latest.component_id(gpu)
        places = [trap.place for trap in known.get(gpu, ()) if trap.component == part]
        if places and len(set(places)) == 1 and "several" not in places:
            yield "gpu.trap.processes", len(places)
            yield "gpu.trap.place", places[0]
        elif places:
            yield "gpu.trap.processes", 0
            yield "gpu.trap.place", "several"

    return Derivation("gpu", ("gpu.trap.processes", "gpu.trap.place"), trap)
