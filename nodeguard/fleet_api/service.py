"""What only the service knows that runs a planner."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from nodeguard.fleet.refusals import Refusal
from nodeguard.model.incident import Decision

STANDALONE = "standalone"


class Service(Struct, frozen=True):
    """The service at a moment.

    leader: who holds the lease, STANDALONE without one, empty for nobody. leads: whether it is this replica.
    waits: what keeps it from having anything written, if it leads; empty for nothing. started: seconds of a
    monotonic clock. plan_age: seconds since the latest plan, None before the first. policy_file and _error:
    where the policy comes from, and why a newer one is kept out; each empty for none. version: of nodeguard.
    decisions: of people, by the incident's name. refused: of the past minutes, the latest first. shortage:
    why not all expected agents can connect, empty where they can.
    """

    leader: str
    leads: bool
    started: float
    waits: str = ""
    plan_age: float | None = None
    policy_file: str = ""
    policy_error: str = ""
    version: str = ""
    decisions: Mapping[str, Decision] = {}
    refused: tuple[Refusal, ...] = ()
    shortage: str = ""
