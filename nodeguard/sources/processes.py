"""Source `processes`: processes in uninterruptible sleep, and zombies."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.model.target import NODE
from nodeguard.sources.machine import Machine
from nodeguard.sources.readings import (
    ObservationDraft,
    failure_reason,
    implausible,
    parse_count,
    read_text,
    try_read,
)
from nodeguard.sources.source import source

_NAMED = 5
# Running, sleeping, idle, stopped, traced, parked: nearly all processes; their line needs no parsing.
_NORMAL_STATES = frozenset("RSITtP")


class ProcessStat(Struct, frozen=True):
    """A process from /proc/PID/stat. start: clock ticks from boot to its start. parent: pid of its parent."""

    pid: int
    comm: str
    state: str
    start: int
    parent: int


@source
class ProcessesSource:
    """Reads /proc/PID/stat of every process; one observation, of the node.

    Keeps the time at which each blocked process and each zombie was first seen.
    """

    name = "processes"
    interval = 60.0
    deadline = 5.0
    paths: tuple[str, ...] = ("/proc/1",)
    signals = signals_by_name(
        Signal("process.blocked", "gauge", "processes in uninterruptible sleep, state D"),
        Signal(
            "process.blocked_oldest",
            "gauge",
            "longest time that one of them was seen in this state",
            "seconds",
        ),
        Signal(
            "process.blocked_names",
            "state",
            "those blocked longest, and the kernel function in which they wait",
        ),
        Signal("process.zombies", "gauge", "ended processes that their parent did not collect"),
        Signal(
            "process.zombies_oldest",
            "gauge",
            "longest time that one of them was seen in this state",
            "seconds",
        ),
    )

    def __init__(self) -> None:
        # Boot, pid, start and state → seconds since boot when first seen.
        self._since: dict[tuple[str, int, int, str], float] = {}

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        draft = ObservationDraft(machine, self.name, NODE)
        stuck, hidden = _stuck(machine)
        now = machine.now()
        keys = [(now.boot_id, process.pid, process.start, process.state) for process in stuck]
        self._since = {key: self._since.get(key, now.mono) for key in keys}
        aged = sorted(zip(self._since.values(), stuck, strict=True), key=lambda item: (item[0], item[1].pid))
        for state, signal in (("D", "process.blocked"), ("Z", "process.zombies")):
            first_seen = [since for since, process in aged if process.state == state]
            draft.signals[signal] = len(first_seen)
            draft.signals[f"{signal}_oldest"] = now.mono - first_seen[0] if first_seen else 0.0
        blocked = [process for _, process in aged if process.state == "D"]
        if blocked:
            names = ", ".join(_described(draft, process) for process in blocked[:_NAMED])
            more = f" and {len(blocked) - _NAMED} more" if len(blocked) > _NAMED else ""
            draft.signals["process.blocked_names"] = f"{names}{more}"
        if hidden:
            # A count of the visible processes would look like the count of all.
            draft.signals.clear()
            draft.mark_unread(hidden, *self.signals)
        yield draft.build()


def parse_stat(text: str) -> ProcessStat:
    """Parse /proc/PID/stat; the name in parentheses may contain any character. Raises ValueError."""
    head, _, tail = text.rpartition(")")
    pid, _, comm = head.partition(" (")
    fields = tail.split()
    if len(fields) < 20:
        raise ValueError(text)
    return ProcessStat(parse_count(pid), comm, fields[0], parse_count(fields[19]), parse_count(fields[1]))


def _stuck(machine: Machine) -> tuple[list[ProcessStat], str]:
    """Return the processes in state D or Z, and why some could not be read, empty if all were."""
    names = machine.names("/proc")
    stuck = []
    hidden = ""
    # A live /proc has thread-self. It lists process 1 only for a reader that sees other users' processes.
    if "thread-self" in names and "1" not in names:
        hidden = "processes of other users are hidden (hidepid): run as root"
    for name in names:
        if not name.isdecimal():
            continue
        text = read_text(machine, f"/proc/{name}/stat")
        if isinstance(text, OSError):
            hidden = failure_reason(text)
        elif text is not None and text[text.rfind(")") + 1 :][1:2] not in _NORMAL_STATES:
            try:
                process = parse_stat(text)
            except ValueError:
                hidden = implausible(f"/proc/{name}/stat", text)
            else:
                if process.state in {"D", "Z"}:
                    stuck.append(process)
    return stuck, hidden


def _described(draft: ObservationDraft, process: ProcessStat) -> str:
    """Return `comm(pid) in wchan`. A process chooses its name, so unprintable characters are replaced."""
    comm = "".join(letter if letter.isprintable() else "?" for letter in process.comm)
    # The only file of /proc that the kernel does not end with a newline.
    text = try_read(draft.machine.read, f"/proc/{process.pid}/wchan")
    function = text.strip() if isinstance(text, str) else ""
    is_waiting = function not in {"", "0"} and function.isprintable()
    return f"{comm}({process.pid})" + (f" in {function}" if is_waiting else "")
