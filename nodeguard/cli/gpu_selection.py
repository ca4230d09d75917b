"""GPUs that a person names to nodeguard check: by index, UUID, serial number or PCI address. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodeguard.cli.usage import UsageError
from nodeguard.judge.fold import sort_findings, worst_health
from nodeguard.model.finding import DataStatus, Finding, Verdict
from nodeguard.model.observation import Component
from nodeguard.model.target import NODE, gpu_target, parent_target, target_kind, target_label
from nodeguard.sources.nvml import NvmlSource

# Before a name, as nodeguard and nvidia-smi print it: `GPU 5`, `gpu/0000:3b:00`.
_PREFIX = re.compile(r"^gpu[/ ]\s*", re.IGNORECASE)


class GpuSelection(NamedTuple):
    """Some GPUs of a machine. targets: theirs. text: their names, as in `GPU 1, GPU 5`."""

    targets: frozenset[str]
    text: str

    def includes(self, target: str) -> bool:
        """Return whether a target is one of the GPUs, a link of one, or a probe's result for one."""
        if target_kind(target) == "probe":
            target = target.split("/", 2)[-1]
        return target in self.targets or parent_target(target) in self.targets

    def restrict(self, on_node: Verdict, on_gpus: Verdict) -> Verdict:
        """Return the verdict on the GPUs, with the faults of the node that keep one from being read.

        Without such a fault, a GPU that was not read makes the health unknown: it must not pass because
        another one did. on_node: the verdict on all targets. on_gpus: the verdict on the GPUs.
        """
        if self._has_result_for_each(on_gpus):
            return on_gpus
        present = {(finding.check, finding.target) for finding in on_gpus.findings}
        faults = [
            finding
            for finding in on_node.findings
            if finding.target == NODE
            and (finding.check, NODE) not in present
            and any(evidence.source == NvmlSource.name for evidence in finding.evidence)
        ]
        if not faults:
            return replace(on_gpus, evaluated=0)
        findings = sort_findings((*on_gpus.findings, *faults))
        return replace(on_gpus, health=worst_health(findings), findings=findings)

    def _has_result_for_each(self, verdict: Verdict) -> bool:
        """Return whether each of the GPUs has a passed check or a finding on fresh data."""
        results = {target for group in verdict.passing for target in group.targets}
        for finding in verdict.findings:
            if finding.data_status == DataStatus.FRESH:
                results |= {finding.target, *finding.targets}
        return self.targets <= results

    def elsewhere(self, on_node: Verdict, on_gpus: Verdict) -> list[Finding]:
        """Return the findings of the node that are not about the GPUs. on_gpus: the verdict on the GPUs."""
        causes = {(finding.check, finding.target) for finding in on_gpus.findings}
        return [
            finding
            for finding in on_node.findings
            if (finding.check, finding.target) not in causes
            and not any(map(self.includes, (finding.target, *finding.targets)))
        ]


def select_gpus(names: Sequence[str], gpus: Mapping[str, Component | None]) -> GpuSelection:
    """Return the GPUs of some names. gpus: the last known component of each GPU of the machine, by target.

    A serial number may be that of several GPUs on one board. Raises UsageError for a name of no GPU.
    """
    selected: set[str] = set()
    for name in names:
        matches = {target for target, component in gpus.items() if _has_name(target, component, name)}
        if not matches:
            raise UsageError(f"no GPU is named '{name}': {_present(gpus)}")
        selected |= matches
    text = ", ".join(_short(target, gpus[target]) for target in sorted(selected))
    return GpuSelection(frozenset(selected), text)


def _has_name(target: str, component: Component | None, name: str) -> bool:
    name = _PREFIX.sub("", name.strip())
    if target == gpu_target(name):
        return True
    if component is None or not name:
        return False
    hardware = component.hardware
    names = {component.id} if hardware is None else {component.id, hardware.serial, _index(component)}
    return name.lower() in map(str.lower, names)


def _index(component: Component | None) -> str:
    """Return the index of a GPU; empty if the driver does not list it."""
    index = component.hardware.index if component and component.hardware else None
    return "" if index is None else str(index)


def _short(target: str, component: Component | None) -> str:
    index = _index(component)
    return f"GPU {index}" if index else target_label(target)


def _present(gpus: Mapping[str, Component | None]) -> str:
    """Return the GPUs of a machine by index and address, for an error."""
    if not gpus:
        return "no GPU was found on this machine"
    listed = []
    for target in sorted(gpus):
        index, address = _index(gpus[target]), target.partition("/")[2]
        listed.append(f"{index} ({address})" if index else address)
    return f"expected an index, UUID, serial number or PCI address: {', '.join(listed)}"
