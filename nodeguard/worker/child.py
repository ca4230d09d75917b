"""The worker process: asks what may block, round after round, and writes down how far it came.

Its descriptors: 0, a byte for each round wanted, whose end is ours; 1, a byte for each round that is over; 2,
the parent's standard error or nothing; 3, a memory file that holds the round's request, one JSON line, then
what is to be written to a disk, and after it our log, a JSON line before and after each call. Memory, so that
writing cannot block, and a file, so that it outlives us; 4, where somebody listens, a pipe for what NVML
tells unasked, which does not block either.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import lru_cache

from nodeguard.worker.call_log import SYSTEM, TYPE_CHECKING, CallLog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_ROUNDS, _DONE, _LOG, _EVENTS = 0, 1, 3, 4


def main() -> None:
    """Serve the lane named in the arguments until the parent lets go.

    Leaving earlier, with status 0, also says that a round is over.
    """
    lane, library, root, told = sys.argv[1:5]
    _let_go(_EVENTS if told else _LOG)
    if lane == "nvml":
        _nvml(library, root, _EVENTS if told else None)
        # At once: what a library does at a process's end it must not do beside a thread that waits in it.
        os._exit(0)
    else:
        _filesystem(root)


def _let_go(last: int) -> None:
    """Close what the parent itself had inherited and handed on unasked. last: the last descriptor of ours."""
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
        if descriptor > last:
            try:
                os.close(descriptor)
            except OSError:  # the one that listed the directory
                continue


def _nvml(path: str, root: str, events: int | None) -> None:
    from nodeguard.worker import nvml_calls  # noqa: PLC0415  (each lane loads only what it asks)

    try:
        from nodeguard.worker.nvml_library import NvmlSession  # noqa: PLC0415
    except ImportError as absent:
        failed = f"the Python package nvidia-ml-py cannot be imported ({absent}): install it"
        ask = CallLog(lambda *_: {"failed": failed}, _write)
        for _ in _requests():
            nvml_calls.ask_all(ask, frozenset())
        return
    nvml = NvmlSession(path, root, events)
    ask = CallLog(nvml.call, _write, nvml.fields)
    known: dict[int, frozenset[int]] = {}
    until = 0.0
    for request, _ in _requests():
        if nvml.take_activity() or time.monotonic() >= until:
            known, until = {}, time.monotonic() + nvml_calls.SLOW
        known = nvml_calls.ask_all(ask, frozenset(request["resting"]), known)
        if nvml.broken:
            return
        nvml.listen()


def _filesystem(root: str) -> None:
    from nodeguard.worker import filesystem_calls  # noqa: PLC0415

    ask = CallLog(lambda scope, call: filesystem_calls.statvfs(scope, call, root), _write)
    for request, data in _requests():
        if request["file"]:
            _file(request["file"], data)
        else:
            filesystem_calls.ask_all(ask, frozenset(request["resting"]), request["mounts"])


def _file(call: str, data: bytes) -> None:
    from nodeguard.worker import file_calls  # noqa: PLC0415

    CallLog(lambda _, asked: file_calls.execute(asked, data), _write)(SYSTEM, call)


def _requests() -> Iterator[tuple[dict[str, Any], bytes]]:
    """Each request and its data; the round is over when the next one is wanted."""
    while os.read(_ROUNDS, 1):
        line, _, data = os.pread(_LOG, os.fstat(_LOG).st_size, 0).partition(b"\n")
        yield json.loads(line), data
        os.write(_DONE, b".")


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def _write(line: list[Any]) -> None:
    scope, what = line
    os.write(_LOG, _announced(scope, what) if isinstance(what, str) else f"{_encode(line)}\n".encode())


@lru_cache(4096)
def _announced(scope: int, call: str) -> bytes:
    """The line before a call: the same in each round."""
    return f"{_encode([scope, call])}\n".encode()
