"""NVLink errors of each GPU since its last reset: their number on each link, and the recovery of links. Pure.

A failed link can recover without a reset. The error is cleared once NVML has shown the links active, without
a new error, for SOAK seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.model.observation import UNREADABLE, Event, Observation, Reading
from nodeguard.model.target import NODE, parent_target, target_kind

# Seconds for which the links must be active without an error before an error is cleared: 30 readings of NVML,
# so that a link that is trained again every few minutes does not look repaired in between.
SOAK = 300.0

# More errors than this on one link within a day need an action. Source: NVIDIA Xid catalogue, the register
# table of code 74, "more than two on the same link". It names no time: a day is that of other warnings.
_TOLERATED = 2
_DAY = 86_400.0

# Links of one GPU, and GPUs: a log can name any.
_MAX_LINKS = 64
_MAX_GPUS = 64

RECOVERED = "gpu.nvlink.recovered"

# The number for the link of an error that names none.
_NO_LINK = -1

_ACTIVE = "nvlink.active"
# Counters of a link that rise when it fails or repeats packets, and are constant on a healthy link.
_COUNTERS = ("nvlink.replays", "nvlink.recoveries", "nvlink.recovery_events", "nvlink.recoveries_failed")


class LinkErrors(Struct, frozen=True, array_like=True):
    """NVLink errors of one GPU.

    times: by link, _NO_LINK where the driver names none: its latest errors, at most
    _TOLERATED + 1, ascending. active_since: the begin of the first of the readings that show all links active
    with the same counters, None where the latest reading does not. counters: the sum of these counters.
    recovered: whether the recovery was reported. All times in seconds since boot.
    """

    times: dict[int, tuple[float, ...]] = {}
    active_since: float | None = None
    counters: float = 0.0
    recovered: bool = False


# By GPU.
LinkErrorsByGpu = Mapping[str, LinkErrors]


class LinkErrorCounter:
    """Counts the NVLink errors of one round.

    before: the errors after the last round. readings: those of this round; a reset or a load of the driver in
    them ends the errors before it.
    """

    def __init__(self, before: LinkErrorsByGpu, readings: Iterable[Reading]) -> None:
        self._errors = dict(before)
        self._resets = _resets(readings)

    def add(self, target: str, event: Event) -> Event:
        """Count one decoded Xid of a GPU, and return it: fatal where its link had too many errors.

        Xids that are not errors of a recoverable link are returned unchanged.
        """
        if event.fields.get("recoverable") is not True:
            return event
        link = int(event.fields.get("link", _NO_LINK))
        errors = self._errors.get(target, LinkErrors())
        since = max(event.at - _DAY, self._reset(target, event.at))
        before = [at for at in errors.times.get(link, ()) if at > since]
        new = [event.at] * min(max(1, event.count), _TOLERATED + 1)
        latest = tuple(sorted(before + new)[-_TOLERATED - 1 :])
        times = {**errors.times, link: latest}
        if len(times) > _MAX_LINKS:
            del times[min(times, key=lambda link: times[link][-1])]
        self._errors[target] = LinkErrors(times)
        if len(latest) <= _TOLERATED or link == _NO_LINK:
            return event
        detail = f"{str(event.fields['detail'])[:-1]}; more than {_TOLERATED} within a day)"
        return replace(
            event, fields={**event.fields, "verdict": "fatal", "detail": detail, "recoverable": False}
        )

    def errors(self) -> dict[str, LinkErrors]:
        """Return the errors that no reset has ended, of the GPUs with the latest ones."""
        left = {target: self._since_reset(target, errors) for target, errors in self._errors.items()}
        latest = {target: _last(errors) for target, errors in left.items() if errors.times}
        return {target: left[target] for target in sorted(latest, key=latest.__getitem__)[-_MAX_GPUS:]}

    def _since_reset(self, target: str, errors: LinkErrors) -> LinkErrors:
        reset = self._reset(target, inf)
        times = {link: tuple(at for at in row if at > reset) for link, row in errors.times.items()}
        times = {link: row for link, row in times.items() if row}
        return errors if times == errors.times else replace(errors, times=times)

    def _reset(self, target: str, at: float) -> float:
        """Return when a GPU was last reset or its driver loaded, up to a time; -inf where it was not."""
        rows = (self._resets.get(place, ()) for place in (target, NODE))
        return max((row[place - 1] for row in rows if (place := bisect_right(row, at))), default=-inf)


def _resets(readings: Iterable[Reading]) -> dict[str, list[float]]:
    """Return the times of resets and loads of the driver by target, ascending."""
    resets: dict[str, list[float]] = {}
    for reading in readings:
        for observation in reading.observations:
            for event in observation.events:
                if event.signal in {"gpu.reset", "driver.load"}:
                    resets.setdefault(observation.target, []).append(event.at)
    return {target: sorted(times) for target, times in resets.items()}


def _last(errors: LinkErrors) -> float:
    return max(row[-1] for row in errors.times.values())


def report_recoveries(
    before: LinkErrorsByGpu, readings: Iterable[Reading], links: Mapping[str, float]
) -> tuple[dict[str, LinkErrors], list[Reading]]:
    """Return the errors after these readings, and the readings with an event for each GPU that recovered.

    links: the most active links that each GPU has had, by target. A reading without all links of a GPU,
    or without all their counters, is no evidence of a recovery.
    """
    after, result = dict(before), []
    for reading in readings:
        recovered = []
        for target, errors in before.items() if reading.source == "nvml" else ():
            after[target] = _observed(after[target], target, reading, links.get(target, 0.0))
            if after[target].recovered and not errors.recovered:
                recovered.append(
                    Observation(
                        "nvml",
                        target,
                        events=(Event(RECOVERED, reading.began, fields={"recoverable": True}),),
                    )
                )
        result.append(
            replace(reading, observations=(*reading.observations, *recovered)) if recovered else reading
        )
    return after, result


def _observed(errors: LinkErrors, target: str, reading: Reading, most: float) -> LinkErrors:
    """Return the errors of one GPU after a reading of NVML. most: the most active links that it has had."""
    links = [
        link
        for link in reading.observations
        if target_kind(link.target) == "nvlink" and parent_target(link.target) == target
    ]
    active = {link.target.rpartition("/")[2] for link in links if link.signals.get(_ACTIVE) is True}
    if (
        reading.began <= _last(errors)
        or reading.unlisted("nvlink")
        or any(_is_unread(link) for link in links)
        or not active
        or any(str(link) not in active for link in errors.times if link != _NO_LINK)
        or len(active) < most
    ):
        return replace(errors, active_since=None)
    counters = sum(_number(link.signals.get(name)) for link in links for name in _COUNTERS)
    if errors.active_since is None or counters != errors.counters:
        return replace(errors, active_since=reading.began, counters=counters)
    return replace(errors, recovered=reading.began - errors.active_since >= SOAK)


def _is_unread(link: Observation) -> bool:
    return link.status in UNREADABLE or any(name in link.unreadable for name in (_ACTIVE, *_COUNTERS))


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
