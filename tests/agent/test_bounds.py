"""What is remembered of a node has an end, whatever its log and its probes say."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from nodeguard.agent.state import MAX_BYTES, AgentState, capture_state, decode_state, encode_state
from nodeguard.cli.check_catalogue import load_catalogue
from nodeguard.derive.derive import PlatformHints
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Component, Event, Observation, Reading
from nodeguard.model.signal import Scalar
from nodeguard.pipeline.pipeline import Pipeline
from nodeguard.sources.machine import LaneHangs
from tests.derive.look import GPUS, xid

Round = Callable[[random.Random, float], Reading]
HEX = "0123456789abcdef"


def word(chance: random.Random, letters: int) -> str:
    """Letters that no compression makes shorter than half."""
    return "".join(chance.choices(HEX, k=letters))


def address(chance: random.Random) -> str:
    return f"{word(chance, 4)}:{word(chance, 2)}:{word(chance, 2)}"


def strange_gpus(chance: random.Random, at: float) -> Reading:
    """Xids of GPUs that nobody has, each with much to say."""
    lines = [
        Observation("kmsg", f"gpu/{address(chance)}", events=(xid(79, word(chance, 900), at=at),))
        for _ in range(300)
    ]
    return Reading("kmsg", at, tuple(lines))


def strange_slots(chance: random.Random, at: float) -> Reading:
    """Lines about functions, disks, ports and DIMMs of ever new names."""

    def said(slot: str, signal: str, **fields: Scalar) -> Observation:
        return Observation("kmsg", slot, events=(Event(signal, at, word(chance, 400), fields),))

    rows = [
        row
        for _ in range(20)
        for row in (
            said(f"pci/{address(chance)}.0", "nic.firmware_dead"),
            said(f"disk/{word(chance, 12)}", "disk.io_error", dev=word(chance, 12)),
            said(f"port/{word(chance, 12)}/1", "nic.health_issue", issue=word(chance, 3000)),
            said(f"dimm/{word(chance, 12)}", "dimm.uncorrected_error", label=word(chance, 12)),
            said("node", "memory.oom", constraint=word(chance, 3000)),
        )
    ]
    return Reading("kmsg", at, tuple(rows))


def a_storm_on_known_gpus(chance: random.Random, at: float) -> Reading:
    """Codes of all numbers on GPUs that are there."""
    lines = [
        Observation("kmsg", slot, events=(xid(chance.randrange(1000), word(chance, 30_000), at=at),))
        for slot in GPUS * 12
    ]
    return Reading("kmsg", at, tuple(lines))


def probes(chance: random.Random, at: float) -> Reading:
    """As many probes as are read, all with new names, and all alarmed."""

    def said() -> Observation:
        name = word(chance, 60)
        signals: dict[str, Scalar] = {
            "probe.name": name,
            "probe.target": "node",
            "probe.file": f"/run/nodeguard/observations.d/{word(chance, 60)}.json",
            "probe.message": word(chance, 500),
            "probe.health": "fatal",
        }
        return Observation("observations", f"probe/{name}", signals=signals)

    return Reading("observations", at, tuple(said() for _ in range(2048)))


def mounts(chance: random.Random, at: float) -> Reading:
    """Mounts that come and go while a hung one cuts every round short."""
    rows = [
        Observation(
            "filesystem",
            f"fs:/var/lib/kubelet/pods/{word(chance, 32)}",
            signals={"fs.read_only": False, "fs.device": word(chance, 32), "fs.used_ratio": 0.5},
        )
        for _ in range(200)
    ]
    return Reading("filesystem", at, tuple(rows), complete=False)


def parts(chance: random.Random, at: float) -> Reading:
    """Ports that have another name and another part each time."""
    rows = [
        Observation(
            "infiniband",
            f"port/{word(chance, 20)}/1",
            signals={"port.up": True, "port.rate": 400},
            component=Component(word(chance, 32)),
        )
        for _ in range(100)
    ]
    return Reading("infiniband", at, tuple(rows))


def after(make: Round, rounds: int) -> AgentState:
    """What is remembered after so many rounds."""
    chance = random.Random(7)
    judgement = Pipeline(*load_catalogue(), PlatformHints())
    for step in range(rounds):
        now = Instant(1e9 + step * 10, 1000.0 + step * 10, "boot")
        gpus = tuple(Observation("nvml", slot, signals={"gpu.answers": True}) for slot in GPUS)
        judgement.evaluate([make(chance, now.mono), Reading("nvml", now.mono, gpus)], now)
    return capture_state(judgement.state, now, LaneHangs())


@pytest.mark.parametrize(
    ("make", "rounds"),
    [(strange_gpus, 2), (strange_slots, 8), (a_storm_on_known_gpus, 8), (probes, 2), (mounts, 6), (parts, 6)],
)
def test_whatever_is_said_what_is_remembered_stays_small(make: Round, rounds: int) -> None:
    few, many = after(make, rounds), after(make, 2 * rounds)
    written = encode_state(many)
    assert len(written) <= MAX_BYTES
    kept = decode_state(written)
    assert set(GPUS) <= kept.pipeline.judged.targets.keys(), "what is there is not forgotten for what is said"
    sizes = [
        len(msgspec.msgpack.encode([one.pipeline.derived, one.pipeline.judged.targets]))
        for one in (few, many)
    ]
    assert sizes[1] <= sizes[0] * 1.1, "it does not grow"
