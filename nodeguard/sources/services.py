"""Source `services`: whether the services of a GPU node are enabled and running, and when they started."""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.model.target import NODE
from nodeguard.sources.machine import Machine
from nodeguard.sources.processes import parse_stat
from nodeguard.sources.readings import ObservationDraft
from nodeguard.sources.source import source

_SYSTEMD = "/etc/systemd/system"
# Exists if systemd runs the machine. Source: sd_booted(3).
_BOOTED = "/run/systemd/system"
_CGROUP = "/sys/fs/cgroup"
_CGROUP_V1 = f"{_CGROUP}/systemd"
_NVIDIA = "/sys/module/nvidia"
# Where the driver container of NVIDIA's GPU operator mounts its root directory.
_DRIVER_CONTAINER = "/run/nvidia/driver"
_PEERMEM = ("/sys/module/nvidia_peermem", "/sys/module/nv_peer_mem")

# Name of the unit → name of its main process, which the kernel cuts at 15 characters. k3s, rke2 and MicroK8s
# run kubelet and containerd inside units of their own.
_SERVICES = {
    "kubelet": "kubelet",
    "containerd": "containerd",
    "crio": "crio",
    "docker": "dockerd",
    "k3s": "k3s-server",
    "k3s-agent": "k3s-agent",
    "rke2-server": "rke2",
    "rke2-agent": "rke2",
    "snap.microk8s.daemon-kubelite": "kubelite",
    "snap.microk8s.daemon-containerd": "containerd",
    "nvidia-fabricmanager": "nv-fabricmanager"[:15],
    "nvidia-persistenced": "nvidia-persistenced"[:15],
    "nvidia-imex": "nvidia-imex",
}
# Names of the main processes of the services.
PROCESSES = frozenset(_SERVICES.values())

# Slices of users, virtual machines and pods: none of these services runs there.
_OTHER_SLICES = frozenset(("user.slice", "machine.slice", "kubepods.slice"))


@source
class ServicesSource:
    """Reads systemd's links and control groups, or process names if there are no control groups.

    Keeps the services that it has seen running, so that it reports one that stops, and their main processes.
    """

    name = "services"
    interval = 30.0
    deadline = 5.0
    paths: tuple[str, ...] = (_SYSTEMD, _BOOTED, _CGROUP, *_PEERMEM)
    signals = signals_by_name(
        Signal("service.enabled", "state", "whether systemd starts it at boot"),
        Signal("service.running", "state", "whether its main process exists"),
        Signal("service.start_ticks", "state", "start of its main process, clock ticks since boot"),
        Signal(
            "module.nvidia_peermem", "state", "whether a module for GPUDirect RDMA is loaded beside nvidia"
        ),
        Signal("driver.container", "state", "whether a container brought the NVIDIA driver and its services"),
    )

    def __init__(self) -> None:
        # Service → its main process, empty if unknown.
        self._seen: dict[str, str] = {}

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        node = ObservationDraft(machine, self.name, NODE)
        _read_peermem(node)
        _read_driver_container(node)
        observations = list(self._services(node)) if node.list_targets(_BOOTED, "service") is not None else []
        if node.signals or node.unread or node.unlisted:
            yield node.build()
        yield from observations

    def _services(self, node: ObservationDraft) -> Iterator[Observation]:
        """Yield the services that systemd has enabled or runs."""
        enabled = _enabled(node)
        units = _units(node)
        by_name = _by_name(node) if units is None and "service.running" not in node.unread else {}
        for signal in ("service.enabled", "service.running"):
            if signal in node.unread:
                node.unlisted.setdefault("service", node.unread[signal])
        names = {*(enabled or ()), *(units or ()), *by_name, *self._seen}
        for service in _SERVICES:
            if service not in names:
                continue
            draft = ObservationDraft(node.machine, self.name, f"service/{service}")
            if "service.enabled" in node.unread:
                draft.mark_unread(node.unread["service.enabled"], "service.enabled")
            elif enabled is not None:
                draft.signals["service.enabled"] = service in enabled
            pids = by_name.get(service, ())
            if units is not None and service in units:
                self._read_unit(draft, service, units[service])
            elif pids or "service.running" not in node.unread:
                draft.signals["service.running"] = bool(pids)
                self._read_start(draft, service, pids)
            else:
                draft.mark_unread(node.unread["service.running"], "service.running")
            if draft.signals.get("service.running"):
                self._seen.setdefault(service, "")
            yield draft.build()

    def _read_unit(self, draft: ObservationDraft, service: str, directory: str) -> None:
        """Set whether the main process is in a control group itself; groups below it have pods.

        Shims and helpers may outlive the main process (KillMode=process): if only they are visible, it does
        not run. If no process is visible, `populated` decides.
        """
        signal = "service.running"
        pids = (draft.read_text(f"{directory}/cgroup.procs", signal) or "").split()
        is_main_seen, others = self._read_start(draft, service, tuple(pid for pid in pids if pid.isdecimal()))
        if is_main_seen:
            draft.signals[signal] = True
        elif others:
            if others < len(pids):
                draft.mark_unread("not all of its processes could be read", signal)
            else:
                draft.signals[signal] = False
        elif not directory.startswith(_CGROUP_V1):
            if draft.read(signal, f"{directory}/cgroup.events", _populated) is None:
                draft.unread.setdefault(signal, f"{directory} disappeared during the read")
        elif pids or signal in draft.unread:
            draft.mark_unread("its processes are hidden: run as root", signal)
        else:
            draft.signals[signal] = False

    def _read_start(self, draft: ObservationDraft, service: str, pids: tuple[str, ...]) -> tuple[bool, int]:
        """Set the start of the main process, which is recognised by its name.

        Return whether it is among these processes, and the number of other processes.
        """
        others = []

        def start(text: str) -> int | None:
            process = parse_stat(text)
            if process.comm == _SERVICES[service]:
                return process.start
            others.append(process)
            return None

        main = self._seen.get(service, "")
        for pid in sorted(pids, key=lambda pid: pid != main):
            if draft.read("service.start_ticks", f"/proc/{pid}/stat", start) is not None:
                self._seen[service] = pid
                return True, len(others)
        return False, len(others)


def _read_peermem(node: ObservationDraft) -> None:
    signal = "module.nvidia_peermem"
    if node.list_names(_NVIDIA, signal) is not None:
        loaded = any(node.list_names(module, signal) is not None for module in _PEERMEM)
        if loaded or signal not in node.unread:
            node.signals[signal] = loaded


def _read_driver_container(node: ObservationDraft) -> None:
    names = node.list_names(_DRIVER_CONTAINER, "driver.container")
    if names is not None:
        node.signals["driver.container"] = bool(names)


def _enabled(node: ObservationDraft) -> set[str] | None:
    """Return the services that systemd starts at boot; None if there is no systemd."""
    entries = node.list_names(_SYSTEMD, "service.enabled")
    if entries is None:
        return None
    enabled: set[str] = set()
    for entry in entries:
        if entry.endswith(".wants"):
            enabled |= _services(node.list_names(f"{_SYSTEMD}/{entry}", "service.enabled")).keys()
    # A masked unit does not start, even if other units link to it.
    for service, unit in _services(entries).items():
        if service in enabled and (node.read_link(f"{_SYSTEMD}/{unit}", "service.enabled") or "").endswith(
            "/dev/null"
        ):
            enabled.discard(service)
    return enabled


def _units(node: ObservationDraft) -> dict[str, str] | None:
    """Return the control group of each service that has one; None if systemd has no control groups.

    Not all are in system.slice: the machine images of EKS run kubelet and containerd in runtime.slice.
    """
    signal = "service.running"
    for root in (_CGROUP, _CGROUP_V1):
        slices = [name for name in node.list_names(root, signal) or () if name.endswith(".slice")]
        if slices:
            units: dict[str, str] = {}
            for directory in set(slices) - _OTHER_SLICES:
                names = node.list_names(f"{root}/{directory}", signal)
                if names is None:
                    node.unread.setdefault(signal, f"{root}/{directory} disappeared during the read")
                units |= {service: f"{root}/{directory}/{unit}" for service, unit in _services(names).items()}
            return units
    return None


def _populated(text: str) -> bool:
    """Parse `populated 1` of cgroup.events, Linux Documentation/admin-guide/cgroup-v2.rst."""
    for line in text.splitlines():
        if line in {"populated 0", "populated 1"}:
            return line.endswith("1")
    raise ValueError(text)


def _by_name(node: ObservationDraft) -> dict[str, tuple[str, ...]]:
    """Return the processes of each service that has any, by the name of its main process.

    A service without a process counts as stopped only if all processes of the machine are visible: process 1
    is then systemd.
    """
    if node.read_text("/proc/1/comm", "service.running") != "systemd":
        node.mark_unread(
            "neither control groups nor all processes of the machine are visible", "service.running"
        )
    services = {comm: service for service, comm in reversed(_SERVICES.items())}
    processes: dict[str, tuple[str, ...]] = {}
    for pid in node.list_names("/proc", "service.running") or ():
        if pid.isdecimal():
            service = services.get(node.read_text(f"/proc/{pid}/comm", "service.running") or "")
            if service:
                processes[service] = (*processes.get(service, ()), pid)
    return processes


def relevant_names(path: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a directory that a recording may hold: the others may identify users.

    Of a directory that ServicesSource lists these are units of the services, `.wants` directories and slices.
    """
    if path == _BOOTED:
        return ()
    if not path.startswith((_SYSTEMD, f"{_CGROUP}/")) and path != _CGROUP:
        return names
    relevant = {*_services(names).values(), _CGROUP_V1.rpartition("/")[2]}
    return tuple(name for name in names if name in relevant or name.endswith((".wants", ".slice")))


def _services(names: tuple[str, ...] | None) -> dict[str, str]:
    """Return the unit by service, for those names that are units of the services."""
    units = ((name.removesuffix(".service"), name) for name in names or () if name.endswith(".service"))
    return {service: unit for service, unit in units if service in _SERVICES}
