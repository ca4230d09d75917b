"""Marks of kinds that a newer version wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from nodeguard.fleet.state.node_marks import decode_record, encode_record
from nodeguard.fleet.state.unknown_marks import MAX_UNKNOWN_BYTES
from nodeguard.model.mark import NO_SCHEDULE, STATE_ANNOTATION, Mark
from nodeguard.model.node import Taint
from nodeguard.model.policy import MarkWrites
from tests.fleet.scene import AT_ONCE, Fleet, finding, foreign

KNOWN = {
    "mark": "suspect", "check": "port-flap", "target": "node", "fault_class": "link", "since": 5.0,
}  # fmt: skip
NEWER = {"mark": "preflight", "check": "", "target": "node", "fault_class": "", "since": 7.0, "test": "nccl"}
PREFLIGHT = Taint("nodeguard.dev/preflight", NO_SCHEDULE)


def recorded(**fields: Any) -> dict[str, Any]:
    """What a record has after it was read and written."""
    record = decode_record(json.dumps(fields))
    assert record is not None
    written: dict[str, Any] = json.loads(encode_record(record))
    return written


@pytest.mark.parametrize(
    "fields",
    [
        {"causes": [NEWER]},
        {"causes": [NEWER], "charge": {"check": "", "mark": "preflight", "at": 7.0}},
        {"causes": [KNOWN, NEWER], "charge": {"check": "port-flap", "mark": "suspect", "at": 5.0}},
        {"tests": [{"name": "nccl"}]},
        {"unknown": "of a newer version", "cordoned": True},
        {"past_charges": [{"check": "gpu-lost", "at": 1.0, "ended": 2.0}], "causes": [NEWER]},
    ],
    ids="+".join,
)
def test_what_this_version_does_not_know_is_kept_as_it_is(fields: dict[str, Any]) -> None:
    assert recorded(**fields) == fields


def test_known_causes_of_a_record_count_beside_unknown_ones() -> None:
    record = decode_record(json.dumps({"causes": [NEWER, KNOWN]}))
    assert record is not None
    assert [cause.check for cause in record.causes] == ["port-flap"]
    assert record.charge is not None
    assert (record.charge.check, record.charge.mark) == ("port-flap", Mark.SUSPECT)


@pytest.mark.parametrize(
    "fields",
    [
        {"causes": [NEWER, {"mark": "suspect"}]},
        {"causes": [NEWER, {"mark": 7}]},
        {"causes": NEWER},
        {"causes": [{**NEWER, "text": "x" * MAX_UNKNOWN_BYTES}]},
    ],
)
def test_a_record_that_is_invalid_besides_stays_invalid(fields: dict[str, Any]) -> None:
    assert decode_record(json.dumps(fields)) is None


def test_a_mark_of_an_unknown_kind_stays_while_known_marks_come_and_go() -> None:
    fleet = Fleet(2)
    fleet.change(
        0,
        taints=(foreign(), PREFLIGHT),
        annotations={STATE_ANNOTATION: json.dumps({"causes": [NEWER], "cordoned": True})},
        unschedulable=True,
    )
    for findings in ((finding(),), ()):
        fleet.report(0, *findings)
        fleet.carry_out()
        fleet.restart()
        fleet.report(0, *findings)
        fleet.carry_out()
        node = fleet.nodes["uid-0"]
        assert (PREFLIGHT in node.taints, node.unschedulable) == (True, True)
        assert any(taint.key == Mark.QUARANTINE.key for taint in node.taints) == bool(findings)
        assert NEWER in json.loads(node.annotations[STATE_ANNOTATION])["causes"]


def test_a_cordon_ends_with_its_mark_beside_a_field_of_a_newer_version() -> None:
    fleet = Fleet(10, replace(AT_ONCE, marks=MarkWrites(cordon=True)))
    fleet.report(0, finding())
    fleet.carry_out()
    node = fleet.nodes["uid-0"]
    assert node.unschedulable
    record = json.loads(node.annotations[STATE_ANNOTATION]) | {"later": {"a": 1}}
    fleet.change(
        0, annotations={STATE_ANNOTATION: json.dumps(record)}, taints=node.taints, unschedulable=True
    )
    fleet.report(0)
    fleet.carry_out()
    node = fleet.nodes["uid-0"]
    assert (fleet.taints(0), node.unschedulable) == ([], False)
    assert json.loads(node.annotations[STATE_ANNOTATION])["later"] == {"a": 1}


def test_a_removal_of_all_marks_includes_those_of_unknown_kinds() -> None:
    fleet = Fleet(1)
    state = json.dumps({"causes": [NEWER]})
    fleet.change(0, taints=(foreign(), PREFLIGHT), annotations={STATE_ANNOTATION: state})
    [desired] = fleet.planner.removal_plan().nodes
    assert (desired.taints, desired.state) == ((), "")
