"""What the service asks of the world that it acts in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from nodeguard.aggregator.backends.operator_actions import OperatorActions
from nodeguard.aggregator.identity.caller import Caller
from nodeguard.fleet.plan import Plan
from nodeguard.model.incident import OperatorDecision
from nodeguard.model.instant import Instant
from nodeguard.wire.report import Report


class Backend(Protocol):
    """A cluster of Kubernetes, or none."""

    @property
    def actions(self) -> OperatorActions:
        """Who carries out what people decide."""

    @property
    def leader(self) -> str:
        """Return the name of the aggregator that writes; empty for none."""

    def missing_inputs(self) -> str:
        """What is not known yet without which nothing may be planned; empty where all is."""

    async def renew_leadership(self, now: float) -> bool:
        """Whether this aggregator may have anything written. now: seconds of a clock that never jumps, from
        before the plan.
        """

    def node_reported(self, caller: Caller, report: Report) -> None:
        """A node has news, which is about to be planned for."""

    def policy_changed(self) -> None:
        """Another policy counts: what was to be carried out and has not begun is planned anew."""

    def apply_plan(self, plan: Plan, now: Instant) -> None:
        """Have a plan carried out."""

    def policy_rejected(self, why: str) -> None:
        """A policy is not adopted, which is to be told where people look for it. why: in a sentence."""

    def decisions(self) -> Mapping[str, OperatorDecision]:
        """Return what people decided, by the incident's name, and what became of it."""

    async def close(self) -> None:
        """Let go of everything."""
