"""The desired state of Nodes and DeviceTaintRules for a decision. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable

from msgspec import Struct
from msgspec.structs import replace

from nodeguard.executors.cordon import is_cordoned_after
from nodeguard.executors.kube.condition import node_condition
from nodeguard.executors.owners import owned_record
from nodeguard.fleet.state.node_marks import decode_record, encode_record
from nodeguard.fleet.state.unknown_marks import unknown_kinds
from nodeguard.model.decision import NodeDecision, WantedMark
from nodeguard.model.device import device_mark_name
from nodeguard.model.mark import NO_SCHEDULE, STATE_ANNOTATION, Mark, MarkRecord
from nodeguard.model.node import PREFIX, Node, NodeCondition, Taint
from nodeguard.model.policy import MarkWrites


class DesiredNode(Struct, frozen=True):
    """The desired nodeguard fields of a Node; all other fields stay unchanged."""

    uid: str
    """Of the Node; a Node of the same name with another uid is not written."""
    name: str
    taints: tuple[Taint, ...] = ()
    """All with keys that start with PREFIX."""
    state: str = ""
    """Value of STATE_ANNOTATION, empty for none."""
    cordon: bool | None = None
    """None leaves `unschedulable` unchanged."""
    condition: NodeCondition | None = None
    """None leaves it unchanged; one without a status removes it."""
    record: MarkRecord = MarkRecord()
    """The record to keep; `state` has it, with the owner of the cordon."""
    is_final: bool = True
    """Whether a Node in this state shows the decision; if not, a receiver has not accepted all of it yet."""


class DeviceRule(Struct, frozen=True):
    """A DeviceTaintRule that nodeguard owns."""

    name: str
    node: str
    uid: str
    """Of the Node with the device."""
    driver: str
    pool: str
    device: str
    """With driver and pool, the selector."""
    taint: Taint
    state: str = ""
    """Value of STATE_ANNOTATION."""


def own_taint_keys(record: MarkRecord) -> frozenset[str]:
    """Return the keys of the taints that a record explains."""
    return _unknown_taint_keys(record).union(mark.key for mark in record.marks)


def foreign_taints(node: Node, record: MarkRecord | None = None) -> tuple[Taint, ...]:
    """Return the taints with nodeguard's prefix that the record of a Node does not explain: others set them.

    record: if the API server refuses it; None for that of the annotation. If this one is invalid, all are
    nodeguard's: an operator who removes all marks expects none to stay.
    """
    record = record or decode_record(node.annotations.get(STATE_ANNOTATION, ""))
    return () if record is None else unexplained_taints(node, record)


def unexplained_taints(node: Node, record: MarkRecord) -> tuple[Taint, ...]:
    """Return the taints with nodeguard's prefix that a record does not explain."""
    own = own_taints(node, record)
    return tuple(taint for taint in node.taints if taint.key.startswith(PREFIX) and taint not in own)


def own_taints(node: Node, record: MarkRecord) -> tuple[Taint, ...]:
    """Return the taints of a Node that a record explains."""
    own_keys = own_taint_keys(record)
    return tuple(taint for taint in node.taints if _is_own(taint, own_keys))


def desired_node(
    node: Node,
    observed: MarkRecord,
    decision: NodeDecision,
    writes: MarkWrites,
    owner: str = "",
    accepted: frozenset[Mark] | None = None,
) -> DesiredNode:
    """Return the desired state of a Node. observed: its record now, with the owner of the cordon. owner: the
    webhook that owns the node, empty for none; accepted: see NodeOwners.
    """
    stored, is_final, in_place = decision.record, True, frozenset[Mark]()
    if owner:
        owned = owned_record(observed, decision.record, owner, accepted)
        stored, is_final, in_place = owned.stored(owner), owned.is_final, owned.accepted
        writes = replace(writes, taint=False, cordon=False, condition=writes.condition and is_final)
    record = replace(stored, accepted=None)
    wanted = [mark for mark in decision.marks if mark.device is None and mark.kind not in in_place]
    # The taints of a Node that gets another owner stay until its receiver has accepted the marks.
    before = {taint.key for taint in node.taints} if owner else frozenset[str]()
    taints = [_taint(mark) for mark in wanted if writes.taint or mark.kind.key in before]
    kept_keys = _unknown_taint_keys(record)
    taints += [taint for taint in node.taints if _is_own(taint, kept_keys)]
    is_ours = is_cordoned_after(
        observed, record, writes, is_ours=observed.cordoned and node.unschedulable, is_out=node.unschedulable
    )
    cordon = None
    if is_ours != observed.cordoned:
        cordon = True if is_ours else False if node.unschedulable else None
    condition = (
        node_condition(node.name, record, decision.facts, node.condition) if writes.condition else None
    )
    return DesiredNode(
        uid=node.uid,
        name=node.name,
        taints=_sorted((*taints, *unexplained_taints(node, observed))),
        state=encode_record(replace(stored, cordoned=True) if is_ours else stored),
        cordon=cordon,
        condition=condition,
        record=record,
        is_final=is_final,
    )


def unmarked_node(node: Node, record: MarkRecord | None = None) -> DesiredNode:
    """Return the desired state of a Node without marks of nodeguard. Taints and cordons of others stay.
    record: see foreign_taints.
    """
    return DesiredNode(
        node.uid, node.name, foreign_taints(node, record), cordon=False, condition=NodeCondition("", "")
    )


def is_unmarked(node: Node, record: MarkRecord | None = None) -> bool:
    """Return whether a Node has nothing of nodeguard to remove. record: see foreign_taints."""
    foreign = foreign_taints(node, record)
    return (
        node.condition is None
        and not node.annotations.get(STATE_ANNOTATION)
        and all(taint in foreign for taint in node.taints if taint.key.startswith(PREFIX))
    )


def is_as_desired(node: Node, desired: DesiredNode) -> bool:
    """Return whether a Node is in its desired state, except the message of its condition."""
    taints = _sorted(taint for taint in node.taints if taint.key.startswith(PREFIX))
    has_condition = desired.condition is None or not desired.condition.replaces(node.condition)
    return (
        taints == desired.taints
        and node.annotations.get(STATE_ANNOTATION, "") == desired.state
        and (desired.cordon is None or node.unschedulable == desired.cordon)
        and has_condition
    )


def device_rules(decision: NodeDecision) -> tuple[DeviceRule, ...]:
    """Return the desired rules of a node's devices."""
    return tuple(
        DeviceRule(
            name=device_mark_name(decision.node, mark.device),
            node=decision.name,
            uid=decision.node,
            driver=mark.device.driver,
            pool=mark.device.pool,
            device=mark.device.name,
            taint=_taint(mark),
            state=encode_record(decision.records.record_of(mark.device)),
        )
        for mark in decision.marks
        if mark.device is not None and mark.kind.kind.on_device
    )


def _sorted(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    return tuple(sorted(taints, key=lambda taint: (taint.key, taint.effect)))


def _unknown_taint_keys(record: MarkRecord) -> frozenset[str]:
    """Return the keys of the taints of a record's marks of unknown kinds."""
    return frozenset(f"{PREFIX}{kind}" for kind in unknown_kinds(record))


def _is_own(taint: Taint, own_keys: Container[str]) -> bool:
    return taint.key in own_keys and taint.effect == NO_SCHEDULE


def _taint(mark: WantedMark) -> Taint:
    return Taint(mark.kind.key, NO_SCHEDULE, mark.value)
