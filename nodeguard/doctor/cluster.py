"""Checks of the installation in a cluster, on objects that were read from its API. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from nodeguard.doctor.cluster_objects import ClusterObjects, Workload
from nodeguard.doctor.diagnostics import Diagnostic, failed, passed, skipped, warning
from nodeguard.doctor.neighbours import NEIGHBOUR_CHECKS
from nodeguard.fleet.state.topology.label_schemes import BUILT_IN, is_placeholder
from nodeguard.fleet_api.text.wording import count_noun, first_names
from nodeguard.kube.action_object import ACTIONS_REMEDY
from nodeguard.kube.incident_schema import (
    REMEDY,
    missing_from,
    own_action_fields,
    own_fields,
    unknown_to_this_version,
)

AGENT, AGGREGATOR = "nodeguard-agent", "nodeguard-aggregator"

# For a workload that exists and asks for no pods: there is no pod that `kubectl describe` could show.
_REMEDIES_WITHOUT_PODS = {
    AGENT: "no Node has the labels of agent.nodeSelector: compare it with kubectl get nodes --show-labels",
    AGGREGATOR: "it is scaled to 0: set aggregator.replicas, and run helm upgrade",
}

# The first minor version of Kubernetes 1 with node names in the tokens of pods.
_MIN_MINOR = 30


# The label keys that place a Node in a domain smaller than a zone.
_TOPOLOGY_KEYS = frozenset(key for labels in BUILT_IN if labels.name != "zone" for key in labels.labels)


def _version(objects: ClusterObjects) -> Diagnostic:
    minor = objects.minor_version
    if minor >= _MIN_MINOR:
        return passed("version", f"Kubernetes 1.{minor}")
    remedy = f"upgrade to 1.{_MIN_MINOR} or newer: before, the tokens of pods name no Node"
    return failed("version", f"Kubernetes 1.{minor}", remedy)


def _incidents(objects: ClusterObjects) -> Diagnostic:
    """Compare the served schema of NodeIncidents with that of this version."""
    name, served = "NodeIncidents", objects.incident_fields
    if served is None:
        return failed(name, "the custom resource is not defined", "install or upgrade the chart")
    if differences := tuple(missing_from(served, own_fields())):
        message = f"incidents are stored without some data: {'; '.join(differences)}"
        return warning(name, message, REMEDY)
    if newer := unknown_to_this_version(served, own_fields()):
        return passed(name, f"the custom resource is newer than this version: it adds {', '.join(newer)}")
    return passed(name, "the custom resource is defined, with the schema of this version")


def _actions(objects: ClusterObjects) -> Diagnostic:
    """Compare the served schema of NodeActions with that of this version."""
    name, effect, served = "NodeActions", "no incident of a node can be cleared", objects.action_fields
    if served is None:
        return warning(name, f"the custom resource is not defined: {effect}", ACTIONS_REMEDY)
    if differences := tuple(missing_from(served, own_action_fields())):
        return warning(name, f"{effect}: {'; '.join(differences)}", ACTIONS_REMEDY)
    return passed(name, "the custom resource is defined, with the fields of this version")


def _pods(name: str, workload: str, namespace: str, workloads: Iterable[Workload]) -> Diagnostic:
    places = {item.namespace: item for item in workloads if item.name == workload}
    installed = places.get(namespace)
    if installed is None:
        message = f"there is no {workload} in namespace {namespace}"
        if places:
            return failed(
                name, message, f"it is in {first_names(sorted(places))}: name the namespace with -n"
            )
        return failed(name, message, "install the chart")
    count = f"{installed.ready} of {installed.desired} pods of {installed.namespace}/{workload} are ready"
    remedy = f"kubectl describe pods -n {installed.namespace} -l app.kubernetes.io/name={workload}"
    if not installed.desired:
        return failed(name, f"{installed.namespace}/{workload} has no pods", _REMEDIES_WITHOUT_PODS[workload])
    if installed.ready < installed.desired:
        return failed(name, count, remedy)
    if installed.is_updating:
        return warning(name, f"{count}, and an update is not complete", f"wait; if it lasts, {remedy}")
    return passed(name, count)


def _rights(objects: ClusterObjects) -> Diagnostic:
    missing = objects.missing_rights
    if missing is None:
        return skipped("rights", "this user may not create SubjectAccessReviews")
    if not missing:
        return passed("rights", "the aggregator's service account has all its rights")
    return failed("rights", f"the aggregator may not: {first_names(missing)}", "install or upgrade the chart")


def _labels(objects: ClusterObjects) -> Diagnostic:
    name, has_locations = "topology labels", objects.has_locations
    with_gpus = [node for node in objects.nodes if node.gpus]
    if not with_gpus:
        return skipped(name, "no node offers nvidia.com/gpu")
    placeholders = Counter(
        (key, node.labels[key])
        for node in with_gpus
        for key in sorted(_TOPOLOGY_KEYS.intersection(node.labels))
        if is_placeholder(node.labels[key])
    )
    all_nodes = count_noun(len(with_gpus), "node")
    if placeholders and not has_locations:
        (key, value), count = placeholders.most_common(1)[0]
        message = f"the placeholder {value!r} is in {key} of {count} of {all_nodes} with GPUs"
        remedy = "these nodes are in no failure domain of it: set the label to the location, or remove it"
        return warning(name, message, remedy)
    without = [node.name for node in with_gpus if _TOPOLOGY_KEYS.isdisjoint(node.labels)]
    if not without:
        return passed(name, f"all {len(with_gpus)} nodes with GPUs have one")
    if has_locations:
        return skipped(name, "the policy has locations: nodeguard get domains names nodes without one")
    message = f"none on {len(without)} of {all_nodes} with GPUs: {first_names(without)}"
    remedy = "faults of switches and racks are not diagnosed there: label the nodes, or set nodeLocations"
    return warning(name, message, remedy)


# The checks of a cluster, in the order of the output.
CHECKS: Sequence[Callable[[ClusterObjects], Diagnostic]] = (
    _version,
    _incidents,
    _actions,
    lambda objects: _pods("aggregator", AGGREGATOR, objects.namespace, objects.deployments),
    lambda objects: _pods("agents", AGENT, objects.namespace, objects.daemonsets),
    _rights,
    _labels,
    *NEIGHBOUR_CHECKS,
)
