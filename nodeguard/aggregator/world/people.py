"""What people decide, kept in the cluster: in a ConfigMap, and in the spec of incidents."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from nodeguard.aggregator.api.decide import DecisionError
from nodeguard.aggregator.world.clearing import pause_reason, said_of
from nodeguard.kube import incidents
from nodeguard.kube.client import MERGE, Api, ApiError
from nodeguard.kube.config_map import ConfigMap, Kept
from nodeguard.kube.incident_object import is_of_many, seen
from nodeguard.kube.trouble import Tell
from nodeguard.kube.watching import Watching
from nodeguard.model.instant import rfc3339

DECISIONS = "nodeguard-decisions"
PAUSE, UNMARK = "pause", "unmark"

# What is decided of the whole fleet, by PAUSE and UNMARK.
Decided = Callable[[Mapping[str, str]], None]


class People:
    """Carries decisions out; see api.decide.Decide. decided: is told what counts, whoever decided it."""

    def __init__(self, api: Api, namespace: str, decided: Decided, tell: Tell) -> None:
        self._api = api
        self._decided = decided
        self._tell = tell
        self._kept = ConfigMap(api, namespace, DECISIONS)

    def watching(self) -> Watching[Kept]:
        """What follows the decisions."""
        return self._kept.watching(self._decided, self._tell)

    async def pause(self, why: str, by: str) -> str:
        """Mark nothing new from now on, durably."""
        await self._change({PAUSE: pause_reason(why, by)})
        return "nothing new is marked from now on, through restarts too; nodeguard resume ends it"

    async def resume(self, by: str) -> str:
        """Go on."""
        await self._change({PAUSE: None, UNMARK: None})
        self._tell(f"resumed by {by}")
        return "marks are set again"

    async def unmark(self, by: str) -> str:
        """Take every mark away, durably, and pause before."""
        await self._change({PAUSE: pause_reason("all marks are removed", by), UNMARK: by or "somebody"})
        return "paused, and every mark is being taken away; nodeguard resume has them set again"

    async def unmarked(self, by: str) -> None:
        """Every mark has been taken away, as somebody asked: that is no more to be done."""
        self._tell(f"every mark has been taken away, as {by} asked")
        try:
            await self._kept.change(
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
        written = await self._specify(name, {"clear": f"{by or 'somebody'} at {rfc3339(time.time())}"})
        return said_of(name, of_many=is_of_many(seen(written)))

    async def _change(self, what: Mapping[str, str | None]) -> None:
        def edit(told: Mapping[str, str]) -> dict[str, str]:
            return {key: text for key, text in {**told, **what}.items() if text is not None}

        try:
            self._decided(await self._kept.change(edit))
        except ApiError as error:
            raise DecisionError(f"this cannot be written down, and is not done: {error}") from None

    async def _specify(self, incident: str, spec: Mapping[str, str]) -> bytes:
        path = f"{incidents.PATH}/{incident}"
        try:
            return await self._api.request("PATCH", path, body={"spec": spec}, content=MERGE)
        except ApiError as error:
            if error.status == 404:
                raise DecisionError(f"there is no incident {incident}: see nodeguard incidents") from None
            raise DecisionError(f"this cannot be written down, and is not done: {error}") from None
