"""Cost of evaluation over a day of a working 8-GPU, 8-port node in virtual time, and growth of its state.

`python bench/day.py [DAYS]`. Each source is read at its own interval. Xids of jobs, flapping ports, mounts
and probes of ever new names, a GPU replaced now and then: a node that is well and never the same. Blocks are
what Python holds in memory (sys.getallocatedblocks), beside the process's resident set; the file is what the
agent would write down. The reference for time is encoding all readings as JSON with msgspec, once an hour.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec
from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent))

from fixtures.bundles import bundle_path
from nodeguard.agent.state import MAX_BYTES, capture_state, encode_state
from nodeguard.bundle.recording import Recording
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Component, Event, Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import target_kind
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.pipeline.reader import read_source
from nodeguard.pipeline.replay import due_times
from nodeguard.sources.machine import LaneHangs
from nodeguard.sources.machines.replay import ReplayMachine
from nodeguard.sources.registry import all_sources

BUNDLE = bundle_path("healthy-dgx-h100")
HOUR, DAY = 3600, 86_400

_CHANGING = ("gpu.temperature", "gpu.utilization", "memory.available_ratio", "fs.free")
_SLOW = ("gpu.pcie.replays",)


class Node:
    """The node of a bundle with readings that change over time. seed: of the changes."""

    def __init__(self, readings: list[Reading], seed: int = 1) -> None:
        self._readings = {reading.source: reading for reading in readings}
        self._chance = random.Random(seed)
        self._counts: dict[tuple[str, str], int] = {}
        self._parts: dict[str, Component] = {}
        self._mounts: list[str] = []
        self._probes: list[str] = []
        self._down: dict[str, float] = {}
        self._gpus = [
            item.target for item in self._readings["nvml"].observations if target_kind(item.target) == "gpu"
        ]

    def reading(self, source: str, at: float) -> Reading:
        """Return the reading of a source. at: seconds since boot."""
        rows = [self._changed(item, at) for item in self._readings[source].observations]
        more = {"kmsg": self._log, "filesystem": self._volumes, "observations": self._probed}.get(source)
        return replace(self._readings[source], at=at, observations=(*rows, *(more(at) if more else ())))

    def _changed(self, observation: Observation, at: float) -> Observation:
        chance, signals = self._chance, dict(observation.signals)
        for name, value in observation.signals.items():
            if name in _CHANGING and isinstance(value, (int, float)):
                signals[name] = value + chance.randrange(-5, 5) * value * 1e-3
            elif name in _SLOW:
                signals[name] = self._count(observation.target, name, chance.random() < 1e-3)
            elif name.endswith(("_data", "_packets")) and value:
                signals[name] = self._count(observation.target, name, by=chance.randrange(1 << 30))
        if target_kind(observation.target) == "port" and signals.get("port.up"):
            if chance.random() < 1e-4:
                self._down[observation.target] = at + chance.randrange(1, 60)
                self._count(observation.target, "port.link_downed")
            if at < self._down.get(observation.target, 0.0):
                signals.update({"port.up": False, "port.state": "DOWN", "port.phys_state": "Polling"})
            if "port.link_downed" in signals:
                signals["port.link_downed"] = self._counts.get((observation.target, "port.link_downed"), 0)
        if (
            target_kind(observation.target) == "gpu"
            and observation.component is not None
            and chance.random() < 1e-5
        ):
            self._parts[observation.target] = Component(f"GPU-{chance.getrandbits(64):016x}")
        return replace(
            observation, signals=signals, component=self._parts.get(observation.target, observation.component)
        )

    def _count(self, slot: str, name: str, by: int = 1) -> int:
        self._counts[slot, name] = self._counts.get((slot, name), 0) + by
        return self._counts[slot, name]

    def _log(self, at: float) -> Iterator[Observation]:
        """Every few minutes a job ends badly, and now and then a process, a disk or a function is named."""
        chance = self._chance
        if chance.random() < 0.05:
            slot = chance.choice(self._gpus)
            place = f"GPC {chance.randrange(8)}, TPC {chance.randrange(9)}, SM {chance.randrange(2)}"
            trap = f"Graphics SM Warp Exception on ({place}): Out Of Range Address"
            rest = f"pid={chance.randrange(1 << 22)}, name=python3, {trap}"
            fields: dict[str, Scalar] = {
                "pci": slot[4:],
                "xid": chance.choice((13, 13, 31, 43, 45)),
                "rest": rest,
            }
            text = f"NVRM: Xid (PCI:{slot[4:]}): {fields['xid']}, {rest}"
            yield Observation("kmsg", slot, events=(Event("gpu.xid.line", at, text, fields),))
        if chance.random() < 0.005:
            scope = f"kubepods-pod{chance.getrandbits(64):016x}.slice"
            event = Event("memory.oom", at, f"oom-kill: {scope}", {"constraint": "CONSTRAINT_MEMCG"})
            yield Observation("kmsg", "node", events=(event,))
        if chance.random() < 0.02:
            device = f"nbd{chance.randrange(1 << 20)}"
            yield Observation(
                "kmsg", f"disk/{device}", events=(Event("disk.io_error", at, device, {"dev": device}),)
            )
        if chance.random() < 0.02:
            address = f"{chance.randrange(1 << 16):04x}:{chance.randrange(256):02x}:00.0"
            event = Event("pci.corrected_error", at, f"{address}: AER: Corrected", {"pci": address})
            yield Observation("kmsg", f"pci/{address}", events=(event,))

    def _volumes(self, _: float) -> Iterator[Observation]:
        """Volumes of pods: a few at a time, each with a name of its own."""
        if self._chance.random() < 0.9:
            self._mounts = [*self._mounts, f"fs:/var/lib/kubelet/pods/{self._chance.getrandbits(128):032x}"][
                -20:
            ]
        for slot in self._mounts:
            signals: dict[str, Scalar] = {
                "fs.type": "ext4", "fs.device": f"/dev/{slot[-8:]}", "fs.network": False,
                "fs.read_only": False, "fs.used_ratio": 0.5, "fs.free": 1 << 30, "fs.answers": True,
            }  # fmt: skip
            yield Observation("filesystem", slot, signals=signals)

    def _probed(self, at: float) -> Iterator[Observation]:
        """A probe in twenty finds something, and its name is another each time."""
        if self._chance.random() < 0.9:
            self._probes = [*self._probes, f"job-{self._chance.getrandbits(64):016x}"][-20:]
        for name in self._probes:
            health = "warning" if int(name[-4:], 16) % 20 == 0 else "ok"
            signals: dict[str, Scalar] = {
                "probe.name": name, "probe.target": "node", "probe.file": f"{name}.json",
                "probe.health": health, "probe.message": f"{name} at {at:.0f}",
            }  # fmt: skip
            yield Observation("observations", f"probe/{name}", signals=signals)


def main() -> None:
    """Print the figures."""
    days = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    catalogue, signals = load_catalogue()
    machine = ReplayMachine(Recording.open(str(BUNDLE)))
    sources = all_sources(catalogue.patterns)
    start = machine.now()
    node = Node([read_source(source, machine) for source in sources])
    judgement = Pipeline(catalogue, signals, PlatformHints())
    # Arrays, so that the figures themselves take no blocks.
    took, references, resident = array("d"), array("d"), array("d")
    files, blocks = array("q"), array("q")
    print(
        f"{'hour':>6}{'round':>10}{'reference':>11}{'file':>10}{'blocks':>10}{'resident':>11}{'findings':>10}"
    )
    for at in due_times([source.interval for source in sources], days * DAY):
        now = Instant(start.wall + at, start.mono + at, start.boot_id)
        new = [node.reading(source.name, now.mono) for source in sources if at % source.interval == 0]
        began = time.perf_counter()
        verdict = judgement.evaluate(new, now)
        took.append(time.perf_counter() - began)
        if at and at % 60 == 0:
            files.append(len(encode_state(capture_state(judgement.state, now, LaneHangs()))))
        if at and at % HOUR == 0:
            whole = [node.reading(source.name, now.mono) for source in sources]
            for _ in range(9):
                began = time.perf_counter()
                msgspec.json.encode(whole)
                references.append(time.perf_counter() - began)
            del whole, new
            gc.collect()
            blocks.append(sys.getallocatedblocks())
            resident.append(rss())
            if at % (4 * HOUR) == 0 or at == HOUR:
                print(
                    f"{at / HOUR:6.0f}{median(took) * 1000:7.2f} ms{median(references) * 1000:8.2f} ms"
                    f"{files[-1] / 1024:6.1f} KiB{blocks[-1]:10}{resident[-1]:7.1f} MiB"
                    f"{len(verdict.findings):10}"
                )
            del took[:]
    print(f"blocks after the first hour and at the end: {blocks[0]} and {blocks[-1]}")
    print(f"resident after the first hour and at the end: {resident[0]:.1f} and {resident[-1]:.1f} MiB")
    print(f"the file at its longest: {max(files) / 1024:.1f} KiB of {MAX_BYTES / 1024:.0f}")


def rss() -> float:
    """Resident set of this process, MiB."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


main()
