"""Marks in effect: the recorded marks that keep work away now. Pure.

A record in an annotation is not enough: its taint may be gone, or an operator may have uncordoned the Node.
"""

from __future__ import annotations

from collections.abc import Mapping

from nodeguard.fleet.state.node_marks import rule_name
from nodeguard.model.mark import DEVICE_MARKS, NO_SCHEDULE, DeviceRule, Mark, NodeMarks
from nodeguard.model.node import Device, Node
from nodeguard.model.policy import MarkWrites


def marks_in_effect(
    node: Node, observed: NodeMarks, rules: Mapping[str, DeviceRule], writes: MarkWrites
) -> NodeMarks:
    """Return the observed marks of a node and its devices without those that keep no work away.

    rules: the device rules of the cluster, by name. writes: what the policy writes for a mark.
    """
    keys = {taint.key for taint in node.taints if taint.effect == NO_SCHEDULE}

    def keeps_work_away(mark: Mark) -> bool:
        return mark.key in keys or (mark.kind.cordons and writes.cordon and node.unschedulable)

    record = observed.node.only(keeps_work_away)
    devices = {
        device: device_record
        for device, device_record in observed.devices.items()
        if _is_tainted(rules.get(rule_name(node.uid, device)))
    }
    is_all = record is observed.node and len(devices) == len(observed.devices)
    return observed if is_all else NodeMarks(record, devices)


def is_in_effect(marks: NodeMarks, mark: Mark, device: Device | None) -> bool:
    """Return whether the marks in effect keep away the work of a mark on a node (None) or a device: a mark
    does that for the lesser kinds, and one of the whole node for its devices.
    """
    return device in marks.devices or any(other.covers(mark) for other in marks.node.marks)


def _is_tainted(rule: DeviceRule | None) -> bool:
    if rule is None:
        return False
    return rule.taint.effect == NO_SCHEDULE and any(rule.taint.key == mark.key for mark in DEVICE_MARKS)
