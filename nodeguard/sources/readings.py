"""Reading a machine into the signals of one observation: what is absent, refused, or makes no sense."""

from __future__ import annotations

import errno
from collections.abc import Callable
from os import strerror
from typing import TypeVar

from nodeguard.model.observation import Observation, Part, Status
from nodeguard.model.signal import Scalar
from nodeguard.sources.machine import Machine

# Answers of what is not there, or not there any more: a device that was pulled, a process that ended.
ABSENT = frozenset((errno.ENOENT, errno.ENOTDIR, errno.ENODEV, errno.ESRCH))

DENIED = "permission denied: run as root"

_SHOWN = 60
_LARGEST = (1 << 64) - 1

Said = TypeVar("Said")
Value = TypeVar("Value", bound=Scalar)


def attempt(ask: Callable[[str], Said], path: str) -> Said | OSError | None:
    """What the machine answers of a path; None where it is absent; the error where reading it is refused."""
    try:
        return ask(path)
    except OSError as error:
        return None if error.errno in ABSENT else error


def errno_name(error: OSError) -> str:
    """Name of an error's number: `EINVAL`."""
    if error.errno == errno.EOPNOTSUPP:
        return "EOPNOTSUPP"  # on Linux ENOTSUP has the same number, and errorcode only knows one
    return errno.errorcode.get(error.errno or 0, f"errno {error.errno}")


def reason(error: OSError) -> str:
    """Why something could not be read, in an operator's words."""
    if error.errno in {errno.EACCES, errno.EPERM}:
        return DENIED
    return f"{strerror(error.errno or 0)} ({errno_name(error)})"


def senseless(path: str, said: object) -> str:
    """Why something that was read is not believed: `/proc/uptime says 'xyz'`."""
    shown = repr(said)
    return f"{path} says {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'}"


def count(text: str, base: int = 10) -> int:
    """A whole number of at most 64 bits, not negative. Raises ValueError."""
    value = int(text, base)
    if not 0 <= value <= _LARGEST:
        raise ValueError(text)
    return value


def number(text: str) -> float:
    """A finite number that is not negative. Raises ValueError."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


def word(text: str) -> str | None:
    """One line that can be printed; None where it is empty. Raises ValueError."""
    if not text.isprintable() or len(text) > 256:
        raise ValueError(text)
    return text or None


class Draft:
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

    def refuse(self, why: str, *signals: str) -> None:
        """Signals that apply and cannot be read, for one reason."""
        self.unread.update(dict.fromkeys(signals, why))

    def text(self, path: str, *signals: str) -> str | None:
        """Text of a file without white space around it, or None."""
        text = self._ask(self.machine.read, path, signals)
        return None if text is None else text.strip()

    def names(self, path: str, *signals: str) -> tuple[str, ...] | None:
        """Names in a directory, or None."""
        return self._ask(self.machine.names, path, signals)

    def link(self, path: str, *signals: str) -> str | None:
        """Text of a symbolic link, or None; also where a recording holds a directory in the link's place."""
        link = attempt(self.machine.link, path)
        if isinstance(link, OSError):
            if link.errno != errno.EINVAL:
                self.refuse(reason(link), *signals)
            return None
        return link

    def value(self, signal: str, path: str, text: str, parse: Callable[[str], Value | None]) -> Value | None:
        """A signal from text that was read at a path, or None.

        parse: raises ValueError for what makes no sense; None is a signal that does not apply.
        """
        try:
            value = parse(text)
        except ValueError:
            self.unread[signal] = senseless(path, text)
            return None
        if value is not None:
            self.signals[signal] = value
        return value

    def take(self, signal: str, path: str, parse: Callable[[str], Value | None]) -> Value | None:
        """A signal from a file of its own, or None."""
        text = self.text(path, signal)
        return None if text is None else self.value(signal, path, text, parse)

    def observation(self, part: Part | None = None, status: Status = "read", detail: str = "") -> Observation:
        """What was made; a signal that was read in one place is not unread for another that refused."""
        unread = {signal: why for signal, why in self.unread.items() if signal not in self.signals}
        return Observation(self.source, self.slot, status, self.signals, unread, part=part, detail=detail)

    def _ask(self, ask: Callable[[str], Said], path: str, signals: tuple[str, ...]) -> Said | None:
        answer = attempt(ask, path)
        if isinstance(answer, OSError):
            self.refuse(reason(answer), *signals)
            return None
        return answer
