"""Machines of which one file, directory, call or NVML answer cannot be read, or reads as nonsense.

A `Damage` is one such place and how reading it fails. A trial judges a recording with the damage
from the first look on, without it for two looks, and with it again: what an agent sees that starts on such
a machine, and what one sees that ran before. Nothing that could not be read may be held against a node.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

from fixtures.bundles import bundle_names, bundle_path
from nodeguard.bundle.failures import os_error
from nodeguard.bundle.recording import RecordedState, Recording
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.finding import Finding, Verdict
from nodeguard.model.observation import Reading
from nodeguard.pipeline.pipeline import Pipeline, PipelineState
from nodeguard.pipeline.reader import read_source
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.nvml_table import GPU, NVLINK
from nodeguard.sources.registry import SOURCES
from nodeguard.sources.source import Source
from nodeguard.worker.replay import replay_nvml
from nodeguard.worker.result import LaneResult

CATALOGUE, SIGNALS = load_catalogue()

ERRNOS = ("EACCES", "EIO", "ENOENT", "EMFILE", "EINVAL")
# What NVML answers for a call when something other than the GPU is amiss: nvml.h, nvmlReturn_t.
NVML_ERRORS = (
    "NVML_ERROR_UNKNOWN",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_INSUFFICIENT_RESOURCES",
    "NVML_ERROR_MEMORY",
)
# Values by which drivers, NVML and sysfs mean that there is none.
SENTINELS = {
    "ones-64": (1 << 64) - 1,
    "ones-63": (1 << 63) - 1,
    "ones-32": (1 << 32) - 1,
    "ones-31": (1 << 31) - 1,
    "ones-16": (1 << 16) - 1,
    "ones-8": (1 << 8) - 1,
    "ones-6": (1 << 6) - 1,
    "zero": 0,
    "minus-one": -1,
}
WORDS = {"unknown": "Unknown", "not-applicable": "N/A", "blank": ""}

# Values that report a fault or a setting: a device with all bits of its lanes set does not answer, a link of
# state 0 is inactive, a GPU of a rack without a clique is in no domain and with another clique in another one, a
# GPU without a margin is as hot as its limit, an MTU of 255 is one, a clock may be low, a mode of 0 is off, a
# module without a directory is not loaded, a function without RDMA devices has no driver, and one with other
# product data is a network adapter.
_FAULTS = {
    ("read", "current_link_width", "ones-6"),
    ("read", "mtu", "ones-8"),
    ("names", "nvidia_peermem", "ENOENT"),
    ("names", "infiniband", "ENOENT"),
    *(("read", "vpd", failure) for failure in ("empty", "cut", *WORDS)),
    ("nvml", "nvmlDeviceGetNvLinkState", "zero"),
    *(("nvml", "nvmlDeviceGetMarginTemperature", failure) for failure in ("zero", "minus-one")),
    *(("nvml", "nvmlDeviceGetClockInfo", failure) for failure in ("zero", "ones-6", "ones-8")),
    ("nvml", "nvmlDeviceGetPersistenceMode", "zero"),
    ("nvml", "nvmlDeviceGetEccMode", "zero"),
    ("nvml", "nvmlDeviceGetMigMode", "zero"),
    *(("nvml", "nvmlDeviceGetGpuFabricInfoV", failure) for failure in ("zero", "ones-6", "ones-8")),
}

# Sentinels that a counter can have: it rose to them, or from 0 to the value that is read after them.
_COUNTS = frozenset({"ones-6", "ones-8", "ones-16", "zero"})
_COUNTER_FILES = re.compile(r"/(hw_)?counters/|/carrier_|/aer_dev_|/edac/|/proc/")
_COUNTER_CALLS = frozenset(
    template.partition("{")[0].rstrip(")")
    for row in (*GPU, *NVLINK)
    if row.signal.kind == "counter" or "retired_pages" in row.signal.name
    for template, _ in row.calls
)

# Seconds of the looks of a trial: the damage lasts longer than any check waits, goes, and comes back.
DAMAGED = (0.0, 10.0, 70.0, 190.0, 640.0)
HEALED = (650.0, 660.0)
AGAIN = (670.0, 740.0, 860.0, 1300.0)
LOOKS = (*DAMAGED, *HEALED, *AGAIN)

_HANDLE = "nvmlDeviceGetHandleByIndex"


@dataclass(frozen=True)
class Place:
    """Something that a source asks of a machine.

    how: read, names, link, call, statvfs or nvml; `tree` for all files, directories and links below a path.
    item: of a result with several values.
    """

    how: str
    path: str
    device: int = -1
    item: int | str | None = None

    @property
    def shape(self) -> str:
        """The same for places that differ only in a number: the eight GPUs, the ports of an adapter."""
        item = "" if self.item is None else f" [{self.item}]"
        return f"{self.how} {re.sub(r'[0-9a-f]*[0-9][0-9a-f]*', 'N', self.path)}{item}"


@dataclass(frozen=True)
class Damage:
    """One place, and how it fails: an errno, an NVML error, `empty`, `cut`, a sentinel or a word."""

    place: Place
    failure: str

    def __str__(self) -> str:
        device = f" of GPU {self.place.device}" if self.place.how == "nvml" else ""
        item = "" if self.place.item is None else f" [{self.place.item}]"
        return f"{self.place.how} {self.place.path}{item}{device}: {self.failure}"

    def hits(self, place: Place) -> bool:
        """Whether it is at this place."""
        is_below = self.place.how == "tree" and place.how in {"read", "names", "link"}
        return replace(self.place, item=None) == place or (
            is_below and f"{place.path}/".startswith(f"{self.place.path}/")
        )

    @property
    def is_a_sign(self) -> bool:
        """Whether this failure itself says that something is broken.

        A file system that answers EIO fails; a handle that the driver refuses with UNKNOWN is that of a GPU
        which it has lost hold of.
        """
        how, path = self.place.how, self.place.path
        name = path.rpartition("/")[2].partition("(")[0]
        return (
            (how, name, self.failure) in _FAULTS
            or (how == "statvfs" and self.failure == "EIO")
            or (path == _HANDLE and self.failure == "NVML_ERROR_UNKNOWN")
        )


class DamagedMachine(ReplayMachine):
    """The machine of a recording with a damage. asked: every place that was read of it, with its answer."""

    def __init__(self, recording: Recording, damage: Damage | None = None) -> None:
        super().__init__(recording)
        self._second = 0.0
        self._damage = damage
        self._rounds: dict[tuple[bool, int], LaneResult] = {}
        self.damaged = False
        self.asked: dict[Place, Any] = {}

    def seek(self, seconds: float) -> None:
        super().seek(seconds)
        self._second = seconds

    def read(self, path: str) -> str:
        text: str = self._answer("read", path, super().read)
        if path.endswith("/keep_alive_rcvd") and text.strip().isdecimal() and len(text) < 10:
            # An EFA device goes on counting while its recording stands still.
            return f"{int(text) + int(self._second)}\n"
        return text

    def names(self, path: str) -> tuple[str, ...]:
        names: tuple[str, ...] = self._answer("names", path, super().names)
        return names

    def link(self, path: str) -> str:
        link: str = self._answer("link", path, super().link)
        return link

    def call(self, name: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._answer("call", name, super().call)
        return answer

    def _answer(self, how: str, path: str, ask: Callable[[str], Any]) -> Any:
        place = Place(how, path)
        damage = self._damage
        if self.damaged and damage is not None and damage.hits(place):
            if damage.failure.startswith("E"):
                raise os_error(getattr(errno, damage.failure), path)
            return _damaged_text(ask(path), damage.failure)
        self.asked.setdefault(place, None)
        answer = self.asked[place] = ask(path)
        return answer

    def statvfs(self, mounts: tuple[str, ...], within: float = float("inf")) -> LaneResult:
        for mount in mounts:
            self.asked.setdefault(Place("statvfs", f"statvfs({mount})"), None)
        return super().statvfs(mounts, within)

    def state(self) -> RecordedState:
        state = super().state()
        damage = self._damage
        if not self.damaged or damage is None or damage.place.how != "statvfs":
            return state
        calls = {**state.calls, damage.place.path: {"error": damage.failure}}
        return RecordedState(state.instant, state.tree, calls, state.nvml)

    def nvml(self, within: float = float("inf"), leave: frozenset[int] = frozenset()) -> LaneResult:
        document = self.state().nvml
        damage = self._damage if self.damaged else None
        if document is not None:
            for scope, calls in ((-1, document["system"]), *enumerate(document["devices"])):
                self.asked |= {Place("nvml", call, scope): result for call, result in calls.items()}
            self.asked |= {Place("nvml", _HANDLE, at): None for at in range(len(document["devices"]))}
            if damage is not None and damage.place.how == "nvml":
                document = _damaged_nvml(document, damage)
        # Nothing stalls here: one round on a document is like the other. Each frame of a recording has its own.
        key = (damage is not None, id(self.state().nvml))
        if key not in self._rounds:
            self._rounds[key] = replay_nvml(self._gpus, document, leave)
        return self._rounds[key]


def _damaged_text(text: str, failure: str) -> str:
    if failure == "empty":
        return ""
    if failure in WORDS:
        return f"{WORDS[failure]}\n"
    return text[: len(text) // 2] if failure == "cut" else f"{SENTINELS[failure]}\n"


def _damaged_nvml(document: Mapping[str, Any], damage: Damage) -> dict[str, Any]:
    place = damage.place
    result: Any = {"error": damage.failure}
    scope = document["system"] if place.device < 0 else document["devices"][place.device]
    if damage.failure in SENTINELS:
        result = SENTINELS[damage.failure]
        if place.path.startswith("nvmlDeviceGetFieldValues"):
            result = {"valueType": 0, "value": result, "nvmlReturn": 0}
        elif place.item is not None:
            whole = scope[place.path]
            result = {**whole, place.item: result} if isinstance(whole, dict) else [*whole]
            result[place.item] = SENTINELS[damage.failure]
    if place.device < 0:
        return {**document, "system": {**scope, place.path: result}}
    devices = list(document["devices"])
    devices[place.device] = result if place.path == _HANDLE else {**scope, place.path: result}
    return {**document, "devices": devices}


def _items(place: Place, answer: Any) -> Iterator[Place]:
    """The numbers of an answer of NVML, each as a place."""
    if type(answer) is int or (isinstance(answer, dict) and "value" in answer):
        yield place
    elif isinstance(answer, dict | list):
        pairs = answer.items() if isinstance(answer, dict) else enumerate(answer)
        yield from (replace(place, item=item) for item, value in pairs if type(value) is int)


def _is_counter(place: Place) -> bool:
    if place.how != "nvml":
        return _COUNTER_FILES.search(place.path) is not None
    call = place.path.replace("nvmlDeviceGetFieldValues", "fields")
    return any(call.startswith(counter) for counter in _COUNTER_CALLS)


def _damages(place: Place, answer: Any) -> Iterator[Damage]:
    """The damages of a place with this answer."""
    sentinels = [name for name in SENTINELS if name not in _COUNTS or not _is_counter(place)]
    if place.how == "nvml":
        yield from (Damage(place, failure) for failure in NVML_ERRORS)
        for item in _items(place, answer):
            yield from (Damage(item, failure) for failure in sentinels)
        return
    failures = [*ERRNOS]
    if place.how == "read" and isinstance(answer, str):
        failures += ["empty", "cut", *WORDS]
        failures += sentinels if answer.strip().removeprefix("-").isdecimal() else ()
    yield from (Damage(place, failure) for failure in failures)


@cache
def pipeline(hints: PlatformHints, *, one_shot: bool = False) -> Pipeline:
    """Return the pipeline of all recordings with the same hints: to compile its rules takes longer than to evaluate."""
    return Pipeline(CATALOGUE, SIGNALS, hints, one_shot=one_shot)


@cache
def log_source() -> Source:
    """Return the source of the kernel log. It has no state, and its table of patterns takes long to make."""
    return KmsgSource(CATALOGUE.patterns)


def new_source(name: str) -> Source:
    """Return a source that has read nothing."""
    return next((new() for new in SOURCES if new.name == name), log_source())


class Trial:
    """A recording that is read once as it is, and then with one damage after the other."""

    def __init__(self, directory: Path) -> None:
        self.name = directory.name
        self._recording = Recording.open(str(directory))
        manifest = self._recording.manifest
        hints = PlatformHints(manifest.platform, manifest.instance_type)
        # Seconds of the looks, and the pipeline that evaluates them.
        self._evaluations = ((LOOKS[0],), pipeline(hints, one_shot=True)), (LOOKS, pipeline(hints))
        self._healthy: dict[str, dict[float, Reading]] = {}
        self._sources: dict[Place, set[str]] = {}
        answers: dict[Place, Any] = {}
        for source in (*(new() for new in SOURCES), log_source()):
            if self._recording.is_recorded(source.name, source.paths):
                machine = DamagedMachine(self._recording)
                self._healthy[source.name] = self._read(source, machine)
                answers |= machine.asked
                for place in machine.asked:
                    self._sources.setdefault(place, set()).add(source.name)
        every = (damage for place, answer in answers.items() for damage in _damages(place, answer))
        self.damages = tuple(damage for damage in every if not damage.is_a_sign)

    @cached_property
    def damages_by_shape(self) -> dict[tuple[str, str], list[Damage]]:
        """The damages that differ only in a number, together."""
        shapes: dict[tuple[str, str], list[Damage]] = {}
        for place, damages in groupby(self.damages, attrgetter("place")):
            shape = place.shape
            for damage in damages:
                shapes.setdefault((shape, damage.failure), []).append(damage)
        return shapes

    @cached_property
    def values_by_shape(self) -> dict[tuple[str, str], list[Damage]]:
        """The damages that put a value that means none in the place of another."""
        shapes = self.damages_by_shape.items()
        return {shape: damages for shape, damages in shapes if shape[1] in SENTINELS}

    def _read(self, source: Source, machine: DamagedMachine) -> dict[float, Reading]:
        readings = {}
        for at in LOOKS:
            machine.seek(at)
            machine.damaged = at not in HEALED
            readings[at] = read_source(source, machine)
        return readings

    def judged(self, damage: Damage | None) -> list[tuple[float, Finding]]:
        """What is held against the machine, with the second of the look; first by a single look."""
        return [(at, finding) for at, verdict in self._verdicts(damage) for finding in verdict.findings]

    def added(self, damage: Damage) -> list[tuple[float, Finding]]:
        """What a damage holds against the machine by checks of which the recording has no sign."""
        return [(at, finding) for at, finding in self.judged(damage) if finding.check not in self._signs]

    @cached_property
    def _signs(self) -> frozenset[str]:
        """The checks that fire on the recording, and those that are a symptom of one that does."""
        verdicts = [verdict for _, verdict in self._verdicts(None)]
        fired = {
            finding.check for verdict in verdicts for finding in (*verdict.findings, *verdict.informational)
        }
        return frozenset(check.id for check in CATALOGUE.checks if {check.id, *check.symptom_of} & fired)

    def _verdicts(self, damage: Damage | None) -> Iterator[tuple[float, Verdict]]:
        readings = dict(self._healthy)
        hit = {
            name for place, names in self._sources.items() if damage and damage.hits(place) for name in names
        }
        for name in hit:
            readings[name] = self._read(new_source(name), DamagedMachine(self._recording, damage))
        for looks, judgement in self._evaluations:
            judgement.state = PipelineState()
            for at in looks:
                instant = self._recording.state_at(at).instant
                yield at, judgement.evaluate([rounds[at] for rounds in readings.values()], instant)


@cache
def healthy() -> list[Path]:
    """The recordings of healthy machines."""
    return [bundle_path(name) for name in bundle_names() if name.startswith("healthy-")]


@cache
def without_hangs() -> list[Path]:
    """The recordings, healthy or not, of machines on which no call of NVML gets stuck."""
    paths = [bundle_path(name) for name in bundle_names()]
    return [path for path in paths if not _gets_stuck(path)]


def _gets_stuck(directory: Path) -> bool:
    answers = [path.read_text() for path in directory.rglob("nvml.json")]
    return any(f'"{failure}"' in text for text in answers for failure in ("stall", "hang"))
