"""What a GPU's own readings come to: margins, load, fabric. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodeguard.derive.thermal import margins
from nodeguard.derive.world import World
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar
from nodeguard.model.slot import parent

# Fields of the fabric health mask: (words, shift, width, values that are a problem). Source: nvml.h, GPU
# fabric health mask.
_HEALTH_MASK = (
    ("degraded bandwidth", 0, 0x3, {1: ""}),
    ("route recovery in progress", 2, 0x3, {1: ""}),
    ("route unhealthy", 4, 0x3, {1: ""}),
    ("access timeout recovery in progress", 6, 0x3, {1: ""}),
    (
        "incorrect configuration",
        8,
        0xF,
        {
            2: "wrong system GUID",
            3: "wrong chassis serial",
            4: "no partition",
            5: "insufficient NVLinks",
            6: "incompatible GPU firmware",
            7: "invalid location",
            8: "invalid state",
        },
    ),
    ("fabric manager disconnected", 14, 0x3, {2: ""}),
)
_SUMMARIES = {2: "unhealthy", 3: "limited capacity"}


def gpus(world: World) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """Derived signals of each GPU that NVML lists."""
    for slot in world.slots("gpu"):
        signals = world.of(slot)
        derived = {**margins(signals), **_busy(signals), **_fabric(signals)}
        if derived.get("gpu.busy") and "gpu.temperature.margin" in derived:
            # An idle GPU beside one at work is cool, and no measure for it.
            derived["gpu.temperature.busy_margin"] = derived["gpu.temperature.margin"]
        if derived:
            yield slot, derived


def _busy(signals: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Whether the GPU does work now, so that its links have no reason to idle."""
    idle, used = signals.get("gpu.clocks.idle"), signals.get("gpu.utilization")
    if idle is None or used is None or isinstance(used, str):
        return {}
    return {"gpu.busy": not idle and used > 0}


def _fabric(signals: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Whether the GPU has joined its NVLink fabric, and what the fabric says is wrong with it."""
    state, status = signals.get("gpu.fabric.state"), signals.get("gpu.fabric.status")
    if not isinstance(state, int) or state == 0:
        return {}
    progress = {1: "not begun", 2: "in progress"}.get(state, "ended")
    return {
        "gpu.fabric.ready": state == 3 and not status,
        "gpu.fabric.registration": f"{progress} with NVML's error {status}" if status else progress,
        "gpu.fabric.problem": ", ".join(_problems(signals)) or "none",
    }


def _problems(signals: Mapping[str, Scalar]) -> Iterator[str]:
    mask, summary = signals.get("gpu.fabric.health_mask"), signals.get("gpu.fabric.health_summary")
    if isinstance(mask, int):
        for words, shift, width, problems in _HEALTH_MASK:
            value = mask >> shift & width
            if value in problems:
                yield f"{words}: {problems[value]}" if problems[value] else words
    if isinstance(summary, int) and summary in _SUMMARIES:
        yield _SUMMARIES[summary]


def links(
    world: World, platform: Platform | None, most: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each NVLink that is not active, whether it is down: it does not sleep, and its GPU should have more
    of them.

    most: the most active links that a GPU's slot has had. A GPU should have as many as the platform says, as
    its peers have, or as it had: boards wire fewer than the GPU has. In MIG mode the links of some GPUs are
    off (A100, NVIDIA's Fabric Manager user guide), and none is expected.
    """
    for slot in world.slots("nvlink"):
        signals = world.of(slot)
        if signals.get("nvlink.active") is not False:
            continue
        owner = parent(slot)
        of_gpu = world.of(owner)
        if of_gpu.get("gpu.mig.enabled") is True:
            continue
        active = _count(of_gpu.get("gpu.nvlink.active"))
        expected = max(
            _count(platform.expect.get("nvlink_links") if platform else None),
            _count(of_gpu.get("gpu.nvlink.active~peers")),
            most.get(owner, 0),
        )
        down = active < expected and signals.get("nvlink.sleeping") is not True
        yield slot, {"nvlink.down": down, "nvlink.expected_links": int(expected)}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
