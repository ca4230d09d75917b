"""The score of an episode: names of causes, wrong domains, and lost capacity."""

from __future__ import annotations

import pytest

from bench.evaluation.replay import Span
from bench.evaluation.score import score
from bench.evaluation.world import Background, Cause, CauseKind, Delay, Fleet, NodeChange, NodeFault, Plant

HOUR = 3600.0
LEAVES = {"fabric/p0": tuple(range(8)), "fabric/p0/l0": (0, 1, 2, 3), "fabric/p0/l1": (4, 5, 6, 7)}
DOMAINS = {**LEAVES, "rack/r0": (0, 1, 2, 3), "rack/r1": (4, 5)}


def background(*, faults: tuple[NodeFault, ...] = (), changes: tuple[NodeChange, ...] = ()) -> Background:
    fleet = Fleet(size=8, true=DOMAINS, labelled=DOMAINS, labels=({},) * 8, muted=frozenset())
    return Background(
        seed=1,
        size_class=64,
        attempt=0,
        fleet=fleet,
        rates={},
        delay=Delay(1.0, 0.1, 0.0, 10.0),
        before=0.0,
        until=2 * HOUR,
        faults=faults,
        changes=changes,
        starts=(),
        agent_restarts=(),
        aggregator_restart=None,
    )


def cause(kind: CauseKind, name: str) -> Cause:
    members = DOMAINS.get(name, ())
    return Cause(
        kind=kind,
        name=name,
        symptom="port-down",
        members=members,
        start=0.0,
        end=HOUR,
        share=1.0,
        spread=5.0,
    )


def plant(*causes: Cause) -> Plant:
    return Plant(kind="test", causes=causes, faults=())


def domain(name: str, start: float) -> Span:
    return Span("domain", name, start)


def test_a_domain_is_named_by_each_domain_with_its_members() -> None:
    leaf = plant(cause("domain", "fabric/p0/l0"))
    for name in ("fabric/p0/l0", "rack/r0"):
        result = score(background(), leaf, [domain(name, 60.0)], [], 0.0, 2 * HOUR)
        assert result.named == (60.0,)
        assert result.wrong == ()


def test_another_domain_is_wrong_once() -> None:
    leaf = plant(cause("domain", "fabric/p0/l0"))
    spans = [domain("fabric/p0", 60.0), domain("fabric/p0", 90.0)]
    result = score(background(), leaf, spans, [], 0.0, 2 * HOUR)
    assert result.named == (None,)
    assert [(wrong.name, wrong.nodes) for wrong in result.wrong] == [("fabric/p0", 8)]


def test_a_part_belongs_to_the_whole_only_before_it() -> None:
    pod = plant(cause("domain", "fabric/p0"))
    before = [domain("fabric/p0/l0", 60.0), domain("fabric/p0", 90.0), domain("fabric/p0/l1", 120.0)]
    result = score(background(), pod, before, [], 0.0, 2 * HOUR)
    assert result.named == (90.0,)
    assert [wrong.name for wrong in result.wrong] == ["fabric/p0/l1"]
    never = score(background(), pod, before[:1], [], 0.0, 2 * HOUR)
    assert [wrong.name for wrong in never.wrong] == ["fabric/p0/l0"]


@pytest.mark.parametrize(
    ("kind", "name", "span"),
    [
        ("job", "a/gang", Span("job", "a/gang", 9.0)),
        ("check", "port-down", Span("check", "port-down", 9.0)),
        ("observer", "agent-silent", Span("check", "agent-silent", 9.0)),
        ("version", "driver/2", Span("check", "gpu-lost", 9.0, domain="driver/2")),
    ],
)
def test_causes_that_are_no_domain(kind: CauseKind, name: str, span: Span) -> None:
    result = score(background(), plant(cause(kind, name)), [span], [], 0.0, 2 * HOUR)
    assert result.named == (9.0,)
    assert result.suppressed == 0.0


def test_a_check_that_is_suppressed_wrongly() -> None:
    span = Span("check", "port-down", HOUR, 1.5 * HOUR)
    assert score(background(), plant(), [span], [], 0.0, 2 * HOUR).suppressed == 0.5


def test_capacity() -> None:
    real = NodeFault(node=1, symptom="port-down", onset=0.0, end=HOUR)
    down = NodeFault(node=2, symptom="node-down", onset=0.0, end=HOUR, is_real=False)
    cordon = NodeChange(0.0, 3, unschedulable=True)
    world = background(faults=(real, down), changes=(cordon,))
    # Node 0 is healthy. Node 1 is marked half an hour late and half an hour too long.
    marked = [(0, 0.0, HOUR), (1, 0.5 * HOUR, 1.5 * HOUR), (2, 0.0, HOUR), (3, 0.0, HOUR)]
    result = score(world, plant(), [], marked, 0.0, 2 * HOUR)
    assert result.healthy_out == pytest.approx(1.5)
    assert result.faulty_in == pytest.approx(0.5)


def test_members_of_a_domain_with_a_fault_are_not_healthy() -> None:
    leaf = plant(cause("domain", "fabric/p0/l0"))
    result = score(background(), leaf, [], [(0, 0.0, HOUR), (4, 0.0, HOUR)], 0.0, 2 * HOUR)
    assert result.healthy_out == pytest.approx(1.0)
