"""Derived signals of GPUs: load, NVLink fabric, expected NVLinks, temperature margins. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings, UnreadError
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar
from nodeguard.model.target import NODE, parent_target

# Fields of the fabric health mask: (name, shift, mask, values that are a problem). Source: nvml.h, GPU
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


def _busy(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.busy`: whether the GPU is in use now, so that its links should run at full speed."""
    idle, used = latest.get(gpu, "gpu.clocks.idle"), latest.get(gpu, "gpu.utilization")
    if idle is not None and used is not None and not isinstance(used, str):
        yield "gpu.busy", not idle and used > 0


def _clock_share(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.clocks.share`: the SM clock as a share of its maximum. A clock of 0 is no clock."""
    now, most = _number(latest, gpu, "gpu.clocks.sm"), _number(latest, gpu, "gpu.clocks.sm_max")
    if now and most and now <= most:
        yield "gpu.clocks.share", now / most


def _problem(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.fabric.problem`: the problems that the fabric reports of the GPU, or `none`."""
    state = latest.get(gpu, "gpu.fabric.state")
    if isinstance(state, int) and state:
        yield "gpu.fabric.problem", ", ".join(_problems(latest, gpu)) or "none"


def _problems(latest: LatestReadings, gpu: str) -> Iterator[str]:
    mask = latest.get(gpu, "gpu.fabric.health_mask")
    summary = latest.get(gpu, "gpu.fabric.health_summary")
    if isinstance(mask, int):
        for name, shift, width, problems in _HEALTH_MASK:
            value = mask >> shift & width
            if value in problems:
                yield f"{name}: {problems[value]}" if problems[value] else name
    if isinstance(summary, int) and summary in _SUMMARIES:
        yield _SUMMARIES[summary]


def _domain(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.fabric.domain`: the NVLink domain of a GPU that has joined its fabric: its cluster and its clique.

    It is `unset` where one of them is zero. GPUs of one server (HGX, DGX) have none, those of a rack have.
    """
    if latest.get(gpu, "gpu.fabric.ready") is not True:
        return
    cluster, clique = latest.get(gpu, "gpu.fabric.cluster"), latest.get(gpu, "gpu.fabric.clique")
    if cluster is not None and clique is not None:
        is_set = clique and str(cluster).strip("0-")
        yield "gpu.fabric.domain", f"{cluster}.{clique}" if is_set else "unset"


def _problem_of_all(latest: LatestReadings, _node: str) -> Values:
    """`fabric.problem_of_all`: the problems of the fabric where it reports one of each GPU, or `none`."""
    problems = [str(problem) for problem in _values_of_all(latest, "gpu.fabric.problem")]
    if len(problems) > 1:
        are_all = "none" not in problems
        yield "fabric.problem_of_all", "; ".join(dict.fromkeys(problems)) if are_all else "none"


def _tray_joined(latest: LatestReadings, _node: str) -> Values:
    """`fabric.tray_joined`: whether any GPU of a tray has joined the NVLink fabric of its rack."""
    of_rack, ready = (_values_of_all(latest, f"gpu.fabric.{name}") for name in ("of_rack", "ready"))
    if len(ready) > 1 and of_rack and all(of_rack):
        yield "fabric.tray_joined", any(ready)


def _values_of_all(latest: LatestReadings, signal: str) -> list[Scalar]:
    """Return a signal of each GPU that NVML lists; nothing where one of them does not have it."""
    values = [latest.get(gpu, signal) for gpu in sorted(latest.listed("nvml", "gpu") or ())]
    return [value for value in values if value is not None] if None not in values else []


def gpu_derivations(platform: Platform | None, most: Mapping[str, float]) -> tuple[Derivation, ...]:
    """Return the derivations for the GPUs' own readings. most: see links."""

    def ready(latest: LatestReadings, gpu: str) -> Values:
        """`gpu.fabric.ready`: whether the GPU has joined its NVLink fabric, where this machine has one."""
        state, status = latest.get(gpu, "gpu.fabric.state"), latest.get(gpu, "gpu.fabric.status")
        if isinstance(state, int) and state and _has_fabric(latest, platform, most):
            yield "gpu.fabric.ready", state == 3 and not status
            progress = {1: "not begun", 2: "in progress"}.get(state, "ended")
            yield "gpu.fabric.registration", f"{progress} with NVML's error {status}" if status else progress

    def of_rack(_latest: LatestReadings, _gpu: str) -> Values:
        """`gpu.fabric.of_rack`: whether the NVSwitches of the platform are elsewhere in the rack."""
        if platform is not None and platform.expect.get("nvswitches") == 0:
            yield "gpu.fabric.of_rack", "nvlink_links" in platform.expect

    return (
        Derivation("gpu", ("gpu.busy",), _busy),
        Derivation("gpu", ("gpu.clocks.share",), _clock_share),
        Derivation("gpu", ("gpu.fabric.ready", "gpu.fabric.registration"), ready),
        Derivation("gpu", ("gpu.fabric.domain",), _domain),
        Derivation("gpu", ("gpu.fabric.of_rack",), of_rack),
        Derivation("gpu", ("gpu.fabric.problem",), _problem),
        Derivation(NODE, ("fabric.problem_of_all",), _problem_of_all),
        Derivation(NODE, ("fabric.tray_joined",), _tray_joined),
    )


def _has_fabric(latest: LatestReadings, platform: Platform | None, most: Mapping[str, float]) -> bool:
    """Return whether an NVLink fabric belongs to this machine.

    A virtual machine with one GPU of a board has none: its host manages the switches, and the GPU waits for a
    registration that never happens.
    """
    if platform is not None and not platform.expect.keys().isdisjoint(_FABRIC):
        return True
    if any(most.values()) or any(active for _, active in latest.read_values("gpu", "gpu.nvlink.active")):
        return True
    services = ("service/nvidia-fabricmanager", "service/nvidia-imex")
    is_managed = any(latest.get(service, "service.enabled") for service in services)
    return is_managed or has_nvswitches(latest)


def has_nvswitches(latest: LatestReadings) -> bool:
    """Return whether the node has NVSwitches, on the bus or behind functions that manage them."""
    counts = (latest.node_signal(f"nvswitch.{count}") for count in ("pci_count", "manager_count"))
    return any(counts)


# Fields of a platform that only a platform with an NVLink fabric declares.
_FABRIC = {"nvlink_links", "nvswitches", "fabric_manager"}


def nvlink_derivation(platform: Platform | None, most: Mapping[str, float]) -> Derivation:
    """Return the derivation of `nvlink.down` for NVLinks that are not active.

    A link is down where it does not sleep and its GPU should have more active links: as many as the platform
    has, as its peers have, or as it had itself; boards wire fewer than the GPU has. A PCIe card without any
    active link has no bridge, even if its peers have one. In MIG mode the links of some GPUs are off (A100,
    NVIDIA's Fabric Manager user guide), and none is expected.

    most: the most active links that each GPU has had.
    """

    def down(latest: LatestReadings, link: str) -> Values:
        gpu = parent_target(link)
        mig = latest.get(gpu, "gpu.mig.enabled")
        if latest.get(link, "nvlink.active") is not False or mig is True:
            return
        if mig is None and any(on for _, on in latest.read_values("gpu", "gpu.mig.enabled")):
            raise UnreadError("NVML does not name the GPU's MIG mode")
        active = _count(latest.get(gpu, "gpu.nvlink.active"))
        may_lack_bridge = not active and _is_card(latest, gpu)
        expected = max(
            _count(platform.expect.get("nvlink_links") if platform else None),
            0 if may_lack_bridge else _count(latest.get(gpu, "gpu.nvlink.active~peers")),
            most.get(gpu, 0),
        )
        yield "nvlink.down", active < expected and latest.get(link, "nvlink.sleeping") is not True
        yield "nvlink.expected_links", int(expected)

    return Derivation("nvlink", ("nvlink.down", "nvlink.expected_links"), down)


def _is_card(latest: LatestReadings, gpu: str) -> bool:
    """Return whether a GPU is a PCIe card: it is in no fabric and not named as a module (SXM)."""
    in_fabric = latest.get(gpu, "gpu.fabric.state") or has_nvswitches(latest)
    return not in_fabric and "SXM" not in str(latest.get(gpu, "gpu.name") or "")


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _margin(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.temperature.margin`: degrees to the GPU's slow-down; none where both forms are incomplete."""
    distance = _number(latest, gpu, "gpu.temperature.limit_distance")
    if distance is not None:
        limit = _number(latest, gpu, "gpu.temperature.slowdown_distance")
        yield "gpu.temperature.margin", distance - (limit or 0)
        return
    celsius = _number(latest, gpu, "gpu.temperature")
    slowdown = _number(latest, gpu, "gpu.temperature.slowdown")
    if celsius is not None and slowdown:
        yield "gpu.temperature.margin", slowdown - celsius


def _busy_margin(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.temperature.busy_margin`: the margin of a GPU in use; an idle GPU is no peer for it."""
    margin = latest.get(gpu, "gpu.temperature.margin")
    if margin is not None and latest.get(gpu, "gpu.busy"):
        yield "gpu.temperature.busy_margin", margin


def _memory_margin(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.memory.temperature_margin`: degrees to the limit of the GPU's memory."""
    celsius = _number(latest, gpu, "gpu.memory.temperature")
    highest = _number(latest, gpu, "gpu.memory.temperature_max")
    if celsius is not None and highest:
        yield "gpu.memory.temperature_margin", highest - celsius


def _number(latest: LatestReadings, gpu: str, signal: str) -> float | None:
    value = latest.get(gpu, signal)
    return None if value is None or isinstance(value, (bool, str)) else value


THERMAL_DERIVATIONS = (
    Derivation("gpu", ("gpu.temperature.margin",), _margin),
    Derivation("gpu", ("gpu.temperature.busy_margin",), _busy_margin),
    Derivation("gpu", ("gpu.memory.temperature_margin",), _memory_margin),
)
