"""What services are for, how often they were started again, and which of them the node needs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodeguard.derive.world import World
from nodeguard.model.platform import Platform
from nodeguard.model.signal import Scalar
from nodeguard.model.slot import NODE

_KUBELET = "kubelet"
_RUNTIME = "runtime"
_ROLES = {
    "kubelet": _KUBELET,
    "k3s": _KUBELET,
    "k3s-agent": _KUBELET,
    "rke2-server": _KUBELET,
    "rke2-agent": _KUBELET,
    "snap.microk8s.daemon-kubelite": _KUBELET,
    "containerd": _RUNTIME,
    "crio": _RUNTIME,
    "docker": _RUNTIME,
    "snap.microk8s.daemon-containerd": _RUNTIME,
    "nvidia-fabricmanager": "fabric-manager",
    "nvidia-persistenced": "persistence",
    "nvidia-imex": "imex",
}
_FABRIC_MANAGER = "service/nvidia-fabricmanager"

# Start of a service's main process, in clock ticks since boot, and how often it has changed.
Starts = Mapping[str, tuple[int, int]]


def starts(world: World, known: Starts) -> dict[str, tuple[int, int]]:
    """Each service's latest start and how many starts were seen after the first."""
    after = dict(known)
    for slot in world.slots("service"):
        ticks = world.of(slot).get("service.start_ticks")
        if not isinstance(ticks, int):
            continue
        before, times = after.get(slot, (ticks, 0))
        after[slot] = (ticks, times + (ticks != before))
    return after


def services(world: World, known: Starts) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each service, `service.role` and `service.restarts`."""
    for slot in world.slots("service"):
        derived: dict[str, Scalar] = {"service.role": _ROLES.get(slot.partition("/")[2], "other")}
        if slot in known:
            derived["service.restarts"] = known[slot][1]
        yield slot, derived


def needed(world: World, make: Platform | None) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For the node, whether it needs and has a fabric manager.

    One that a driver container brought cannot be told from a pod's own processes: of it, only what it does
    for the GPUs' fabric is seen. Where no service is seen at all, the look is from inside a container.
    """
    switches = world.node("nvswitch.pci_count")
    manager = world.of(_FABRIC_MANAGER)
    wanted = make.expect.get("fabric_manager") if make else None
    if world.slots("service") and "services" not in world.failed:
        enabled = manager.get("service.enabled") is True
        needs = enabled if wanted is None else wanted and (enabled or not world.node("driver.container"))
        yield (
            NODE,
            {
                "fabric_manager.needed": bool(needs) and (bool(switches) or wanted is True),
                "fabric_manager.running": manager.get("service.running") is True,
            },
        )
