"""The state file of the standalone backend: advised marks, incidents and operators' decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.config.regular_file import read_regular_file
from nodeguard.executors.owners import accepted_kinds
from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.local.atomic_write import atomic_write
from nodeguard.local.daemon_thread import DaemonThread
from nodeguard.model.action import NodeAction
from nodeguard.model.incident import Incident, OperatorDecision
from nodeguard.model.inventory import ObservedMarks
from nodeguard.model.json_decoder import JsonDecoder
from nodeguard.model.mark import MarkRecord, NodeMarks
from nodeguard.model.policy import MarkWrites

# Maximum size of the file in bytes. The file of 7,500 marked nodes has a tenth of it.
SIZE_LIMIT = 64 * 1024 * 1024

# Members that are encoded at a time: the event loop waits while the writer thread encodes.
_AT_ONCE = 200

_VERSION = 1


class AdvisedMarks(Struct, frozen=True, omit_defaults=True):
    """The marks of one node. state: their record, as JSON. cordoned: whether a cordon is advised."""

    state: str = ""
    cordoned: bool = False

    @property
    def record(self) -> MarkRecord:
        """Return the record of the marks."""
        return decode_record(self.state) or MarkRecord()

    def observed(self, writes: MarkWrites, owner: str = "") -> ObservedMarks:
        """Return the marks as the node shows them. writes: what the policy writes for a mark. owner: the
        webhook that owns the node; empty for none.
        """
        stored = self.record
        record = replace(stored, cordoned=False, accepted=None)
        kinds = frozenset(record.marks) if writes.taint else frozenset()
        if owner:
            kinds = accepted_kinds(stored.accepted, owner)
        return ObservedMarks(NodeMarks(record), present=kinds, in_effect=kinds, is_out=self.cordoned)


class StandaloneState(Struct, frozen=True, omit_defaults=True):
    """The content of the file. decisions, incidents: by name. nodes: with advised marks, by name.

    gpus: of all nodes, by name. actions: by key. led: from when until when the aggregator led, in seconds
    since the epoch; None if an earlier version wrote the file.
    """

    version: int = _VERSION
    pause: str = ""
    decisions: dict[str, OperatorDecision] = {}
    incidents: dict[str, Incident] = {}
    nodes: dict[str, AdvisedMarks] = {}
    gpus: dict[str, int] = {}
    actions: dict[str, NodeAction] = {}
    led: tuple[float, float] | None = None


class StandaloneStateError(Exception):
    """The file cannot be used. The message has its path, the reason and the remedy."""


def state_path(directory: str) -> str:
    """Return the path of the state file in a directory."""
    return str(Path(directory) / "decisions.json")


def read_state(path: str) -> StandaloneState:
    """Return the state in a file; an empty state without a file. Raises StandaloneStateError."""
    try:
        data = read_regular_file(path, SIZE_LIMIT + 1)
        if len(data) > SIZE_LIMIT:
            raise StandaloneStateError(
                f"{path} has more than {SIZE_LIMIT} bytes: restore a copy, or move it away"
            )
        state = JsonDecoder(StandaloneState).decode(data)
    except FileNotFoundError:
        return StandaloneState()
    except OSError as error:
        raise StandaloneStateError(
            f"{path}: {error.strerror}: make it readable, or name another --state"
        ) from None
    except msgspec.DecodeError:
        raise StandaloneStateError(
            f"{path} is damaged, and with it the operators' decisions: restore a copy, or move it away and "
            "repeat the decisions"
        ) from None
    if state.version != _VERSION:
        raise StandaloneStateError(
            f"{path} was written by a newer version ({state.version}): upgrade, or move it away"
        )
    return state


def write_state(path: str, state: StandaloneState, limit: int = SIZE_LIMIT) -> int:
    """Write the file atomically. Creates the directory if only its last part is missing. limit: in bytes.

    Returns the number of incidents that are omitted because of the limit. Raises StandaloneStateError.
    """
    pieces, omitted = encode_state(state, limit)
    try:
        atomic_write(path, pieces)
    except OSError as error:
        raise StandaloneStateError(
            f"{error.filename or path}: {error.strerror}: make room there, or make it writable"
        ) from None
    return omitted


def encode_state(state: StandaloneState, limit: int = SIZE_LIMIT) -> tuple[list[bytes], int]:
    """Return the content of the file in pieces, and the number of incidents that are omitted for the limit:
    first those that were resolved longest ago, then those that began first. Raises StandaloneStateError if
    it does not fit without any incident.
    """
    pieces = [msgspec.json.encode(replace(state, decisions={}, incidents={}, nodes={}, gpus={}))[:-1]]
    for name, things in (("decisions", state.decisions), ("nodes", state.nodes), ("gpus", state.gpus)):
        pieces += _member(name, [msgspec.json.encode(part)[1:-1] for part in _parts(things)], pieces)
    size = sum(map(len, pieces)) + len(_CLOSING)
    if size > limit:
        raise StandaloneStateError(f"the state has {size} bytes, more than {limit}: please report it")
    ordered = sorted(
        state.incidents.items(), key=lambda item: (item[1].is_open, item[1].resolved_at, item[1].first_seen)
    )
    incidents, omitted = list[bytes](), len(ordered)
    for part in _parts(dict(reversed(ordered))):
        piece = msgspec.json.encode(part)[1:-1]
        size += len(piece) + 1
        if size > limit:
            break
        incidents.append(piece)
        omitted -= len(part)
    return [*pieces, *_member("incidents", incidents, pieces), b"}"], omitted


# The end of the object around the last member.
_CLOSING = b',"incidents":{}}'


def _member(name: str, parts: list[bytes], before: list[bytes]) -> list[bytes]:
    """Return a member of a JSON object, nothing if it is empty. before: the object up to this member."""
    if not parts:
        return []
    comma = b"" if before == [b"{"] else b","
    return [comma + f'"{name}":{{'.encode(), b",".join(parts), b"}"]


def _parts(things: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a mapping in parts of some members each."""
    items = iter(things.items())
    while part := dict(islice(items, _AT_ONCE)):
        yield part


class StandaloneStateWriter:
    """Writes the latest state in a thread: a state that is replaced before its turn is never written.

    write: writes a state, in the thread, and returns the number of omitted incidents. Raises
    StandaloneStateError. done: is called in the event loop after each write, with the error, empty for none,
    and the number of omitted incidents.
    """

    def __init__(self, write: Callable[[StandaloneState], int], done: Callable[[str, int], object]) -> None:
        self._write = write
        self._done = done
        # The process can stop while the thread hangs on its disk.
        self._thread = DaemonThread("state")
        self._next: StandaloneState | None = None
        self._waiting: list[asyncio.Future[str]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether a write is running."""
        return self._task is not None and not self._task.done()

    def put(self, state: StandaloneState) -> asyncio.Future[str]:
        """Write a state. Returns a future with the error, empty for none."""
        written: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._next = state
        self._waiting.append(written)
        if not self.is_busy:
            self._task = asyncio.create_task(self._run())
        return written

    async def wait_idle(self, within: float | None = None) -> None:
        """Wait until all states are written, at most `within` seconds."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within)

    async def _attempt(self, state: StandaloneState) -> tuple[str, int]:
        """Write a state; return the error, empty for none, and the number of omitted incidents."""
        try:
            return "", await self._thread.run(partial(self._write, state))
        except StandaloneStateError as error:
            return str(error), 0
        except OSError as error:  # no thread can be started
            return error.strerror or str(error), 0
        except Exception as error:  # noqa: BLE001 - the next write may succeed
            problem = f"{type(error).__name__}: {error}"
            return f"internal error, please report it: {problem}", 0

    async def _run(self) -> None:
        while self._next is not None:
            state, self._next = self._next, None
            waiting, self._waiting = self._waiting, []
            error, omitted = await self._attempt(state)
            self._done(error, omitted)
            for future in waiting:
                if not future.done():
                    future.set_result(error)
