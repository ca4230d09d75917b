"""The last known hardware of each GPU, and the hardware of findings. Pure.

A GPU that is lost is in no reading any more, and that is when a person has to find it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from nodeguard.model.finding import Finding, Verdict
from nodeguard.model.hardware import Hardware
from nodeguard.model.observation import Component, Reading
from nodeguard.model.target import parent_target, target_kind

# Locations that are remembered: more than a node has GPUs.
_MAX_COMPONENTS = 64

Components = Mapping[str, Component]


def update_components(before: dict[str, Component], readings: Iterable[Reading]) -> dict[str, Component]:
    """Return the last known component of each GPU, by target; the same object without a change."""
    components: dict[str, Component] = {}
    for reading in readings:
        for observation in reading.observations:
            target, component = observation.target, observation.component
            if component is not None and component.hardware is not None:
                components[target] = _completed(component, before.get(target))
    if all(before.get(target) == component for target, component in components.items()):
        return before
    indexes = {component.hardware.index for component in components.values() if component.hardware}
    gone = {target: before[target] for target in before if target not in components}
    others = {target: _without_index(component, indexes) for target, component in gone.items()}
    return dict(list((others | components).items())[-_MAX_COMPONENTS:])


def _completed(component: Component, earlier: Component | None) -> Component:
    """Return a component with the names of an earlier reading that this reading lacks."""
    if earlier is None or earlier.id != component.id or not (component.hardware and earlier.hardware):
        return component
    return replace(component, hardware=component.hardware.completed_by(earlier.hardware))


def _without_index(component: Component, indexes: set[int | None]) -> Component:
    """Return the component of a GPU that NVML does not list; NVML may list another one under its index."""
    if component.hardware is None or component.hardware.index not in indexes:
        return component
    return replace(component, hardware=replace(component.hardware, index=None))


def with_hardware(verdict: Verdict, components: Components) -> Verdict:
    """Return a verdict with the hardware of the GPU in each of its findings."""
    if not components:
        return verdict
    return replace(
        verdict,
        findings=tuple(_with_hardware(finding, components) for finding in verdict.findings),
        informational=tuple(_with_hardware(finding, components) for finding in verdict.informational),
    )


def _with_hardware(finding: Finding, components: Components) -> Finding:
    hardware = hardware_of(finding.targets or (finding.target,), finding.component, components)
    return finding if hardware is None else replace(finding, hardware=hardware)


def hardware_of(targets: Iterable[str], component: str, components: Components) -> Hardware | None:
    """Return the hardware of the one GPU that some targets are or are part of; None for several or none.

    component: id of the component, if it is known: another one has been replaced.
    """
    gpus = {target if target_kind(target) == "gpu" else parent_target(target) for target in targets}
    last = components.get(gpus.pop()) if len(gpus) == 1 else None
    return last.hardware if last is not None and component in {"", last.id} else None
