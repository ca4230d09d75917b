from __future__ import annotations

from msgspec.structs import replace

from nodeguard.model.decision import CauseFacts, HealthFacts, NodeDecision, WantedMark
from nodeguard.model.device import Device
from nodeguard.model.finding import Action
from nodeguard.model.mark import Charge, DegradedMark, Mark, MarkCause, MarkRecord, NodeMarks

LATER = MarkCause(Mark.QUARANTINE, "gpu-lost", "gpu/0000:3b:00", "gpu", 20.0)
FIRST = MarkCause(Mark.QUARANTINE, "disk-lost", "fs:/var", "disk", 10.0)
DOMAIN = DegradedMark("fabric/p0/l1", ("link-down",), 5.0)
GPU = Device("node-1", "gpu.nvidia.com", "node-1", "gpu-0")
ON_GPU = MarkRecord((LATER,), Charge("gpu-lost", Mark.QUARANTINE, 20.0))


def decision(record: MarkRecord, **devices: MarkRecord) -> NodeDecision:
    by_device = {replace(GPU, name=name): device_record for name, device_record in devices.items()}
    return NodeDecision("uid-1", "node-1", NodeMarks(record, by_device))


def test_the_first_cause_gives_the_value_of_a_mark() -> None:
    record = MarkRecord((LATER, FIRST), Charge("disk-lost", Mark.QUARANTINE, 10.0), degraded=(DOMAIN,))

    assert decision(record).marks == (
        WantedMark(Mark.QUARANTINE, None, "disk", (LATER, FIRST)),
        WantedMark(Mark.DOMAIN_DEGRADED, None, "fabric", (DOMAIN,)),
    )


def test_a_mark_of_a_device_follows_those_of_the_node() -> None:
    wanted = decision(MarkRecord(degraded=(DOMAIN,)), gpu=ON_GPU).marks

    assert [(mark.kind, mark.device) for mark in wanted] == [
        (Mark.DOMAIN_DEGRADED, None),
        (Mark.QUARANTINE, replace(GPU, name="gpu")),
    ]


def test_a_node_without_marks_has_none() -> None:
    assert decision(MarkRecord()).marks == ()


def test_the_revision_changes_with_each_record_and_not_with_facts_or_order() -> None:
    both = decision(MarkRecord(), a=ON_GPU, b=MarkRecord())
    revisions = [
        decision(MarkRecord()),
        decision(MarkRecord((FIRST,))),
        decision(MarkRecord((replace(FIRST, since=11.0),))),
        decision(MarkRecord(degraded=(DOMAIN,))),
        decision(MarkRecord(), a=ON_GPU),
        both,
    ]

    assert len({wanted.revision for wanted in revisions}) == len(revisions)
    facts = HealthFacts((CauseFacts(LATER, "the GPU is lost", Action.REBOOT_NODE),))
    assert replace(both, facts=facts).revision == both.revision
    assert decision(MarkRecord(), b=MarkRecord(), a=ON_GPU).revision == both.revision
