"""Slots that one enumeration has and another lacks: GPUs that NVML lost, RDMA functions without a device.

Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from nodeguard.derive.world import World
from nodeguard.model.observation import RELEASED
from nodeguard.model.signal import Scalar
from nodeguard.model.slot import is_passed_on

# Errors by which NVML refuses a handle and that say that the GPU is gone. Source: nvml.h, nvmlReturn_t.
_GONE = frozenset({"GPU_IS_LOST", "GPU_NOT_FOUND", "NOT_FOUND"})


def gpus(world: World) -> Iterator[tuple[str, dict[str, Scalar]]]:
    """For each GPU slot, `gpu.lost` and by whom it is seen and missed, or `gpu.refused`; and whether it is
    bound.

    A GPU is lost where the kernel has it bound to the driver and NVML, which answers for others or for none,
    does not list it. One that NVML counts and refuses a handle for, for another reason than that it is gone,
    is not lost: the reason is told where it is one of the GPU, and nothing where it is one of this process.
    One that is bound but that the driver's own procfs hides belongs to another container. Whether it is bound
    says something only while the driver is there.
    """
    answered = world.node("nvml.ready") is True and "nvml" not in world.failed
    listed = world.of_source.get("nvml", frozenset())
    moving = world.node("driver.module_state") in {"coming", "going"}
    settled = world.node("driver.loaded") is True and not moving
    watched = list(_watched(world, listed))
    refused = _refused(world, sum(bound and slot not in listed for slot, bound in watched))
    for slot, bound in watched:
        if world.refused.get(slot) == RELEASED:
            continue
        signals, in_nvml = world.of(slot), slot in listed
        derived: dict[str, Scalar] = {}
        if "pci.driver" in signals and settled:
            derived["gpu.bound"] = bound
        if answered and bound and not in_nvml and refused is not None:
            derived.update({"gpu.refused": refused} if refused else {})
        elif answered and (bound or in_nvml):
            derived["gpu.lost"] = bound and not in_nvml
            derived["gpu.seen_by"] = _seen_by(signals, in_nvml=in_nvml)
        if signals.get("pci.present") is False:
            derived["gpu.lost"] = True
            derived["gpu.seen_by"] = _seen_by(signals, in_nvml=in_nvml)
        if derived:
            yield slot, derived


def _watched(world: World, listed: Collection[str]) -> Iterator[tuple[str, bool]]:
    """GPU slots that are this host's and this view's to judge, and whether the driver has each."""
    hidden = _hides(world)
    for slot in world.slots("gpu"):
        signals = world.of(slot)
        if is_passed_on(str(signals.get("pci.driver", ""))) or signals.get("pci.virtual"):
            continue
        bound = signals.get("pci.driver") == "nvidia" or signals.get("pci.procfs") is True
        if hidden and bound and slot not in listed and not signals.get("pci.procfs"):
            continue
        yield slot, bound


def _refused(world: World, missing: int) -> str | None:
    """Why NVML refuses the handles of GPUs that it does not list, empty where it is this process that may not
    look.

    missing: how many it does not list. None where it refuses none of them, or says that they are gone, or
    lists fewer than it refuses: then one at least is gone, and which one cannot be told.
    """
    hidden, refused = (world.node(f"gpu.handles_{what}") or 0 for what in ("hidden", "refused"))
    error = str(world.node("gpu.handle_error") or "none")
    if error in _GONE or not isinstance(hidden, int) or not isinstance(refused, int):
        return None
    if not missing or missing > hidden + refused:
        return None
    return "" if hidden or error == "none" else error


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
        driver = str(signals.get("pci.driver", ""))
        if not _needs_rdma(signals) or is_passed_on(driver) or signals.get("pci.virtual"):
            continue
        total += 1
        missing = signals.get("pci.rdma_devices") == 0
        lacking += missing
        yield slot, {"rdma.missing": missing}
    total += sum(1 for slot in world.slots("port") if _needs_rdma(world.of(slot)))
    if total:
        yield "node", {"rdma.all_missing": lacking == total, "rdma.missing_count": lacking}


def _needs_rdma(signals: dict[str, Scalar]) -> bool:
    return str(signals.get("pci.class", "")).startswith("0207") or signals.get("pci.vendor") == "1d0f"
