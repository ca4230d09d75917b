"""Targets that one enumeration lists and another lacks: lost GPUs, RDMA functions without a device. Pure."""

from __future__ import annotations

from nodeguard.derive.derivation import Derivation, Values
from nodeguard.derive.latest_readings import LatestReadings, UnreadError
from nodeguard.model.observation import DETACHED
from nodeguard.model.target import NODE, is_passthrough_driver

# Errors of NVML for a handle of a GPU that is gone. Source: nvml.h, nvmlReturn_t.
_GONE = frozenset({"GPU_IS_LOST", "GPU_NOT_FOUND", "NOT_FOUND"})


def _bound(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.bound`: whether the GPU is bound to the driver; only while the driver is loaded."""
    changing = latest.node_signal("driver.module_state") in {"coming", "going"}
    if latest.node_signal("driver.loaded") is not True or changing or not _is_of_this_host(latest, gpu):
        return
    if latest.get(gpu, "pci.driver") is not None:
        yield "gpu.bound", _is_bound(latest, gpu)


def _lost(latest: LatestReadings, gpu: str) -> Values:
    """`gpu.lost` and `gpu.seen_by`, the enumerations that list the GPU; or `gpu.refused`.

    A GPU is lost where the kernel has it bound to the driver and NVML, which works,
    does not list it; or where the driver lists it and it has left the bus. One that NVML counts and refuses a
    handle for, for another reason than that it is gone, is not lost: the reason is given where it is one of
    the GPU, and nothing where it is one of this process. Where NVML omits many at once, it is unknown whether
    any of them is lost: see _omitted.
    """
    if latest.unreadable_reason("nvml", gpu) == DETACHED:
        raise UnreadError(DETACHED)
    if not _is_of_this_host(latest, gpu):
        return
    if latest.get(gpu, "pci.present") is False:
        yield "gpu.lost", True
        yield "gpu.seen_by", _seen_by(latest, gpu)
        return
    if latest.node_signal("nvml.ready") is not True:
        return
    listed = latest.listed("nvml", "gpu") or frozenset()
    bound = _is_bound(latest, gpu)
    if bound and gpu not in listed:
        missing = _missing(latest, listed)
        refused = _handle_error(latest, missing)
        if refused is not None:
            if refused:
                yield "gpu.refused", refused
            return
        if _omitted(latest, listed):
            raise UnreadError(
                f"NVML lists only {len(listed)} of {len(listed) + missing} GPUs, without an error"
            )
    if bound or gpu in listed:
        yield "gpu.lost", bound and gpu not in listed
        yield "gpu.seen_by", _seen_by(latest, gpu)


def _is_bound(latest: LatestReadings, gpu: str) -> bool:
    return latest.get(gpu, "pci.driver") == "nvidia" or latest.get(gpu, "pci.procfs") is True


def _missing(latest: LatestReadings, listed: frozenset[str]) -> int:
    """Return the number of GPUs that the driver is bound to and NVML does not list."""
    return sum(
        gpu not in listed and _is_of_this_host(latest, gpu) and _is_bound(latest, gpu)
        for gpu in latest.targets("gpu")
    )


def _omitted(latest: LatestReadings, listed: frozenset[str]) -> int:
    """Return how many GPUs NVML omits at once without an error: 0 where they are less than half of the GPUs.

    GPUs rarely fail together. A process without their device nodes, and a driver that initialises or tears
    down its state, see the same. One GPU of two or more is lost by itself.
    """
    missing = _missing(latest, listed)
    refused = latest.node_signal("gpu.handles_refused") or 0
    omitted = missing - refused if isinstance(refused, int) else missing
    are_many = omitted > 1 and omitted >= len(listed)
    return omitted if are_many or (omitted == 1 and not listed) else 0


def _listed_by_nvml(latest: LatestReadings, _node: str) -> Values:
    """`nvml.gpus_listed` and `nvml.gpus_omitted`: GPUs that NVML lists, and those that it omits at once."""
    listed = latest.listed("nvml", "gpu")
    if listed is not None and latest.node_signal("nvml.ready") is True:
        yield "nvml.gpus_listed", len(listed)
        yield "nvml.gpus_omitted", _omitted(latest, listed)


def _is_of_this_host(latest: LatestReadings, gpu: str) -> bool:
    """Return whether a GPU belongs to this host.

    It does not where it is reserved for a virtual machine, is a virtual function, or is bound and hidden from
    this container: the driver's procfs shows other GPUs, and neither it nor NVML shows this one.
    """
    driver = latest.get(gpu, "pci.driver")
    if is_passthrough_driver(str(driver or "")) or latest.get(gpu, "pci.virtual"):
        return False
    if driver != "nvidia" or latest.get(gpu, "pci.procfs") is not False:
        return True
    others = any(is_listed for _, is_listed in latest.read_values("gpu", "pci.procfs"))
    return not others or gpu in (latest.listed("nvml", "gpu") or ())


def _handle_error(latest: LatestReadings, missing: int) -> str | None:
    """Return why NVML refuses the handles of GPUs that it does not list; empty where this process may not
    look at them.

    missing: number of GPUs that it does not list. None if it refuses no GPU, reports that they are gone, or
    refuses fewer than it does not list: then at least one is gone, and it is unknown which one.
    """
    hidden = latest.node_signal("gpu.handles_hidden") or 0
    error = str(latest.node_signal("gpu.handle_error") or "none")
    # Where handles are hidden, NVML does not say whether any of them is refused for another reason.
    refused = (latest.node_signal("gpu.handles_refused") or 0) if error != "none" or not hidden else 0
    if error in _GONE or not isinstance(hidden, int) or not isinstance(refused, int):
        return None
    if not missing or missing > hidden + refused:
        return None
    return "" if hidden or error == "none" else error


def _seen_by(latest: LatestReadings, gpu: str) -> str:
    """Return text with the enumerations that list a GPU and those that do not, without unread ones."""
    listing: list[str] = []
    no: list[str] = []
    for name, signal in (("PCI", "pci.present"), ("procfs", "pci.procfs"), ("NVML", "")):
        try:
            is_listed = latest.get(gpu, signal) if signal else gpu in (latest.listed("nvml", "gpu") or ())
        except UnreadError:
            continue
        (listing if is_listed else no if is_listed is False else []).append(name)
    return f"seen by {' and '.join(listing) or 'none'}, not by {' and '.join(no) or 'none'}"


def _rdma_missing(latest: LatestReadings, function: str) -> Values:
    """`rdma.missing`: whether an RDMA function lacks its RDMA device.

    Only functions that have no other use count: InfiniBand controllers and EFA. An Ethernet card
    without an RDMA device is an Ethernet card, and a virtual function waits for its virtual machine.
    """
    if latest.listed("infiniband", "port") is not None and _needs_rdma(latest, function):
        yield "rdma.missing", latest.get(function, "pci.rdma_devices") == 0


def _all_rdma_missing(latest: LatestReadings, _node: str) -> Values:
    """`rdma.all_missing` and `rdma.missing_count`: how many of these functions lack their device."""
    functions = latest.listed("pci", "pci")
    if functions is None or latest.listed("infiniband", "port") is None:
        return
    needing = [function for function in functions if _needs_rdma(latest, function)]
    lacking = sum(latest.get(function, "pci.rdma_devices") == 0 for function in needing)
    total = len(needing) + sum(_is_rdma_only(latest, port) for port in latest.targets("port"))
    if total:
        yield "rdma.all_missing", lacking == total
        yield "rdma.missing_count", lacking


def _needs_rdma(latest: LatestReadings, function: str) -> bool:
    driver = str(latest.get(function, "pci.driver") or "")
    if reason := latest.unread_reason(function, "pci.manages_nvswitches"):
        raise UnreadError(reason)
    return (
        _is_rdma_only(latest, function)
        and not is_passthrough_driver(driver)
        and not latest.get(function, "pci.virtual")
    )


def _is_rdma_only(latest: LatestReadings, target: str) -> bool:
    is_infiniband = str(latest.get(target, "pci.class") or "").startswith("0207")
    return is_infiniband or latest.get(target, "pci.vendor") == "1d0f"


DERIVATIONS = (
    Derivation("gpu", ("gpu.bound",), _bound),
    Derivation("gpu", ("gpu.lost", "gpu.seen_by", "gpu.refused"), _lost),
    Derivation(NODE, ("nvml.gpus_listed", "nvml.gpus_omitted"), _listed_by_nvml),
    Derivation("pci", ("rdma.missing",), _rdma_missing),
    Derivation(NODE, ("rdma.all_missing", "rdma.missing_count"), _all_rdma_missing),
)
