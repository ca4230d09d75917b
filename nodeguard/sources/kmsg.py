"""The kernel log: lines that mean something, found with the table of patterns.

Records come as /dev/kmsg gives them: `prefix,sequence,microseconds,flags[,more];text`, then lines `
KEY=value` that belong to it. Source: Linux Documentation/ABI/testing/dev-kmsg.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from nodeguard.model.catalogue import LogPattern
from nodeguard.model.observation import Event, Observation
from nodeguard.model.signal import Scalar, Signal
from nodeguard.model.target import NODE, bus_address, gpu_target, nvswitch_target, pci_target, port_target
from nodeguard.sources.event_batch import EventBatch
from nodeguard.sources.machine import LogRecords, Machine

_TEXT = 400
# Characters of a record that the patterns see: a line of the kernel is shorter.
_MATCHED = 1024
# Characters by which the patterns are sorted.
_START = 4

_ESCAPED = re.compile(r"(?:\\x[0-9a-fA-F]{2})+")
_GROUP = re.compile(r"\(\?P<(\w+)>")
_LITERAL = re.compile(r"[\w :,=/-]*")
# Groups that stay text: what looks like a decimal number is an address, a name or a hexadecimal number.
_TEXTS = frozenset({"pci", "dev", "status"})

# Characters of a line that was said in pieces; the kernel joins no more than a thousand itself.
_LONGEST = 32 << 10


class LogRecord(Struct, frozen=True):
    """One record of the kernel's own: seconds since boot and text.

    fragment: whether it goes on with a line that was begun before. caller: the task or CPU that said it,
    where the kernel tells (CONFIG_PRINTK_CALLER).
    """

    at: float
    text: str
    fragment: bool = False
    caller: str = ""


class KmsgSource:
    """Reads what is new in the kernel log since the last round.

    patterns: in the order in which they are tried; the first that matches names the event.
    """

    name = "kmsg"
    interval = 10.0
    deadline = 20.0
    paths: tuple[str, ...] = ("kmsg",)

    def __init__(self, patterns: Iterable[LogPattern]) -> None:
        table = tuple(patterns)
        self._by_start = patterns_by_prefix(table)
        self._others = self._by_start[""]
        self._compiled: dict[str, re.Pattern[str]] = {}
        self.signals = pattern_signals(table)

    def read(self, machine: Machine) -> Iterator[Observation]:
        """One round; see Source.read."""
        log = machine.log()
        if log.last >= 0:
            yield Observation(self.name, NODE, signals={"kmsg.sequence": log.last})
        if log.lost or log.more:
            yield _not_read(log, machine.now().mono)
        batch = EventBatch()
        for record in join_fragments(parse_records(log.records)):
            text = record.text[:_MATCHED]
            for pattern in self._by_start.get(text[:_START], self._others):
                if pattern.hint in text and (match := self._match(pattern, text)):
                    if pattern.signal:
                        slot, event = _event(pattern, match, record)
                        batch.add(slot, pattern.id, event)
                    break
        if batch.dropped:
            yield _not_evaluated(batch.dropped, machine.now().mono)
        yield from batch.observations(self.name)

    def _match(self, pattern: LogPattern, text: str) -> re.Match[str] | None:
        compiled = self._compiled.get(pattern.id)
        if compiled is None:
            compiled = self._compiled[pattern.id] = re.compile(pattern.pattern)
        return compiled.match(text)


def patterns_by_prefix(patterns: Iterable[LogPattern]) -> dict[str, tuple[LogPattern, ...]]:
    """Return the patterns to try for a line, by the line's first characters, in the order of the table.

    The empty string stands for lines that begin like no pattern: only a pattern without a fixed start can
    match them.
    """
    starts = [(literal_prefix(pattern.pattern), pattern) for pattern in patterns]
    return {
        wanted: tuple(pattern for begin, pattern in starts if begin in {"", wanted})
        for wanted in {"", *(begin for begin, _ in starts)}
    }


def literal_prefix(pattern: str) -> str:
    """Return the first characters of all lines that an expression matches; empty where they are not fixed.

    A character before a quantifier is not fixed. The expressions of the table have no alternatives at the
    top.
    """
    literal = _LITERAL.match(pattern)
    fixed = literal[0] if literal else ""
    if pattern[len(fixed) : len(fixed) + 1] in {"?", "*", "+", "{"}:
        fixed = fixed[:-1]
    return fixed[:_START] if len(fixed) >= _START else ""


def _not_read(log: LogRecords, now: float) -> Observation:
    """What the node is told of records that were overwritten, and of the newest that wait to be read."""
    text = f"{log.lost} records were overwritten before they were read"
    lost = (Event("kmsg.lost", now, text, {"records": log.lost}),) if log.lost else ()
    if not log.more:
        return Observation("kmsg", NODE, "lost", events=lost, count=log.lost)
    detail = f"only the oldest {len(log.records)} records were read: give it more time with --timeout"
    return Observation("kmsg", NODE, "failed", events=lost, count=log.lost, detail=detail)


def _not_evaluated(events: int, now: float) -> Observation:
    """Return what reports the events of a storm that were only counted. now: seconds since boot."""
    text = f"{events} lines were not evaluated: one reading had too many different ones"
    lost = Event("kmsg.lost", now, text, {"records": events})
    return Observation("kmsg", NODE, "lost", events=(lost,), count=events)


def pattern_signals(patterns: Iterable[LogPattern]) -> dict[str, Signal]:
    """The events that a table of patterns gives, each with the fields of all its patterns."""
    found = {
        "kmsg.sequence": Signal("kmsg.sequence", "state", "sequence number of the last record that was read"),
        "kmsg.lost": Signal("kmsg.lost", "event", "records were lost unread", fields=("records",)),
    }
    for pattern in patterns:
        if not pattern.signal:
            continue
        known = found.get(pattern.signal)
        fields = (*(known.fields if known else ()), *_GROUP.findall(pattern.pattern))
        about = known.description if known else pattern.description
        found[pattern.signal] = Signal(pattern.signal, "event", about, fields=tuple(dict.fromkeys(fields)))
    return found


def parse_records(records: Iterable[str]) -> Iterator[LogRecord]:
    """The records of the kernel facility; those of user processes, and what is no record, are left out.

    A process can write to /dev/kmsg, but never as the kernel: its facility is not 0.
    """
    for raw in records:
        head, separator, body = raw.partition(";")
        fields = head.split(",")
        if not separator or len(fields) < 4:
            continue
        prefix, _, moment, flags = fields[:4]
        if not (_short_number(prefix) and _short_number(moment)) or int(prefix) >> 3 != 0:
            continue
        text = body.partition("\n")[0]
        if "\\x" in text:
            text = _ESCAPED.sub(_unescaped, text)
        caller = next((field[7:] for field in fields[4:] if field.startswith("caller=")), "")
        yield LogRecord(int(moment) / 1e6, text, flags[:1] in {"c", "+"}, caller)


def _unescaped(run: re.Match[str]) -> str:
    """The text that a run of escapes stands for: they are of bytes, so a letter can take several."""
    return bytes.fromhex(run[0].replace("\\x", "")).decode(errors="replace")


def _short_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def join_fragments(records: Iterable[LogRecord]) -> list[LogRecord]:
    """Records with the pieces of a line put together, in the order in which the lines began.

    A piece goes on with the last line of the same caller, whatever others said in between; where the kernel
    does not tell the caller, with the line before it. The first piece of all has the flag of a whole line.
    """
    lines: list[tuple[LogRecord, list[str]]] = []
    lengths: list[int] = []
    latest: dict[str, int] = {}
    for record in records:
        place = latest.get(record.caller) if record.fragment else None
        if place is None:
            place = len(lines)
            lines.append((record, []))
            lengths.append(0)
        pieces = lines[place][1]
        pieces.append(record.text[: max(0, _LONGEST - lengths[place])] if pieces else record.text)
        lengths[place] += len(pieces[-1])
        latest[record.caller] = latest[""] = place
    return [
        LogRecord(first.at, "".join(pieces), caller=first.caller) if len(pieces) > 1 else first
        for first, pieces in lines
    ]


def _event(pattern: LogPattern, match: re.Match[str], record: LogRecord) -> tuple[str, Event]:
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    fields: dict[str, Scalar] = {name: _value(name, text) for name, text in groups.items()}
    return _slot(pattern.target, groups), Event(pattern.signal, record.at, record.text[:_TEXT], fields)


def _value(name: str, text: str) -> Scalar:
    return int(text) if name not in _TEXTS and _short_number(text) else text


def _slot(kind: str, groups: dict[str, str]) -> str:
    """The slot that a match speaks of; the node where it does not say."""
    address, device = groups.get("pci", ""), groups.get("dev", "")
    if kind == "port":
        return port_target(device, 1) if device else NODE
    if kind == "disk":
        return f"disk/{device}" if device else NODE
    if kind == "dimm":
        return f"dimm/{groups['dimm']}" if groups.get("dimm") else NODE
    make = {"gpu": gpu_target, "nvswitch": nvswitch_target, "pci": pci_target}.get(kind)
    return make(address) if make is not None and bus_address(address) else NODE
