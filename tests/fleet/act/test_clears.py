from __future__ import annotations

import pytest
from msgspec.structs import replace

from nodeguard.fleet.act.clears import requested_clear, with_answers
from nodeguard.fleet.state.latest_report import TupleInterner, latest_report
from nodeguard.model.action import ActionKind, ActionState, FindingKey, NodeAction
from nodeguard.model.finding import Health
from nodeguard.model.incident import ClearAnswer, Incident, IncidentState, OperatorDecision, Symptom
from nodeguard.model.instant import Instant
from nodeguard.wire.report import VERSION, Report
from tests.fleet.scene import finding

GPU = "gpu/0000:3b:00"
FAULT = Incident("i", "node-1", "uid-1", GPU, "gpu-lost", Health.FATAL, IncidentState.MARKED, 1.0, 1.0)
FAULTS = replace(FAULT, symptoms=tuple(Symptom(c, GPU, Health.FATAL) for c in ("gpu-lost", "gpu-ecc")))
ANN = OperatorDecision("i", clear="Ann at 2027-01-15T08:00:00Z")


def requested(incident: Incident | None, decision: OperatorDecision = ANN) -> NodeAction:
    action = requested_clear(incident, decision, None, 100.5)
    assert action is not None
    return action


def answer(
    action: NodeAction | None, decision: OperatorDecision = ANN, incident: Incident = FAULTS
) -> object:
    actions = [action] if action is not None else []
    return with_answers({"i": decision}, actions, {"i": incident}.get)["i"].answer


def test_a_clear_has_the_findings_of_the_incident() -> None:
    assert requested(FAULTS) == NodeAction(
        ActionKind.CLEAR, "node-1", "uid-1", ANN.clear, 100, incident="i",
        findings=(FindingKey("gpu-ecc", GPU), FindingKey("gpu-lost", GPU)),
    )  # fmt: skip
    assert requested(FAULT).findings == (FindingKey("gpu-lost", GPU),), "a mark without a finding"


def test_a_clear_has_the_findings_that_the_incident_does_not_list() -> None:
    report = Report(
        version=VERSION, node="node-1", boot_id="b", sequence=1, health=Health.FATAL,
        findings=(finding("gpu-hot"), finding("gpu-hot", "gpu/0000:5e:00")),
    )  # fmt: skip
    latest = latest_report(report, Instant(100.0, 50.0, ""), TupleInterner())
    for incident, checks in ((FAULTS, []), (replace(FAULTS, symptoms_omitted=1), ["gpu-hot"])):
        action = requested_clear(incident, ANN, latest, 100.0)
        assert action is not None
        assert [item.check for item in action.findings] == ["gpu-ecc", *checks, "gpu-lost"]


@pytest.mark.parametrize(
    ("incident", "decision"),
    [
        (None, ANN),
        (FAULTS, OperatorDecision("i", acknowledged="Ann")),
        (replace(FAULTS, state=IncidentState.RESOLVED), ANN),
        (replace(FAULTS, node="", uid="", domain="fabric/leaf-1"), ANN),
    ],
)
def test_nothing_else_is_an_action(incident: Incident | None, decision: OperatorDecision) -> None:
    assert requested_clear(incident, decision, None, 100.0) is None


def test_a_clear_without_a_time_is_another_one_for_another_occurrence() -> None:
    again = replace(FAULTS, occurrences=2)
    assert requested(FAULTS).key == requested(again).key
    untimed = replace(ANN, clear="Ann")
    assert requested(FAULTS, untimed).key != requested(again, untimed).key
    done = replace(requested(FAULTS, untimed), state=ActionState.SUCCEEDED)
    assert answer(done, untimed) == ClearAnswer.DONE
    assert answer(done, untimed, again) == ClearAnswer.WAITING


@pytest.mark.parametrize(
    ("state", "carried_out", "expected"),
    [
        (ActionState.RESERVED, 0, ClearAnswer.WAITING),
        (ActionState.RUNNING, 0, ClearAnswer.WAITING),
        (ActionState.SUCCEEDED, 2, ClearAnswer.DONE),
        (ActionState.FAILED, 1, ClearAnswer.PARTLY),
        (ActionState.FAILED, 0, ClearAnswer.REFUSED),
        (ActionState.UNKNOWN, 0, None),
        (ActionState.CANCELLED, 0, ClearAnswer.WAITING),
    ],
)
def test_the_answer_follows_from_the_action(
    state: ActionState, carried_out: int, expected: ClearAnswer | None
) -> None:
    assert answer(replace(requested(FAULTS), state=state, carried_out=carried_out)) == expected


def test_a_clear_without_an_action_waits_only_for_the_agent_of_a_node() -> None:
    assert answer(None) == ClearAnswer.WAITING
    assert answer(None, OperatorDecision("i")) is None
    assert answer(None, incident=replace(FAULTS, state=IncidentState.RESOLVED)) is None
    assert answer(None, incident=replace(FAULTS, node="")) is None
    assert (
        answer(replace(requested(FAULTS), request="Bob", state=ActionState.SUCCEEDED)) == ClearAnswer.WAITING
    )


def test_the_latest_attempt_counts_and_its_message_is_the_answer() -> None:
    first = replace(requested(FAULTS), state=ActionState.SUPERSEDED)
    second = replace(first, attempt=2, state=ActionState.SUCCEEDED, message="gpu-lost is cleared")
    [decision] = with_answers({"i": ANN}, [second, first], {"i": FAULTS}.get).values()
    assert (decision.answer, decision.answer_message) == (ClearAnswer.DONE, "gpu-lost is cleared")
