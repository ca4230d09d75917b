"""The size of the state is bounded for any log and any probes."""

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
from tests.derive.readings import GPUS, xid

pytestmark = pytest.mark.slow

Round = Callable[[random.Random, float], Reading]
HEX = "0123456789abcdef"


def random_text(chance: random.Random, letters: int) -> str:
    """Return letters that compress to no less than half."""
    return "".join(chance.choices(HEX, k=letters))


def address(chance: random.Random) -> str:
    return f"{random_text(chance, 4)}:{random_text(chance, 2)}:{random_text(chance, 2)}"


def strange_gpus(chance: random.Random, at: float) -> Reading:
    """Return Xids of unknown GPUs with long texts."""
    lines = [
        Observation("kmsg", f"gpu/{address(chance)}", events=(xid(79, random_text(chance, 900), at=at),))
        for _ in range(300)
    ]
    return Reading("kmsg", at, tuple(lines))


def strange_slots(chance: random.Random, at: float) -> Reading:
    """Return events of functions, disks, ports and DIMMs with new names each time."""

    def observation(slot: str, signal: str, **fields: Scalar) -> Observation:
        return Observation("kmsg", slot, events=(Event(signal, at, random_text(chance, 400), fields),))

    rows = [
        row
        for _ in range(20)
        for row in (
            observation(f"pci/{address(chance)}.0", "nic.firmware_dead"),
            observation(f"disk/{random_text(chance, 12)}", "disk.io_error", dev=random_text(chance, 12)),
            observation(
                f"port/{random_text(chance, 12)}/1", "nic.health_issue", issue=random_text(chance, 3000)
            ),
            observation(
                f"dimm/{random_text(chance, 12)}", "dimm.uncorrected_error", label=random_text(chance, 12)
            ),
            observation("node", "memory.oom", constraint=random_text(chance, 3000)),
        )
    ]
    return Reading("kmsg", at, tuple(rows))


def a_storm_on_known_gpus(chance: random.Random, at: float) -> Reading:
    """Return Xids of all codes on present GPUs."""
    lines = [
        Observation("kmsg", slot, events=(xid(chance.randrange(1000), random_text(chance, 30_000), at=at),))
        for slot in GPUS * 12
    ]
    return Reading("kmsg", at, tuple(lines))


def probes(chance: random.Random, at: float) -> Reading:
    """Return the maximum of probes, with new names and findings."""

    def observation() -> Observation:
        name = random_text(chance, 60)
        signals: dict[str, Scalar] = {
            "probe.name": name,
            "probe.target": "node",
            "probe.file": f"/run/nodeguard/observations.d/{random_text(chance, 60)}.json",
            "probe.message": random_text(chance, 500),
            "probe.health": "fatal",
        }
        return Observation("observations", f"probe/{name}", signals=signals)

    return Reading("observations", at, tuple(observation() for _ in range(2048)))


def mounts(chance: random.Random, at: float) -> Reading:
    """Return mounts that change while a hung one interrupts each round."""
    rows = [
        Observation(
            "filesystem",
            f"fs:/var/lib/kubelet/pods/{random_text(chance, 32)}",
            signals={"fs.read_only": False, "fs.device": random_text(chance, 32), "fs.used_ratio": 0.5},
        )
        for _ in range(200)
    ]
    return Reading("filesystem", at, tuple(rows), complete=False)


def parts(chance: random.Random, at: float) -> Reading:
    """Return ports with a new name and component each time."""
    rows = [
        Observation(
            "infiniband",
            f"port/{random_text(chance, 20)}/1",
            signals={"port.up": True, "port.rate": 400},
            component=Component(random_text(chance, 32)),
        )
        for _ in range(100)
    ]
    return Reading("infiniband", at, tuple(rows))


def after(make: Round, rounds: int) -> AgentState:
    """Return the state file after a number of rounds."""
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
def test_the_state_stays_small(make: Round, rounds: int) -> None:
    few, many = after(make, rounds), after(make, 2 * rounds)
    written = encode_state(many)
    assert len(written) <= MAX_BYTES
    state = decode_state(written)
    assert set(GPUS) <= state.pipeline.judged.targets.keys(), "present GPUs stay in the state"
    sizes = [
        len(msgspec.msgpack.encode([stored.pipeline.derived, stored.pipeline.judged.targets]))
        for stored in (few, many)
    ]
    assert sizes[1] <= sizes[0] * 1.1, "it does not grow"
