"""What only the service knows that runs a planner."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from nodeguard.model.incident import Decision

STANDALONE = "standalone"


class Service(Struct, frozen=True):
    """The service at a moment.

    leader: who holds the lease, STANDALONE without one, empty for nobody. leads: whether it is this replica.
    may_act: whether it knows enough of the fleet to have anything written. started: seconds of the monotonic
    clock. plan_age: seconds since the latest plan, None before the first. policy_file, policy_error: where
    the policy comes from, and why a newer one is kept out; each empty for none. version: of nodeguard.
    decisions: of people, by the incident's name.
    """

    leader: str
    leads: bool
    may_act: bool
    started: float
    plan_age: float | None = None
    policy_file: str = ""
    policy_error: str = ""
    version: str = ""
    decisions: Mapping[str, Decision] = {}
