"""Errors of a read that gets no answer, raised on a live machine and in replay."""

from __future__ import annotations


class UnansweredError(Exception):
    """A read got no answer within its deadline. detail: the path or the call."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class StalledError(UnansweredError):
    """A stall: no answer within the deadline, but SIGKILL ended the reader."""


class HungError(UnansweredError):
    """A hang: not even SIGKILL ends the reader, because it is blocked in the kernel. Latched to the boot."""
