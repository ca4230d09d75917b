"""What the service asks of the world that it acts in."""

from __future__ import annotations

from typing import Protocol

from nodeguard.aggregator.identity.caller import Caller
from nodeguard.fleet.plan import Plan
from nodeguard.model.instant import Instant
from nodeguard.wire.report import Report


class WorldError(Exception):
    """What a person asked for could not be done; says why, and what to do."""


class World(Protocol):
    """A cluster of Kubernetes, or none."""

    @property
    def leader(self) -> str:
        """Who has anything written, in words."""

    def unknown(self) -> str:
        """What is not known yet without which nothing may be planned; empty where all is."""

    async def lead(self, now: float) -> bool:
        """Whether this aggregator may have anything written. now: seconds of a clock that never jumps, from
        before the plan.
        """

    def met(self, caller: Caller, report: Report) -> None:
        """A node has news, which is about to be planned for."""

    def carry_out(self, plan: Plan, now: Instant) -> None:
        """Have a plan carried out."""

    def policy_refused(self, why: str) -> None:
        """A policy is not adopted, which is to be told where people look for it. why: in a sentence."""

    async def pause(self, why: str) -> None:
        """Mark nothing new from now on, durably. Raises WorldError."""

    async def resume(self) -> None:
        """Go on. Raises WorldError."""

    async def unmark(self, by: str) -> None:
        """Take every mark away, durably, and pause before. Raises WorldError."""

    async def acknowledge(self, incident: str, by: str) -> None:
        """People know of an incident. Raises WorldError."""

    async def clear(self, incident: str, by: str) -> None:
        """People say that an incident is over. Raises WorldError."""

    async def close(self) -> None:
        """Let go of everything."""
