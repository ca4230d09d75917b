"""One file of ours, read, written or set aside through the lane of file systems: what is asked, what came."""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any, Literal

from msgspec import Struct

from nodeguard.worker.call_log import error_name
from nodeguard.worker.result import LaneResult


class FileRequest(Struct, frozen=True):
    """What a round of the lane does instead of asking mounts. path: absolute. data: for a write."""

    name: Literal["read", "write", "set-aside"]
    path: str
    data: bytes = b""

    @property
    def call(self) -> str:
        """The call as the worker announces it."""
        return f"{self.name}({self.path})"


class FileResult(Struct, frozen=True):
    """What became of a call.

    result: see file_calls.answer; what was read as bytes. failed: why there is none, an errno's name where
    the system gave one, else words; empty where all went well.
    """

    result: Any = None
    failed: str = ""


def file_result(wanted: FileRequest, answer: LaneResult) -> FileResult:
    """What a round's answer says of the call that it was for."""
    if answer.hung is not None:
        return FileResult(failed=f"{answer.hung.call} never came back")
    if answer.interrupted is not None or answer.stalled:
        return FileResult(failed=f"{wanted.call} gave no answer")
    result = next((entry.result for entry in answer.results if entry.call == wanted.call), None)
    if result is None or error_name(result):
        return FileResult(failed=error_name(result) or answer.failed or answer.missing or "not asked")
    return FileResult(a2b_base64(result) if wanted.name == "read" else result)
