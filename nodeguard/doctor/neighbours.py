"""Checks for conflicts of other tools in a cluster with nodeguard's marks. Pure.

docs/concepts/neighbours.md lists the conflicts that were observed, with the versions, and those that are only
documented.
"""

from __future__ import annotations

from itertools import zip_longest

from nodeguard.doctor.cluster_objects import ClusterObjects, ConfigTexts
from nodeguard.doctor.diagnostics import Diagnostic, failed, passed, skipped, warning
from nodeguard.doctor.neighbour_configs import EvictionPolicy, monitor_conflicts, parse_eviction_policy
from nodeguard.fleet_api.text.wording import first_names
from nodeguard.model.mark import NO_SCHEDULE, Mark
from nodeguard.model.node import Taint

# Keys of the taints that nodeguard sets.
TAINTS = tuple(mark.key for mark in Mark)

AUTOSCALER, DESCHEDULER, MONITOR = "cluster-autoscaler", "descheduler", "node-problem-detector"

# With the value `true`, these annotations protect a Node from scale-down. The label is on Nodes of Karpenter.
_KEPT_BY_AUTOSCALER = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
_KEPT_BY_KARPENTER = "karpenter.sh/do-not-disrupt"
_KARPENTER_POOL = "karpenter.sh/nodepool"

# Parts of the names of DaemonSets that GPU nodes need to work, and of namespaces with such DaemonSets.
_GPU_DAEMONSETS = ("nvidia", "gpu-operator", "dcgm", "device-plugin", "network-operator", "rdma", "mofed")

_OTHER_TOOLS = (MONITOR, "nvsentinel", "gpud", "draino", "karpenter")


def _gpu_daemonsets(objects: ClusterObjects) -> Diagnostic:
    name = "GPU daemons"
    relevant = [
        item
        for item in objects.daemonsets
        if any(part in f"{item.namespace}/{item.name}" for part in _GPU_DAEMONSETS)
        and not item.runs("nodeguard-agent")
    ]
    if not relevant:
        return skipped(name, "no DaemonSet of a GPU or network operator was found")
    intolerant = [
        f"{item.namespace}/{item.name}"
        for item in relevant
        if not all(
            any(toleration.tolerates(Taint(key, NO_SCHEDULE, "any")) for toleration in item.tolerations)
            for key in TAINTS
        )
    ]
    if not intolerant:
        return passed(name, f"{len(relevant)} DaemonSets tolerate nodeguard's taints")
    message = f"do not tolerate nodeguard's taints: {first_names(intolerant)}"
    keys = ", ".join(TAINTS)
    remedy = (
        "an update does not start their pods again on marked nodes: "
        f"add tolerations with operator Exists for {keys}"
    )
    return warning(name, message, remedy)


def _autoscaler(objects: ClusterObjects) -> Diagnostic:
    autoscaler = next((item for item in objects.deployments if item.runs(AUTOSCALER)), None)
    if autoscaler is None:
        return skipped(AUTOSCALER, "not found")
    place = f"{autoscaler.namespace}/{autoscaler.name}"
    flags = [_flag(word, value) for word, value in zip_longest(autoscaler.words, autoscaler.words[1:])]
    startup = [key for key in TAINTS if any(_makes_unready(key, *flag) for flag in flags)]
    if startup:
        message = f"{place} considers marked nodes unready: {', '.join(startup)}"
        remedy = " ".join(f"--status-taint={key}" for key in startup)
        return warning(AUTOSCALER, message, f"instead of startup taints, use: {remedy}")
    unnamed = [key for key in TAINTS if ("status-taint", key) not in flags]
    if unnamed:
        message = f"{place} copies taints into its templates: {', '.join(unnamed)}"
        remedy = " ".join(f"--status-taint={key}" for key in unnamed)
        return warning(AUTOSCALER, message, f"add to its arguments: {remedy}")
    return passed(AUTOSCALER, "its flags name nodeguard's taints as status taints")


def _flag(word: str, following: str | None) -> tuple[str, str]:
    """Return name and value of a flag; empty for any other word. following: the value if there is no `=`."""
    if not word.startswith("-"):
        return "", ""
    name, equals, value = word.lstrip("-").partition("=")
    return name, value if equals else following or ""


def _makes_unready(key: str, flag: str, value: str) -> bool:
    """Return whether a flag of cluster-autoscaler makes nodes with this taint unready."""
    return (flag in {"startup-taint", "ignore-taint"} and value == key) or (
        flag == "startup-taint-prefix" and bool(value) and key.startswith(value)
    )


def _deletion(objects: ClusterObjects) -> Diagnostic:
    """Report marked nodes that an autoscaler may delete before their repair."""
    name = "marked nodes"
    marked = [node for node in objects.nodes if any(taint.key in TAINTS for taint in node.taints)]
    if not marked:
        return skipped(name, "no node is marked")
    has_autoscaler = any(item.runs(AUTOSCALER) for item in objects.deployments)
    risks = (
        (
            "Karpenter",
            _KEPT_BY_KARPENTER,
            "expireAfter, which still deletes it",
            [node for node in marked if _KARPENTER_POOL in node.labels],
        ),
        (AUTOSCALER, _KEPT_BY_AUTOSCALER, "its repair", marked if has_autoscaler else []),
    )
    conflicts = [
        (tool, annotation, end, unprotected)
        for tool, annotation, end, nodes in risks
        if (unprotected := [node.name for node in nodes if node.annotations.get(annotation) != "true"])
    ]
    if not conflicts:
        return passed(name, "no autoscaler may scale down a marked node")
    messages = [
        f"{tool} may delete {len(nodes)} of {len(marked)} marked nodes, empty or with few running pods: "
        f"{first_names(nodes)}"
        for tool, _, _, nodes in conflicts
    ]
    remedies = [
        f"to keep one until {end}: kubectl annotate node NAME {annotation}=true"
        for _, annotation, end, _ in conflicts
    ]
    return warning(name, "; ".join(messages), "; ".join(remedies))


def _descheduler(objects: ClusterObjects) -> Diagnostic:
    workloads, configs = (*objects.deployments, *objects.cronjobs), objects.descheduler_policies
    if not any(item.runs(DESCHEDULER) for item in workloads) and not configs.texts:
        return skipped(DESCHEDULER, "not found")
    policies = [parse_eviction_policy(text) for text in configs.texts]
    readable = [policy for policy in policies if policy is not None]
    evicted = sorted({key for policy in readable for key in TAINTS if policy.evicts(key)}, key=TAINTS.index)
    if evicted:
        message = (
            f"its plugin {EvictionPolicy.PLUGIN} evicts running pods from nodes with {', '.join(evicted)}"
        )
        remedy = f"set excludedTaints: [{', '.join(TAINTS)}] in the plugin's arguments"
        return failed(DESCHEDULER, message, remedy)
    if configs.forbidden:
        return skipped(DESCHEDULER, _forbidden(configs))
    if not policies:
        return skipped(DESCHEDULER, "found, without a ConfigMap with a DeschedulerPolicy in its namespace")
    if len(readable) < len(policies):
        return skipped(DESCHEDULER, "its DeschedulerPolicy cannot be read")
    return passed(DESCHEDULER, "it does not evict pods for nodeguard's taints")


def _monitor(objects: ClusterObjects) -> Diagnostic:
    if not any(item.runs(MONITOR) for item in objects.workloads):
        return skipped(MONITOR, "not found")
    configs = objects.monitor_configs
    conflicts = [conflict for text in configs.texts for conflict in monitor_conflicts(text)]
    if not conflicts:
        if configs.forbidden:
            return skipped(MONITOR, _forbidden(configs))
        return passed(MONITOR, "no rule conflicts with nodeguard")
    message = "; ".join(dict.fromkeys(conflict.problem for conflict in conflicts))
    return warning(MONITOR, message, "; ".join(dict.fromkeys(conflict.remedy for conflict in conflicts)))


def _forbidden(configs: ConfigTexts) -> str:
    return f"this user may not read ConfigMaps in {first_names(configs.forbidden)}"


def _other_tools(objects: ClusterObjects) -> Diagnostic:
    """Report other tools that mark or repair nodes."""
    tools = sorted({tool for item in objects.workloads for tool in _OTHER_TOOLS if item.runs(tool)})
    if not tools:
        return passed("other tools", "no other tool that marks or repairs nodes was found")
    message = f"also mark, drain or repair nodes: {', '.join(tools)}"
    return warning("other tools", message, "let one tool decide: see docs/concepts/neighbours.md")


# The checks of the settings of other tools against nodeguard's marks, in the order of the output.
NEIGHBOUR_CHECKS = (_gpu_daemonsets, _autoscaler, _deletion, _descheduler, _monitor, _other_tools)
