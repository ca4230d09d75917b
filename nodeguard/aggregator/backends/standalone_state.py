"""The file of an aggregator without Kubernetes: its advice, and what people decided."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nodeguard.local.atomic_write import atomic_write
from nodeguard.model.incident import Incident, OperatorDecision
from nodeguard.model.node import Taint

# Bytes of the file, as it is read and as it is written; one of 7,500 marked nodes has a tenth.
SIZE_LIMIT = 64 * 1024 * 1024

# Members that are encoded at a time: the event loop waits while the thread that writes encodes.
_AT_ONCE = 200

_VERSION = 1


class AdvisedMarks(Struct, frozen=True, omit_defaults=True):
    """What is advised of one node: the taints that it would carry, and the record of why."""

    taints: tuple[Taint, ...] = ()
    state: str = ""
    cordoned: bool = False


class StandaloneState(Struct, frozen=True, omit_defaults=True):
    """What the file holds. decisions, incidents: by name. nodes: by name, those of which anything is advised.
    gpus: of every node, by name.
    """

    version: int = _VERSION
    pause: str = ""
    decisions: dict[str, OperatorDecision] = {}
    incidents: dict[str, Incident] = {}
    nodes: dict[str, AdvisedMarks] = {}
    gpus: dict[str, int] = {}


class StandaloneStateError(Exception):
    """The file cannot be used; names it, says why and how to remedy."""


def state_path(directory: str) -> str:
    """Path of the file in a directory."""
    return str(Path(directory) / "decisions.json")


def read_state(path: str) -> StandaloneState:
    """What a file holds; nothing where there is none. Raises KeptError."""
    try:
        with open(path, "rb") as file:
            data = file.read(SIZE_LIMIT + 1)
        if len(data) > SIZE_LIMIT:
            raise StandaloneStateError(
                f"{path} has more than {SIZE_LIMIT} bytes: put back a copy, or move it away"
            )
        kept = msgspec.json.decode(data, type=StandaloneState)
    except FileNotFoundError:
        return StandaloneState()
    except OSError as error:
        raise StandaloneStateError(
            f"{path}: {error.strerror}: let it be read, or name another --state"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise StandaloneStateError(
            f"{path} is damaged, and people's decisions with it: put back a copy, or move it away and "
            "decide anew"
        ) from None
    if kept.version != _VERSION:
        raise StandaloneStateError(
            f"{path} was written by a newer version ({kept.version}): upgrade, or move it away"
        )
    return kept


def write_state(path: str, kept: StandaloneState, limit: int = SIZE_LIMIT) -> int:
    """Write a file as a whole, in a directory that is made where only it is missing. Raises KeptError.

    limit: bytes of the file. Returns how many incidents are left out because of it.
    """
    pieces, left_out = encode_state(kept, limit)
    try:
        atomic_write(path, pieces)
    except OSError as error:
        raise StandaloneStateError(
            f"{error.filename or path}: {error.strerror}: make room there, or let it be written"
        ) from None
    return left_out


def encode_state(kept: StandaloneState, limit: int = SIZE_LIMIT) -> tuple[list[bytes], int]:
    """Return a file's content in pieces, and how many incidents are left out so that it has at most so many
    bytes: first those that were resolved longest ago, then those that began first. Raises KeptError where it
    has more without any.
    """
    pieces = [msgspec.json.encode(replace(kept, decisions={}, incidents={}, nodes={}, gpus={}))[:-1]]
    for name, things in (("decisions", kept.decisions), ("nodes", kept.nodes), ("gpus", kept.gpus)):
        pieces += _member(name, [msgspec.json.encode(part)[1:-1] for part in _parts(things)], pieces)
    size = sum(map(len, pieces)) + len(_CLOSING)
    if size > limit:
        raise StandaloneStateError(
            f"what is to be remembered has {size} bytes, more than {limit}: please report it"
        )
    ordered = sorted(
        kept.incidents.items(), key=lambda item: (item[1].is_open, item[1].resolved_at, item[1].first_seen)
    )
    incidents, left_out = list[bytes](), len(ordered)
    for part in _parts(dict(reversed(ordered))):
        piece = msgspec.json.encode(part)[1:-1]
        size += len(piece) + 1
        if size > limit:
            break
        incidents.append(piece)
        left_out -= len(part)
    return [*pieces, *_member("incidents", incidents, pieces), b"}"], left_out


# Bytes that the last member and the end take beside what is in it.
_CLOSING = b',"incidents":{}}'


def _member(name: str, parts: list[bytes], before: list[bytes]) -> list[bytes]:
    """Return a member of a JSON object, nothing where it is empty. before: the object up to this member."""
    if not parts:
        return []
    comma = b"" if before == [b"{"] else b","
    return [comma + f'"{name}":{{'.encode(), b",".join(parts), b"}"]


def _parts(things: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Return a mapping in parts of some members each."""
    items = iter(things.items())
    while part := dict(islice(items, _AT_ONCE)):
        yield part


class StandaloneStateWriter:
    """Writes one state at a time: the latest, so that a state that is replaced in time is never written.

    write: writes a state, in a thread, and returns how many incidents it had to leave out. Raises KeptError.
    done: is called in the event loop after each write, with why it failed, empty where it did not, and with
    how many incidents are left out.
    """

    def __init__(self, write: Callable[[StandaloneState], int], done: Callable[[str, int], object]) -> None:
        self._write = write
        self._done = done
        self._next: StandaloneState | None = None
        self._waiting: list[asyncio.Future[str]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a write is under way."""
        return self._task is not None and not self._task.done()

    def put(self, state: StandaloneState) -> asyncio.Future[str]:
        """Have a state written. Returns a future: why that failed, empty where it did not."""
        written: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._next = state
        self._waiting.append(written)
        if not self.is_busy:
            self._task = asyncio.create_task(self._run())
        return written

    async def wait_idle(self, within: float | None = None) -> None:
        """Wait until nothing is to be written, so many seconds at most."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within)

    def _in_thread(self, state: StandaloneState) -> asyncio.Future[tuple[str, int]]:
        """Write a state. The thread is a daemon: while it hangs on its disk the process can end."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[tuple[str, int]] = loop.create_future()

        def finish(error: str, left_out: int) -> None:
            if not result.done():
                result.set_result((error, left_out))

        def work() -> None:
            error, left_out = self._attempt(state)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(finish, error, left_out)

        threading.Thread(target=work, name="state", daemon=True).start()
        return result

    def _attempt(self, state: StandaloneState) -> tuple[str, int]:
        try:
            return "", self._write(state)
        except StandaloneStateError as error:
            return str(error), 0
        except Exception as error:  # noqa: BLE001 - whatever it is, the next write may succeed
            what = f"{type(error).__name__}: {error}"
            return f"error in the aggregator itself, please report it: {what}", 0

    async def _run(self) -> None:
        while self._next is not None:
            state, self._next = self._next, None
            waiting, self._waiting = self._waiting, []
            error, left_out = await self._in_thread(state)
            self._done(error, left_out)
            for future in waiting:
                if not future.done():
                    future.set_result(error)
