"""Reading a machine into the signals of one observation: what is absent, refused, or makes no sense."""

from __future__ import annotations

import errno
from collections.abc import Callable
from os import strerror
from typing import TypeVar

from nodeguard.model.observation import Component, Observation, Status
from nodeguard.model.signal import Scalar
from nodeguard.sources.machine import READ_LIMIT, Machine

# Answers of what is not there, or not there any more: a device that was pulled, a process that ended.
ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ESRCH))

DENIED = "permission denied: run as root"

_SHOWN = 60
_MADE_BY_THE_KERNEL = ("/sys/", "/proc/")
_LARGEST = (1 << 64) - 1
_ALL_ONES = frozenset({(1 << 32) - 1, _LARGEST})

Said = TypeVar("Said")
Value = TypeVar("Value", bound=Scalar)


def try_read(ask: Callable[[str], Said], path: str) -> Said | OSError | None:
    """What the machine answers of a path; None where it is absent; the error where reading it is refused."""
    try:
        return ask(path)
    except OSError as error:
        return None if error.errno in ABSENT else error


def read_text(machine: Machine, path: str) -> str | OSError | None:
    """Text of a file; None where it is absent; the error where reading it is refused.

    The kernel ends each file that it makes with a newline: one that does not end so was cut short, and its
    last line may hold another number than the one that was written. Of a file that is longer than
    READ_LIMIT, its whole lines are returned. Files that people write are taken as they are.
    """
    text = try_read(machine.read, path)
    is_whole = not isinstance(text, str) or not text or text.endswith("\n")
    if is_whole or not path.startswith(_MADE_BY_THE_KERNEL):
        return text
    if isinstance(text, str) and len(text.encode()) >= READ_LIMIT:
        return text[: text.rfind("\n") + 1]
    return OSError(errno.EBADMSG, "is cut short", path)


def errno_name(error: OSError) -> str:
    """Name of an error's number: `EINVAL`."""
    if error.errno == errno.EOPNOTSUPP:
        return "EOPNOTSUPP"  # on Linux ENOTSUP has the same number, and errorcode only knows one
    return errno.errorcode.get(error.errno or 0, f"errno {error.errno}")


def failure_reason(error: OSError) -> str:
    """Why something could not be read, in an operator's words."""
    if error.errno in {errno.EACCES, errno.EPERM}:
        return DENIED
    if error.errno == errno.EBADMSG:
        return "the file is cut short"
    return f"{strerror(error.errno or 0)} ({errno_name(error)})"


def implausible(path: str, said: object) -> str:
    """Why something that was read is not believed: `/proc/uptime says 'xyz'`."""
    shown = repr(said)
    return f"{path} says {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'}"


def parse_count(text: str, base: int = 10) -> int:
    """A whole number of at most 64 bits, not negative. Raises ValueError."""
    value = int(text, base)
    if not 0 <= value <= _LARGEST:
        raise ValueError(text)
    return value


def parse_counter(text: str) -> int:
    """The value of a hardware counter. Raises ValueError, also for one whose 32 or 64 bits are all ones.

    That is what a device that does not answer on its bus reads as.
    """
    value = parse_count(text)
    if value in _ALL_ONES:
        raise ValueError(text)
    return value


def parse_number(text: str) -> float:
    """A finite number that is not negative. Raises ValueError."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


def parse_line(text: str) -> str | None:
    """One line that can be printed; None where it is empty. Raises ValueError."""
    if not text.isprintable() or len(text) > 256:
        raise ValueError(text)
    return text or None


class ObservationDraft:
    """The observation of one slot in the making.

    Each method is given the signals that it reads for: what cannot be read is noted for them in `unread`,
    with the reason. What is absent leaves no trace: the signal does not apply. UnansweredError passes.
    """

    def __init__(self, machine: Machine, source: str, slot: str) -> None:
        self.machine = machine
        self.source = source
        self.slot = slot
        self.signals: dict[str, Scalar] = {}
        self.unread: dict[str, str] = {}
        self.unlisted: dict[str, str] = {}

    def mark_unread(self, why: str, *signals: str) -> None:
        """Signals that apply and cannot be read, for one reason."""
        self.unread.update(dict.fromkeys(signals, why))

    def read_text(self, path: str, *signals: str) -> str | None:
        """Text of a file without white space around it, or None."""
        text = read_text(self.machine, path)
        if isinstance(text, OSError):
            self.mark_unread(failure_reason(text), *signals)
            return None
        return None if text is None else text.strip()

    def list_names(self, path: str, *signals: str) -> tuple[str, ...] | None:
        """Names in a directory, or None."""
        names = try_read(self.machine.names, path)
        if isinstance(names, OSError):
            self.mark_unread(failure_reason(names), *signals)
            return None
        return names

    def list_targets(self, path: str, *kinds: str) -> tuple[str, ...] | None:
        """Names in a directory in which all slots of some kinds are found, or None.

        Where it is refused, `unlisted` says of these kinds why: what is not found there is not absent.
        """
        names = try_read(self.machine.names, path)
        if isinstance(names, OSError):
            self.unlisted.update(dict.fromkeys(kinds, f"{path}: {failure_reason(names)}"))
            return None
        return names

    def read_link(self, path: str, *signals: str) -> str | None:
        """Text of a symbolic link, or None; also where a recording holds a directory in the link's place."""
        link = try_read(self.machine.link, path)
        if isinstance(link, OSError):
            if link.errno != errno.EINVAL:
                self.mark_unread(failure_reason(link), *signals)
            return None
        return link

    def parse(self, signal: str, path: str, text: str, parse: Callable[[str], Value | None]) -> Value | None:
        """A signal from text that was read at a path, or None.

        parse: raises ValueError for what makes no sense; None is a signal that does not apply.
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
        """A signal from a file of its own, or None.

        always: whether the kernel has the file for each such slot. One without it could not be read: it is
        on its way in or out.
        """
        text = self.read_text(path, signal)
        value = None if text is None else self.parse(signal, path, text, parse)
        if value is None and required:
            self.unread.setdefault(signal, f"{path} is not there" if text is None else f"{path} is empty")
        return value

    def build(self, part: Component | None = None, status: Status = "read", detail: str = "") -> Observation:
        """What was made; a signal that was read in one place is not unread for another that refused."""
        unread = {signal: why for signal, why in self.unread.items() if signal not in self.signals}
        return Observation(
            self.source,
            self.slot,
            status,
            self.signals,
            unread,
            component=part,
            detail=detail,
            unlisted=self.unlisted,
        )
