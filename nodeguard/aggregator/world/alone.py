"""No Kubernetes: the plan is advice, kept with people's decisions in a file of this aggregator's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.aggregator.api.decide import DecisionError
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.aggregator.outbox import Outbox, clears
from nodeguard.fleet.plan import Plan
from nodeguard.fleet.planner import Planner
from nodeguard.model.incident import Decision, Incident
from nodeguard.model.instant import Instant
from nodeguard.model.mark import STATE, Desired
from nodeguard.model.node import PREFIX, Node, Taint
from nodeguard.model.slot import kind
from nodeguard.wire.report import Report

# Bytes of the file that are read; one of 7,500 marked nodes has a tenth.
_LIMIT = 64 * 1024 * 1024


class Advised(Struct, frozen=True, omit_defaults=True):
    """What is advised of one node: the taints that it would carry, and the record of why."""

    taints: tuple[Taint, ...] = ()
    state: str = ""
    cordoned: bool = False


class Kept(Struct, frozen=True, omit_defaults=True):
    """What the file holds. decisions, incidents: by name. nodes: by name, those of which anything is advised.
    gpus: of every node, by name.
    """

    version: int = 1
    pause: str = ""
    decisions: dict[str, Decision] = {}
    incidents: dict[str, Incident] = {}
    nodes: dict[str, Advised] = {}
    gpus: dict[str, int] = {}


class KeptError(Exception):
    """The file cannot be used; names it, says why and how to remedy."""


def read(path: str) -> Kept:
    """What a file holds; nothing where there is none. Raises KeptError."""
    try:
        with open(path, "rb") as file:
            data = file.read(_LIMIT + 1)
        kept = msgspec.json.decode(data, type=Kept)
    except FileNotFoundError:
        return Kept()
    except OSError as error:
        raise KeptError(f"{path}: {error.strerror}: let it be read, or name another --state") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise KeptError(
            f"{path} holds no decisions: put back a copy, or move it away to begin anew"
        ) from None
    if kept.version != 1:
        raise KeptError(f"{path} was written by a newer version ({kept.version}): upgrade, or move it away")
    return kept


class Alone:
    """The world of an aggregator without Kubernetes. path: of its file, None to remember nothing."""

    leader = "standalone"

    def __init__(
        self,
        path: str | None,
        planner: Planner,
        outbox: Outbox,
        news: Callable[[], object],
        tell: Callable[[str], None],
    ) -> None:
        self._path = path
        self._planner = planner
        self._outbox = outbox
        self._news = news
        self._tell = tell
        self._said = ""
        self._kept = read(path) if path is not None else Kept()
        planner.paused = self._kept.pause
        planner.recall(self._kept.incidents.values())
        for name in self._kept.gpus.keys() | self._kept.nodes.keys():
            self._see(name)
        for decision in self._kept.decisions.values():
            self._decided(decision)

    def unknown(self) -> str:
        """Nothing."""
        return ""

    async def lead(self, _now: float) -> bool:
        """It always may."""
        return True

    def met(self, caller: Caller, report: Report) -> None:
        """A node is known from its first report on, with the GPUs that it tells of."""
        gpus = sum(1 for slot in report.inventory.parts if kind(slot) == "gpu")
        if self._kept.gpus.get(caller.node) != gpus and (gpus or caller.node not in self._kept.gpus):
            self._kept = replace(self._kept, gpus={**self._kept.gpus, caller.node: gpus})
            self._see(caller.node)

    def reconsider(self) -> None:
        """Nothing waits here."""

    def carry_out(self, plan: Plan, _now: Instant) -> None:
        """Remember what is advised."""
        self._planner.issued(plan)
        for one in plan.nodes:
            self._advise(one)
        if plan.nodes or plan.incidents:
            told = {name: one for each in self._planner.incidents.values() for name, one in each.items()}
            self._kept = replace(self._kept, incidents=told)
            self._write()

    async def pause(self, why: str, by: str) -> str:
        """Advise nothing new from now on, durably."""
        self._change(replace(self._kept, pause=f"{why or 'paused'}, said {by}" if by else why or "paused"))
        return "nothing new is advised from now on, through restarts too; nodeguard resume ends it"

    async def resume(self, by: str) -> str:
        """Go on."""
        self._change(replace(self._kept, pause=""))
        self._tell(f"resumed by {by}")
        return "marks are advised again"

    async def unmark(self, by: str) -> str:
        """Take all advice back, and pause before."""
        self._change(replace(self._kept, pause=f"all marks taken away by {by}"))
        for one in self._planner.unmark().nodes:
            self._advise(one)
        self._write()
        return "paused, and all marks are taken away; nodeguard resume has them advised again"

    async def acknowledge(self, name: str, by: str) -> str:
        """People know of an incident."""
        self._decide(replace(self._decision(name), acknowledged=by or "somebody"))
        return f"{name} is acknowledged"

    async def clear(self, name: str, by: str) -> str:
        """People say that an incident is over."""
        said = f"{by or 'somebody'} at {datetime.now(UTC).isoformat(timespec='seconds')}"
        decision = replace(self._decision(name), clear=said)
        self._decide(decision)
        self._decided(decision)
        return (
            f"{name} is to be cleared: its agent is told, and a mark goes when its check finds all in order"
        )

    async def close(self) -> None:
        """Write what is not written yet."""
        self._write()

    def decisions(self) -> dict[str, Decision]:
        """What people decided, by incident."""
        return self._kept.decisions

    def _see(self, name: str) -> None:
        advised = self._kept.nodes.get(name, Advised())
        annotations = {STATE: advised.state} if advised.state else {}
        self._planner.node(
            Node(
                name,
                name,
                annotations=annotations,
                taints=advised.taints,
                unschedulable=advised.cordoned,
                gpus=self._kept.gpus.get(name, 0),
            )
        )

    def _advise(self, what: Desired) -> None:
        before = self._kept.nodes.get(what.name, Advised())
        cordoned = before.cordoned if what.cordon is None else what.cordon
        taints = tuple(one for one in what.taints if one.key.startswith(PREFIX))
        rest = {name: one for name, one in self._kept.nodes.items() if name != what.name}
        advised = Advised(taints, what.state, cordoned)
        nodes = rest if advised == Advised() else {**rest, what.name: advised}
        self._kept = replace(self._kept, nodes=nodes)
        self._planner.written(what.uid, what.state)
        self._see(what.name)

    def _decision(self, incident: str) -> Decision:
        if self._planner.incident(incident) is None:
            raise DecisionError(f"there is no incident {incident}: see nodeguard incidents")
        return self._kept.decisions.get(incident, Decision(incident))

    def _decide(self, decision: Decision) -> None:
        self._change(replace(self._kept, decisions={**self._kept.decisions, decision.incident: decision}))

    def _decided(self, decision: Decision) -> None:
        incident = self._planner.incident(decision.incident)
        if incident is not None and incident.is_open:
            self._outbox.put(incident.uid, clears(incident, decision))

    def _change(self, kept: Kept) -> None:
        """Keep what a person decided, on the disk first. Raises DecisionError."""
        before, self._kept = self._kept, kept
        why = self._write()
        if why:
            self._kept = before
            raise DecisionError(f"this cannot be written down, and is not done: {why}")
        self._planner.paused = kept.pause
        self._news()

    def _write(self) -> str:
        """Write the file as a whole; why that failed, empty where it did not."""
        if self._path is None:
            return ""
        try:
            new = f"{self._path}.new"
            with open(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb"
            ) as file:
                file.write(msgspec.json.encode(self._kept))
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self._path)
        except OSError as error:
            why = f"{self._path}: {error.strerror}: make room, or let it be written"
            if why != self._said:
                self._said = why
                self._tell(why)
            return why
        self._said = ""
        return ""


def in_directory(directory: str) -> str:
    """Path of the file in a directory."""
    return str(Path(directory) / "decisions.json")
