"""What services are for, how often they were restarted, and which of them the node needs. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.platform import Platform
from nodeguard.model.target import NODE

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
ServiceStarts = Mapping[str, tuple[int, int]]


def track_starts(latest: LatestReadings, known: ServiceStarts) -> dict[str, tuple[int, int]]:
    """Return each service's latest start and how many starts were seen after the first."""
    after = dict(known)
    for service, ticks in latest.read_values("service", "service.start_ticks"):
        if isinstance(ticks, int):
            before, times = after.get(service, (ticks, 0))
            after[service] = (ticks, times + (ticks != before))
    return after


def service_derivations(known: ServiceStarts, platform: Platform | None) -> tuple[Derivation, ...]:
    """Return the derivations for services: what each is for, its starts, and whether the node needs and has a
    fabric manager.

    known: see starts.
    """

    def role(_latest: LatestReadings, service: str) -> Values:
        yield "service.role", _ROLES.get(service.partition("/")[2], "other")

    def restarts(latest: LatestReadings, service: str) -> Values:
        latest.get(service, "service.start_ticks")  # a start that could not be read may be one more
        if service in known:
            yield "service.restarts", known[service][1]

    def fabric_manager(latest: LatestReadings, _node: str) -> Values:
        yield from _fabric_manager(latest, platform)

    return (
        Derivation("service", ("service.role",), role),
        Derivation("service", ("service.restarts",), restarts),
        Derivation(NODE, ("fabric_manager.needed", "fabric_manager.running"), fabric_manager),
    )


def _fabric_manager(latest: LatestReadings, platform: Platform | None) -> Values:
    """Whether the node needs nvidia-fabricmanager, and whether it runs.

    One that a driver container brought cannot be told from a pod's own processes: of it, only what it does
    for the GPUs' fabric is seen. Where no service is seen at all, the look is from inside a container.
    """
    if not latest.listed("services", "service"):
        return
    expected = platform.expect.get("fabric_manager") if platform else None
    if expected is False or not (expected or latest.node_signal("nvswitch.pci_count")):
        needed = False
    else:
        enabled = latest.get(_FABRIC_MANAGER, "service.enabled") is True
        needed = enabled or (expected is True and not latest.node_signal("driver.container"))
    yield "fabric_manager.needed", needed
    yield "fabric_manager.running", latest.get(_FABRIC_MANAGER, "service.running") is True
