"""Programs that ran on each GPU, and the series of those that met an Xid of an application. Pure.

A series is on one GPU: an Xid on another one ends it and begins another series. The work of the other GPUs in
the meantime is its control. Processes and jobs have opaque keys, see model.process_owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.derive.death_series import Death, Series, independent_programs, significant_deaths
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.derive.xid_index import XidRecord, index_xids, xid_row
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.observation import Event, Observation, Reading
from nodeguard.model.process_owner import ProcessOwner, parse_owner_entry
from nodeguard.model.signal import Scalar

DIED = "gpu.programs_died"

# Seconds for which a death counts. The warning below has no control for time, so that a program of last week
# must not add to one of today.
_WINDOW = 86_400.0
# Seconds within which deaths on one GPU may have one cause: a server of MPS ends with all its clients.
_TOGETHER = 60.0
# Seconds after a death within which the job's processes on other GPUs may be killed for it (Xid 45): PyTorch
# waits this long for a lost process. Source: torch.distributed, default timeout with NCCL.
_CLEANUP = 600.0
# Seconds between two readings of NVML over which a GPU that ran work in both ran it all the time: twelve
# readings, so that a driver that answers late for a while does not take the control away.
_GAP = 120.0
# Processes for a warning where nothing shows whether they are several programs. A judgement: a user starts a
# program that fails a few times before looking into it, and a warning costs no capacity.
_PROCESSES = 5

# An Xid of memory that ends the application only, and the Xid of a removed channel.
_CONTAINED, _REMOVED = 94, 45

# Processes, jobs and deaths that are kept of one GPU, and GPUs: a log can name any.
_MAX_KEPT = 64
_MAX_GPUS = 64

Key = TypeVar("Key")
Value = TypeVar("Value")


class GpuWork(Struct, frozen=True, array_like=True):
    """The work of one GPU. All times are seconds since boot."""

    component: str = ""

    read_at: float = 0.0
    """Time of the latest list of processes."""

    is_in_use: bool = False
    """Whether this list had any process."""

    since_death: float = 0.0
    """Seconds of work since the latest death on any GPU."""

    since_other: float = 0.0
    """Seconds of work since the latest death on a GPU that is not that of the series."""

    owners: dict[int, ProcessOwner] = {}
    """Owners of the latest processes."""

    programs: dict[str, tuple[str, float, float]] = {}
    """By parent of its processes: job, time of the latest sight, and seconds of the longest run."""


class ProcessDeath(NamedTuple):
    """The Xids of one process: time of the first, job, and whether its only Xid is 45."""

    at: float
    job: str
    only_removed: bool


class NodeWork(Struct, frozen=True, array_like=True):
    """The work of a node's GPUs and its series of deaths. All times are seconds since boot."""

    gpus: dict[str, GpuWork] = {}

    series_of: str = ""
    """The GPU of the series; empty without one."""

    deaths: tuple[Death, ...] = ()
    """Deaths of the series, oldest first, where the job is known."""

    earlier: dict[str, int] = {}
    """Number of jobs that died on each GPU before the series."""

    since: float = inf
    """Time from which earlier deaths are counted."""

    processes: dict[int, ProcessDeath] = {}
    """All processes with an Xid in the series."""

    failed: dict[str, float] = {}
    """Jobs with an Xid on any GPU, with the time of the last one."""

    death_at: float = 0.0
    """The latest death on any GPU."""

    other_at: float = 0.0
    """The latest death on a GPU that is not that of the series."""


def record_work(
    work: NodeWork,
    readings: Iterable[Reading],
    latest: LatestReadings,
    xids: Mapping[str, tuple[XidRecord, ...]],
    table: Catalogue,
    now: float,
) -> tuple[NodeWork, dict[str, tuple[Event, ...]]]:
    """Return the work after some readings, and an event DIED by target where a series is a finding.

    readings: with each Xid once. xids: the recent Xids of each GPU. now: seconds since boot.
    """
    events = []
    for reading in readings:
        for observation in reading.observations:
            if isinstance(observation.signals.get("gpu.process_owners"), str):
                work = _with_processes(work, observation, latest, reading.at)
            events += [(observation.target, event) for event in observation.events]
    before = work
    for target, event in sorted(events, key=lambda item: item[1].at):
        if event.signal == "driver.load" or (event.signal == "gpu.reset" and target == work.series_of):
            work = _forgotten(work)
        elif event.signal == "gpu.xid.line" and _is_death(event, xids.get(target, ()), table):
            work = _with_death(work, target, event)
    if work.processes == before.processes:
        return work, {}
    return _with_finding(work, len(list(latest.targets("gpu"))), now)


def report_deaths(readings: list[Reading], died: Mapping[str, tuple[Event, ...]]) -> list[Reading]:
    """Return decoded readings with the events of record_work, in the last reading with an Xid."""
    if not died:
        return readings
    last = max(
        index
        for index, reading in enumerate(readings)
        for observation in reading.observations
        if any(event.signal.startswith("gpu.xid.") for event in observation.events)
    )
    reading = readings[last]
    added = (Observation(reading.source, target, events=events) for target, events in died.items())
    reading = replace(reading, observations=(*reading.observations, *added))
    return [*readings[:last], reading, *readings[last + 1 :]]


def _is_death(event: Event, xids: tuple[XidRecord, ...], table: Catalogue) -> bool:
    """Return whether an Xid ended an application, and does not follow from an error of the GPU."""
    code = int(event.fields["xid"])
    if code == _CONTAINED:
        return True
    is_workload = xid_row(code, table).workload == "yes"
    return is_workload and not index_xids(xids, table).cause(event.at)


def _with_processes(work: NodeWork, observation: Observation, latest: LatestReadings, now: float) -> NodeWork:
    """Return the work after a list of a GPU's processes."""
    target, text = observation.target, str(observation.signals["gpu.process_owners"])
    component, before = latest.component_id(target), work.gpus.get(target, GpuWork())
    if before.component not in {"", component} and component:
        before = GpuWork()
        if target == work.series_of:
            work = _forgotten(work)
    owners = dict(filter(None, map(parse_owner_entry, text.split())))
    programs = dict(before.programs)
    for owner in owners.values():
        longest = programs.pop(owner.parent, ("", 0.0, 0.0))[2]
        programs[owner.parent] = (owner.job, now, max(longest, now - owner.started))
    is_in_use = bool(text)
    if is_in_use and before.is_in_use and now - before.read_at <= _GAP:
        began = before.read_at
    else:
        began = max(min((owner.started for owner in owners.values()), default=now), before.read_at)
    worked = now if is_in_use else began
    after = GpuWork(
        component or before.component,
        now,
        is_in_use,
        before.since_death + max(0.0, worked - max(began, work.death_at)),
        before.since_other + max(0.0, worked - max(began, work.other_at)),
        _newest({**before.owners, **owners}),
        _newest(programs),
    )
    gpus = dict([*work.gpus.items(), (target, after)][-_MAX_GPUS:])
    return replace(work, gpus=gpus, since=min(work.since, now))


def _forgotten(work: NodeWork) -> NodeWork:
    """Return the work without what died on the GPU of the series."""
    return replace(work, deaths=(), processes={}, earlier=_without(work.earlier, work.series_of))


def _with_earlier(work: NodeWork, deaths: Iterable[Death]) -> dict[str, int]:
    """Return the number of jobs that died earlier, by GPU, with some deaths of the series."""
    count = work.earlier.get(work.series_of, 0) + sum(not death.again for death in deaths)
    return {**work.earlier, work.series_of: count} if count else work.earlier


def _without(items: dict[Key, Value], key: Key) -> dict[Key, Value]:
    return {name: value for name, value in items.items() if name != key}


def _newest(items: dict[Key, Value]) -> dict[Key, Value]:
    return dict(list(items.items())[-_MAX_KEPT:])


def _with_death(work: NodeWork, gpu: str, event: Event) -> NodeWork:
    """Return the work after an Xid that ended a process."""
    at, pid = event.at, int(event.fields.get("pid", 0))
    removed = event.fields["xid"] == _REMOVED
    logged = parse_owner_entry(str(event.fields.get("owner", "")))
    owner = logged[1] if logged else _listed_owner(work, gpu, pid, at)
    job = owner.job
    if gpu != work.series_of:
        killed = any(job and death.job == job and at - death.at <= _CLEANUP for death in work.deaths)
        if removed and killed:
            return work
        gpus = {target: replace(other, since_other=other.since_death) for target, other in work.gpus.items()}
        work = replace(
            work,
            gpus=gpus,
            series_of=gpu,
            deaths=(),
            earlier=_with_earlier(work, work.deaths),
            processes={},
            other_at=work.death_at,
        )
    if pid in work.processes:
        earlier_death = work.processes[pid]
        if removed or not earlier_death.only_removed:
            return work
        deaths = tuple(replace(death, removed=False) if death.pid == pid else death for death in work.deaths)
        return replace(
            work, deaths=deaths, processes={**work.processes, pid: earlier_death._replace(only_removed=False)}
        )
    deaths = tuple(death for death in work.deaths if death.at > at - _WINDOW)
    earlier = _with_earlier(work, work.deaths[: len(work.deaths) - len(deaths)])
    if job and (not deaths or at - deaths[-1].at > _TOGETHER):
        clean = sum(other.since_other for target, other in work.gpus.items() if target != gpu)
        is_again = at - work.failed.get(job, -_WINDOW) < _WINDOW
        ran = max(0.0, at - owner.started)
        death = Death(pid, at, ran, owner.user, job, owner.parent, is_again, removed, clean)
        deaths = (*deaths, death)[-_MAX_KEPT:]
    processes = {process: death for process, death in work.processes.items() if death.at > at - _WINDOW}
    return replace(
        work,
        gpus={target: replace(other, since_death=0.0) for target, other in work.gpus.items()},
        deaths=deaths,
        earlier=earlier,
        processes=_newest({**processes, pid: ProcessDeath(at, job, removed)}) if pid else processes,
        failed=_newest({**_without(work.failed, job), job: at}) if job else work.failed,
        death_at=max(at, work.death_at),
    )


def _listed_owner(work: NodeWork, gpu: str, pid: int, at: float) -> ProcessOwner:
    """Return the owner of a process that NVML has listed, without names if it has not."""
    owner = work.gpus.get(gpu, GpuWork()).owners.get(pid, ProcessOwner())
    return owner if owner.started <= at else ProcessOwner()


def _with_finding(work: NodeWork, gpus: int, now: float) -> tuple[NodeWork, dict[str, tuple[Event, ...]]]:
    """Return the work and the finding of its series after a new death. gpus: number of GPUs of the node.

    Deaths that were a finding do not count again.
    """
    gpu = work.series_of
    others = [other for target, other in work.gpus.items() if target != gpu]
    runs: dict[str, list[float]] = {}
    for other in others:
        for parent, (_, _, longest) in other.programs.items():
            runs.setdefault(parent, []).append(longest)
    used = [other for other in others if other.since_other > 0]
    series = Series(
        deaths=work.deaths,
        earlier=work.earlier.get(gpu, 0),
        watched=now - min(now, work.since),
        now=now,
        gpus=len(used) + 1,
        clean=sum(other.since_other for other in others),
        runs=runs,
    )
    deaths = significant_deaths(series)
    if deaths:
        began = deaths[0].at
        jobs = {job for other in used for job, seen, _ in other.programs.values() if seen >= began}
        fields: dict[str, Scalar] = {
            "verdict": "suspect",
            "processes": len(deaths),
            "programs": independent_programs(deaths, runs),
            "minutes": _minutes(work.death_at - began),
            "others": len(used),
            "others_ran": len(jobs),
        }
        return _forgotten(work), _finding(work, fields)
    count = _process_count(work.processes)
    # Where NVML does not list the processes that died either, an empty list does not mean idle.
    own = work.gpus.get(gpu, GpuWork())
    is_listed = own.is_in_use or bool(own.programs)
    is_idle = is_listed and not any(other.is_in_use or other.since_other for other in others)
    if count < _PROCESSES or gpus < 2 or is_idle:
        return work, {}
    minutes = _minutes(work.death_at - min(death.at for death in work.processes.values()))
    return work, _finding(work, {"verdict": "warning", "processes": count, "minutes": minutes})


def _minutes(seconds: float) -> int:
    """Return the whole minutes within which programs failed, at least one."""
    return max(round(seconds / 60), 1)


def _process_count(processes: Mapping[int, ProcessDeath]) -> int:
    """Return the number of jobs, or processes of an unknown job.

    Those with only Xid 45 count at most as often as others.
    """
    removed = {death.job or str(pid) for pid, death in processes.items() if death.only_removed}
    failed = {death.job or str(pid) for pid, death in processes.items() if not death.only_removed}
    return len(failed) + min(len(failed), len(removed))


def _finding(work: NodeWork, fields: Mapping[str, Scalar]) -> dict[str, tuple[Event, ...]]:
    return {work.series_of: (Event(DIED, work.death_at, fields=dict(fields)),)}
