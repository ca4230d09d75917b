"""Campaigns of damaged input, in process, at the parsers and the judge. Each returns how many inputs it tried.

Only the errors that a user sees may come out: a source reports its failure in an observation, and the reader of a
recording or check file raises its own error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from importlib.resources.abc import Traversable
from io import BytesIO
from random import Random
from typing import Any, cast

from fixtures.bundles import bundle_path
from nodeguard.bundle.failures import BundleError
from nodeguard.bundle.manifest import read_frame_manifest, read_manifest
from nodeguard.bundle.nvml import read_base
from nodeguard.bundle.recording import Recording
from nodeguard.catalog.check_files import read_check_file as read_checks
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.config.errors import ConfigError
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Reading
from nodeguard.model.signal import Scalar
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.reader import read_source
from nodeguard.sources.machine import LogRecords
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.registry import all_sources
from nodeguard.sources.source import Source
from nodeguard.worker.lane_state import LaneState
from nodeguard.worker.replay import replay_nvml
from nodeguard.worker.result import LaneResult
from tests.fuzz import mutation
from tests.paths import ROOT

HEALTHY = bundle_path("healthy-dgx-h100")
CATALOGUE, SIGNALS = load_catalogue()


class Damaged(ReplayMachine):
    """A healthy machine with damaged files, log and NVML."""

    def __init__(self, random: Random) -> None:
        recording = Recording.open(str(HEALTHY))
        super().__init__(recording)
        self._random = random
        self._document = recording.state_at(0).nvml or {}
        self.lines: tuple[str, ...] = ()
        self.share = 0.0
        self.tried = 0

    def read(self, path: str) -> str:
        text = super().read(path)
        if self._random.random() >= self.share:
            return text
        self.tried += 1
        return mutation.text(text, self._random)

    def log(self, within: float = math.inf) -> LogRecords:
        return LogRecords(self.lines)

    def nvml(self, within: float = math.inf, leave: frozenset[int] = frozenset()) -> LaneResult:
        document = {
            "system": self._calls(self._document["system"]),
            "devices": [self._calls(device) for device in self._document["devices"]],
        }
        return replay_nvml(LaneState(), document)

    def _calls(self, calls: dict[str, Any]) -> dict[str, Any]:
        damaged = dict(calls)
        for call in damaged:
            if self._random.random() < self.share:
                self.tried += 1
                damaged[call] = mutation.value(self._random)
        return damaged


def _judged(judgement: Pipeline, machine: Damaged, sources: list[Source], at: float) -> None:
    readings = [read_source(source, machine) for source in sources]
    assert_reported(readings)
    judgement.evaluate(readings, Instant(1.8e9 + at, 1e6 + at, "boot"))


def assert_reported(readings: list[Reading]) -> None:
    """No source may err in itself, and all that it reads must be plain values."""
    for reading in readings:
        for observation in reading.observations:
            assert "error in the source itself" not in observation.detail, observation.detail
            assert all(isinstance(value, Scalar) for value in observation.signals.values()), observation


def _source(name: str) -> Source:
    return next(source for source in all_sources(CATALOGUE.patterns) if source.name == name)


def log_lines(number: int, seed: int) -> int:
    """Lines of the kernel log, fifty at a time, and what the judge makes of them."""
    random = Random(seed)
    machine, source = Damaged(random), _source("kmsg")
    judgement = Pipeline(CATALOGUE, SIGNALS, PlatformHints(), one_shot=True)
    seeds = [pattern.example for pattern in CATALOGUE.patterns]
    for tried in range(0, number, 50):
        lines = []
        for line in range(50):
            text = mutation.text(random.choice(seeds), random).replace("\n", "\\x0a")
            record = f"3,{tried + line},{(1_000_000 + tried) * 1_000_000},-;{text}"
            lines.append(mutation.text(record, random) if random.random() < 0.3 else record)
        machine.lines = tuple(lines)
        _judged(judgement, machine, [source], tried)
    return number


def files(number: int, seed: int) -> int:
    """Files of /sys, /proc and /etc, one in four damaged."""
    random = Random(seed)
    machine = Damaged(random)
    machine.share = 0.25
    judgement = Pipeline(CATALOGUE, SIGNALS, PlatformHints(), one_shot=True)
    sources = [source for source in all_sources(CATALOGUE.patterns) if source.name not in {"kmsg", "nvml"}]
    at = 0.0
    while machine.tried < number:
        _judged(judgement, machine, sources, at)
        at += 10
    return machine.tried


def nvml(number: int, seed: int) -> int:
    """Results of NVML calls, one in ten of another kind than expected."""
    random = Random(seed)
    machine = Damaged(random)
    machine.share = 0.1
    judgement = Pipeline(CATALOGUE, SIGNALS, PlatformHints(), one_shot=True)
    source, at = _source("nvml"), 0.0
    while machine.tried < number:
        _judged(judgement, machine, [source], at)
        at += 10
    return machine.tried


def bundles(number: int, seed: int) -> int:
    """bundle.yaml, frame.yaml and nvml.json as texts."""
    random = Random(seed)
    manifest = (HEALTHY / "bundle.yaml").read_text()
    frame = 'removed:\n  - sys/class/infiniband/mlx5_0\nboot_id: "b"\nrecorded_at: 2026-11-01T12:00:00Z\nuptime_s: 12.5\n'
    calls = json.dumps(
        {
            "system": {"nvmlDeviceGetCount": 1},
            "devices": [{"nvmlDeviceGetName": "x"}, {"error": "NVML_ERROR_UNKNOWN"}],
        }
    )
    readers: tuple[tuple[str, Callable[[bytes, str], object]], ...] = (
        (manifest, read_manifest),
        (frame, read_frame_manifest),
        (calls, read_base),
    )
    for _ in range(number):
        good, parse = random.choice(readers)
        _refused(parse, mutation.text(good, random).encode())
    return number


def _refused(parse: Callable[[bytes, str], object], data: bytes) -> None:
    try:
        parse(data, "bundle.yaml")
    except BundleError as error:
        assert "\n" not in str(error)


class _File:
    """A file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.name = "site.yaml"

    def open(self, _mode: str) -> BytesIO:
        return BytesIO(self._data)

    def read_bytes(self) -> bytes:
        return self._data

    def __str__(self) -> str:
        return self.name


def check_files(number: int, seed: int) -> int:
    """Files of checks."""
    random = Random(seed)
    seeds = []
    for path in sorted((ROOT / "checks").glob("*.yaml")):
        head, *checks = path.read_text().split("\n  - id: ")
        seeds += [f"{head}\n  - id: {check}" for check in checks]
    for _ in range(number):
        damaged = mutation.text(random.choice(seeds), random)
        try:
            read_checks(cast("Traversable", _File(damaged.encode())), SIGNALS)
        except ConfigError as error:
            assert "\n" not in str(error)
    return number


# Of a hundred inputs, how many each campaign takes.
SHARES: dict[Callable[[int, int], int], int] = {
    log_lines: 55,
    files: 20,
    nvml: 17,
    bundles: 5,
    check_files: 3,
}
