"""The lease keeper: renews the lease beside the plan loop, which must not wait for a slow API server."""

from __future__ import annotations

import asyncio

from nodeguard.aggregator.backends.backend import ApiProblem
from nodeguard.kube.lease import Lease

# Attempts at a time while the lease is held. The second one has another connection: the first one's may be
# dead. Without the lease there is no hurry.
_ATTEMPTS = 2

# Seconds that a turn of the plan loop waits for an attempt that it has started: a usual response comes in a
# hundredth of this.
_WAIT = 0.25

# Seconds after which a request without a response is a problem.
_SLOW = 5.0


class LeaseKeeper:
    """Keeps one candidate's lease. Times are seconds of a monotonic clock."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        # The attempts without a result, with the times of their starts.
        self._attempts: dict[asyncio.Task[bool], float] = {}

    async def renew(self, now: float, *, wanted: bool) -> bool:
        """Take, renew or release the lease if that is due. Returns whether it is held, without waiting for a
        slow response. now: before the plan. wanted: as of Lease.renew.
        """
        limit = _ATTEMPTS if self._lease.is_held(now) and wanted else 1
        is_due = self._lease.is_due(now) or (self._lease.is_held(now) and not wanted)
        if len(self._attempts) < limit and is_due:
            attempt = asyncio.create_task(self._lease.renew(now, wanted=wanted))
            self._attempts[attempt] = now
            await asyncio.wait({attempt}, timeout=_WAIT)
        for attempt in [attempt for attempt in self._attempts if attempt.done()]:
            del self._attempts[attempt]
            attempt.result()
        return wanted and self._lease.is_held(now)

    def problem(self, now: float) -> ApiProblem | None:
        """Return why the lease cannot be read or renewed; None if the API server answers."""
        problem = self._lease.problem
        if problem is not None:
            refusal = problem.error.message if problem.error.status else ""
            return ApiProblem(problem.since, refusal)
        # An earlier attempt than one with a response has a dead connection.
        waiting = (at for at in self._attempts.values() if at > self._lease.answered)
        started_at = min(waiting, default=now)
        return ApiProblem(started_at) if now - started_at > _SLOW else None

    async def stop(self) -> None:
        """Cancel the attempts."""
        for attempt in self._attempts:
            attempt.cancel()
        await asyncio.gather(*self._attempts, return_exceptions=True)
        self._attempts.clear()
