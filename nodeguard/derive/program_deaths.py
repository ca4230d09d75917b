"""Programs that ran on each GPU, and the series of those that met an Xid of an application. Pure.

A series is on one GPU: an Xid on another one ends it and begins another series. The work of the other GPUs in
the meantime is its control. Processes and jobs have opaque keys, see model.process_owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import TypeVar

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

# Seconds for which a death counts.
_WINDOW = 86_400.0
# Seconds within which deaths on one GPU may have one cause: a server of MPS ends with all its clients.
_TOGETHER = 60.0
# Seconds after a death within which the job's processes on other GPUs may be killed for it (Xid 45).
_CLEANUP = 600.0
# Seconds between two readings of NVML over which a GPU that ran work in both ran it all the time.
_GAP = 120.0
# Processes for a warning where nothing shows whether they are several programs; ours.
_PROCESSES = 5

# An Xid of memory that ends the application only, and the Xid of a removed channel.
_CONTAINED, _REMOVED = 94, 45

# Processes, jobs and deaths that are kept of one GPU, and GPUs: a log can name any.
_MAX_KEPT = 64
_MAX_GPUS = 64

Key = TypeVar("Key")
Value = TypeVar("Value")


class GpuWork(Struct, frozen=True, array_like=True):
    """The work of one GPU.

    part: its component. read_at: time of the latest list of processes. runs: whether it had any. since_death:
    seconds of work since the latest death on any GPU. since_other: the same, since the latest one on a GPU
    that is not that of the series. owners: latest processes. programs: by parent of their processes the job,
    the time of the latest sight, and seconds of the longest run. All times in seconds since boot.
    """

    part: str = ""
    read_at: float = 0.0
    runs: bool = False
    since_death: float = 0.0
    since_other: float = 0.0
    owners: dict[int, ProcessOwner] = {}
    programs: dict[str, tuple[str, float, float]] = {}


class NodeWork(Struct, frozen=True, array_like=True):
    """The work of a node's GPUs and its series of deaths.

    series_of: the GPU of the series; empty without one. deaths: of the series, oldest first, where the job is
    known. earlier: number of jobs that died on each GPU before it. since: time from which they are counted.
    processes: all processes with an Xid in the series, each with the time, the job, and whether its only Xid
    is 45. failed: jobs with an Xid on any GPU, and when it was the last. death_at: the latest death on any
    GPU. other_at: the latest one on a GPU that is not that of the series.
    """

    gpus: dict[str, GpuWork] = {}
    series_of: str = ""
    deaths: tuple[Death, ...] = ()
    earlier: dict[str, int] = {}
    since: float = inf
    processes: dict[int, tuple[float, str, bool]] = {}
    failed: dict[str, float] = {}
    death_at: float = 0.0
    other_at: float = 0.0


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
    """Whether an Xid ended an application. One that follows an error of the GPU has that error's finding."""
    code = int(event.fields["xid"])
    if code == _CONTAINED:
        return True
    is_workload = xid_row(code, table).workload == "yes"
    return is_workload and not index_xids(xids, table).cause(event.at)


def _with_processes(work: NodeWork, observation: Observation, latest: LatestReadings, now: float) -> NodeWork:
    """Return the work after a list of a GPU's processes."""
    target, text = observation.target, str(observation.signals["gpu.process_owners"])
    part, before = latest.component_id(target), work.gpus.get(target, GpuWork())
    if before.part not in {"", part} and part:
        before = GpuWork()
        if target == work.series_of:
            work = _forgotten(work)
    owners = dict(filter(None, map(parse_owner_entry, text.split())))
    programs = dict(before.programs)
    for owner in owners.values():
        longest = programs.pop(owner.parent, ("", 0.0, 0.0))[2]
        programs[owner.parent] = (owner.job, now, max(longest, now - owner.started))
    runs = bool(text)
    if runs and before.runs and now - before.read_at <= _GAP:
        began = before.read_at
    else:
        began = max(min((owner.started for owner in owners.values()), default=now), before.read_at)
    worked = now if runs else began
    after = GpuWork(
        part or before.part,
        now,
        runs,
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
        gpus = {target: replace(row, since_other=row.since_death) for target, row in work.gpus.items()}
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
        time, job, only = work.processes[pid]
        if removed or not only:
            return work
        deaths = tuple(replace(death, removed=False) if death.pid == pid else death for death in work.deaths)
        return replace(work, deaths=deaths, processes={**work.processes, pid: (time, job, False)})
    deaths = tuple(death for death in work.deaths if death.at > at - _WINDOW)
    earlier = _with_earlier(work, work.deaths[: len(work.deaths) - len(deaths)])
    if job and (not deaths or at - deaths[-1].at > _TOGETHER):
        clean = sum(row.since_other for target, row in work.gpus.items() if target != gpu)
        is_again = at - work.failed.get(job, -_WINDOW) < _WINDOW
        ran = max(0.0, at - owner.started)
        death = Death(pid, at, ran, owner.user, job, owner.parent, is_again, removed, clean)
        deaths = (*deaths, death)[-_MAX_KEPT:]
    processes = {process: row for process, row in work.processes.items() if row[0] > at - _WINDOW}
    return replace(
        work,
        gpus={target: replace(row, since_death=0.0) for target, row in work.gpus.items()},
        deaths=deaths,
        earlier=earlier,
        processes=_newest({**processes, pid: (at, job, removed)}) if pid else processes,
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
    others = {target: row for target, row in work.gpus.items() if target != gpu}
    runs: dict[str, list[float]] = {}
    for row in others.values():
        for parent, (_, _, longest) in row.programs.items():
            runs.setdefault(parent, []).append(longest)
    clean = sum(row.since_other for row in others.values())
    used = [row for row in others.values() if row.since_other > 0]
    deaths = significant_deaths(
        Series(
            work.deaths, work.earlier.get(gpu, 0), now - min(now, work.since), now, len(used) + 1, clean, runs
        )
    )
    if deaths:
        began = deaths[0].at
        jobs = {job for row in used for job, seen, _ in row.programs.values() if seen >= began}
        fields: dict[str, Scalar] = {
            "verdict": "suspect",
            "processes": len(deaths),
            "programs": independent_programs(deaths, runs),
            "minutes": round((work.death_at - began) / 60),
            "others": len(used),
            "others_ran": len(jobs),
        }
        return _forgotten(work), _finding(work, fields)
    failed, removed = (
        len({job or str(pid) for pid, (_, job, only) in work.processes.items() if only == is_removed})
        for is_removed in (False, True)
    )
    count = failed + min(failed, removed)
    # Where NVML does not list the processes that died either, an empty list does not mean idle.
    row = work.gpus.get(gpu, GpuWork())
    is_idle = not any(other.runs or other.since_other for other in others.values()) and bool(
        row.runs or row.programs
    )
    if count < _PROCESSES or gpus < 2 or is_idle:
        return work, {}
    minutes = round((work.death_at - min(at for at, _, _ in work.processes.values())) / 60)
    return work, _finding(work, {"verdict": "warning", "processes": count, "minutes": minutes})


def _finding(work: NodeWork, fields: Mapping[str, Scalar]) -> dict[str, tuple[Event, ...]]:
    return {work.series_of: (Event(DIED, work.death_at, fields=dict(fields)),)}
