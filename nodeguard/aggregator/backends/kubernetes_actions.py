"""Operators' actions in Kubernetes: stored in a ConfigMap, and in the spec of incidents."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import MsgspecError

from nodeguard.aggregator.backends.operator_actions import (
    ANONYMOUS,
    OperatorActionError,
    clear_message,
    false_alarm_message,
    format_hold_reason,
    format_pause_reason,
    format_resumed,
)
from nodeguard.kube import incident_writer as incidents
from nodeguard.kube.client import MERGE_PATCH, ApiClient, ApiError
from nodeguard.kube.config_map import ConfigMap, ConfigMapObject
from nodeguard.kube.errors import may_have_succeeded
from nodeguard.kube.incident_object import (
    ObservedIncident,
    clear_spec,
    decode_incident,
    false_alarm_spec,
    is_shared,
)
from nodeguard.kube.incident_schema import REMEDY
from nodeguard.kube.unmark import unmark_node
from nodeguard.kube.watch import Watch
from nodeguard.model.incident import FalseAlarm
from nodeguard.model.instant import rfc3339
from nodeguard.model.mark import HOLD_ANNOTATION, MarkRecord

logger = logging.getLogger(__name__)

DECISIONS_NAME = "nodeguard-decisions"
PAUSE, UNMARK, RESUMED = "pause", "unmark", "resumed"

# Receives the decisions of the whole fleet, by PAUSE, UNMARK and RESUMED.
DecisionsChanged = Callable[[Mapping[str, str]], None]


class KubernetesOperatorActions:
    """Carries out operators' actions. on_changed: receives the decisions in use, of any operator. rules_of:
    returns the names of the DeviceTaintRules of a Node, by its name. clear_problem: returns why an incident
    cannot be cleared, by its name; empty if it can. refused_record: returns the record of the marks of a Node
    that the API server refuses, by its name; None if it refuses none.
    """

    def __init__(
        self,
        api: ApiClient,
        namespace: str,
        on_changed: DecisionsChanged,
        rules_of: Callable[[str], Iterable[str]],
        *,
        clear_problem: Callable[[str], str] = lambda _: "",
        refused_record: Callable[[str], MarkRecord | None] = lambda _: None,
    ) -> None:
        self._api = api
        self._rules_of = rules_of
        self._clear_problem = clear_problem
        self._refused_record = refused_record
        self._on_changed = on_changed

        self._config_map = ConfigMap(api, namespace, DECISIONS_NAME)

    def watch(self) -> Watch[ConfigMapObject]:
        """Return the watch of the decisions."""
        return self._config_map.watch(self._on_changed)

    async def pause(self, reason: str, by: str) -> str:
        """Set no new marks. Survives restarts."""
        pause = format_pause_reason(reason, by, time.time())
        await self._change({PAUSE: pause})
        logger.info("new marks are paused", extra={"reason": pause})
        return "paused: no new marks are set, also after a restart; nodeguard resume ends the pause"

    async def resume(self, by: str) -> str:
        """End a pause."""
        await self._change({PAUSE: None, UNMARK: None, RESUMED: format_resumed(by, time.time())})
        logger.info("new marks are resumed", extra={"by": by or ANONYMOUS})
        return "resumed: marks are set again"

    async def unmark(self, by: str) -> str:
        """Pause, and remove all marks. Survives restarts."""
        reason = format_pause_reason("all marks are removed", by, time.time())
        await self._change({PAUSE: reason, UNMARK: by or ANONYMOUS})
        logger.info("new marks are paused", extra={"reason": reason})
        return "paused: all marks are being removed; nodeguard resume sets them again"

    async def unmark_nodes(self, nodes: Sequence[str], reason: str, by: str) -> str:
        """Remove all marks from some nodes, and hold these, one after another."""
        hold = format_hold_reason(reason, by, time.time())
        stays = list[str]()
        for number, name in enumerate(nodes):
            try:
                rules, record = self._rules_of(name), self._refused_record(name)
                taints = await unmark_node(self._api, name, rules, hold, record)
            except (ApiError, MsgspecError) as error:
                done = f"; done: {', '.join(nodes[:number])}" if number else ""
                problem = _problem(f"{name} is not unmarked", f"{name} may be unmarked or not", error)
                raise OperatorActionError(f"{problem}{done}") from None
            logger.info("all marks of the node are removed", extra={"node": name, "reason": hold})
            stays += [f"kubectl taint node {name} {taint.key}:{taint.effect}-" for taint in taints]
        has = "it has" if len(nodes) == 1 else "they have"
        return (
            f"the marks of {', '.join(nodes)} are removed, and {has} a hold: nodeguard sets none until "
            f"kubectl annotate node {' '.join(nodes)} {HOLD_ANNOTATION}-"
            + (f"; taints without a record of nodeguard stay: {'; '.join(stays)}" if stays else "")
        )

    async def unmark_finished(self, by: str) -> None:
        """Delete the request to remove all marks. by: the operator who made it."""
        logger.info("all marks are removed", extra={"by": by})
        try:
            await self._config_map.update(
                lambda decisions: {
                    key: text for key, text in decisions.items() if key != UNMARK or text != by
                }
            )
        except ApiError as error:
            logger.warning("cannot store that all marks are removed", extra={"error": str(error)})

    async def acknowledge(self, name: str, by: str) -> str:
        """Acknowledge an incident."""
        await self._patch_spec(name, {"acknowledged": by or ANONYMOUS})
        return f"{name} is acknowledged"

    async def clear(self, name: str, by: str) -> str:
        """Clear an incident. Refused while the action of its agent cannot be stored: it would not begin."""
        if problem := self._clear_problem(name):
            raise OperatorActionError(f"{_NOT_DONE}: {problem}; or run nodeguard clear on the node")
        incident = await self._patch_spec(name, clear_spec(by or ANONYMOUS, rfc3339(time.time())))
        return clear_message(name, of_many=is_shared(incident))

    async def record_false_alarm(self, name: str, statement: FalseAlarm) -> str:
        """Record whether an incident was no fault, in its spec."""
        stored = (await self._patch_spec(name, false_alarm_spec(statement))).decision.false_alarm
        if stored is None or stored.withdrawn != statement.withdrawn:
            missing = "spec.falseAlarm" if stored is None else "spec.falseAlarm.withdrawn"
            problem = f"the CustomResourceDefinition has no field {missing}"
            raise OperatorActionError(f"{_NOT_DONE}: {problem}: {REMEDY}")
        return false_alarm_message(name, statement)

    async def _change(self, changes: Mapping[str, str | None]) -> None:
        def edit(decisions: Mapping[str, str]) -> dict[str, str]:
            return {key: text for key, text in {**decisions, **changes}.items() if text is not None}

        try:
            self._on_changed(await self._config_map.update(edit))
        except ApiError as error:
            raise OperatorActionError(_problem(_NOT_DONE, _UNCERTAIN, error)) from None

    async def _patch_spec(self, incident: str, spec: Mapping[str, object]) -> ObservedIncident:
        path, body = f"{incidents.PATH}/{incident}", {"spec": spec}
        try:
            return decode_incident(
                await self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            )
        except (ApiError, MsgspecError) as error:
            if isinstance(error, ApiError) and error.status == 404:
                raise OperatorActionError(
                    f"incident {incident} not found: see nodeguard get incidents"
                ) from None
            raise OperatorActionError(_problem(_NOT_DONE, _UNCERTAIN, error)) from None


_NOT_DONE, _UNCERTAIN = "not done, as it cannot be stored", "it may be stored or not"


def _problem(not_done: str, uncertain: str, error: ApiError | MsgspecError) -> str:
    """Return the message about a failed request of an operator. Each of them may be repeated."""
    if isinstance(error, MsgspecError):
        error = ApiError(0, "Unreadable", "the response does not come from a Kubernetes API")
    if may_have_succeeded(error):
        return f"{uncertain}: {error}; repeat the command, which changes nothing that is done already"
    return f"{not_done}: {error}"
