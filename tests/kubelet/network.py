"""A network of this machine's own for real pods: no address, port, bridge or route of the host is touched."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class PrivateNetwork:
    """A network namespace, which ends with its processes and this object. addresses: of its loopback interface.

    A thread is in it inside `entered`, and so are the processes that it starts there.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._outside = _current()
        _check(_libc.unshare(_CLONE_NEWNET), "make a network namespace")
        self._inside = _current()
        try:
            _ip("link", "set", "lo", "up")
            for address in addresses:
                _ip("address", "add", f"{address}/32", "dev", "lo")
        finally:
            self._set(self._outside)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._inside)
        os.close(self._outside)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put this thread, and what it starts, into the network for the time of the block."""
        self._set(self._inside)
        try:
            yield
        finally:
            self._set(self._outside)

    @staticmethod
    def _set(namespace: int) -> None:
        _check(_libc.setns(namespace, _CLONE_NEWNET), "enter a network namespace")


def _current() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _check(result: int, attempt: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot {attempt}: {os.strerror(error)}: the tests of a kubelet need root")
