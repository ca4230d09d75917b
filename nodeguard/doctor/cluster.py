"""Checks of the installation in a cluster, on objects that were read from its API. Pure.

Sources for neighbours: the FAQ of cluster-autoscaler (it copies taints into the template of new nodes, unless
`--startup-taint` or `--status-taint` names them), and the documentation of descheduler (its plugin
RemovePodsViolatingNodeTaints evicts pods that do not tolerate a NoSchedule taint of their node).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest

from msgspec import Struct

from nodeguard.doctor.diagnostics import Diagnostic, failed, passed, skipped, warning
from nodeguard.fleet.state.topology.label_schemes import BUILT_IN
from nodeguard.model.mark import DEGRADED_TAINT, NO_SCHEDULE, Mark
from nodeguard.model.node import PREFIX, Taint

AGENT, AGGREGATOR = "nodeguard-agent", "nodeguard-aggregator"

# The first minor version of Kubernetes 1 with node names in the tokens of pods.
_MIN_MINOR = 30

# Names that are listed before the rest is counted.
_SHOWN = 5

# Parts of the names of DaemonSets that GPU nodes need to work, and of namespaces with such DaemonSets.
_GPU_DAEMONSETS = ("nvidia", "gpu-operator", "dcgm", "device-plugin", "network-operator", "rdma", "mofed")

# Taints that a daemon of a GPU node must tolerate, or it does not start again there after its own restart.
_TAINTS = (*(mark.key for mark in Mark), DEGRADED_TAINT)


class TolerationSpec(Struct, frozen=True, rename="camel"):
    """A toleration of a pod."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether a pod with this toleration may run on a node with a taint."""
        if self.effect not in {"", taint.effect}:
            return False
        if self.operator == "Exists":
            return self.key in {"", taint.key}
        return (self.key, self.value) == (taint.key, taint.value)


class Workload(Struct, frozen=True):
    """A DaemonSet, Deployment or CronJob. words: of the commands of its containers. desired, ready: pods."""

    namespace: str
    name: str
    words: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    tolerations: tuple[TolerationSpec, ...] = ()
    desired: int = 0
    ready: int = 0


class ClusterNode(Struct, frozen=True):
    """A Node: its labels, and how many GPUs it offers."""

    name: str
    labels: Mapping[str, str]
    gpus: int


class ClusterObjects(Struct, frozen=True):
    """The objects of a cluster. has_incidents: whether NodeIncidents are defined. missing_rights: of the
    aggregator; None if this user may not ask. descheduler_policies: texts of the ConfigMaps beside it.
    namespace: of nodeguard. cronjobs: of all namespaces; descheduler is installed as one. has_locations:
    whether the policy has node locations or labels of topologies.
    """

    namespace: str
    minor_version: int
    has_incidents: bool
    daemonsets: tuple[Workload, ...]
    deployments: tuple[Workload, ...]
    cronjobs: tuple[Workload, ...]
    nodes: tuple[ClusterNode, ...]
    missing_rights: tuple[str, ...] | None
    descheduler_policies: tuple[str, ...]
    has_locations: bool


def topology_keys() -> frozenset[str]:
    """Return the label keys that place a Node in a domain smaller than a zone."""
    return frozenset(key for labels in BUILT_IN if labels.name != "zone" for key in labels.labels)


def check_cluster(objects: ClusterObjects, topology_labels: frozenset[str]) -> Iterator[Diagnostic]:
    """Check a cluster. topology_labels: label keys that place a Node in a failure domain."""
    yield _version(objects.minor_version)
    if objects.has_incidents:
        yield passed("NodeIncidents", "the custom resource is defined")
    else:
        yield failed("NodeIncidents", "the custom resource is not defined", "install or upgrade the chart")
    yield _pods("aggregator", AGGREGATOR, objects.namespace, objects.deployments)
    yield _pods("agents", AGENT, objects.namespace, objects.daemonsets)
    yield _rights(objects.missing_rights)
    yield _labels(objects.nodes, topology_labels, has_locations=objects.has_locations)
    yield _gpu_daemonsets(objects.daemonsets)
    yield _autoscaler(objects.deployments)
    yield _descheduler(objects)
    yield _other_tools((*objects.daemonsets, *objects.deployments, *objects.cronjobs))


def _version(minor: int) -> Diagnostic:
    if minor >= _MIN_MINOR:
        return passed("version", f"Kubernetes 1.{minor}")
    remedy = f"upgrade to 1.{_MIN_MINOR} or newer: before, the tokens of pods name no Node"
    return failed("version", f"Kubernetes 1.{minor}", remedy)


def _pods(name: str, workload: str, namespace: str, workloads: Iterable[Workload]) -> Diagnostic:
    places = {item.namespace: item for item in workloads if item.name == workload}
    found = places.get(namespace)
    if found is None:
        message = f"there is no {workload} in namespace {namespace}"
        if places:
            return failed(name, message, f"it is in {_listed(sorted(places))}: name the namespace with -n")
        return failed(name, message, "install the chart")
    count = f"{found.ready} of {found.desired} pods of {found.namespace}/{workload} are ready"
    if found.ready == found.desired and found.desired:
        return passed(name, count)
    remedy = f"kubectl describe pods -n {found.namespace} -l app.kubernetes.io/name={workload}"
    return failed(name, count, remedy)


def _rights(missing: tuple[str, ...] | None) -> Diagnostic:
    if missing is None:
        return skipped("rights", "this user may not create SubjectAccessReviews")
    if not missing:
        return passed("rights", "the aggregator's service account has all its rights")
    return failed("rights", f"the aggregator may not: {_listed(missing)}", "install or upgrade the chart")


def _labels(
    nodes: Iterable[ClusterNode], topology_labels: frozenset[str], *, has_locations: bool
) -> Diagnostic:
    with_gpus = [node for node in nodes if node.gpus]
    if not with_gpus:
        return skipped("topology labels", "no node offers nvidia.com/gpu")
    without = [node.name for node in with_gpus if topology_labels.isdisjoint(node.labels)]
    if not without:
        return passed("topology labels", f"all {len(with_gpus)} nodes with GPUs have one")
    if has_locations:
        return skipped(
            "topology labels", "the policy has locations: nodeguard get domains names nodes without one"
        )
    message = f"{len(without)} of {len(with_gpus)} nodes with GPUs have none: {_listed(without)}"
    remedy = "faults of switches and racks are not diagnosed there: label the nodes, or set nodeLocations"
    return warning("topology labels", message, remedy)


def _gpu_daemonsets(daemonsets: Iterable[Workload]) -> Diagnostic:
    relevant = [
        item
        for item in daemonsets
        if any(part in f"{item.namespace}/{item.name}" for part in _GPU_DAEMONSETS) and item.name != AGENT
    ]
    if not relevant:
        return skipped("GPU daemons", "no DaemonSet of a GPU or network operator was found")
    intolerant = [
        f"{item.namespace}/{item.name}"
        for item in relevant
        if not all(
            any(toleration.tolerates(Taint(key, NO_SCHEDULE, "any")) for toleration in item.tolerations)
            for key in _TAINTS
        )
    ]
    if not intolerant:
        return passed("GPU daemons", f"{len(relevant)} DaemonSets tolerate nodeguard's taints")
    message = f"do not tolerate nodeguard's taints: {_listed(intolerant)}"
    remedy = f"they do not restart on marked nodes: tolerate {', '.join(_TAINTS)} with operator Exists"
    return warning("GPU daemons", message, remedy)


def _autoscaler(deployments: Iterable[Workload]) -> Diagnostic:
    name = "cluster-autoscaler"
    autoscaler = next((item for item in deployments if _is(item, name)), None)
    if autoscaler is None:
        return skipped(name, "not found")
    flags = {_taint_flag(word, value) for word, value in zip_longest(autoscaler.words, autoscaler.words[1:])}
    unnamed = [key for key in _TAINTS if key not in flags]
    if not unnamed:
        return passed(name, "its flags name nodeguard's taints")
    place = f"{autoscaler.namespace}/{autoscaler.name}"
    message = f"{place} copies taints into its templates: {', '.join(unnamed)}"
    remedy = " ".join(f"--status-taint={key}" for key in unnamed)
    return warning(name, message, f"add to its arguments: {remedy}")


def _taint_flag(word: str, following: str | None) -> str:
    """Return the taint key that a flag of cluster-autoscaler names; empty for any other word. following: the
    next argument, which is the value of a flag without `=`.
    """
    flag, equals, value = word.lstrip("-").partition("=")
    if flag not in {"status-taint", "startup-taint", "ignore-taint"}:
        return ""
    return value if equals else following or ""


def _descheduler(objects: ClusterObjects) -> Diagnostic:
    name = "descheduler"
    workloads = (*objects.deployments, *objects.cronjobs)
    if not any(_is(item, name) for item in workloads) and not objects.descheduler_policies:
        return skipped(name, "not found")
    if not objects.descheduler_policies:
        return skipped(name, "found, without a ConfigMap with a DeschedulerPolicy in its namespace")
    risky = [
        policy
        for policy in objects.descheduler_policies
        if "RemovePodsViolatingNodeTaints" in policy and PREFIX not in policy
    ]
    if not risky:
        return passed(name, "it does not evict pods for nodeguard's taints")
    message = "its plugin RemovePodsViolatingNodeTaints evicts running pods from marked nodes"
    return failed(name, message, f"add excludedTaints: [{', '.join(_TAINTS)}] to the plugin's arguments")


def _other_tools(workloads: Iterable[Workload]) -> Diagnostic:
    """Report other tools that mark or repair nodes."""
    found = sorted(
        {
            tool
            for item in workloads
            for tool in ("node-problem-detector", "nvsentinel", "gpud", "draino", "karpenter")
            if _is(item, tool)
        }
    )
    if not found:
        return passed("other tools", "no other tool that marks or repairs nodes was found")
    message = f"also mark, drain or repair nodes: {', '.join(found)}"
    return warning("other tools", message, "let one tool decide: see docs/concepts/neighbours.md")


def _is(workload: Workload, tool: str) -> bool:
    """Return whether the name or an image has the name of a tool as whole words: `gpudirect` is not gpud."""
    name = re.compile(rf"(?<![a-z0-9]){re.escape(tool)}(?![a-z0-9])")
    return any(name.search(text) for text in (workload.name, *workload.images))


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    rest = len(every) - _SHOWN
    return ", ".join(every[:_SHOWN]) + (f", and {rest} more" if rest > 0 else "")
