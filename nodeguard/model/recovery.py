"""Commands that carry out the recommended action of a finding, filled in for its target. Pure.

A step that works on the node itself is the same everywhere. The scheduler adds what takes work off the node
before, and lets work return after; outside of the node, `kubectl exec` into the agent's pod runs the step.
A value that comes from outside is quoted for the shell; one that no shell should get gives no commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from nodeguard.model.check import Check
from nodeguard.model.finding import Action, Health
from nodeguard.model.hardware import Hardware
from nodeguard.model.target import NODE, gpu_index, parent_target, target_kind

Scheduler = Literal["", "kubernetes", "slurm"]

# Commands of a check that are replaced by all commands of a reset, of the GPU of its target or of all GPUs:
# these depend on the board and on MIG.
RESET, RESET_ALL = "{reset}", "{reset_all}"

# Names of the values in the commands of a check, by kind of target.
COMMAND_VALUES = {
    "gpu": frozenset({"gpu"}),
    "nvlink": frozenset({"gpu"}),
    "port": frozenset({"device", "port"}),
    "disk": frozenset({"device"}),
    "service": frozenset({"name"}),
    "fs": frozenset({"path"}),
}

# Time for which the agent closes its GPU handles: a reset takes seconds, its preparation minutes.
_DETACH = "nodeguard gpus detach --duration 30m"
_ATTACH = "nodeguard gpus attach"

# Services that are a kubelet, or contain one.
KUBELETS = frozenset({
    "service/kubelet", "service/k3s", "service/k3s-agent", "service/rke2-server", "service/rke2-agent",
    "service/snap.microk8s.daemon-kubelite",
})  # fmt: skip
# Services without which `kubectl exec` does not reach the node.
_BELOW_KUBECTL = KUBELETS | {
    "service/containerd", "service/crio", "service/docker", "service/snap.microk8s.daemon-containerd",
}  # fmt: skip

# GPUs before Hopper: on a board with NVSwitches they are reset together. Source: NVIDIA GPU Debug Guidelines
# and nvidia-smi(1), --gpu-reset.
_RESET_TOGETHER = re.compile(r"\b(V100|A100|A800)\b")

# Where NVIDIA's GPU operator mounts the driver's container on the node.
_DRIVER_ROOT = "/run/nvidia/driver"

_GPU_LISTING = "nvidia-smi --query-gpu=index,pci.bus_id,serial,uuid --format=csv"
# Commands that list all parts of a kind, for a fault of the node: it names no part, or several.
_LISTINGS = {
    "gpu": _GPU_LISTING,
    "nvlink": _GPU_LISTING,
    "nvswitch": "lspci -vv",
    "port": "rdma link show",
    "disk": "lsblk --nodeps --output NAME,MODEL,SERIAL,STATE",
    "dimm": "dmidecode --type memory",
    "pci": "lspci -vv",
}

_DISRUPTIVE = frozenset({Action.RESET_GPU, Action.REBOOT_NODE, Action.REPLACE_COMPONENT})
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Site(Struct, frozen=True):
    """Where the commands run."""

    node: str
    """Name of the node, in its scheduler if it has one."""

    scheduler: Scheduler = ""
    on_node: bool = True
    """Whether the commands are typed on the node, else on a machine with kubectl."""

    pod: str = ""
    """Pod of the node's agent; empty to look it up."""

    resets_together: bool = False
    """Whether the GPUs cannot be reset one by one."""

    mig: frozenset[str] = frozenset()
    """Targets with MIG on."""

    driver_container: bool = False
    """Whether a container has the driver and its tools."""

    drainable: frozenset[str] = frozenset()
    """GPUs of which the aggregator evicts the pods when `nodeguard drain` asks for it."""


class _Fault(Protocol):
    """A finding, a reported finding or an incident."""

    @property
    def target(self) -> str: ...
    @property
    def action(self) -> Action: ...
    @property
    def health(self) -> Health: ...
    @property
    def hardware(self) -> Hardware | None: ...


class Recovery(Struct, frozen=True):
    """The action to carry out."""

    check: Check | str
    """Check of the catalogue, or its name if the catalogue does not have it."""

    target: str
    action: Action
    health: Health
    hardware: Hardware | None = None
    """Names of the GPU. Where its index is not known, the commands have its PCI address."""

    @classmethod
    def of(cls, fault: _Fault, check: str, checks: Mapping[str, Check]) -> Recovery:
        """Return the recovery from a fault that a check reported. checks: of the catalogue, by id."""
        return cls(checks.get(check, check), fault.target, fault.action, fault.health, fault.hardware)

    @property
    def check_id(self) -> str:
        """Return the name of the check."""
        return self.check if isinstance(self.check, str) else self.check.id


class _UnsafeValueError(Exception):
    """A value that must not be part of a command."""


def resets_together(models: Sequence[str], nvswitches: int) -> bool:
    """Return whether the GPUs of a node are reset together. models: of its GPUs."""
    return nvswitches > 0 and any(_RESET_TOGETHER.search(model) for model in models)


def recovery_commands(recovery: Recovery, site: Site) -> tuple[str, ...]:
    """Return the commands, in their order; empty if the action has none for this kind of target."""
    try:
        steps = list(_steps(recovery, site))
        if not steps:
            return ()
        if recovery.action == Action.REBOOT_NODE and site.scheduler == "slurm" and steps == [_REBOOT]:
            return (_slurm_reboot(recovery, site),)
        return (*_before(recovery, site), *_on_node(recovery, site, steps), *_after(recovery, site))
    except (_UnsafeValueError, KeyError):
        # A finding of several targets has the node as its target, which has none of their values.
        return ()


_REBOOT = "systemctl reboot"


def _steps(recovery: Recovery, site: Site) -> Iterator[str]:
    """Yield the commands on the node itself: those of the check for its own action, else of the action."""
    check, kind = recovery.check, target_kind(recovery.target)
    if isinstance(check, Check) and check.how and recovery.action == check.action:
        values = _values(recovery)
        for command in check.how:
            if command in {RESET, RESET_ALL}:
                yield from _reset(recovery, site, all_gpus=command == RESET_ALL)
            else:
                yield _PLACEHOLDER.sub(lambda match: values[match[1]], command)
        return
    match recovery.action:
        case Action.RESET_GPU:
            yield from _reset(recovery, site)
        case Action.REBOOT_NODE:
            yield _REBOOT
        case Action.RESTART_SERVICE if kind == "service":
            yield f"systemctl restart {_values(recovery)['name']}"
        case Action.REPLACE_COMPONENT | Action.CONTACT_SUPPORT:
            yield from _identify(recovery, kind)


def _reset(recovery: Recovery, site: Site, *, all_gpus: bool = False) -> Iterator[str]:
    gpu = "" if all_gpus or site.resets_together else _values(recovery).get("gpu", "")
    # A reset ends the instances of MIG: this lists what to create again.
    if not gpu:
        yield from (f"nvidia-smi mig -i {_gpu(target)} -lgi" for target in sorted(site.mig))
    elif _gpu_target(recovery.target) in site.mig:
        yield f"nvidia-smi mig -i {gpu} -lgi"
    yield f"{_DETACH} --gpu {gpu}" if gpu else _DETACH
    yield f"nvidia-smi --gpu-reset -i {gpu}" if gpu else "nvidia-smi --gpu-reset"
    yield _ATTACH


def _identify(recovery: Recovery, kind: str) -> Iterator[str]:
    """Yield the command that shows which part it is, or what the vendor asks for."""
    is_node = kind == NODE
    if is_node and isinstance(recovery.check, Check):
        kind = next((part for part in recovery.check.targets if part != NODE), NODE)
    values = _values(recovery)
    match kind:
        case "gpu" | "nvlink" | "nvswitch" if recovery.action == Action.CONTACT_SUPPORT:
            yield "nvidia-bug-report.sh"
        case _ if is_node or kind == "dimm":
            yield from filter(None, [_LISTINGS.get(kind)])
        case "gpu" | "nvlink":
            yield f"{_GPU_LISTING} -i {values['gpu']}"
        case "port":
            yield f"mlxlink -d {values['device']} -p {values['port']} -m"
        case "disk":
            yield f"smartctl -x /dev/{values['device']}"
        case "pci" | "nvswitch":
            yield f"lspci -vv -s {_quoted(recovery.target.partition('/')[2])}"


def _values(recovery: Recovery) -> dict[str, str]:
    """Return the values of COMMAND_VALUES for a target, quoted."""
    target = recovery.target
    _, _, name = target.partition("/")
    match target_kind(target):
        case "gpu" | "nvlink":
            return {"gpu": _gpu(_gpu_target(target), recovery.hardware.index if recovery.hardware else None)}
        case "port":
            device, _, port = name.rpartition("/")
            return {"device": _quoted(device), "port": _quoted(port)}
        case "disk":
            return {"device": _quoted(name)}
        case "service":
            return {"name": _quoted(name)}
        case "fs":
            return {"path": _quoted(target.removeprefix("fs:"))}
    return {}


def _gpu_target(target: str) -> str:
    """Return the GPU of a GPU or of an NVLink."""
    return parent_target(target) if target_kind(target) == "nvlink" else target


def _gpu(target: str, index: int | None = None) -> str:
    """Return a GPU as nvidia-smi and `nodeguard gpus` accept it: its index, else its PCI address."""
    number = gpu_index(target) if index is None else index
    return _quoted(f"{target.removeprefix('gpu/')}.0" if number is None else str(number))


def _before(recovery: Recovery, site: Site) -> Iterator[str]:
    """Yield the commands that take work off the hardware. A warning lets the running work end."""
    if recovery.action not in _DISRUPTIVE:
        return
    node, target = _quoted(site.node), _gpu_target(recovery.target)
    if site.scheduler == "slurm":
        yield f"scontrol update NodeName={node} State=DRAIN Reason={_reason(recovery)}"
    elif site.scheduler == "kubernetes" and recovery.health.rank >= Health.SUSPECT.rank:
        if target in site.drainable:
            yield f"nodeguard drain node {node} --wait"
        if not _spares_other_gpus(recovery, site):
            if target_kind(target) == "gpu":
                # A line of its own: an interactive zsh passes a comment behind a command to it.
                yield "# This empties all GPUs of the node:"
            yield f"kubectl drain {node} --ignore-daemonsets --delete-emptydir-data"
    elif site.scheduler == "kubernetes":
        yield f"kubectl cordon {node}"


def _spares_other_gpus(recovery: Recovery, site: Site) -> bool:
    """Return whether the work on the other GPUs of the node goes on: the aggregator evicts the pods of the
    faulty one, and the action resets only this GPU.
    """
    check = recovery.check
    resets_all = isinstance(check, Check) and recovery.action == check.action and RESET_ALL in check.how
    return (
        _gpu_target(recovery.target) in site.drainable
        and recovery.action == Action.RESET_GPU
        and not (resets_all or site.resets_together)
    )


def _after(recovery: Recovery, site: Site) -> Iterator[str]:
    """Yield the command that lets work return."""
    if recovery.action not in {Action.RESET_GPU, Action.REBOOT_NODE}:
        return
    if site.scheduler == "slurm":
        yield f"scontrol update NodeName={_quoted(site.node)} State=RESUME"
    elif site.scheduler == "kubernetes" and not _spares_other_gpus(recovery, site):
        yield f"kubectl uncordon {_quoted(site.node)}"


def _slurm_reboot(recovery: Recovery, site: Site) -> str:
    """Return the command that drains, reboots and resumes a node."""
    return f"scontrol reboot ASAP nextstate=RESUME reason={_reason(recovery)} {_quoted(site.node)}"


def _reason(recovery: Recovery) -> str:
    return _quoted(f"nodeguard: {recovery.check_id}")


def _on_node(recovery: Recovery, site: Site, steps: Sequence[str]) -> Iterator[str]:
    """Yield the steps as they are typed: on the node, or through the agent's pod."""
    if site.on_node:
        yield from (f"{_root(step, site)}{step}" for step in steps)
        return
    # A pod cannot mount or unmount on its node, and no pod is reached without these services.
    is_below = recovery.target in _BELOW_KUBECTL
    if site.scheduler != "kubernetes" or is_below or target_kind(recovery.target) == "fs":
        yield from (f"ssh {_quoted(site.node)} {_quoted(step)}" for step in steps)
        return
    pod = _quoted(site.pod) if site.pod else '"$POD"'
    if not site.pod:
        yield (
            "POD=$(kubectl get pods -n nodeguard -l app.kubernetes.io/name=nodeguard-agent "
            f"--field-selector spec.nodeName={_quoted(site.node)} -o name)"
        )
    for step in steps:
        # The pod has the node's files at /host, and the tools of the node there.
        root = "" if step.startswith("nodeguard ") else _root(step, site, "/host") or "chroot /host "
        yield f"kubectl exec -n nodeguard {pod} -- {root}{step}"


def _root(step: str, site: Site, host: str = "") -> str:
    """Return the beginning of a step that runs a tool in the driver's container; empty for other steps."""
    return f"chroot {host}{_DRIVER_ROOT} " if site.driver_container and step.startswith("nvidia-") else ""


def _quoted(value: str) -> str:
    """Return a value quoted for the shell. Raises _UnsafeValueError where it is no plain name."""
    if not value or value.startswith("-") or not value.isprintable():
        raise _UnsafeValueError
    return shlex.quote(value)
