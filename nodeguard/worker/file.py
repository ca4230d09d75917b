"""One file of ours, read, written or set aside through the lane of file systems: what is asked, what came."""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any, Literal

from msgspec import Struct

from nodeguard.worker.answer import Answer
from nodeguard.worker.ask import error


class FileCall(Struct, frozen=True):
    """What a round of the lane does instead of asking mounts. path: absolute. data: for a write."""

    name: Literal["read", "write", "set-aside"]
    path: str
    data: bytes = b""

    @property
    def call(self) -> str:
        """The call as the worker announces it."""
        return f"{self.name}({self.path})"


class Outcome(Struct, frozen=True):
    """What became of a call.

    result: see file_calls.answer; what was read as bytes. failed: why there is none, an errno's name where
    the system gave one, else words; empty where all went well.
    """

    result: Any = None
    failed: str = ""


def outcome(wanted: FileCall, answer: Answer) -> Outcome:
    """What a round's answer says of the call that it was for."""
    if answer.hung is not None:
        return Outcome(failed=f"{answer.hung.call} never came back")
    if answer.cut is not None or answer.stalled:
        return Outcome(failed=f"{wanted.call} gave no answer")
    result = next((entry.result for entry in answer.entries if entry.call == wanted.call), None)
    if result is None or error(result):
        return Outcome(failed=error(result) or answer.failed or answer.missing or "not asked")
    return Outcome(a2b_base64(result) if wanted.name == "read" else result)
