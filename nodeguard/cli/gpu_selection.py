"""GPUs that a person names to nodeguard check: by index, UUID, serial number or PCI address. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodeguard.cli.scope import has_nvml_evidence, is_fresh, shows_reading
from nodeguard.cli.usage import UsageError
from nodeguard.judge.fold import sort_findings, worst_health
from nodeguard.model.check import Check, EventOccurred
from nodeguard.model.finding import Finding, Verdict
from nodeguard.model.observation import Component
from nodeguard.model.target import NODE, gpu_target, parent_target, target_kind, target_label
from nodeguard.sources.nvml import NvmlSource

# Before a name, as nodeguard and nvidia-smi print it: `GPU 5`, `gpu/0000:3b:00`.
_PREFIX = re.compile(r"^gpu[/ ]\s*", re.IGNORECASE)


class GpuSelection(NamedTuple):
    """Some GPUs of a machine. names: of each, as in `GPU 1`, by target."""

    names: Mapping[str, str]

    @property
    def text(self) -> str:
        """Return the names of the GPUs, as in `GPU 1, GPU 5`."""
        return ", ".join(self.names.values())

    def includes(self, target: str) -> bool:
        """Return whether a target is one of the GPUs, a link of one, or a probe's result for one."""
        if target_kind(target) == "probe":
            target = target.split("/", 2)[-1]
        return target in self.names or parent_target(target) in self.names

    def restrict(self, on_node: Verdict, on_gpus: Verdict, checks: Iterable[Check]) -> Verdict:
        """Return the verdict on the GPUs, with the faults of the node that keep one from being read.

        Without such a fault, a GPU that was not read makes the health unknown: it must not pass because
        another one did. on_node: the verdict on all targets. on_gpus: the verdict on the GPUs. checks: that
        were evaluated.
        """
        is_each_read = not self.unread(on_gpus, checks)
        if is_each_read and not _has_nvml_failed(on_gpus):
            return on_gpus
        present = {(finding.check, finding.target) for finding in on_gpus.findings}
        faults = [
            finding
            for finding in on_node.findings
            if finding.target == NODE
            # One that covers several targets is about these, and the node only stands for them.
            and not finding.targets
            and (finding.check, NODE) not in present
            and has_nvml_evidence(finding)
        ]
        if not faults:
            return on_gpus if is_each_read else replace(on_gpus, evaluated=0)
        findings = sort_findings((*on_gpus.findings, *faults))
        return replace(on_gpus, health=worst_health(findings), findings=findings)

    def unread(self, verdict: Verdict, checks: Iterable[Check]) -> list[str]:
        """Return the names of the GPUs without a result of the checks. verdict: on the GPUs."""
        checks = tuple(checks)
        # Without a check that needs a reading of NVML, a finding from the kernel log is a result.
        is_read = shows_reading if any(map(_reads_nvml, checks)) else is_fresh
        results = {target for group in verdict.passing for target in group.targets}
        for finding in filter(is_read, verdict.findings):
            results |= {finding.target, *finding.targets}
        if not any("gpu" in check.targets for check in checks):
            results |= set(map(parent_target, results))
        return [name for target, name in self.names.items() if target not in results]

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
    return GpuSelection({target: _short(target, gpus[target]) for target in sorted(selected)})


def _has_nvml_failed(verdict: Verdict) -> bool:
    """Return whether NVML as a whole could not be read."""
    return any(
        failure.source == NvmlSource.name and failure.targets == (NODE,) for failure in verdict.read_failures
    )


def _reads_nvml(check: Check) -> bool:
    """Return whether a check has conditions on readings of NVML only, and none on events."""
    return all(
        not isinstance(leaf, EventOccurred) and leaf.signal in NvmlSource.signals for leaf in check.leaves()
    )


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
