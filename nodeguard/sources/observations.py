"""Source `observations`: results of a site's own probes, from files in /run/nodeguard/observations.d."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Scalar, Signal, signals_by_name
from nodeguard.model.target import NODE, probe_target
from nodeguard.sources.machine import Machine
from nodeguard.sources.probe_file import ProbeFile, ProbeObservation, format_duration, parse_probe_file
from nodeguard.sources.readings import failure_reason, try_read
from nodeguard.sources.source import source

_FOLDER = "/run/nodeguard/observations.d"
_MAX_FILES = 64

# The results of a probe; the other signals only identify the probe.
_RESULTS = ("probe.health", "probe.value", "probe.message")


@source
class ObservationsSource:
    """Reads probe files; one observation, with a target of its own, for each probe and target.

    If a file is invalid, the results are unread on the targets that the file last reported on, or on a target
    with the file's name. So a broken probe does not clear its findings; a deleted file does. The source keeps
    the last observations of each file for this.
    """

    name = "observations"
    interval = 30.0
    deadline = 5.0
    paths: tuple[str, ...] = (_FOLDER,)
    signals = signals_by_name(
        Signal(
            "probe.health", "state", "health that a site's own probe reports: ok, warning, suspect, fatal"
        ),
        Signal("probe.value", "gauge", "number that a site's own probe reports"),
        Signal("probe.message", "state", "message of a site's own probe"),
        Signal("probe.name", "state", "name of a site's own probe"),
        Signal("probe.target", "state", "target that a site's own probe reports on"),
        Signal("probe.file", "state", "file in which a site's own probe reports it"),
    )

    def __init__(self) -> None:
        self._last: dict[str, tuple[Observation, ...]] = {}

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        names = try_read(machine.names, _FOLDER)
        if isinstance(names, OSError):
            yield Observation(self.name, NODE, "failed", detail=f"{_FOLDER}: {failure_reason(names)}")
            return
        # A name that begins with a dot belongs to a file that is still being written.
        names = tuple(name for name in names or () if name.endswith(".json") and not name.startswith("."))
        files: dict[str, ProbeFile] = {}
        refused: dict[str, str] = {}
        now = machine.now().wall
        for name in names[:_MAX_FILES]:
            text = try_read(machine.read, f"{_FOLDER}/{name}")
            if isinstance(text, OSError):
                refused[name] = failure_reason(text)
            elif text is not None:
                files[name] = parse_probe_file(text, now)
        skipped = names[_MAX_FILES:]
        reason = (
            f"is skipped: only {_MAX_FILES} of {len(names)} files are read: remove files that are not needed"
        )
        refused.update((name, reason) for name in skipped if name == skipped[0] or name in self._last)
        self._last = {name: last for name, last in self._last.items() if name in files or name in refused}
        observations: dict[str, Observation] = {}
        # If two files report on one target, the one that has not expired comes first.
        for name, file in sorted(files.items(), key=lambda item: now > item[1].until):
            defects = self._accept(name, file, now, observations)
            if defects:
                others = f" (and {len(defects) - 1} more)" if defects[1:] else ""
                refused[name] = defects[0] + others
        for name, reason in refused.items():
            observations.update(self._unread(name, reason, observations))
        yield from observations.values()

    def _accept(
        self, name: str, file: ProbeFile, now: float, observations: dict[str, Observation]
    ) -> list[str]:
        """Add the observations of a file by target; return the reasons why some are not accepted."""
        own: dict[str, Observation] = {}
        defects = list(file.defects)
        for result in file.observations:
            target = probe_target(result.name, result.target)
            if target in observations:
                other = observations[target].signals["probe.file"]
                defects.append(f"{target} is also in {other}: remove one, or give it another name")
            else:
                own[target] = Observation(self.name, target, signals=_signals(result, name))
        earlier = self._last.get(name, ()) if defects else ()
        self._last[name] = (*own.values(), *(last for last in earlier if last.target not in own))
        if now > file.until:
            age, validity = format_duration(now - file.written), format_duration(file.until - file.written)
            reason = f"{_path(name)}: written {age} ago and valid for {validity}"
            reason = f"{reason}: let the probe write again, or remove the file"
            own = {target: _without_results(observation, reason) for target, observation in own.items()}
        observations.update(own)
        return defects

    def _unread(self, name: str, reason: str, observations: dict[str, Observation]) -> dict[str, Observation]:
        """Return the observations, without results, of a file that is not accepted or only in part."""
        reason = f"{_path(name)}: {reason}"
        expected = (last for last in self._last.get(name, ()) if last.target not in observations)
        unread_targets = {last.target: _without_results(last, reason) for last in expected}
        if unread_targets:
            return unread_targets
        # No probe can have this name, as it has a dot.
        target = probe_target(_shown(name), NODE)
        unread = {"probe.health": reason}
        return {
            target: Observation(self.name, target, signals={"probe.file": _path(name)}, unreadable=unread)
        }


def _signals(result: ProbeObservation, name: str) -> dict[str, Scalar]:
    signals: dict[str, Scalar] = {
        "probe.name": result.name,
        "probe.target": result.target,
        "probe.file": _path(name),
        "probe.message": result.message,
    }
    if result.health is not None:
        signals["probe.health"] = result.health
    if result.value is not None:
        signals["probe.value"] = result.value
    return signals


def _without_results(observation: Observation, reason: str) -> Observation:
    """Return an observation with its results unread; the signals that identify the probe stay."""
    signals = {name: value for name, value in observation.signals.items() if name not in _RESULTS}
    unread = {name: reason for name in _RESULTS if name in observation.signals}
    return replace(observation, signals=signals, unreadable=unread)


def _path(name: str) -> str:
    return f"{_FOLDER}/{_shown(name)}"


def _shown(name: str) -> str:
    """Return a file's name in printable form, for any bytes."""
    return ascii(name)[1:-1]
