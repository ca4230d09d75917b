"""Source `maintenance`: events that the cloud has planned, from its metadata service; never acknowledged.

On a machine outside these clouds the source makes no request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Signal, signals_by_name
from nodeguard.model.target import NODE
from nodeguard.sources.machine import Machine
from nodeguard.sources.readings import ObservationDraft, read_text
from nodeguard.sources.source import source

if TYPE_CHECKING:
    from nodeguard.sources.clouds.cloud import Cloud

_DMI = "/sys/class/dmi/id"

# DMI file of a cloud's machines, and its whole content. Source: cloud-init, ds-identify.
_DMI_TEXTS = {
    "aws": ("sys_vendor", "Amazon EC2"),
    "azure": ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"),
    "gcp": ("product_name", "Google Compute Engine"),
}


@source
class MaintenanceSource:
    """Reads the metadata service of the cloud that DMI names; one observation, of the node."""

    name = "maintenance"
    # Spot machines get half a minute of notice, two minutes on AWS.
    interval = 10.0
    deadline = 10.0
    # DMI belongs to the source `host`; only the requests are recorded for this source.
    paths: tuple[str, ...] = ("call:http",)
    signals = signals_by_name(
        Signal("maintenance.pending", "state", "whether the cloud has planned anything for this machine"),
        Signal(
            "maintenance.kind",
            "state",
            "what is planned first: freeze, reboot, redeploy, migrate, preempt, terminate, stop, retire, "
            "maintenance, rebalance, none",
        ),
        Signal("maintenance.what", "state", "what is planned first, in the cloud's own text"),
        Signal("maintenance.when", "state", "when that begins, as text"),
        Signal("maintenance.starts_in", "gauge", "time until that begins, 0 once it may have", "seconds"),
    )

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; see Source.read."""
        cloud = _cloud(machine)
        if cloud is None:
            return
        # Imported here, because most machines do not need it.
        from nodeguard.sources.clouds.cloud import plan_signals, query  # noqa: PLC0415

        draft = ObservationDraft(machine, self.name, NODE)
        results = query(machine, cloud)
        if results.planned:
            draft.signals, draft.unread = plan_signals(results.planned, machine.now().wall)
        elif results.unread:
            draft.mark_unread(results.unread, "maintenance.pending", "maintenance.kind")
        elif results.has_feed:
            draft.signals |= {"maintenance.pending": False, "maintenance.kind": "none"}
        yield draft.build()


def _cloud(machine: Machine) -> Cloud | None:
    """Return the machine's cloud; None where DMI names none of these clouds."""
    name = next((name for name, (file, text) in _DMI_TEXTS.items() if _dmi_text(machine, file) == text), "")
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


def _dmi_text(machine: Machine, file: str) -> str:
    text = read_text(machine, f"{_DMI}/{file}")
    return text.strip() if isinstance(text, str) else ""
