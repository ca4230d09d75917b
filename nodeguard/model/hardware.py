"""The hardware of a GPU as people find it: index, serial number, board, module and slot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from nodeguard.model.target import target_kind, target_label

_Number = Annotated[int, Meta(ge=0, le=65535)]
_Text = Annotated[str, Meta(max_length=256)]


class Hardware(Struct, frozen=True, omit_defaults=True):
    """The names by which a person finds a GPU; an unknown one is empty or None."""

    index: _Number | None = None
    """Index in NVML and nvidia-smi, when NVML last listed the GPU; None if NVML lists another GPU under it
    since."""
    serial: _Text = ""
    """Serial number, as printed on the board."""
    board_part_number: _Text = ""
    """Part number, as printed on the board."""
    module_id: _Number | None = None
    """Number of the SXM socket."""
    slot: _Text = ""
    """Slot of the chassis, with its tray and the serial number of the chassis."""

    def completed_by(self, earlier: Hardware) -> Hardware:
        """Return the names, with those of an earlier reading of the same GPU for the unknown ones."""
        return Hardware(
            self.index if self.index is not None else earlier.index,
            self.serial or earlier.serial,
            self.board_part_number or earlier.board_part_number,
            self.module_id if self.module_id is not None else earlier.module_id,
            self.slot or earlier.slot,
        )

    def limited(self, limit: Callable[[str], str]) -> Hardware:
        """Return the names with each text limited. limit: returns a text within the limit."""
        return replace(
            self,
            serial=limit(self.serial),
            board_part_number=limit(self.board_part_number),
            slot=limit(self.slot),
        )


def hardware_label(target: str, hardware: Hardware | None) -> str:
    """Return a target as text with the names of its GPU: `GPU 5 (0000:c3:00, serial 1650522, module 6)`.

    An NVLink follows its GPU: `GPU 5 (0000:c3:00, serial 1650522) NVLink 3`. Any other target is as in
    target_label, and so is a GPU without known names.
    """
    label = target_label(target)
    if hardware is None or target_kind(target) not in {"gpu", "nvlink"}:
        return label
    kind, address, *link = label.split(" ", 2)
    names = (
        address,
        f"serial {hardware.serial}" if hardware.serial else "",
        f"module {hardware.module_id}" if hardware.module_id is not None else "",
        hardware.slot,
    )
    listed = ", ".join(filter(None, names))
    gpu = f"{kind} {address}" if listed == address else f"{kind} ({listed})"
    gpu = f"{kind} {hardware.index} ({listed})" if hardware.index is not None else gpu
    return " ".join((gpu, *link))
