"""Charges in the record of a Node: what counts in the budget of a check."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet.state.node_marks import decode_record, encode_record
from nodeguard.model.mark import STATE_ANNOTATION, Charge, Mark, MarkCause, MarkRecord, PastCharge
from nodeguard.model.node import Node
from nodeguard.model.policy import CheckLimit
from tests.fleet.scene import AT_ONCE, WIDE, Fleet, finding

NEW = 2
POLICY = replace(AT_ONCE, budget=replace(WIDE, check=CheckLimit(NEW, 600.0, 15)))


def claim(fleet: Fleet, record: MarkRecord, number: int = 900) -> None:
    """Register a Node without GPUs or agent, with a record that its kubelet wrote."""
    annotations = {STATE_ANNOTATION: encode_record(record)}
    fleet.see(Node(f"node-{number}", f"uid-{number}", annotations=annotations))
    fleet.carry_out()


@pytest.mark.parametrize("at", [-60.0, 1e9])
def test_charges_without_an_incident_use_no_budget(at: float) -> None:
    fleet = Fleet(20, POLICY)
    times = (fleet.wall + at + number for number in range(5))
    claim(fleet, MarkRecord(past_charges=tuple(PastCharge("gpu-lost", time, time) for time in times)))
    for number in range(NEW + 1):
        fleet.report(number, finding())
    fleet.carry_out()
    assert fleet.marked() == [0, 1]


@pytest.mark.parametrize("restarts", [False, True])
def test_the_charges_of_a_node_with_an_incident_count_once(restarts: bool) -> None:
    fleet = Fleet(20, POLICY)
    fleet.report(0, finding())
    fleet.carry_out()
    fleet.report(0)
    fleet.carry_out()
    record = decode_record(fleet.nodes["uid-0"].annotations[STATE_ANNOTATION])
    assert record is not None
    [past] = record.past_charges
    more = tuple(replace(past, at=past.at - number) for number in range(8))
    fleet.change(0, annotations={STATE_ANNOTATION: encode_record(replace(record, past_charges=more))})
    if restarts:
        fleet.restart()
    for number in range(1, 4):
        fleet.report(number, finding())
    fleet.carry_out()
    assert fleet.marked() == [1]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_active_marks_of_a_check_that_exists_nowhere_need_an_incident(is_recorded: bool) -> None:
    # As after an update that renames a check: then the marks of its former name have incidents.
    fleet = Fleet(40, replace(POLICY, budget=replace(WIDE, check=CheckLimit(15, 600.0, 3))))
    numbers = range(20, 23)
    if is_recorded:
        for number in numbers:
            fleet.report(number, finding("former-name"))
        fleet.carry_out()
        assert fleet.marked() == [*numbers]
        fleet.restart()
    else:
        for number in numbers:
            cause = MarkCause(Mark.QUARANTINE, "former-name", "node", "gpu", fleet.wall)
            record = MarkRecord((cause,), Charge("former-name", Mark.QUARANTINE, fleet.wall))
            fleet.change(number, annotations={STATE_ANNOTATION: encode_record(record)})
    fleet.report(0, finding())
    fleet.carry_out()
    assert (0 in fleet.marked()) is not is_recorded


def test_an_active_charge_in_the_future_is_no_recent_mark() -> None:
    fleet = Fleet(40, POLICY)
    for number in range(900, 902):
        cause = MarkCause(Mark.QUARANTINE, "gpu-lost", "node", "gpu", fleet.wall)
        claim(fleet, MarkRecord((cause,), Charge("gpu-lost", Mark.QUARANTINE, fleet.wall + 1e9)), number)
    fleet.report(0, finding())
    fleet.carry_out()
    assert 0 in fleet.marked()
