"""Source `kmsg`: log events, found in the kernel log with the catalogue's log patterns.

Records have the form of /dev/kmsg: `prefix,sequence,microseconds,flags[,more];text`, followed by
continuation lines ` KEY=value`. Source: Linux Documentation/ABI/testing/dev-kmsg.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from nodeguard.model.catalogue import LogPattern
from nodeguard.model.observation import LOG_POSITION, Event, Observation
from nodeguard.model.signal import Scalar, Signal
from nodeguard.model.target import (
    NODE,
    bus_address,
    disk_target,
    gpu_target,
    nvswitch_target,
    pci_target,
    port_target,
)
from nodeguard.sources.event_batch import EventBatch
from nodeguard.sources.machine import LogRecords, Machine
from nodeguard.sources.process_owner import LoggedProcesses
from nodeguard.sources.source import source

_TEXT = 400
# Characters of a record that the patterns are matched against; lines of the kernel are shorter.
_MATCHED = 1024
# Characters of the prefix by which patterns are selected.
_START = 4

# A record of the kernel's facility, 0: its prefix is the level. Groups: time, flags, other fields, text.
_RECORD = re.compile(r"0{0,17}[0-7],[^,;]*,([0-9]{1,18}),([^,;]*)(,[^;]*)?;([^\n]*)")
_ESCAPED = re.compile(r"(?:\\x[0-9a-fA-F]{2})+")
_GROUP = re.compile(r"\(\?P<(\w+)>")
_LITERAL = re.compile(r"[\w :,=/-]*")
# Groups that stay text: digits in them are part of an address, a name or a hexadecimal number.
_TEXTS = frozenset({"pci", "dev", "status"})

# The group of an expression with the number of occurrences that a line reports.
_COUNT = "count"
# The lines that the kernel left out before the one that it prints again. Source: Linux lib/ratelimit.c.
_SUPPRESSED = re.compile(r"(?P<limiter>[\w -]{1,40}): (?P<count>\d{1,9}) callbacks suppressed")

# The beginning of a line of the NVIDIA driver. It logs every line as a fragment, so the flag shows nothing
# (nv_printf in kernel-open/nvidia/os-interface.c of the open kernel modules; an H200 with driver 580).
_NEW_LINE = "NVRM: "

# Characters of a line that was logged in fragments; the kernel itself joins at most a thousand.
_LONGEST = 32 << 10


class LogRecord(Struct, frozen=True):
    """One record of the kernel facility: seconds since boot and text.

    fragment: whether it continues an earlier line. caller: the task or CPU that logged it, if the kernel
    records it (CONFIG_PRINTK_CALLER).
    """

    at: float
    text: str
    fragment: bool = False
    caller: str = ""


@source
class KmsgSource:
    """Reads the records of the kernel log that are new since the last reading.

    patterns: in the order in which they are tried; the first match names the event.
    """

    name = "kmsg"
    interval = 10.0
    deadline = 20.0
    paths: tuple[str, ...] = ("kmsg",)
    uses_log_patterns = True

    def __init__(self, patterns: Iterable[LogPattern]) -> None:
        table = tuple(patterns)
        self._by_start = patterns_by_prefix(table)
        self._others = self._by_start[""]
        self._compiled: dict[str, re.Pattern[str]] = {}
        self.signals = pattern_signals(table)

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        log = machine.log()
        if log.last >= 0:
            yield Observation(self.name, NODE, signals={LOG_POSITION: log.last})
        if log.lost or log.more:
            yield _unread_records(log, machine.now().mono)
        batch, processes = EventBatch(), LoggedProcesses(machine)
        suppressed: dict[str, int] = {}
        for record in join_fragments(parse_records(log.records)):
            text = record.text[:_MATCHED]
            if text.endswith(" suppressed") and (limited := _SUPPRESSED.fullmatch(text)):
                suppressed[limited["limiter"]] = int(limited["count"])
                continue
            for pattern in self._by_start.get(text[:_START], self._others):
                if pattern.hint in text and (match := self._match(pattern, text)):
                    if pattern.signal:
                        left_out = sum(suppressed.pop(name, 0) for name in pattern.limiters)
                        target, event = _event(pattern, match, record, left_out)
                        batch.add(target, pattern.id, processes.add_owner(event))
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
    """Return the patterns to try for a line, by the line's prefix, in the order of the table.

    The empty prefix is for lines that begin like no pattern: only a pattern without a fixed prefix can match
    them.
    """
    prefixes = [(literal_prefix(pattern.pattern), pattern) for pattern in patterns]
    table: dict[str, list[LogPattern]] = {"": [], **{prefix: [] for prefix, _ in prefixes}}
    for prefix, pattern in prefixes:
        for tried in [table[prefix]] if prefix else table.values():
            tried.append(pattern)
    return {prefix: tuple(tried) for prefix, tried in table.items()}


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


def _unread_records(log: LogRecords, now: float) -> Observation:
    """Return the observation of records that were overwritten, or that there was no time to read."""
    text = f"{log.lost} records were overwritten before they were read"
    lost = (Event("kmsg.lost", now, text, {"records": log.lost}),) if log.lost else ()
    if not log.more:
        return Observation("kmsg", NODE, "lost", events=lost, count=log.lost)
    detail = f"only the oldest {len(log.records)} records were read: give it more time with --timeout"
    return Observation("kmsg", NODE, "failed", events=lost, count=log.lost, detail=detail)


def _not_evaluated(events: int, now: float) -> Observation:
    """Return the observation of events that a storm left unevaluated. now: seconds since boot."""
    text = f"{events} lines were not evaluated: one reading had too many different ones"
    lost = Event("kmsg.lost", now, text, {"records": events})
    return Observation("kmsg", NODE, "lost", events=(lost,), count=events)


def pattern_signals(patterns: Iterable[LogPattern]) -> dict[str, Signal]:
    """Return the signals of a table of log patterns, each with the fields of all its patterns."""
    signals = {
        LOG_POSITION: Signal(LOG_POSITION, "state", "sequence number of the last record that was read"),
        "kmsg.lost": Signal("kmsg.lost", "event", "records were lost unread", fields=("records",)),
    }
    for pattern in patterns:
        if not pattern.signal:
            continue
        declared = signals.get(pattern.signal)
        groups = (name for name in _GROUP.findall(pattern.pattern) if name != _COUNT)
        fields = (*(declared.fields if declared else ()), *groups)
        about = declared.description if declared else pattern.description
        signals[pattern.signal] = Signal(pattern.signal, "event", about, fields=tuple(dict.fromkeys(fields)))
    return signals


def parse_records(records: Iterable[str]) -> Iterator[LogRecord]:
    """Yield the records of the kernel facility. Records of user processes and invalid records are skipped.

    A process can write to /dev/kmsg, but never with the kernel's facility, 0.
    """
    for raw in records:
        record = _RECORD.match(raw)
        if record is None:
            continue
        time, flags, more, text = record.groups()
        if "\\x" in text:
            text = _ESCAPED.sub(_unescaped, text)
        caller = ""
        if more:
            caller = next((field[7:] for field in more.split(",") if field.startswith("caller=")), "")
        is_fragment = flags[:1] in {"c", "+"} and not text.startswith(_NEW_LINE)
        yield LogRecord(int(time) / 1e6, text, is_fragment, caller)


def _unescaped(run: re.Match[str]) -> str:
    """Decode a run of escapes. Each escape is one byte, so a character may need several."""
    return bytes.fromhex(run[0].replace("\\x", "")).decode(errors="replace")


def _short_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 18


def join_fragments(records: Iterable[LogRecord]) -> list[LogRecord]:
    """Return the records with the fragments of each line joined, in the order in which the lines began.

    A fragment continues the last line of the same caller, or the line before it if the kernel records no
    caller. The first fragment of a line has the flag of a whole line.
    """
    records = list(records)
    if not any(record.fragment for record in records):
        return records
    lines: list[tuple[LogRecord, list[str]]] = []
    lengths: list[int] = []
    latest: dict[str, int] = {}
    for record in records:
        index = latest.get(record.caller) if record.fragment else None
        if index is None:
            index = len(lines)
            lines.append((record, []))
            lengths.append(0)
        pieces = lines[index][1]
        pieces.append(record.text[: max(0, _LONGEST - lengths[index])] if pieces else record.text)
        lengths[index] += len(pieces[-1])
        latest[record.caller] = latest[""] = index
    return [
        LogRecord(first.at, "".join(pieces), caller=first.caller) if len(pieces) > 1 else first
        for first, pieces in lines
    ]


def _event(pattern: LogPattern, match: re.Match[str], record: LogRecord, left_out: int) -> tuple[str, Event]:
    """Return the event of a line and its target. left_out: lines before it that the kernel left out."""
    groups = {name: text for name, text in match.groupdict().items() if text is not None}
    reported = groups.pop(_COUNT, "")
    count = left_out + (max(1, int(reported)) if _short_number(reported) else 1)
    fields: dict[str, Scalar] = {name: _value(name, text) for name, text in groups.items()}
    return _matched_target(pattern.target, groups), Event(
        pattern.signal, record.at, record.text[:_TEXT], fields, count
    )


def _value(name: str, text: str) -> Scalar:
    return int(text) if name not in _TEXTS and _short_number(text) else text


def _matched_target(kind: str, groups: dict[str, str]) -> str:
    """Return the target that a match names; the node if it names none."""
    address, device = groups.get("pci", ""), groups.get("dev", "")
    if kind == "port":
        return port_target(device, 1) if device else NODE
    if kind == "disk":
        return disk_target(device) if device else NODE
    if kind == "dimm":
        return f"dimm/{groups['dimm']}" if groups.get("dimm") else NODE
    target = {"gpu": gpu_target, "nvswitch": nvswitch_target, "pci": pci_target}.get(kind)
    return target(address) if target is not None and bus_address(address) else NODE
