"""What an operator decides about an incident, by the API: acknowledged, cleared, a false alarm."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from nodeguard.aggregator.api.context import ApiContext
from nodeguard.aggregator.api.requests import ActionResult, IncidentAction
from nodeguard.aggregator.api.responses import RefusedError, answer, decoded_body, name_in_path, no_incident
from nodeguard.aggregator.backends.operator_actions import ANONYMOUS, OperatorActionError, OperatorActions
from nodeguard.fleet.planner import Planner
from nodeguard.model.incident import FalseAlarm, IncidentState, OperatorDecision
from nodeguard.model.instant import rfc3339


class Decisions:
    """The handler of decisions about incidents."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def decide(self, request: web.Request) -> web.Response:
        """POST /v1/incidents/{name}."""
        name, wanted = name_in_path(request), await decoded_body(request, IncidentAction)
        context = self._context
        decisions = IncidentDecisions(
            context.planner, context.actions, context.service().decisions, context.now().wall
        )
        return answer(ActionResult(await decisions.carry_out(name, wanted)))


class IncidentDecisions:
    """Carries out decisions about the incidents of a planner, for the API and for the plug-in of kubectl.

    decisions: the recorded ones, by incident. now: seconds since the epoch.
    """

    def __init__(
        self,
        planner: Planner,
        actions: OperatorActions,
        decisions: Mapping[str, OperatorDecision],
        now: float,
    ) -> None:
        self._planner = planner
        self._actions = actions
        self._decisions = decisions
        self._now = now

    async def carry_out(self, name: str, wanted: IncidentAction) -> str:
        """Carry out a decision. Returns the message. Raises RefusedError, OperatorActionError."""
        if wanted.false_alarm:
            return await self._false_alarm(name, wanted)
        if wanted.action == "withdraw":
            return await self._withdraw(name, wanted)
        if wanted.reason:
            raise RefusedError(400, "a reason is for a false alarm only: add false_alarm, or leave it out")
        self._open(name)
        if wanted.action == "clear":
            return await self._clear(name, wanted.by)
        return await self._actions.acknowledge(name, wanted.by)

    async def _clear(self, name: str, by: str) -> str:
        """Clear an open incident; returns the message. The agent of a node that recovers has no finding to
        clear, and would refuse what happens by itself.
        """
        incident = self._planner.incident(name)
        if incident is not None and incident.node and incident.state == IncidentState.RECOVERING:
            return f"{name} recovers already, so that there is no finding to clear: {incident.detail}"
        return await self._actions.clear(name, by)

    async def _false_alarm(self, name: str, wanted: IncidentAction) -> str:
        """Record a false alarm, and clear the incident if it is open. Returns the message. Raises
        RefusedError, OperatorActionError.
        """
        if wanted.action != "clear":
            raise RefusedError(400, "a false alarm is cleared: use the action clear")
        incident = self._planner.incident(name)
        if incident is None or incident.is_open:
            self._open(name)
        recorded = await self._actions.record_false_alarm(name, self._statement(wanted))
        if incident is None or not incident.is_open:
            return recorded
        try:
            return f"{recorded}; {await self._clear(name, wanted.by)}"
        except OperatorActionError as error:
            raise OperatorActionError(f"{recorded}, but not cleared: {error}") from None

    async def _withdraw(self, name: str, wanted: IncidentAction) -> str:
        """Withdraw a false alarm. Returns the message. Raises RefusedError, OperatorActionError."""
        decision = self._decisions.get(name)
        if decision is None or not decision.is_false_alarm:
            if self._planner.incident(name) is None:
                raise no_incident(name)
            raise RefusedError(409, f"{name} is not recorded as a false alarm: there is nothing to withdraw")
        return await self._actions.record_false_alarm(name, self._statement(wanted))

    def _statement(self, wanted: IncidentAction) -> FalseAlarm:
        """Return the statement about a false alarm that an operator makes now."""
        at = rfc3339(self._now)
        return FalseAlarm(wanted.by or ANONYMOUS, at, wanted.reason, withdrawn=wanted.action == "withdraw")

    def _open(self, name: str) -> None:
        """Check that an incident is open. Raises RefusedError."""
        incident = self._planner.incident(name)
        if incident is None or not incident.is_open:
            if self._planner.tracker.pending_incident(name) is not None:
                problem = f"{name} is in its grace period: there is nothing to decide before its end"
                raise RefusedError(409, problem)
            if incident is None:
                raise no_incident(name)
            raise RefusedError(409, f"{name} is over already: there is nothing to decide")
