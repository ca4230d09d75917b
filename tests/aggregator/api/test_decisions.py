from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.model.incident import FalseAlarm, IncidentState, OperatorDecision
from nodeguard.model.policy import GracePeriods, SoakPeriod
from tests.aggregator.api.service import RecordingActions, client, fleet_with_fault
from tests.fleet.scene import AT_ONCE, Fleet, finding


async def test_an_action_on_a_pending_or_resolved_incident_is_refused(tmp_path: Path) -> None:
    fleet, actions = Fleet(8, replace(AT_ONCE, grace=GracePeriods(60.0, 60.0, 60.0))), RecordingActions()
    fleet.report(2, finding(age=80.0))
    fleet.carry_out()
    [over] = fleet.planner.tracker.recorded.by_uid["uid-2"]
    fleet.report(2)
    fleet.report(1, finding(age=1.0))
    fleet.carry_out()
    [pending] = fleet.planner.tracker.pending["uid-1"]
    async with client(tmp_path, fleet, actions) as query:
        for name, problem in (
            (pending, "is in its grace period: there is nothing to decide before its end"),
            (over, "is over already: there is nothing to decide"),
        ):
            for action in ("acknowledge", "clear"):
                expected = (409, f"{name} {problem}")
                response = await query.error("POST", f"incidents/{name}", json={"action": action})
                assert response == expected
    assert actions.calls == []


async def test_a_clear_of_an_incident_that_recovers_asks_no_agent(tmp_path: Path) -> None:
    fleet, actions = (
        fleet_with_fault(replace(AT_ONCE, soak=SoakPeriod(60.0, 60.0, 86_400.0))),
        RecordingActions(),
    )
    [name] = fleet.planner.tracker.recorded.by_uid["uid-1"]
    fleet.report(1)
    fleet.carry_out()
    incident = fleet.planner.incident(name)
    assert incident is not None
    assert incident.state == IncidentState.RECOVERING
    recovers = f"{name} recovers already, so that there is no finding to clear: the check passes; the soak period runs"
    async with client(tmp_path, fleet, actions) as query:
        _, response = await query("POST", f"incidents/{name}", json={"action": "clear"})
        assert msgspec.json.decode(response) == {"message": recovers}
        assert actions.calls == []
        false_alarm = {"action": "clear", "false_alarm": True}
        _, response = await query("POST", f"incidents/{name}", json=false_alarm)
        assert msgspec.json.decode(response) == {"message": f"Done: false alarm.; {recovers}"}


async def test_a_false_alarm_is_recorded_also_after_the_end_of_the_incident(tmp_path: Path) -> None:
    fleet, actions = fleet_with_fault(), RecordingActions()
    [name] = fleet.planner.tracker.recorded.by_uid["uid-1"]
    statement = {"action": "clear", "by": "bob", "false_alarm": True, "reason": "a bad sensor"}
    async with client(tmp_path, fleet, actions) as query:
        _, response = await query("POST", f"incidents/{name}", json=statement)
        assert msgspec.json.decode(response) == {"message": "Done: false alarm.; Done: clear."}
        fleet.report(1)
        fleet.carry_out()
        _, response = await query("POST", f"incidents/{name}", json=statement)
        assert msgspec.json.decode(response) == {"message": "Done: false alarm."}
        recorded = ("false alarm", name, "bob", "a bad sensor")
        assert actions.calls == [recorded, ("clear", name, "bob"), recorded]
        for invalid, problem in (
            (
                {"action": "acknowledge", "false_alarm": True},
                "a false alarm is cleared: use the action clear",
            ),
            (
                {"action": "clear", "reason": "a bad sensor"},
                "a reason is for a false alarm only: add false_alarm, or leave it out",
            ),
        ):
            assert await query.error("POST", f"incidents/{name}", json=invalid) == (400, problem)
        status, _ = await query.error("POST", "incidents/no", json=statement)
        assert status == 404


async def test_a_false_alarm_is_withdrawn_where_it_is_recorded(tmp_path: Path) -> None:
    fleet, actions = fleet_with_fault(), RecordingActions()
    [name] = fleet.planner.tracker.recorded.by_uid["uid-1"]
    wanted = {"action": "withdraw", "reason": "a real fault"}
    nothing = (409, f"{name} is not recorded as a false alarm: there is nothing to withdraw")
    async with client(tmp_path, fleet, actions) as query:
        assert await query.error("POST", f"incidents/{name}", json=wanted) == nothing
        status, _ = await query.error("POST", "incidents/no", json=wanted)
        assert status == 404
        actions.decisions = {name: OperatorDecision(name, false_alarm=FalseAlarm("bob"))}
        _, response = await query("POST", f"incidents/{name}", json=wanted)
        assert msgspec.json.decode(response) == {"message": "Done: withdraw."}
        assert actions.calls == [("withdraw", name, "an operator", "a real fault")]
        actions.decisions = {name: OperatorDecision(name, false_alarm=FalseAlarm("bob", withdrawn=True))}
        assert await query.error("POST", f"incidents/{name}", json=wanted) == nothing


async def test_a_false_alarm_stays_recorded_if_the_clear_is_refused(tmp_path: Path) -> None:
    class Refusing(RecordingActions):
        async def clear(self, name: str, by: str) -> str:
            raise OperatorActionError("no NodeActions")

    fleet = fleet_with_fault()
    [name] = fleet.planner.tracker.recorded.by_uid["uid-1"]
    async with client(tmp_path, fleet, Refusing()) as query:
        error = await query.error("POST", f"incidents/{name}", json={"action": "clear", "false_alarm": True})
    assert error == (409, "Done: false alarm., but not cleared: no NodeActions")
