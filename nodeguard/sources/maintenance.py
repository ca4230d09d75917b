"""Maintenance that the machine's cloud has planned, as its metadata service tells; read, never answered.

On a machine that is of none of these clouds nothing is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.model.target import NODE
from nodeguard.sources.machine import Machine
from nodeguard.sources.readings import ObservationDraft, read_text

if TYPE_CHECKING:
    from nodeguard.sources.clouds.cloud import Cloud

_DMI = "/sys/class/dmi/id"

# Words by which clouds mark their machines, each alone in its file. Source: cloud-init, ds-identify.
_MARKS = {
    "aws": ("sys_vendor", "Amazon EC2"),
    "azure": ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"),
    "gcp": ("product_name", "Google Compute Engine"),
}


class MaintenanceSource:
    """Asks the metadata service of the cloud that DMI names; one observation, of the node."""

    name = "maintenance"
    # Spot machines get notice of half a minute, on AWS of two.
    interval = 10.0
    deadline = 10.0
    # DMI is the host's to be recorded: what this source has of its own is what it asked.
    paths: tuple[str, ...] = ("call:http",)
    signals = signals_by_name(
        Signal("maintenance.pending", "state", "whether the cloud has planned anything for this machine"),
        Signal(
            "maintenance.kind",
            "state",
            "what is planned first: freeze, reboot, redeploy, migrate, preempt, terminate, stop, retire, "
            "maintenance, rebalance, none",
        ),
        Signal("maintenance.what", "state", "what is planned first, in the cloud's words"),
        Signal("maintenance.when", "state", "when that begins, in words"),
        Signal("maintenance.starts_in", "gauge", "time until that begins, 0 once it may have", "seconds"),
    )

    def read(self, machine: Machine) -> Iterator[Observation]:
        """One round; see Source.read."""
        cloud = _cloud(machine)
        if cloud is None:
            return
        # Loaded here, as most machines need none of it.
        from nodeguard.sources.clouds.cloud import (
            plan_signals,  # noqa: PLC0415
            query,  # noqa: PLC0415
        )

        draft = ObservationDraft(machine, self.name, NODE)
        round_ = query(machine, cloud)
        if round_.planned:
            draft.signals, draft.unread = plan_signals(round_.planned, machine.now().wall)
        elif round_.unread:
            draft.mark_unread(round_.unread, "maintenance.pending", "maintenance.kind")
        elif round_.has_feed:
            draft.signals |= {"maintenance.pending": False, "maintenance.kind": "none"}
        yield draft.build()


def _cloud(machine: Machine) -> Cloud | None:
    """The cloud that a machine is of, None where DMI names none."""
    name = next((name for name, (file, word) in _MARKS.items() if _says(machine, file) == word), "")
    match name:
        case "aws":
            from nodeguard.sources.clouds.aws import AWS  # noqa: PLC0415

            return AWS
        case "azure":
            from nodeguard.sources.clouds.azure import AZURE  # noqa: PLC0415

            return AZURE
        case "gcp":
            from nodeguard.sources.clouds.gcp import GCP  # noqa: PLC0415

            return GCP
    return None


def _says(machine: Machine, file: str) -> str:
    text = read_text(machine, f"{_DMI}/{file}")
    return text.strip() if isinstance(text, str) else ""
