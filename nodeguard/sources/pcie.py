"""PCI Express link state and error counters of one function."""

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

# Widths of links. Source: PCI Express Base Specification.
LANES = frozenset({1, 2, 4, 8, 12, 16, 32})


def read_pcie_link(draft: ObservationDraft, path: str) -> None:
    """Read link speed, link width and whether the function answers (Linux drivers/pci/pci-sysfs.c).

    Width 63, all lane bits set, means that the function no longer answers on the bus. EINVAL for width and
    speed means that the kernel has removed it. Width 0 or 255 means neither: virtual functions, and endpoints
    that a hypervisor puts on the root complex, have no link of their own.
    """
    width = read_text(draft.machine, f"{path}/current_link_width")
    if width is None:
        return
    if isinstance(width, OSError):
        speed = read_text(draft.machine, f"{path}/current_link_speed")
        if width.errno == errno.EINVAL and isinstance(speed, OSError) and speed.errno == errno.EINVAL:
            draft.signals["pci.answers"] = False
            return
        draft.mark_unread(failure_reason(width), "pci.link.width", "pci.answers")
    elif width.strip() == "63":
        draft.signals["pci.answers"] = False
        return
    elif draft.parse("pci.link.width", f"{path}/current_link_width", width.strip(), parse_lanes):
        draft.signals["pci.answers"] = True
    elif "pci.link.width" not in draft.unread:
        return
    draft.read("pci.link.width_max", f"{path}/max_link_width", parse_lanes)
    draft.read("pci.link.speed", f"{path}/current_link_speed", _gigatransfers)
    draft.read("pci.link.speed_max", f"{path}/max_link_speed", _gigatransfers)


def parse_lanes(text: str) -> int | None:
    """Return the lanes of a link; None for 0 and 255, a function without its own link. Raises ValueError."""
    width = parse_count(text)
    if width in {0, 255}:
        return None
    if width not in LANES:
        raise ValueError(text)
    return width


def _gigatransfers(text: str) -> float:
    """Return GT/s of `32.0 GT/s PCIe`, or of `8 GT/s`, the form of older kernels."""
    value, unit, _ = text.partition(" GT/s")
    if not unit:
        raise ValueError(text)
    return parse_number(value)


def read_aer_totals(draft: ObservationDraft, path: str) -> None:
    """Read the totals of Advanced Error Reporting (Linux drivers/pci/pcie/aer.c)."""
    for severity in ("correctable", "nonfatal", "fatal"):
        draft.read(f"pci.aer.{severity}", f"{path}/aer_dev_{severity}", _aer_total)


def _aer_total(text: str) -> int:
    """Return the value of the line `TOTAL_ERR_…`, which follows one line for each kind of error."""
    for line in reversed(text.splitlines()):
        if line.startswith("TOTAL_ERR_"):
            return parse_counter(line.rpartition(" ")[2])
    raise ValueError(text)
