"""Log output of agent and aggregator: records of standard `logging` as lines of JSON or text.

A module logs with `logger = logging.getLogger(__name__)`: a short constant message, and the variable
data in fields:

    logger.warning("cannot read the policy file", extra={"file": path, "error": str(error)})

Names of fields must not be attributes of `logging.LogRecord` (`name`, `message`, `args`, `module`, ...).
Levels: `error` needs a person, `warning` is a problem that may pass, `info` is a change of state, `debug` is
all else. The caller never waits: a thread writes, because the process that reads the pipe may be slow.
Repeated problems are limited by DedupFilter, so that callers log each problem where it occurs and keep no
state for it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import select
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping

from nodeguard.local.rate_limiter import KeyedRateLimiter, Rate
from nodeguard.model.instant import rfc3339
from nodeguard.model.printable import escape_unprintable

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("auto", "json", "text")

# Lines that wait to be written; further lines are dropped and counted.
_MAX_WAITING = 1000

# Seconds for the last lines to be written.
_CLOSE_TIMEOUT = 0.5

# Seconds in which a problem is logged once.
_REPEAT_AFTER = 600.0

# Problems that are remembered, for their repetitions.
_MAX_REMEMBERED = 1024

# Lines with one message, which differ in their fields: a fleet of rejected agents does not fill a disk.
_MESSAGE_RATE = Rate(burst=50.0, per_second=0.2)

# Attributes that every record has; `node` and others from `extra` are the fields of a line.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_PLAIN_VALUE = re.compile(r"[^\s\"'=\\]+")


class DedupFilter(logging.Filter):
    """Limits repeated problems: records of level `warning` and above.

    A record that equals an earlier one of the last ten minutes is dropped; the next that passes has their
    number as `repeated`. Of records that differ only in their fields, 50 pass at once and then 12 a minute;
    the next that passes has the number of dropped ones as `omitted`. A record of level `info` means that the
    state of its logger changed, so that the logger's next problem is logged even if it is an old one. clock:
    seconds of a monotonic clock.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._logged: OrderedDict[tuple[str, ...], tuple[float, int]] = OrderedDict()
        self._rate = KeyedRateLimiter(_MESSAGE_RATE, _MAX_REMEMBERED)
        self._omitted: dict[str, int] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a record. Adds the fields `repeated` and `omitted` to one that passes."""
        with self._lock:
            if record.levelno < logging.WARNING:
                if record.levelno >= logging.INFO:
                    self._forget(record.name)
                return True
            return self._passes(record, self._clock())

    def _passes(self, record: logging.LogRecord, now: float) -> bool:
        message = f"{record.name} {record.msg}"
        fields = sorted(_fields(record).items())
        key = (record.name, str(record.msg), *(f"{name}={value}" for name, value in fields))
        logged_at, repeated = self._logged.get(key, (-_REPEAT_AFTER, 0))
        if now < logged_at + _REPEAT_AFTER:
            self._logged[key] = (logged_at, repeated + 1)
            return False
        if self._rate.take(message, now):
            self._omitted[message] = self._omitted.get(message, 0) + 1
            return False
        if repeated:
            record.repeated = repeated
        if omitted := self._omitted.pop(message, 0):
            record.omitted = omitted
        self._logged[key] = (now, 0)
        self._logged.move_to_end(key)
        if len(self._logged) > _MAX_REMEMBERED:
            self._logged.popitem(last=False)
        return True

    def _forget(self, logger: str) -> None:
        """Forget the problems of a logger after its state changed."""
        for key in [key for key in self._logged if key[0] == logger]:
            del self._logged[key]


class LogOutput(logging.Handler):
    """Writes records as lines to a descriptor, from a thread of its own, whole and in order.

    descriptor: of the output. fields: fields of each line, such as the node's name. as_json: JSON lines, or
    else text for people. max_waiting: lines that may wait; when it is full further lines are dropped, and the
    first one after them has their number as `dropped`.
    """

    def __init__(
        self, descriptor: int, fields: Mapping[str, str], *, as_json: bool, max_waiting: int = _MAX_WAITING
    ) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._as_json = as_json
        self._constant = dict(fields)
        self._max_waiting = max_waiting
        self._lines: deque[bytes] = deque()
        self._dropped = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record."""
        with self._changed:
            if len(self._lines) >= self._max_waiting:
                self._dropped += 1
                return
            fields = _fields(record)
            if self._dropped:
                fields["dropped"] = self._dropped
            line = self._json(record, fields) if self._as_json else _text(record, fields)
            self._lines.append(line.encode(errors="replace") + b"\n")
            self._dropped = 0
            self._start()
            self._changed.notify()

    def close(self) -> None:
        """Write the lines that wait, for half a second at most."""
        with self._changed:
            self._closed = True
            self._changed.notify()
            if self._lines:
                self._start()
        if self._thread is not None:
            self._thread.join(_CLOSE_TIMEOUT)
        elif self._lines:
            self._write_for(_CLOSE_TIMEOUT)
        super().close()

    def _json(self, record: logging.LogRecord, fields: Mapping[str, object]) -> str:
        line = {
            "time": rfc3339(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **self._constant,
            **fields,
        }
        return escape_unprintable(json.dumps(line, ensure_ascii=False, default=str))

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._write_all, name="log", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # no thread can be started now: the next line tries again
            self._thread = thread

    def _write_all(self) -> None:
        while True:
            with self._changed:
                while not self._lines and not self._closed:
                    self._changed.wait()
                if not self._lines:
                    return
                line = self._lines.popleft()
            self._write(line)

    def _write_for(self, seconds: float) -> None:
        """Write without a thread while the output accepts data."""
        end = time.monotonic() + seconds
        while self._lines and self._is_writable(max(0.0, end - time.monotonic())):
            self._write(self._lines.popleft())

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                self._is_writable(None)  # the descriptor is shared and non-blocking
            except OSError:
                with self._changed:
                    self._dropped += 1
                return

    def _is_writable(self, seconds: float | None) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLOUT)
        return bool(poll.poll(None if seconds is None else seconds * 1000))


def start_logging(level: str, form: str, fields: Mapping[str, str], descriptor: int = 2) -> LogOutput:
    """Send all records of this process to a descriptor, by default standard error. The caller closes it.

    level: one of LEVELS. form: one of FORMATS; `auto` is text on a terminal, else JSON. fields: see
    LogOutput.
    """
    as_json = form == "json" or (form == "auto" and not os.isatty(descriptor))
    output = LogOutput(descriptor, fields, as_json=as_json)
    output.addFilter(DedupFilter())
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(level.upper())
    return output


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields of a record: its `extra`, and the error it was logged with."""
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        fields.setdefault("error", f"{type(error).__name__}: {error}")
    return fields


def _text(record: logging.LogRecord, fields: Mapping[str, object]) -> str:
    """Return a line for people: time, level, message, then `field=value`."""
    head = f"{rfc3339(record.created)} {record.levelname:7} {record.getMessage()}"
    pairs = (f"{name}={_value(value)}" for name, value in fields.items())
    return escape_unprintable(" ".join((head, *pairs)).replace("\n", "\\n"))


def _value(value: object) -> str:
    text = str(value)
    return text if _PLAIN_VALUE.fullmatch(text) else json.dumps(text, ensure_ascii=False)
