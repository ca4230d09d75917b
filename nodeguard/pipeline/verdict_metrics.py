"""A verdict as Prometheus metrics, which the agent serves and `nodeguard check` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from prometheus_client.core import GaugeMetricFamily, Metric

from nodeguard.model.finding import DataStatus, Finding, Health, ReadFailure
from nodeguard.model.target import nvml_bus_id, parent_target, target_kind
from nodeguard.sources.nvml import GpuIdentity

# Labels of a GPU, with the names and values of dcgm-exporter, so that its series can be joined.
GPU_LABELS = ("gpu", "UUID", "pci_bus_id")


# The label of series of injected faults; its value is `true`. Other series do not have it, so that they stay
# the same series.
INJECTED = "injected"


def injected_label(*, injected: bool) -> dict[str, str]:
    """Return the label of a series of an injected fault; empty for any other."""
    return {INJECTED: "true"} if injected else {}


def verdict_metrics(
    health: Health | None,
    data_status: DataStatus,
    findings: Iterable[Finding],
    unread: Iterable[ReadFailure],
    gpus: Mapping[str, GpuIdentity],
    injected: Sequence[Finding] | None = None,
) -> Iterator[Metric]:
    """Yield the metrics of a verdict.

    health: None if nothing could be evaluated. gpus: names by target. injected: findings of injected faults;
    their series have the label INJECTED. None where faults cannot be injected.
    """
    about = "Health of the node: 1 for its state, 0 for all if nothing could be evaluated."
    if injected is not None:
        about += f" Injected faults have series of their own, with the label {INJECTED}."
    health_family = _states("nodeguard_node_health", about, "health", Health, health)
    injected = injected or ()
    for state in dict.fromkeys(finding.health for finding in injected):
        state_labels = {"health": state.value, **injected_label(injected=True)}
        health_family.add_sample(health_family.name, state_labels, 1)
    yield health_family
    yield _states(
        "nodeguard_node_data_status",
        "Status of the data about the node: 1 for its state.",
        "data_status",
        DataStatus,
        data_status,
    )
    labels = ["check", "target", "health", "action", "data_status", *GPU_LABELS]
    about = "Finding that is not ok; the labels of a GPU are those of dcgm-exporter, empty for other targets."
    family = GaugeMetricFamily("nodeguard_finding", about, labels=labels)
    for finding in findings:
        values = (finding.check, finding.target, finding.health, finding.action, finding.data_status)
        family.add_metric([*map(str, values), *gpu_labels(finding.target, gpus)], 1)
    for finding in injected:
        values = (finding.check, finding.target, finding.health, finding.action, finding.data_status)
        texts = (*map(str, values), *gpu_labels(finding.target, gpus))
        pairs = {**dict(zip(labels, texts, strict=True)), **injected_label(injected=True)}
        family.add_sample(family.name, pairs, 1)
    yield family
    targets = Counter[str]()
    for failure in unread:
        targets[failure.source] += len(failure.targets)
    about = "Targets of which something could not be read."
    yield gauges("nodeguard_unreadable_targets", about, "source", targets)


def gpu_labels(target: str, gpus: Mapping[str, GpuIdentity]) -> tuple[str, str, str]:
    """Return the values of GPU_LABELS for a GPU or one of its NVLinks; empty for any other target."""
    gpu = parent_target(target) if target_kind(target) == "nvlink" else target
    identity = gpus.get(gpu, GpuIdentity())
    return identity.index, identity.uuid, nvml_bus_id(gpu)


def gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a family of gauges, one for each value of a label."""
    family = GaugeMetricFamily(name, about, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _states(name: str, about: str, label: str, states: type[StrEnum], present: str | None) -> Metric:
    """Return a gauge for each state, 1 for the present one; None if there is none."""
    return gauges(name, about, label, {state.value: float(state == present) for state in states})
