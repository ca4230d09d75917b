"""Slots that one enumeration has and another lacks: GPUs that NVML lost, RDMA functions without a device.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodeguard.derive.world import World
from nodeguard.model.signal import Scalar

# Drivers that hand a function to a virtual machine, beside vfio and its variants: it is not this host's to
# judge.
_PASSED_ON = frozenset({"pci-stub", "xen-pciback"})


def gpus(world: World) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each GPU slot, `gpu.lost` and by whom it is seen and missed; and how many there are.

    A GPU is lost where the kernel has it bound to the driver and NVML, which answers for others or for none,
    does not list it. One that is bound but that the driver's own procfs hides belongs to another container.
    Whether it is bound says something only while the driver is there.
    """
    answered = world.node("nvml.ready") is True and "nvml" not in world.failed
    listed = world.of_source.get("nvml", frozenset())
    hidden = _hides(world)
    moving = world.node("driver.module_state") in {"coming", "going"}
    settled = world.node("driver.loaded") is True and not moving
    for slot in world.slots("gpu"):
        signals = world.of(slot)
        if _is_passed_on(signals) or signals.get("pci.virtual"):
            continue
        bound = signals.get("pci.driver") == "nvidia" or signals.get("pci.procfs") is True
        in_nvml = slot in listed
        if hidden and bound and not in_nvml and not signals.get("pci.procfs"):
            continue
        derived: dict[str, Scalar] = {}
        if "pci.driver" in signals and settled:
            derived["gpu.bound"] = bound
        if answered and (bound or in_nvml):
            derived["gpu.lost"] = bound and not in_nvml
            derived["gpu.seen_by"] = _seen_by(signals, in_nvml=in_nvml)
        if signals.get("pci.present") is False:
            derived["gpu.lost"] = True
            derived["gpu.seen_by"] = _seen_by(signals, in_nvml=in_nvml)
        if derived:
            yield slot, derived


def _hides(world: World) -> bool:
    """Whether the driver's procfs shows fewer GPUs than are bound: a container's view."""
    return any(world.of(slot).get("pci.procfs") is True for slot in world.slots("gpu"))


def _seen_by(signals: dict[str, Scalar], *, in_nvml: bool) -> str:
    seen = {"PCI": signals.get("pci.present"), "procfs": signals.get("pci.procfs"), "NVML": in_nvml}
    yes = [name for name, there in seen.items() if there]
    no = [name for name, there in seen.items() if there is False]
    return f"seen by {' and '.join(yes) or 'none'}, not by {' and '.join(no) or 'none'}"


def rdma(world: World) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each RDMA function, whether it lacks its RDMA device; for the node, whether all of them do.

    Only functions that are nothing without RDMA count: InfiniBand controllers and EFA. An Ethernet card
    without an RDMA device is an Ethernet card, and a virtual function waits for its virtual machine.
    """
    if "infiniband" in world.failed or "infiniband" not in world.of_source:
        return
    lacking = total = 0
    for slot in world.slots("pci"):
        signals = world.of(slot)
        if not _needs_rdma(signals) or _is_passed_on(signals) or signals.get("pci.virtual"):
            continue
        total += 1
        missing = signals.get("pci.rdma_devices") == 0
        lacking += missing
        yield slot, {"rdma.missing": missing}
    total += sum(1 for slot in world.slots("port") if _needs_rdma(world.of(slot)))
    if total:
        yield "node", {"rdma.all_missing": lacking == total, "rdma.missing_count": lacking}


def _is_passed_on(signals: dict[str, Scalar]) -> bool:
    driver = str(signals.get("pci.driver", ""))
    return "vfio" in driver or driver in _PASSED_ON


def _needs_rdma(signals: dict[str, Scalar]) -> bool:
    return str(signals.get("pci.class", "")).startswith("0207") or signals.get("pci.vendor") == "1d0f"
