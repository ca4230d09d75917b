"""Main program of the worker process: makes calls that may block, round after round, and logs its progress.

Its descriptors:
0: one byte requests a round; at its end the process exits.
1: one byte for each round that has ended.
2: the parent's standard error, or nothing.
3: a memory file: the request of the round (one JSON line), the data to write to a disk, then the log of this
   process, a JSON line before and after each call. Writing to memory cannot block; the file survives the
   process.
4: if the parent wants NVML events, a non-blocking pipe for them.
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
    """Serve the lane named in the arguments until the parent closes descriptor 0.

    An earlier exit with status 0 also means that a round has ended.
    """
    lane, library, root, events = sys.argv[1:5]
    _close_inherited(_EVENTS if events else _LOG)
    if lane == "nvml":
        _nvml(library, root, _EVENTS if events else None)
        # Exit without finalizers: the library must not clean up while a thread waits in it.
        os._exit(0)
    else:
        _filesystem(root)


def _close_inherited(last: int) -> None:
    """Close descriptors that the parent inherited and passed on. last: the last own descriptor."""
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:
        if descriptor > last:
            try:
                os.close(descriptor)
            except OSError:  # the descriptor that listed the directory
                continue


def _nvml(path: str, root: str, events: int | None) -> None:
    from nodeguard.worker import nvml_calls  # noqa: PLC0415  (each lane imports only its own calls)

    try:
        from nodeguard.worker.nvml_library import NvmlSession  # noqa: PLC0415
    except ImportError as error:
        failed = f"the Python package nvidia-ml-py cannot be imported ({error}): install it"
        log = CallLog(lambda *_: {"failed": failed}, _write)
        for _ in _requests():
            nvml_calls.ask_all(log, frozenset())
        return
    session = NvmlSession(path, root, events)
    log = CallLog(session.call, _write, session.fields, omits_repeated=True)
    recent: dict[int, frozenset[int]] = {}
    until = 0.0
    for request, _ in _requests():
        if session.take_activity() or time.monotonic() >= until:
            recent, until = {}, time.monotonic() + nvml_calls.SLOW
        recent = nvml_calls.ask_all(log, frozenset(request["skip"]), recent)
        if session.broken:
            return
        session.listen()


def _filesystem(root: str) -> None:
    from nodeguard.worker import filesystem_calls  # noqa: PLC0415

    log = CallLog(lambda scope, call: filesystem_calls.statvfs(scope, call, root), _write)
    for request, data in _requests():
        if request["file"]:
            _file(request["file"], data)
        else:
            filesystem_calls.ask_all(log, frozenset(request["skip"]), request["mounts"])


def _file(call: str, data: bytes) -> None:
    from nodeguard.worker.filesystem_calls import file_call  # noqa: PLC0415

    CallLog(lambda _, requested: file_call(requested, data), _write)(SYSTEM, call)


def _requests() -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield each request and its data; report the end of the round before waiting for the next request."""
    while os.read(_ROUNDS, 1):
        line, _, data = os.pread(_LOG, os.fstat(_LOG).st_size, 0).partition(b"\n")
        yield json.loads(line), data
        os.write(_DONE, b".")


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def _write(line: list[Any]) -> None:
    scope, content = line
    is_constant = content is None or isinstance(content, str)
    os.write(_LOG, _constant_line(scope, content) if is_constant else f"{_encode(line)}\n".encode())


@lru_cache(4096)
def _constant_line(scope: int, content: str | None) -> bytes:
    """Return the line before a call or after one with a repeated result; it is the same in each round."""
    return f"{_encode([scope, content])}\n".encode()
