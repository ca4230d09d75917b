"""What people decide, kept in the cluster: in a ConfigMap, and in the spec of incidents."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from nodeguard.aggregator.backends.operator_actions import (
    OperatorActionError,
    clear_message,
    format_pause_reason,
)
from nodeguard.kube import incident_writer as incidents
from nodeguard.kube.client import MERGE_PATCH, ApiClient, ApiError
from nodeguard.kube.config_map import ConfigMap, ConfigMapObject
from nodeguard.kube.error_log import Log
from nodeguard.kube.incident_object import clear_spec, decode_incident, is_shared
from nodeguard.kube.watch import Watch
from nodeguard.model.instant import rfc3339

DECISIONS_NAME = "nodeguard-decisions"
PAUSE, UNMARK = "pause", "unmark"

# What is decided of the whole fleet, by PAUSE and UNMARK.
DecisionsChanged = Callable[[Mapping[str, str]], None]


class KubernetesOperatorActions:
    """Carries decisions out; see api.decide.Decide. decided: is told what counts, whoever decided it."""

    def __init__(self, api: ApiClient, namespace: str, decided: DecisionsChanged, tell: Log) -> None:
        self._api = api
        self._decided = decided
        self._tell = tell
        self._kept = ConfigMap(api, namespace, DECISIONS_NAME)

    def watch(self) -> Watch[ConfigMapObject]:
        """What follows the decisions."""
        return self._kept.watch(self._decided, self._tell)

    async def pause(self, why: str, by: str) -> str:
        """Mark nothing new from now on, durably."""
        await self._change({PAUSE: format_pause_reason(why, by)})
        return "nothing new is marked from now on, through restarts too; nodeguard resume ends it"

    async def resume(self, by: str) -> str:
        """Go on."""
        await self._change({PAUSE: None, UNMARK: None})
        self._tell(f"resumed by {by}")
        return "marks are set again"

    async def unmark(self, by: str) -> str:
        """Take every mark away, durably, and pause before."""
        await self._change(
            {PAUSE: format_pause_reason("all marks are removed", by), UNMARK: by or "somebody"}
        )
        return "paused, and every mark is being taken away; nodeguard resume has them set again"

    async def unmark_finished(self, by: str) -> None:
        """Every mark has been taken away, as somebody asked: that is no more to be done."""
        self._tell(f"every mark has been taken away, as {by} asked")
        try:
            await self._kept.update(
                lambda told: {key: text for key, text in told.items() if key != UNMARK or text != by}
            )
        except ApiError as error:
            self._tell(f"that all marks are gone cannot be written down: {error}")

    async def acknowledge(self, name: str, by: str) -> str:
        """People know of an incident."""
        await self._specify(name, {"acknowledged": by or "somebody"})
        return f"{name} is acknowledged"

    async def clear(self, name: str, by: str) -> str:
        """Ask to clear an incident."""
        written = await self._specify(name, clear_spec(by or "somebody", rfc3339(time.time())))
        return clear_message(name, of_many=is_shared(decode_incident(written)))

    async def _change(self, what: Mapping[str, str | None]) -> None:
        def edit(told: Mapping[str, str]) -> dict[str, str]:
            return {key: text for key, text in {**told, **what}.items() if text is not None}

        try:
            self._decided(await self._kept.update(edit))
        except ApiError as error:
            raise OperatorActionError(f"this cannot be written down, and is not done: {error}") from None

    async def _specify(self, incident: str, spec: Mapping[str, object]) -> bytes:
        path = f"{incidents.PATH}/{incident}"
        try:
            return await self._api.request("PATCH", path, body={"spec": spec}, content_type=MERGE_PATCH)
        except ApiError as error:
            if error.status == 404:
                raise OperatorActionError(
                    f"there is no incident {incident}: see nodeguard get incidents"
                ) from None
            raise OperatorActionError(f"this cannot be written down, and is not done: {error}") from None
