"""NVLink errors of each GPU since its last reset: their number on each link, and their end. Pure.

A link that failed can be trained again without a reset. The error is over once NVML has shown the links
active, without a new error, for SOAK seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.model.slot import parent

# Seconds for which the links are active without an error before an error is over. Ours.
SOAK = 300.0

# More errors than this on one link within a day need an action. Source: NVIDIA Xid catalogue, the register
# table of code 74, "more than two on the same link"; the day is ours.
_TOLERATED = 2
_DAY = 86_400.0

# Links of one GPU and GPUs that are remembered; a log can name any.
_LINKS = 64
_GPUS = 64

_SIGNAL = "gpu.xid.nvlink"
RECOVERED = "gpu.nvlink.recovered"

# Counters of a link that rise when it fails or repeats packets, and rest while it is well.
_COUNTERS = ("nvlink.replays", "nvlink.recoveries", "nvlink.recovery_events", "nvlink.recoveries_failed")


class LinkErrors(Struct, frozen=True, array_like=True):
    """NVLink errors of one GPU.

    times: by link, the times of its latest errors, at most _TOLERATED + 1, ascending. well_since: the begin
    of the first of the readings that show all links active with the same counters, None where the latest
    reading does not. counters: the sum of these counters. recovered: whether the recovery was reported. All
    times in seconds since boot.
    """

    times: dict[int, tuple[float, ...]] = {}
    well_since: float | None = None
    counters: float = 0.0
    recovered: bool = False


# By slot of the GPU.
Errors = Mapping[str, LinkErrors]


def without_reset(known: Errors, readings: Iterable[Reading]) -> dict[str, LinkErrors]:
    """Return the errors that no reset or load of the driver in these readings came after."""
    resets: dict[str, float] = {}
    for slot, event in _events(readings):
        if event.signal in {"gpu.reset", "driver.load"}:
            resets[slot] = max(event.at, resets.get(slot, event.at))
    if not resets:
        return dict(known)
    left = {}
    for slot, errors in known.items():
        reset = max(resets.get(slot, 0.0), resets.get(parent(slot), 0.0))
        times = {link: tuple(at for at in row if at > reset) for link, row in errors.times.items()}
        if any(times.values()):
            left[slot] = replace(errors, times={link: row for link, row in times.items() if row})
    return left


def counted(known: Errors, slot: str, event: Event) -> tuple[dict[str, LinkErrors], Event]:
    """Return the errors after one decoded Xid, and the Xid, fatal where its link had too many errors.

    slot: the GPU.
    """
    link = event.fields.get("link")
    if event.signal != _SIGNAL or event.fields["verdict"] != "suspect" or not isinstance(link, int):
        return dict(known), event
    errors = known.get(slot, LinkErrors())
    before = [at for at in errors.times.get(link, ()) if at > event.at - _DAY]
    latest = tuple(sorted((*before, *(event.at,) * max(1, event.count))))[-_TOLERATED - 1 :]
    times = {**errors.times, link: latest}
    kept = dict(sorted(times.items(), key=lambda row: row[1][-1])[-_LINKS:])
    after = {**known, slot: LinkErrors(kept)}
    gpus = sorted(after, key=lambda gpu: max(row[-1] for row in after[gpu].times.values()))[-_GPUS:]
    if len(latest) > _TOLERATED:
        why = f"{str(event.fields['why'])[:-1]}; more than {_TOLERATED} within a day)"
        # The driver does not count errors, so its word that no recovery is needed does not end this one.
        more = {"verdict": "fatal", "why": why, "recovery_reported": False}
        event = replace(event, fields={**event.fields, **more})
    return {gpu: after[gpu] for gpu in gpus}, event


def with_recovery(
    known: Errors, readings: Iterable[Reading], links: Mapping[str, float]
) -> tuple[dict[str, LinkErrors], list[Reading]]:
    """Return the errors after these readings, and the readings with an event for each GPU that recovered.

    links: the most active links that each GPU has had, by slot. A reading that does not show all links of a
    GPU proves nothing.
    """
    after, result = dict(known), []
    for reading in readings:
        recovered = []
        for slot, errors in known.items() if reading.source == "nvml" and reading.complete else ():
            after[slot] = _observed(errors, slot, reading, links.get(slot, 0.0))
            if after[slot].recovered and not errors.recovered:
                recovered.append(Observation("nvml", slot, events=(Event(RECOVERED, reading.began),)))
        result.append(
            replace(reading, observations=(*reading.observations, *recovered)) if recovered else reading
        )
    return after, result


def _observed(errors: LinkErrors, slot: str, reading: Reading, most: float) -> LinkErrors:
    """Return the errors of one GPU after a reading of NVML. most: the most active links that it has had."""
    last = max(row[-1] for row in errors.times.values())
    links = [one for one in reading.observations if parent(one.slot) == slot and one.slot != slot]
    active = {one.slot.rpartition("/")[2] for one in links if one.signals.get("nvlink.active") is True}
    unknown = any("nvlink.active" in one.unread for one in links)
    failed = any(str(link) not in active for link in errors.times)
    if reading.began <= last or unknown or failed or not active or len(active) < most:
        return replace(errors, well_since=None)
    counters = sum(_number(one.signals.get(name)) for one in links for name in _COUNTERS)
    if errors.well_since is None or counters != errors.counters:
        return replace(errors, well_since=reading.began, counters=counters)
    return replace(errors, recovered=reading.began - errors.well_since >= SOAK)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _events(readings: Iterable[Reading]) -> Iterator[tuple[str, Event]]:
    for reading in readings:
        for observation in reading.observations:
            for event in observation.events:
                yield observation.slot, event
