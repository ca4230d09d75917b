"""Requests of the file-system lane: read, write or set aside a file of the agent; and their results."""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any, Literal

from msgspec import Struct

from nodeguard.worker.call_log import error_name
from nodeguard.worker.result import LaneResult


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

    result: see file_calls.execute; the content of a read as bytes. failed: why there is no result: the name
    of an errno if the system returned one, else a text; empty on success.
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
