"""The set of a drain: the pods that leave together, and why they may not. Pure.

The set leaves whole or not at all. Pods that nothing would create again, and pods that could start on the
node again, make a drain useless or harmful: then no pod is evicted. A PodGroup with `disruptionMode: all`
leaves with all its pods, also those on other nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from msgspec import Struct

from nodeguard.fleet.act.drain_candidates import DrainCandidate
from nodeguard.model.action import MAX_PODS
from nodeguard.model.drain import UnknownHolders
from nodeguard.model.pod import SHARED_GPU, DisruptionBudget, NodePod, PodGroupKey

# Controllers of pods that belong to the node: their pods stay.
_NODE_CONTROLLERS = frozenset({"DaemonSet", "Node"})

# Pods that a reason names.
_NAMED = 3

_LIMIT = f"a drain evicts at most {MAX_PODS}"


class DrainSet(Struct, frozen=True):
    """The pods to evict. reason: why none is evicted; empty if nothing forbids it. groups: PodGroups of which
    all pods leave. ending: of a set without pods: those that still use the hardware, and end already.
    """

    pods: tuple[NodePod, ...] = ()
    reason: str = ""
    groups: tuple[PodGroupKey, ...] = ()
    ending: str = ""


def drain_set(
    candidate: DrainCandidate, pods: Iterable[NodePod], unknown_holders: UnknownHolders
) -> DrainSet:
    """Return the pods of a node that leave with a candidate. pods: all pods of the node that are not
    finished. unknown_holders: of the policy. An empty set without a reason has nothing to evict: no pod holds
    the GPU, or all that do are ending.
    """
    evictable = sorted((pod for pod in pods if _uses_gpus(pod)), key=lambda pod: pod.key)
    holders: Sequence[NodePod] = evictable
    if not candidate.is_whole_node:
        holders = [pod for pod in evictable if _holds(pod, candidate.gpu_ids)]
        unknown = [pod for pod in evictable if not _names_gpus(pod)]
        if not candidate.gpu_ids:
            reason = "the id of the GPU is not known, so the pods that hold it are not known"
        elif unknown and not all(_is_held_unshared(gpu_id, holders) for gpu_id in candidate.gpu_ids):
            reason = f"it is not known which GPUs {_names(unknown)} {_verb(unknown, 'holds', 'hold')}"
        else:
            reason = ""
        if reason and unknown_holders == UnknownHolders.NODE:
            holders = evictable
        elif reason and evictable:
            return DrainSet(reason=f"{reason}: see drain.unknownHolders of the policy")
    staying = [pod for pod in holders if not pod.is_terminating]
    if not staying:
        verb = _verb(holders, "is", "are")
        return DrainSet(ending=f"{_names(holders)} {verb} still ending" if holders else "")
    too_many = f"{len(holders)} pods would leave: {_LIMIT}" if len(holders) > MAX_PODS else ""
    return DrainSet(tuple(holders), too_many or _useless(staying, candidate))


def pod_groups(pods: Iterable[NodePod]) -> tuple[PodGroupKey, ...]:
    """Return the PodGroups that would lose a pod with a set."""
    groups = {pod.group for pod in pods if pod.group is not None and not pod.is_terminating}
    return tuple(sorted(groups))


def with_gangs(
    found: DrainSet,
    groups: Collection[PodGroupKey],
    members: Collection[NodePod],
    node_restraint: Callable[[str], str],
) -> DrainSet:
    """Return the set of a node with all pods of the PodGroups that leave whole. members: of these groups, on
    all nodes, that are not finished, read after the set. node_restraint: returns why the pods of a node stay,
    by its name; empty for no reason.

    A group without a pod of the set that still runs does not leave. A toleration of the quarantine matters
    only for the pods of the node.
    """
    running = {pod.key.uid for pod in members if not pod.is_terminating}
    present = {pod.group for pod in found.pods if pod.key.uid in running}
    gangs = tuple(group for group in sorted(groups) if group in present)
    members = [pod for pod in members if pod.group in gangs]
    others = [pod for pod in found.pods if pod.group not in groups]
    pods = tuple(sorted((*others, *members), key=lambda pod: pod.key))
    staying = [pod for pod in pods if not pod.is_terminating]
    if not staying:
        return DrainSet()
    return DrainSet(pods, _gang_reason(members, pods, node_restraint), gangs)


def _gang_reason(
    members: Iterable[NodePod], pods: Collection[NodePod], node_restraint: Callable[[str], str]
) -> str:
    """Return why the pods of some gangs stay; empty for none. pods: of the set."""
    staying = [pod for pod in members if not pod.is_terminating]
    immovable = [pod for pod in staying if _belongs_to_node(pod)]
    if immovable:
        verb = _verb(immovable, "belongs to its node", "belong to their nodes")
        return f"{_names(immovable)} {verb}, so that PodGroup {immovable[0].group} cannot leave whole"
    if len(pods) > MAX_PODS:
        return f"{len(pods)} pods would leave with PodGroup {staying[0].group}: {_LIMIT}"
    for pod in staying:
        if reason := node_restraint(pod.node):
            return f"pod {pod.key} of PodGroup {pod.group} is on {pod.node}: {reason}"
    return _uncontrolled(staying)


def budget_reason(pods: Sequence[NodePod], budgets: Iterable[DisruptionBudget]) -> str:
    """Return why disruption budgets forbid to evict all of some pods; empty if they allow it. budgets: of the
    namespaces of these pods.

    As the eviction API, it asks no budget for a pod that has not started, and counts a pod that is not ready
    only if the budget does not free it.
    """
    budgets = tuple(budgets)
    protected = [pod for pod in pods if pod.has_started]
    for pod in protected:
        selecting = [budget for budget in budgets if budget.selects(pod)]
        if len(selecting) > 1:
            names = " and ".join(map(str, selecting[:2]))
            return (
                f"PodDisruptionBudgets {names} both select pod {pod.key}, and the eviction API refuses such "
                "pods: remove one of them"
            )
    for budget in budgets:
        selected = [pod for pod in protected if budget.selects(pod)]
        counted = [pod for pod in selected if pod.is_ready or not budget.frees_unready]
        if counted and not budget.is_current:
            return f"the status of PodDisruptionBudget {budget} is not of its present spec yet"
        if budget.allowed < len(counted):
            allowed = f"PodDisruptionBudget {budget} allows {budget.allowed} of {len(counted)} evictions now"
            return allowed + _unready_reason([pod for pod in counted if not pod.is_ready])
    return ""


def _unready_reason(unready: Sequence[NodePod]) -> str:
    """Return why a budget counts pods that are not ready; empty for none."""
    if not unready:
        return ""
    verbs = f"{_verb(unready, 'is', 'are')} not ready, and {_verb(unready, 'counts', 'count')}"
    return f": {_names(unready)} {verbs} unless unhealthyPodEvictionPolicy of the budget is AlwaysAllow"


def _uses_gpus(pod: NodePod) -> bool:
    """Return whether a pod is work that a drain may move: never one that belongs to the node."""
    return (pod.gpu_ids != () or pod.claims != ()) and not _belongs_to_node(pod)


def _belongs_to_node(pod: NodePod) -> bool:
    return pod.is_static or pod.controller in _NODE_CONTROLLERS


def _holds(pod: NodePod, gpu_ids: Collection[str]) -> bool:
    return any(name.partition(SHARED_GPU)[0] in gpu_ids for name in pod.gpu_ids or ())


def _is_held_unshared(gpu_id: str, pods: Iterable[NodePod]) -> bool:
    return any(gpu_id in (pod.gpu_ids or ()) for pod in pods)


def _names_gpus(pod: NodePod) -> bool:
    """Return whether each device that a pod holds is named as a GPU: MIG devices and indexes are not."""
    ids = pod.gpu_ids
    return ids is not None and not pod.claims and all(name.startswith("GPU-") for name in ids)


def _useless(pods: Collection[NodePod], candidate: DrainCandidate) -> str:
    """Return why the eviction of some pods would not help; empty if it would."""
    reason = _uncontrolled(pods)
    if candidate.is_on_device:
        keeping = [pod for pod in pods if pod.keeps_gpus]
        if keeping and not reason:
            verb = _verb(keeping, "uses", "use")
            claim = "a ResourceClaim that outlives a pod or tolerates the mark of the GPU"
            return f"{_names(keeping)} {verb} {claim}, so a new pod could get the same GPU"
        return reason
    tolerating = [pod for pod in pods if pod.tolerates_quarantine]
    if tolerating and not reason:
        verb = _verb(tolerating, "tolerates", "tolerate")
        return f"{_names(tolerating)} {verb} the quarantine, so a new pod could start on the node again"
    return reason


def _uncontrolled(pods: Iterable[NodePod]) -> str:
    """Return that some of these pods would not be created again; empty if all would."""
    without_controller = [pod for pod in pods if not pod.controller]
    if not without_controller:
        return ""
    verb = _verb(without_controller, "has", "have")
    return f"{_names(without_controller)} {verb} no controller that would create a new pod"


def _names(pods: Sequence[NodePod]) -> str:
    names = ", ".join(str(pod.key) for pod in pods[:_NAMED])
    more = f" and {len(pods) - _NAMED} more" if len(pods) > _NAMED else ""
    return f"{'pod' if len(pods) == 1 else 'pods'} {names}{more}"


def _verb(pods: Sequence[NodePod], singular: str, plural: str) -> str:
    return singular if len(pods) == 1 else plural
