"""The objects of a cluster that the doctor checks, reduced to the fields that its checks need."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from nodeguard.kube.incident_schema import FieldSchema
from nodeguard.model.node import Taint


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
    """A DaemonSet, Deployment or CronJob. words: of the commands of its containers. desired, ready: pods.

    is_updating: whether pods of an earlier version are left, or new ones are not ready.
    """

    namespace: str
    name: str
    words: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    tolerations: tuple[TolerationSpec, ...] = ()
    desired: int = 0
    ready: int = 0
    is_updating: bool = False

    def runs(self, tool: str) -> bool:
        """Return whether the name or an image has a tool's name as whole words: `gpudirect` is not gpud."""
        name = re.compile(rf"(?<![a-z0-9]){re.escape(tool)}(?![a-z0-9])")
        return any(name.search(text) for text in (self.name, *self.images))


class ClusterNode(Struct, frozen=True):
    """A Node: its labels, annotations and taints, and how many GPUs it offers."""

    name: str
    labels: Mapping[str, str]
    gpus: int
    annotations: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()


class ConfigTexts(Struct, frozen=True):
    """The texts of ConfigMaps, and the namespaces in which this user may not read any."""

    texts: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()


class ClusterObjects(Struct, frozen=True):
    """The objects of a cluster. missing_rights: of the aggregator; None if this user may not ask. namespace:
    of nodeguard. cronjobs: of all namespaces; descheduler is installed as one. has_locations: whether the
    policy has node locations or labels of topologies. descheduler_policies, monitor_configs: of the
    ConfigMaps beside descheduler and beside node-problem-detector.
    """

    namespace: str
    minor_version: int
    incident_fields: Mapping[str, FieldSchema] | None
    """The served schema of NodeIncidents by path; None if they are not defined."""

    action_fields: Mapping[str, FieldSchema] | None
    """The served schema of NodeActions by path; None if they are not defined."""

    daemonsets: tuple[Workload, ...]
    deployments: tuple[Workload, ...]
    cronjobs: tuple[Workload, ...]
    nodes: tuple[ClusterNode, ...]
    missing_rights: tuple[str, ...] | None
    descheduler_policies: ConfigTexts
    has_locations: bool
    monitor_configs: ConfigTexts = ConfigTexts()

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """Return all DaemonSets, Deployments and CronJobs."""
        return (*self.daemonsets, *self.deployments, *self.cronjobs)
