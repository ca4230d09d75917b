"""Derived signals of the host: services and the NVIDIA driver. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.gpus import has_nvswitches
from nodeguard.derive.latest_readings import LatestReadings
from nodeguard.model.observation import Event
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

# Start of each service's main process, in clock ticks since boot, and the number of later starts.
ServiceStarts = Mapping[str, tuple[int, int]]


def track_starts(latest: LatestReadings, starts: ServiceStarts) -> dict[str, tuple[int, int]]:
    """Return each service's latest start and how many starts were seen after the first."""
    after = dict(starts)
    for service, ticks in latest.read_values("service", "service.start_ticks"):
        if isinstance(ticks, int):
            before, times = after.get(service, (ticks, 0))
            after[service] = (ticks, times + (ticks != before))
    return after


def service_derivations(starts: ServiceStarts, platform: Platform | None) -> tuple[Derivation, ...]:
    """Return the derivations for services: role, restarts, and the node's fabric manager. starts: see
    track_starts.
    """

    def role(_latest: LatestReadings, service: str) -> Values:
        yield "service.role", _ROLES.get(service.partition("/")[2], "other")

    def restarts(latest: LatestReadings, service: str) -> Values:
        latest.get(service, "service.start_ticks")  # an unread start may be a restart
        if service in starts:
            yield "service.restarts", starts[service][1]

    def fabric_manager(latest: LatestReadings, _node: str) -> Values:
        yield from _fabric_manager(latest, platform)

    return (
        Derivation("service", ("service.role",), role),
        Derivation("service", ("service.restarts",), restarts),
        Derivation(NODE, ("fabric_manager.needed", "fabric_manager.running"), fabric_manager),
    )


def _fabric_manager(latest: LatestReadings, platform: Platform | None) -> Values:
    """Yield whether the node needs nvidia-fabricmanager, and whether it runs.

    One in a driver container looks like any pod's process: only its effect on the GPUs' fabric is visible.
    Without any service, nodeguard runs inside a container.
    """
    if not latest.listed("services", "service"):
        return
    expected = platform.expect.get("fabric_manager") if platform else None
    if expected is False or not (expected or has_nvswitches(latest)):
        needed = False
    else:
        enabled = latest.get(_FABRIC_MANAGER, "service.enabled") is True
        needed = enabled or (expected is True and not latest.node_signal("driver.container"))
    yield "fabric_manager.needed", needed
    yield "fabric_manager.running", latest.get(_FABRIC_MANAGER, "service.running") is True


# Seconds after a load, an unload or a boot in which an absent driver is no fault: the container of a driver
# compiles it for minutes.
CHANGE_PERIOD = 600.0

_CHANGE_EVENTS = frozenset({"driver.load", "driver.unload"})


def last_driver_change(before: float | None, events: Iterable[Event]) -> float | None:
    """Return the time of the last load or unload of the driver in seconds since boot; None where unknown."""
    times = [event.at for event in events if event.signal in _CHANGE_EVENTS]
    return max([*times, *([before] if before is not None else [])], default=None)


def driver_changing_derivation(changed_at: float | None) -> Derivation:
    """Return the derivation of `driver.changing`.

    It is true while the module is being loaded or unloaded, and for CHANGE_PERIOD after that and after a
    boot. changed_at: see last_driver_change.
    """

    def compute(latest: LatestReadings, _node: str) -> Values:
        is_recent = changed_at is not None and latest.mono - changed_at < CHANGE_PERIOD
        if is_recent or latest.node_signal("driver.module_state") in {"coming", "going"}:
            yield "driver.changing", True
        else:
            uptime = latest.node_signal("host.uptime")
            yield "driver.changing", isinstance(uptime, (int, float)) and uptime < CHANGE_PERIOD

    return Derivation(NODE, ("driver.changing",), compute)


def driver_branch(latest: LatestReadings) -> int | None:
    """Return the driver's branch, such as 580, from its version; None where it is not known."""
    versions = dict(latest.read_values(NODE, "nvml.driver_version")) | dict(
        latest.read_values(NODE, "driver.version")
    )
    branch = str(versions.get(NODE, "")).split(".")[0]
    return int(branch) if branch.isdigit() else None
