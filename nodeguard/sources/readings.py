"""Observation drafts: the signals of one target, read from files, with a reason for each failed read."""

from __future__ import annotations

import errno
from collections.abc import Callable
from os import strerror
from typing import TypeVar

from nodeguard.model.observation import Component, Observation, Status
from nodeguard.model.signal import Scalar
from nodeguard.sources.machine import READ_LIMIT, Machine

# Errors of something that does not exist (any more): a device that was pulled, a process that ended.
ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ESRCH))

DENIED = "permission denied: run as root"

_SHOWN = 60
_KERNEL_FILES = ("/sys/", "/proc/")
_LARGEST = (1 << 64) - 1

# All ones in a register of 16, 32 or 64 bits, and the largest signed numbers of 32 and 64 bits: the bus and
# failed conversions return them. A counter that is really there moves on by its next increase.
ALL_ONES = frozenset((1 << bits) - 1 for bits in (16, 31, 32, 63, 64))

# Words of firmware and drivers in the place of a model that they do not know.
_NO_MODEL = frozenset({"unknown", "n/a", "none", "not available", "not specified", "to be filled by o.e.m."})

Result = TypeVar("Result")
Value = TypeVar("Value", bound=Scalar)


def try_read(read: Callable[[str], Result], path: str) -> Result | OSError | None:
    """Return the result of a read; None if the path does not exist; else the error."""
    try:
        return read(path)
    except OSError as error:
        return None if error.errno in ABSENT else error


def read_text(machine: Machine, path: str) -> str | OSError | None:
    """Return the text of a file; None if it does not exist; the error if the read fails otherwise.

    The kernel ends each of its files with a newline. A file under /sys or /proc without one was cut short,
    and
    its last number may be wrong: that is an error. A file longer than READ_LIMIT is cut to whole lines. Other
    files are returned as they are.
    """
    text = try_read(machine.read, path)
    is_whole = not isinstance(text, str) or not text or text.endswith("\n")
    if is_whole or not path.startswith(_KERNEL_FILES):
        return text
    if isinstance(text, str) and len(text.encode()) >= READ_LIMIT:
        return text[: text.rfind("\n") + 1]
    return OSError(errno.EBADMSG, "is cut short", path)


def errno_name(error: OSError) -> str:
    """Return the name of an error's errno: `EINVAL`."""
    if error.errno == errno.EOPNOTSUPP:
        return "EOPNOTSUPP"  # on Linux ENOTSUP has the same number, and errorcode has only that name
    return errno.errorcode.get(error.errno or 0, f"errno {error.errno}")


def failure_reason(error: OSError) -> str:
    """Return for an operator why a read failed."""
    if error.errno in {errno.EACCES, errno.EPERM}:
        return DENIED
    if error.errno == errno.EBADMSG:
        return "the file is cut short"
    return f"{strerror(error.errno or 0)} ({errno_name(error)})"


def implausible(path: str, value: object) -> str:
    """Return the reason for rejecting a value: `/proc/uptime reads 'xyz'`."""
    shown = repr(value)
    return f"{path} reads {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'}"


def parse_count(text: str, base: int = 10) -> int:
    """Return a non-negative integer of at most 64 bits. Raises ValueError."""
    value = int(text, base)
    if not 0 <= value <= _LARGEST:
        raise ValueError(text)
    return value


def parse_counter(text: str) -> int:
    """Return the value of a hardware counter. Raises ValueError, also for a value of ALL_ONES."""
    value = parse_count(text)
    if value in ALL_ONES:
        raise ValueError(text)
    return value


def parse_narrow_counter(bits: int) -> Callable[[str], int]:
    """Return the parser of a counter that stops at the maximum of its bits. It raises ValueError above it."""

    def parse(text: str) -> int:
        value = parse_count(text)
        if value >> bits:
            raise ValueError(text)
        return value

    return parse


def parse_number(text: str) -> float:
    """Return a finite, non-negative number. Raises ValueError."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


def parse_line(text: str) -> str | None:
    """Return one printable line; None if it is empty. Raises ValueError."""
    if not text.isprintable() or len(text) > 256:
        raise ValueError(text)
    return text or None


def parse_model(text: str) -> str | None:
    """Return the model of a device; None if it is empty. Raises ValueError, also for a word for none."""
    if text.strip("[]").lower() in _NO_MODEL:
        raise ValueError(text)
    return parse_line(text)


class ObservationDraft:
    """Collects the signals of one target until the observation is built.

    Each method takes the signals that depend on its read. If the read fails, these signals get the reason in
    `unread`. If the path does not exist, the signals do not apply: nothing is noted. UnansweredError passes.
    """

    def __init__(self, machine: Machine, source: str, target: str) -> None:
        self.machine = machine
        self.source = source
        self.target = target
        self.signals: dict[str, Scalar] = {}
        self.unread: dict[str, str] = {}
        self.unlisted: dict[str, str] = {}

    def mark_unread(self, reason: str, *signals: str) -> None:
        """Note that signals apply and could not be read, for one reason."""
        self.unread.update(dict.fromkeys(signals, reason))

    def read_text(self, path: str, *signals: str) -> str | None:
        """Return the text of a file without surrounding white space, or None."""
        text = read_text(self.machine, path)
        if isinstance(text, OSError):
            self.mark_unread(failure_reason(text), *signals)
            return None
        return None if text is None else text.strip()

    def list_names(self, path: str, *signals: str) -> tuple[str, ...] | None:
        """Return the names in a directory, or None."""
        names = try_read(self.machine.names, path)
        if isinstance(names, OSError):
            self.mark_unread(failure_reason(names), *signals)
            return None
        return names

    def list_targets(self, path: str, *kinds: str) -> tuple[str, ...] | None:
        """Return the names in a directory that lists all targets of some kinds, or None.

        If the read fails, `unlisted` has the reason for these kinds: a target that is not listed is then not
        absent.
        """
        names = try_read(self.machine.names, path)
        if isinstance(names, OSError):
            self.unlisted.update(dict.fromkeys(kinds, f"{path}: {failure_reason(names)}"))
            return None
        return names

    def read_link(self, path: str, *signals: str) -> str | None:
        """Return the text of a symbolic link, or None; also None for a directory in a recording."""
        link = try_read(self.machine.link, path)
        if isinstance(link, OSError):
            if link.errno != errno.EINVAL:
                self.mark_unread(failure_reason(link), *signals)
            return None
        return link

    def parse(self, signal: str, path: str, text: str, parse: Callable[[str], Value | None]) -> Value | None:
        """Set a signal from text that was read at a path, and return its value, or None.

        parse: raises ValueError for an implausible text; returns None if the signal does not apply.
        """
        try:
            value = parse(text)
        except ValueError:
            self.unread[signal] = implausible(path, text)
            return None
        if value is not None:
            self.signals[signal] = value
        return value

    def read(
        self, signal: str, path: str, parse: Callable[[str], Value | None], *, required: bool = False
    ) -> Value | None:
        """Set a signal from a file of its own, and return its value, or None.

        required: whether the kernel has the file for each such target. A target without it is being added or
        removed: the signal is unread.
        """
        text = self.read_text(path, signal)
        value = None if text is None else self.parse(signal, path, text, parse)
        if value is None and required:
            self.unread.setdefault(signal, f"{path} does not exist" if text is None else f"{path} is empty")
        return value

    def build(self, part: Component | None = None, status: Status = "read", detail: str = "") -> Observation:
        """Return the observation. A signal that was read is not unread, even if another path failed."""
        unread = {signal: reason for signal, reason in self.unread.items() if signal not in self.signals}
        return Observation(
            self.source,
            self.target,
            status,
            self.signals,
            unread,
            component=part,
            detail=detail,
            unlisted=self.unlisted,
        )
