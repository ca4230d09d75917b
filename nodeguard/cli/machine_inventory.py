"""Inventory of a machine, for the first lines of nodeguard check: GPUs, driver, ports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from nodeguard.derive.derive import PlatformHints
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Component, Reading
from nodeguard.model.recovery import KUBELETS, Site, resets_together
from nodeguard.model.signal import Scalar, Signal
from nodeguard.model.target import nvswitch_target, target_order
from nodeguard.pipeline.pipeline import Pipeline

_UNKNOWN_MODEL = "GPU of unknown model"


class MachineInventory(Struct, frozen=True):
    """The hardware and the driver of a machine.

    gpus: number by model. driver: version, empty without one. ports: number of InfiniBand and RoCE ports.
    nvswitches: number of NVSwitches on the bus. Adapters that manage NVSwitches count as neither.
    """

    gpus: dict[str, int] = {}
    driver: str = ""
    ports: int = 0
    nvswitches: int = 0


class InventoryJudgement(Pipeline):
    """A judgement without a later evaluation that also collects the inventory of its readings."""

    def __init__(
        self,
        catalogue: Catalogue,
        signals: Mapping[str, Signal],
        site: PlatformHints,
        selection: frozenset[str] | None = None,
    ) -> None:
        super().__init__(catalogue, signals, site, selection, one_shot=True)
        self._models: dict[str, str] = {}
        self._driver = ""
        self._targets: set[str] = set()
        self._mig: set[str] = set()
        self._managers: set[str] = set()
        self._functions: dict[str, str] = {}
        self._has_driver_container = False

    def evaluate(self, readings: Sequence[Reading], instant: Instant) -> Verdict:
        """Return the node's verdict after some more readings."""
        for reading in readings:
            for observation in reading.observations:
                self._add(observation.target, observation.signals)
        return super().evaluate(readings, instant)

    def _add(self, target: str, signals: Mapping[str, Scalar]) -> None:
        kind, _, rest = target.partition("/")
        if kind in {"gpu", "port", "nvswitch"} and "/" not in (rest if kind != "port" else ""):
            self._targets.add(target)
        model = signals.get("gpu.name")
        if isinstance(model, str):
            self._models[target] = model
        if signals.get("gpu.mig.enabled"):
            self._mig.add(target)
        if signals.get("pci.manages_nvswitches"):
            self._managers.add(target)
        if "port.pci" in signals:
            self._functions[target] = nvswitch_target(str(signals["port.pci"]))
        self._add_software(target, signals)

    def _add_software(self, target: str, signals: Mapping[str, Scalar]) -> None:
        """Add the driver and the kubelet."""
        if signals.get("driver.container"):
            self._has_driver_container = True
        is_service = True in (signals.get("service.enabled"), signals.get("service.running"))
        if target in KUBELETS and is_service:
            self._targets.add(target)
        for signal in ("driver.version", "nvml.driver_version"):
            version = signals.get(signal)
            self._driver = self._driver or (version if isinstance(version, str) else "")

    def site(self, node: str) -> Site:
        """Return where the commands of a recovery run, typed on this node."""
        in_cluster = bool(self._targets & KUBELETS)
        return Site(
            # A kubelet registers the host name in small letters.
            node=node.lower() if in_cluster else node,
            scheduler="kubernetes" if in_cluster else "",
            resets_together=resets_together(list(self._models.values()), self.inventory().nvswitches),
            mig=frozenset(self._mig),
            driver_container=self._has_driver_container,
        )

    def gpus(self) -> dict[str, Component | None]:
        """Return each GPU by target, with its last known component."""
        components = self.state.components
        return {
            target: components.get(target)
            for target in sorted(self._targets, key=target_order)
            if target.startswith("gpu/")
        }

    def inventory(self) -> MachineInventory:
        """Return the inventory from the readings until now."""
        ports_of_managers = {port for port, function in self._functions.items() if function in self._managers}
        targets = self._targets - self._managers - ports_of_managers
        gpu_targets = sorted(target for target in targets if target.startswith("gpu/"))
        gpus = Counter(self._models.get(target, _UNKNOWN_MODEL) for target in gpu_targets)
        return MachineInventory(
            gpus=dict(gpus.most_common()),
            driver=self._driver,
            ports=sum(target.startswith("port/") for target in targets),
            nvswitches=sum(target.startswith("nvswitch/") for target in targets),
        )


def inventory_text(inventory: MachineInventory, platform: str) -> str:
    """Return an inventory as one line: `8x NVIDIA H100, driver 580.95.05, 10 ports, platform dgx-h100`."""
    parts = [f"{count}x {model}" for model, count in inventory.gpus.items()] or ["no NVIDIA GPU found"]
    parts += [f"driver {inventory.driver}"] if inventory.driver else []
    parts += [f"{inventory.nvswitches} NVSwitches"] if inventory.nvswitches else []
    parts += [f"{inventory.ports} port{'' if inventory.ports == 1 else 's'}"] if inventory.ports else []
    parts += [f"platform {platform}"] if platform else []
    return ", ".join(parts)
