"""Ways in which a reading can fail to answer, raised alike on a live machine and by a recording."""

from __future__ import annotations


class UnansweredError(Exception):
    """A reading gave no answer within its deadline. detail says what was being read."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class StalledError(UnansweredError):
    """No answer within the deadline, but SIGKILL ended the reader: a stall."""


class HungError(UnansweredError):
    """Not even SIGKILL ends the reader: the kernel holds it. Latched to the boot."""
