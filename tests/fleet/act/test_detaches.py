from __future__ import annotations

from nodeguard.fleet.act.detaches import requested_detach
from nodeguard.model.inventory import InventoryNode

NODE = InventoryNode("uid-1", "gpu-1")


def test_two_requests_of_one_second_are_two_actions() -> None:
    first = requested_detach(NODE, ["0"], 1800, "ann", 1_800_000_000.1)
    second = requested_detach(NODE, ["1"], 1800, "ann", 1_800_000_000.2)
    assert first.key != second.key
    assert first == requested_detach(NODE, ("0",), 1800, "ann", 1_800_000_000.1)


def test_a_short_detach_does_not_begin_after_its_time() -> None:
    assert requested_detach(NODE, (), 60, "", 1_800_000_000.0).deadline == 1_800_000_060
