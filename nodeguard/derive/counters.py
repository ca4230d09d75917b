"""What counters say that is no rise: those that stand at their end, and those that should move and do not.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodeguard.derive.world import World
from nodeguard.model.signal import Scalar

_KEEP_ALIVE = "efa.keep_alive_rcvd"

# A counter's value and since when, in seconds since boot, it has stood there.
Still = Mapping[str, tuple[float, float]]


def saturated(world: World, bits: Mapping[str, int]) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each port that has counters that stop at their maximum, `port.saturated`: those that stand there,
    or `none`.

    bits: width of such counters by name.
    """
    for slot in world.slots("port"):
        signals = world.of(slot)
        present = [name for name in bits if name in signals]
        if present:
            ended = (name.partition(".")[2] for name in present if signals[name] == (1 << bits[name]) - 1)
            yield slot, {"port.saturated": ", ".join(ended) or "none"}


def still(world: World, known: Still) -> dict[str, tuple[float, float]]:
    """Each EFA device's count of heartbeats, and since when it has stood still."""
    after: dict[str, tuple[float, float]] = {}
    for slot in world.slots("port"):
        count = world.of(slot).get(_KEEP_ALIVE)
        if isinstance(count, int):
            before, since = known.get(slot, (count, world.mono))
            after[slot] = (count, since if count == before else world.mono)
    return after


def silence(world: World, known: Still) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each EFA device, `efa.silence`: seconds in which no heartbeat came."""
    for slot, (_, since) in known.items():
        yield slot, {"efa.silence": world.mono - since}
