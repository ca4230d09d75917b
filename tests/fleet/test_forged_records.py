"""What a kubelet writes on its own Node, the record above all, changes no other node."""

from __future__ import annotations

from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import fields, replace

from nodeguard.fleet.state.node_marks import encode_record
from nodeguard.model.job import JOB_ANNOTATION, JOB_START_ANNOTATION
from nodeguard.model.mark import (
    HOLD_ANNOTATION,
    MAINTENANCE_ANNOTATION,
    STATE_ANNOTATION,
    DegradedMark,
    Mark,
    MarkRecord,
    PastCharge,
)
from nodeguard.model.node import PREFIX, Node, Taint
from nodeguard.model.policy import Budget, CheckLimit
from tests.fleet.leaves import FIRST, LEAF, fails, fleet, wait
from tests.fleet.scene import CHECKS, Fleet, finding
from tests.fleet.test_restored_suppressions import POLICY

SIZE = 24
NOW = 1_700_000_001.0
FORGED = "uid-900"

# A domain that only the forged Node belongs to.
OWN = "fabric/p0/forged"

# Each budget has room for the faults of the fleet, and for one more node: a record counts once.
TIGHT = replace(
    POLICY,
    budget=Budget(1.0, 0.0, 1.0, 1.0, 1.0, check=CheckLimit(3, 600.0, 3), degraded=0.3, first=0.4, domains=1),
)

LABELS: tuple[dict[str, str], ...] = (
    {},
    {"pod": "p0", "rack": "r0"},
    {"pod": "p0", "rack": "r2"},
    {"pod": "p0", "rack": "forged", "pool": "a"},
)

_WORDS = (*CHECKS, "port-flap", "unknown", "link", "link-down", "power", FIRST, OWN, "fabric/p0", "fabric", "node", "gpu/0000:3b:00", "", "/")  # fmt: skip
_TIMES = (NOW - 7_200.0, NOW - 60.0, NOW, NOW + 30.0, NOW + 1e9, 0.0, -1.0, 1e300)


_SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: st.sampled_from(_WORDS) | st.text(max_size=8),
    float: st.sampled_from(_TIMES) | st.floats(NOW - 1e5, NOW + 1e5),
    int: st.sampled_from([0, 1, -1, 2**62]),
    bool: st.booleans(),
    NoneType: st.none(),
}

# What a record has of a newer version, as MarkRecord.unknown.
_UNKNOWN = st.sampled_from([
    "", '{"causes":[{"mark":"preflight"}]}', '{"causes":[{"mark":"other"}],"charge":{"mark":"other"},"tests":[{}]}'
])  # fmt: skip


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Return the values of a type of the record, so that a new field is forged too."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if isinstance(kind, UnionType):
        return st.one_of([values(part) for part in get_args(kind)])
    if get_origin(kind) is tuple:
        return st.lists(values(get_args(kind)[0]), max_size=6).map(tuple)
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    assert issubclass(kind, Struct), kind
    hints = get_type_hints(kind)
    content = {field.name: values(hints[field.name]) for field in fields(kind)}
    return st.builds(kind, **(content | {"unknown": _UNKNOWN} if kind is MarkRecord else content))


_PLAIN = Node("forged", FORGED)

# All other fields of a Node that its kubelet writes, and nodeguard reads.
_NODES = st.builds(
    Node,
    name=st.just("forged"),
    uid=st.just(FORGED),
    annotations=st.dictionaries(
        st.sampled_from([HOLD_ANNOTATION, MAINTENANCE_ANNOTATION, JOB_ANNOTATION, JOB_START_ANNOTATION]),
        st.sampled_from(["", "text", "team/train", "2023-11-14T22:13:20Z"]),
    ),
    taints=st.lists(st.builds(Taint, st.sampled_from([f"{PREFIX}quarantine", Mark.DOMAIN_DEGRADED.key, "other"]), st.just("NoSchedule"))).map(tuple),
    unschedulable=st.booleans(),
    gpus=st.sampled_from([0, 1, 8, 9999]),
    ready=st.booleans(),
    not_ready_since=st.sampled_from(_TIMES),
)  # fmt: skip


def others(made: Fleet) -> object:
    """Return all that a plan decided about other nodes than the forged one."""
    incidents = {
        incident.name: (incident.state, incident.mark)
        for incident in made.planner.all_incidents()
        if incident.uid != FORGED
    }
    return {uid: node for uid, node in made.nodes.items() if uid != FORGED}, incidents


def decided(
    record: str, labels: dict[str, str], node: Node = _PLAIN, *, has_agent: bool, restarts: bool
) -> object:
    """Return what a fleet with two lost GPUs and a failed leaf decides. record: of one Node; empty for none."""
    made = fleet(SIZE, TIGHT)
    annotations = {**node.annotations, **({STATE_ANNOTATION: record} if record else {})}
    made.see(replace(node, labels=labels, annotations=annotations, gpus=node.gpus or (8 if has_agent else 0)))
    if has_agent:
        made.report(900)
    made.carry_out(rounds=8)
    if restarts:
        made.restart()
        made.carry_out(rounds=8)
    healthy = others(made)
    for number in (LEAF, 2 * LEAF):
        made.report(number, finding())
    fails(made)
    wait(made, 80.0)
    if restarts:
        made.restart()
        wait(made, 20.0)
    return healthy, others(made)


@cache
def without_record(number: int, *, has_agent: bool, restarts: bool) -> object:
    return decided("", LABELS[number], has_agent=has_agent, restarts=restarts)


def test_the_fleet_marks_what_fails() -> None:
    made = fleet(SIZE, TIGHT)
    for number in (LEAF, 2 * LEAF):
        made.report(number, finding())
    fails(made)
    wait(made, 80.0)
    assert made.marked() == [*range(LEAF), LEAF, 2 * LEAF]


@settings(max_examples=60, deadline=None)
@given(values(MarkRecord), _NODES, st.sampled_from(range(len(LABELS))), st.booleans(), st.booleans())
@example(MarkRecord(degraded=(DegradedMark("fabric/p0", ("link",), NOW - 60.0),)), _PLAIN, 0, False, False)
@example(MarkRecord(degraded=(DegradedMark("fabric/p0", ("link",), NOW - 60.0),)), _PLAIN, 1, False, True)
@example(
    MarkRecord(degraded=tuple(DegradedMark(f"fabric/p0/r{leaf}", ("link",), NOW + 1e9) for leaf in range(50))),
    _PLAIN, 2, True, True,
)  # fmt: skip
@example(MarkRecord(degraded=(DegradedMark(OWN, ("link",), NOW - 60.0),)), _PLAIN, 3, True, False)
@example(MarkRecord(degraded=(DegradedMark(OWN, ("link",), NOW - 60.0),)), _PLAIN, 3, True, True)
@example(
    MarkRecord(past_charges=tuple(PastCharge("gpu-lost", NOW + 1e9 + at, NOW + 1e9) for at in range(5))),
    _PLAIN, 0, False, False,
)  # fmt: skip
@example(
    MarkRecord(past_charges=tuple(PastCharge("unknown", NOW - at, NOW - 1.0) for at in range(16))), _PLAIN, 0, False, True
)  # fmt: skip
def test_a_forged_record_changes_no_other_node(
    record: MarkRecord, node: Node, number: int, has_agent: bool, restarts: bool
) -> None:
    # Under maintenance it is no node of the leaf that fails, and its own leaf is no sibling: messages count both.
    fields = _PLAIN if LABELS[number].get("rack") in {"r0", "forged"} else node
    made = decided(encode_record(record), LABELS[number], fields, has_agent=has_agent, restarts=restarts)
    assert made == without_record(number, has_agent=has_agent, restarts=restarts)
