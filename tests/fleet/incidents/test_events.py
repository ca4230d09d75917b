"""The Events of a Node follow a fault from its mark to its end."""

from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.policy import SoakPeriod
from tests.fleet.scene import AT_ONCE, Fleet, finding


def test_the_events_of_a_fault_describe_its_effect() -> None:
    fleet = Fleet(2, replace(AT_ONCE, soak=SoakPeriod(10.0, 10.0)))
    fleet.say(0, finding(message="GPU 0000:3b:00 is lost"))
    events = [*fleet.carry_out().events]
    fleet.say(0)
    events += fleet.carry_out().events
    fleet.after(11.0)
    events += fleet.carry_out().events
    events += fleet.carry_out().events
    prefix, name = "gpu-lost on GPU 0000:3b:00: GPU 0000:3b:00 is lost; ", events[0].incident
    assert [(event.reason, event.message) for event in events] == [
        ("NodeguardMarked", f"{prefix}new work is kept off node node-0 ({name})"),
        ("NodeguardRecovering", f"{prefix}node node-0: the check passes; the soak period runs ({name})"),
        ("NodeguardResolved", f"{prefix}the fault is over ({name})"),
    ]
