"""Marks in effect: the recorded marks that keep work away now. Pure.

A record is not enough: its mark may be gone, or an operator may have uncordoned the node.
"""

from __future__ import annotations

from nodeguard.model.device import Device
from nodeguard.model.inventory import ObservedMarks
from nodeguard.model.mark import Mark, NodeMarks
from nodeguard.model.policy import MarkWrites


def marks_in_effect(observed: ObservedMarks, writes: MarkWrites, *, is_out: bool) -> NodeMarks:
    """Return the observed marks of a node and its devices without those that keep no work away.

    writes: what the policy writes for a mark. is_out: whether anything keeps all new work off the node, such
    as a cordon.
    """

    def keeps_work_away(mark: Mark) -> bool:
        return mark in observed.in_effect or (mark.kind.cordons and writes.cordon and is_out)

    records = observed.records
    record = records.node.only(keeps_work_away)
    devices = {
        device: device_record
        for device, device_record in records.devices.items()
        if device in observed.devices_in_effect
    }
    is_all = record is records.node and len(devices) == len(records.devices)
    return records if is_all else NodeMarks(record, devices)


def is_in_effect(marks: NodeMarks, mark: Mark, device: Device | None) -> bool:
    """Return whether the marks in effect keep away the work of a mark on a node (None) or a device: a mark
    does that for the lesser kinds, and one of the whole node for its devices.
    """
    return device in marks.devices or any(other.covers(mark) for other in marks.node.marks)
