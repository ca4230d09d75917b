"""The reasons of the condition `NodeguardHealthy`: a closed list of fault class and action. Pure.

Programs that repair nodes match these names, so they are stable: add one, never rename or remove one.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from nodeguard.model.finding import Action

HEALTHY = "Healthy"
DOMAIN_DEGRADED = "DomainDegraded"


class ReasonClass(StrEnum):
    """What is faulty, as far as it decides who repairs it."""

    GPU = "GPU"
    NVLINK = "NVLink"
    NETWORK = "Network"
    NODE = "Node"


# By the first word of a check's family. Families of a site that are not listed are of the node.
_CLASSES = {
    "agent": ReasonClass.NODE,
    "clock": ReasonClass.NODE,
    "driver": ReasonClass.GPU,
    "efa": ReasonClass.NETWORK,
    "gpu": ReasonClass.GPU,
    "host": ReasonClass.NODE,
    "infiniband": ReasonClass.NETWORK,
    "kernel": ReasonClass.NODE,
    "maintenance": ReasonClass.NODE,
    "nic": ReasonClass.NETWORK,
    "nvlink": ReasonClass.NVLINK,
    "nvswitch": ReasonClass.NVLINK,
    # Links of GPUs, switches, adapters and disks; the slot and the root complex are the node's.
    "pcie": ReasonClass.NODE,
    "power": ReasonClass.NODE,
    "probes": ReasonClass.NODE,
    "services": ReasonClass.NODE,
    "storage": ReasonClass.NODE,
    "thermal": ReasonClass.NODE,
}

_ACTIONS = {
    Action.NONE: "",
    Action.MONITOR: "Monitor",
    Action.RESTART_WORKLOAD: "RestartWorkload",
    Action.RESTART_SERVICE: "RestartService",
    Action.RESET_GPU: "ResetGPU",
    Action.REBOOT_NODE: "RebootNode",
    Action.REPLACE_COMPONENT: "ReplaceComponent",
    Action.CONTACT_SUPPORT: "ContactSupport",
}


class FaultReason(Struct, frozen=True):
    """The class of the worst cause of a node's marks, and its action.

    action: NONE also if the node reports none now. recovering: all causes are over and in their soak period,
    and need no action.
    """

    fault: ReasonClass
    action: Action = Action.NONE
    recovering: bool = False

    @property
    def name(self) -> str:
        """Return the reason: `GPUFaultRebootNode`."""
        return f"{self.fault}Fault{'Recovering' if self.recovering else _ACTIONS[self.action]}"


# All of them, by name.
FAULT_REASONS = {
    reason.name: reason
    for fault in ReasonClass
    for reason in (*(FaultReason(fault, action) for action in Action), FaultReason(fault, recovering=True))
}


def reason_class(family: str) -> ReasonClass:
    """Return the class of the faults that the checks of a family find."""
    return _CLASSES.get(family.partition("-")[0], ReasonClass.NODE)
