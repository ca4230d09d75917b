from __future__ import annotations

from nodeguard.fleet_api.node import describe_node
from nodeguard.fleet_api.status import fleet_status
from nodeguard.fleet_api.text.node import node_view
from nodeguard.fleet_api.text.status import status_view
from tests.cli.fleet_output import LEADER, look
from tests.fleet.scene import Fleet


def test_repeat_offenders_are_listed_by_name() -> None:
    fleet = Fleet(1)
    available = fleet.planner.component_faults.history
    for number in range(20_000):
        available.record_component(f"other-{number}", fleet.wall - 41 * 86_400.0)
    for part, faults in (("GPU-1", 4), ("GPU-2", 3)):
        available.record_component(part, fleet.wall - 41 * 86_400.0)
        for day in range(faults):
            available.record_fault(part, "node-0", "gpu/0000:3b:00", "gpu-lost", fleet.wall - day * 86_400.0)
    fleet.after(1.0)
    text = " ".join(look(status_view(fleet_status(fleet.planner, LEADER, fleet.now))).split())
    assert " replace 2 components to replace: GPU-1 in node-0 (4 times), GPU-2 in node-0 (3 times) " in text
    view = describe_node(fleet.planner, LEADER, "node-0", fleet.now)
    assert view is not None
    text = " ".join(look(node_view(view)).split())
    assert (
        " replace GPU-1 (GPU 0000:3b:00) failed 4 times in 41 d (fleet average less than 0.1): replace it "
        "replace GPU-2 "
    ) in text
    assert view.repeat_offenders[0].expected < 0.001
