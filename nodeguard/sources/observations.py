"""What a site's own probes found: files that they leave below /run/nodeguard/observations.d."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar, Signal, signals_by_name
from nodeguard.model.target import NODE, probe_target
from nodeguard.sources.machine import Machine
from nodeguard.sources.probe_file import ProbeFile, ProbeObservation, format_duration, parse_probe_file
from nodeguard.sources.readings import failure_reason, try_read

_FOLDER = "/run/nodeguard/observations.d"
_MOST_FILES = 64

# What a probe claims, as opposed to what only says who claims it.
_CLAIMS = ("probe.health", "probe.value", "probe.message")


class ObservationsSource:
    """Reads the files of probes; one observation for each slot that a probe speaks of, in a slot of its own.

    What cannot be believed is unread: of the slots that its file last spoke of, else of a slot by the file's
    name. So a probe that breaks takes back nothing; one whose file goes does. Remembered, therefore: by file,
    what it said last.
    """

    name = "observations"
    interval = 30.0
    deadline = 5.0
    paths: tuple[str, ...] = (_FOLDER,)
    signals = signals_by_name(
        Signal("probe.health", "state", "health that a site's own probe claims: ok, warning, suspect, fatal"),
        Signal("probe.value", "gauge", "figure that a site's own probe gives"),
        Signal("probe.message", "state", "what a site's own probe says, in its words"),
        Signal("probe.name", "state", "name of a site's own probe"),
        Signal("probe.slot", "state", "slot that a site's own probe speaks of"),
        Signal("probe.file", "state", "file in which a site's own probe says it"),
    )

    def __init__(self) -> None:
        self._last: dict[str, tuple[Observation, ...]] = {}

    def read(self, machine: Machine) -> Iterator[Observation]:
        """One round; see Source.read."""
        names = try_read(machine.names, _FOLDER)
        if isinstance(names, OSError):
            yield Observation(self.name, NODE, "failed", detail=f"{_FOLDER}: {failure_reason(names)}")
            return
        # A name that begins with a dot is of a file that is still being written.
        names = tuple(name for name in names or () if name.endswith(".json") and not name.startswith("."))
        files: dict[str, ProbeFile] = {}
        refused: dict[str, str] = {}
        now = machine.now().wall
        for name in names[:_MOST_FILES]:
            text = try_read(machine.read, f"{_FOLDER}/{name}")
            if isinstance(text, OSError):
                refused[name] = failure_reason(text)
            elif text is not None:
                files[name] = parse_probe_file(text, now)
        left = names[_MOST_FILES:]
        more = (
            f"is left, as only {_MOST_FILES} files are read of {len(names)}: remove those of no use any more"
        )
        refused.update((name, more) for name in left if name == left[0] or name in self._last)
        self._last = {name: said for name, said in self._last.items() if name in files or name in refused}
        found: dict[str, Observation] = {}
        # Of two files that speak of one thing, one that is out of date does not stand in the other's way.
        for name, file in sorted(files.items(), key=lambda item: now > item[1].until):
            defects = self._take(name, file, now, found)
            if defects:
                others = f" (and {len(defects) - 1} more like it)" if defects[1:] else ""
                refused[name] = defects[0] + others
        for name, why in refused.items():
            found.update(self._unread(name, why, found))
        yield from found.values()

    def _take(self, name: str, file: ProbeFile, now: float, found: dict[str, Observation]) -> list[str]:
        """What a file says, into `found` by slot; why some of it does not count."""
        own: dict[str, Observation] = {}
        defects = list(file.defects)
        for said in file.observations:
            slot = probe_target(said.name, said.slot)
            if slot in found:
                other = found[slot].signals["probe.file"]
                defects.append(f"{slot} stands in {other}, too: remove one, or give it another name")
            else:
                own[slot] = Observation(self.name, slot, signals=_signals(said, name))
        kept = (one for one in self._last.get(name, ()) if one.target not in own) if defects else ()
        self._last[name] = (*own.values(), *kept)
        if now > file.until:
            why = f"written {format_duration(now - file.written)} ago and valid for {format_duration(file.until - file.written)}"
            why = f"{_path(name)}: {why}: let the probe write again, or remove the file"
            own = {slot: _lapsed(one, why) for slot, one in own.items()}
        found.update(own)
        return defects

    def _unread(self, name: str, why: str, found: dict[str, Observation]) -> dict[str, Observation]:
        """What is unread for a file, or a part of one, that does not count."""
        why = f"{_path(name)}: {why}"
        slots = {one.target: _lapsed(one, why) for one in self._last.get(name, ()) if one.target not in found}
        if slots:
            return slots
        # No probe can have this name, as it has a dot.
        slot = probe_target(_shown(name), NODE)
        unread = {"probe.health": why}
        return {slot: Observation(self.name, slot, signals={"probe.file": _path(name)}, unreadable=unread)}


def _signals(said: ProbeObservation, name: str) -> dict[str, Scalar]:
    signals: dict[str, Scalar] = {
        "probe.name": said.name,
        "probe.slot": said.slot,
        "probe.file": _path(name),
        "probe.message": said.message,
    }
    if said.health is not None:
        signals["probe.health"] = said.health
    if said.value is not None:
        signals["probe.value"] = said.value
    return signals


def _lapsed(one: Observation, why: str) -> Observation:
    """An observation whose claims do not count any more; whose they were stays known."""
    signals = {name: value for name, value in one.signals.items() if name not in _CLAIMS}
    unread = {name: why for name in _CLAIMS if name in one.signals}
    return replace(one, signals=signals, unread=unread)


def _path(name: str) -> str:
    return f"{_FOLDER}/{_shown(name)}"


def _shown(name: str) -> str:
    """A file's name as it can be printed and stored, whatever bytes it is made of."""
    return ascii(name)[1:-1]
