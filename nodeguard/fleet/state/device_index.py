"""Devices of the fleet: those that DRA drivers publish, and the device rules that nodeguard writes for them.

No input, output or clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator

from nodeguard.fleet.state.node_marks import decode_record
from nodeguard.model.mark import DEVICE_MARKS, DeviceRule, MarkRecord
from nodeguard.model.node import Device
from nodeguard.model.target import gpu_target

# Finds the published device of a target, by the target and the id of its component; None if there is none.
FindDevice = Callable[[str, str], Device | None]


class DeviceIndex:
    """The devices by the name of their node, and the rules by their name and by the uid of their node.

    rules: by name.
    """

    def __init__(self) -> None:
        self.rules: dict[str, DeviceRule] = {}
        self._devices: dict[str, tuple[Device, ...]] = {}
        self._rules_by_node: dict[str, dict[str, DeviceRule]] = defaultdict(dict)

    def update_devices(self, node: str, devices: Iterable[Device]) -> None:
        """Update all published devices of a node, by its name."""
        self._devices[node] = tuple(devices)

    def update_rule(self, rule: DeviceRule) -> None:
        """Update a device rule."""
        self.rules[rule.name] = rule
        self._rules_by_node[rule.uid][rule.name] = rule

    def remove_rule(self, name: str) -> DeviceRule | None:
        """Remove a deleted device rule, and return it; None if there was none."""
        rule = self.rules.pop(name, None)
        if rule is not None:
            self._rules_by_node[rule.uid].pop(name, None)
        return rule

    def count_gpus(self, node: str) -> int:
        """Return the number of published GPUs of a node, by its name."""
        return len({device.address or device.name for device in self._devices.get(node, ())})

    def finder(self, node: str) -> FindDevice:
        """Return a finder of the published devices of a node, by its name."""
        devices = self._devices.get(node, ())

        def find(target: str, component: str) -> Device | None:
            return next(
                (
                    device_selector(device)
                    for device in devices
                    if (device.uuid and device.uuid == component) or gpu_target(device.address) == target
                ),
                None,
            )

        return find

    def records(self, uid: str) -> dict[Device, MarkRecord]:
        """Return the records on the rules of a node's devices, without those that another client broke."""
        return {
            Device(rule.node, rule.driver, rule.pool, rule.device): record
            for rule in self._rules_by_node.get(uid, {}).values()
            if (record := _device_record(rule)) is not None
        }

    def rule_names(self, uid: str) -> Iterable[str]:
        """Return the names of the rules of a node's devices, except those with a record that another client
        edited: these stay, like such a taint of a Node.
        """
        rules = self._rules_by_node.get(uid, {})
        return tuple(name for name, rule in rules.items() if _device_record(rule) is not None)

    def orphaned_rules(self, nodes: Container[str]) -> Iterator[str]:
        """Yield the names of rules with a Node or device that no longer exists. nodes: uids of all Nodes."""
        for rule in self.rules.values():
            device = Device(rule.node, rule.driver, rule.pool, rule.device)
            if rule.uid not in nodes or self.is_gone(device):
                yield rule.name

    def is_gone(self, device: Device) -> bool:
        """Return whether a node publishes devices and this one is not among them."""
        devices = self._devices.get(device.node, ())
        return bool(devices) and all(device_selector(published) != device for published in devices)


def _device_record(rule: DeviceRule) -> MarkRecord | None:
    """Return the record of a rule; None if it has no mark that a device can carry."""
    record = decode_record(rule.state)
    return record if record is not None and not record.marks.isdisjoint(DEVICE_MARKS) else None


def device_selector(device: Device) -> Device:
    """Return the device in the form that a device rule selects."""
    return Device(device.node, device.driver, device.pool, device.name)
