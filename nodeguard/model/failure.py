"""Errors that several packages raise: problems that a user can fix, and reads that get no answer."""

from __future__ import annotations


class UserError(Exception):
    """A problem that the user can fix. Its text has the problem and the remedy."""


class UnansweredError(Exception):
    """A read got no answer within its deadline, live or in replay. detail: the path or the call."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class StalledError(UnansweredError):
    """A stall: no answer within the deadline, but SIGKILL ended the reader."""


class HungError(UnansweredError):
    """A hang: not even SIGKILL ends the reader, because it is blocked in the kernel. Latched to the boot."""
