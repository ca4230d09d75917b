"""Requests to a lane and the results of one round of calls that may block."""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any, Literal

from msgspec import Struct

from nodeguard.worker.call_log import SYSTEM as SYSTEM  # noqa: PLC0414  (re-exported beside CallResult)
from nodeguard.worker.call_log import error_name


class CallResult(Struct, frozen=True, array_like=True):
    """One call and its result.

    scope: the device's or mount's index, or SYSTEM. call: name with arguments, in the form of bundles:
    `nvmlDeviceGetNvLinkState(3)`. result: the call's result as JSON; `{"error": NAME}` if it failed.
    """

    scope: int
    call: str
    result: Any = None


class LaneResult(Struct, frozen=True):
    """One round of one lane.

    results: all results, in the order of the calls. A call without a result, such as one that opens a device,
    is present only if it failed.
    stalled: calls without an answer until SIGKILL ended their process, and calls that ended it themselves
    (the result then has the reason). Later rounds skip their scopes. Field values that are read together are
    one call, `nvmlDeviceGetFieldValues`.
    hung: a call that did not end on SIGKILL. Nothing after it was read, and nothing will be in this boot.
    missing: why there is nothing to call, such as a library that is not on the machine.
    skipped: calls that stalled in earlier rounds; this round skipped their scopes.
    interrupted: the call in progress when the round's time was over; nothing after it was called. If it was
    already slow, it is also in `stalled`.
    failed: why the round did not start or end, through a fault of nodeguard, such as a process that cannot be
    started. It means nothing for the hardware.
    """

    results: tuple[CallResult, ...] = ()
    stalled: tuple[CallResult, ...] = ()
    hung: CallResult | None = None
    missing: str = ""
    skipped: tuple[CallResult, ...] = ()
    interrupted: CallResult | None = None
    failed: str = ""


class FileRequest(Struct, frozen=True):
    """A file operation that a round does instead of statvfs. path: absolute. data: for a write."""

    name: Literal["read", "write", "set-aside"]
    path: str
    data: bytes = b""

    @property
    def call(self) -> str:
        """Return the call in the form of the worker's log."""
        return f"{self.name}({self.path})"


class FileResult(Struct, frozen=True):
    """The result of a file operation.

    result: see filesystem_calls.file_call; the content of a read as bytes. failed: why there is no result:
    the name of an errno if the system returned one, else a text; empty on success.
    """

    result: Any = None
    failed: str = ""


def file_result(request: FileRequest, answer: LaneResult) -> FileResult:
    """Return the result of a request from the result of its round."""
    if answer.hung is not None:
        return FileResult(failed=f"{answer.hung.call} hangs")
    if answer.interrupted is not None or answer.stalled:
        return FileResult(failed=f"{request.call} gave no answer")
    result = next((entry.result for entry in answer.results if entry.call == request.call), None)
    if result is None or error_name(result):
        return FileResult(failed=error_name(result) or answer.failed or answer.missing or "not called")
    return FileResult(a2b_base64(result) if request.name == "read" else result)
