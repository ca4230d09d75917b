"""What PCI Express says of one function: its link and its error counters."""

from __future__ import annotations

import errno

from nodeguard.sources.readings import (
    ObservationDraft,
    failure_reason,
    parse_count,
    parse_counter,
    parse_number,
    read_text,
)


def read_pcie_link(draft: ObservationDraft, path: str) -> None:
    """Speed, width and whether the function answers, from files that Linux drivers/pci/pci-sysfs.c makes.

    All lane bits set, 63, is a function that no longer answers on the bus; EINVAL for width and speed
    alike, one that the kernel has given up. Width 0 or 255 is neither: virtual functions, and endpoints
    that a hypervisor puts on the root complex, have no link of their own.
    """
    said = read_text(draft.machine, f"{path}/current_link_width")
    if said is None:
        return
    if isinstance(said, OSError):
        speed = read_text(draft.machine, f"{path}/current_link_speed")
        if said.errno == errno.EINVAL and isinstance(speed, OSError) and speed.errno == errno.EINVAL:
            draft.signals["pci.answers"] = False
            return
        draft.mark_unread(failure_reason(said), "pci.link.width", "pci.answers")
    elif said.strip() == "63":
        draft.signals["pci.answers"] = False
        return
    elif draft.parse("pci.link.width", f"{path}/current_link_width", said.strip(), parse_lanes):
        draft.signals["pci.answers"] = True
    elif "pci.link.width" not in draft.unread:
        return
    draft.read("pci.link.width_max", f"{path}/max_link_width", parse_lanes)
    draft.read("pci.link.speed", f"{path}/current_link_speed", _gigatransfers)
    draft.read("pci.link.speed_max", f"{path}/max_link_speed", _gigatransfers)


def parse_lanes(text: str) -> int | None:
    """Lanes of a link; None for 0 and 255, of what has no link of its own. Raises ValueError."""
    number_of = parse_count(text)
    if number_of in {0, 255}:
        return None
    if number_of not in {1, 2, 4, 8, 12, 16, 32}:
        raise ValueError(text)
    return number_of


def _gigatransfers(text: str) -> float:
    """`32.0 GT/s PCIe`, or `8 GT/s` as older kernels write it."""
    value, unit, _ = text.partition(" GT/s")
    if not unit:
        raise ValueError(text)
    return parse_number(value)


def read_aer_totals(draft: ObservationDraft, path: str) -> None:
    """Totals of Advanced Error Reporting, from files that Linux drivers/pci/pcie/aer.c makes."""
    for severity in ("correctable", "nonfatal", "fatal"):
        draft.read(f"pci.aer.{severity}", f"{path}/aer_dev_{severity}", _aer_total)


def _aer_total(text: str) -> int:
    """The line `TOTAL_ERR_…`, below one for each kind of error."""
    for line in reversed(text.splitlines()):
        if line.startswith("TOTAL_ERR_"):
            return parse_counter(line.rpartition(" ")[2])
    raise ValueError(text)
