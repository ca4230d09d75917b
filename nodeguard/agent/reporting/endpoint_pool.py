"""The aggregators that an agent reports to: one task for each endpoint, and the replicas behind each name."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf

from msgspec import Struct

from nodeguard.agent.reporting.delivery_queue import DeliveryQueue
from nodeguard.agent.reporting.endpoint import ReplicaIps, resolve_error, select_replicas
from nodeguard.agent.reporting.http1 import DEADLINE, Transport
from nodeguard.agent.reporting.sender import InjectionReply, Sender
from nodeguard.local.backoff import backoff
from nodeguard.local.daemon_thread import DaemonThread
from nodeguard.model.instant import Instant

logger = logging.getLogger(__name__)

# Seconds for the last messages at the end, and for the exchange before them: no aggregator may delay the
# shutdown of a node.
LAST = 1.0
_UNDER_WAY = 0.5

# Seconds after an unexpected error.
_ERROR_PAUSE = 10.0

# Seconds between two questions to the name service: while every replica acknowledges, so only a new replica
# would be found; while one does not; and at least. A whole fleet asks it, each time for several names as the
# search list of a pod has it.
RESOLVE_INTERVAL = 30.0
RESOLVE_INTERVAL_FAILING = 10.0
RESOLVE_MIN_INTERVAL = 1.0


class NamedEndpoint(Struct, frozen=True):
    """A name that may have several replicas.

    name: for logs. resolve: returns the IP addresses of each replica; it blocks. connect: returns the
    transport to a replica.
    """

    name: str
    resolve: Callable[[], Sequence[ReplicaIps]]
    connect: Callable[[ReplicaIps], Transport]


class EndpointTask:
    """Sends to one aggregator until the task ends; then sends the remaining messages, and a last report.

    wake: set when there may be something to send at once. now: returns the time. on_failure: called when the
    aggregator stops to acknowledge.
    """

    def __init__(
        self, sender: Sender, now: Callable[[], Instant], on_failure: Callable[[], object] = lambda: None
    ) -> None:
        self.wake = asyncio.Event()
        self.sender = sender
        self._now = now
        self._on_failure = on_failure
        self._end: float | None = None
        self._sends_last = True
        self._loop = asyncio.get_running_loop()
        self.task = self._loop.create_task(self._run())

    @property
    def acknowledges(self) -> bool:
        """Whether the aggregator acknowledged the latest message."""
        return self.sender.endpoint.failures == 0 and self.sender.endpoint.acked_at > -inf

    def drop(self) -> None:
        """End at once without a last report: the replica is gone, the agent is not."""
        self._sends_last = False
        self._end = self._loop.time()
        self.sender.transport.end_by(self._end)
        self.wake.set()

    def end(self) -> None:
        """End within LAST seconds; at once if the aggregator does not acknowledge."""
        now = self._loop.time()
        is_failing = self.sender.endpoint.failures > 0
        self.sender.transport.end_by(now if is_failing else now + _UNDER_WAY)
        self._end = now + LAST
        self.wake.set()

    async def _run(self) -> None:
        try:
            while self._end is None:
                self.wake.clear()
                was_failing = self.sender.endpoint.failures > 0
                wait = await self._guard(self.sender.send_due(self._now, DEADLINE))
                if not was_failing and self.sender.endpoint.failures:
                    self._on_failure()
                if self._end is None:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(wait):
                            await self.wake.wait()
            self.sender.transport.end_by(self._end)
            while (left := self._end - self._loop.time()) > 0:
                if await self._guard(self.sender.send_due(self._now, left)) > 0.0:
                    break
            if self._sends_last:
                await self._guard(self.sender.send_last(self._now, LAST))
        finally:
            self.sender.transport.close()

    async def _guard(self, work: Awaitable[float | None]) -> float:
        """Return the result. After an unexpected error the task goes on: the next message may succeed."""
        try:
            return await work or 0.0
        except Exception as error:  # noqa: BLE001 - a task that ends reports nothing
            with suppress(Exception):
                self.sender.recover(error)
            return _ERROR_PAUSE


class ReplicaPool:
    """Sends to every replica behind a name, and follows the name service.

    sender: returns one for a transport. jitter: returns a number from 0 to 1. A daemon thread resolves the
    name, since that may hang.
    """

    def __init__(
        self, endpoint: NamedEndpoint, sender: Callable[[Transport], Sender], jitter: Callable[[], float]
    ) -> None:
        self._endpoint = endpoint
        self._sender = sender
        self._jitter = jitter
        self._resolver = DaemonThread("resolver")
        self._resolve_now = asyncio.Event()
        self._tasks: dict[ReplicaIps, EndpointTask] = {}
        self._dropped: set[asyncio.Task[None]] = set()
        self._follower: asyncio.Task[None] | None = None

    @property
    def tasks(self) -> Sequence[EndpointTask]:
        """The tasks of the present replicas."""
        return tuple(self._tasks.values())

    def acked_at(self) -> dict[str, float]:
        """Return when each replica last acknowledged a message, in seconds since boot, -inf for never.

        Until a replica is found, the result has only the name of the endpoint.
        """
        by_name = {task.sender.transport.name: task.sender.endpoint.acked_at for task in self.tasks}
        return by_name or {self._endpoint.name: -inf}

    def start(self, now: Callable[[], Instant]) -> None:
        """Start to resolve and to send. now: returns the time."""
        self._follower = asyncio.get_running_loop().create_task(self._follow(now))

    def end(self) -> None:
        """Find no new replica, and end every task."""
        if self._follower is not None:
            self._follower.cancel()
        for task in self.tasks:
            task.end()

    async def _follow(self, now: Callable[[], Instant]) -> None:
        failures = 0
        while True:
            self._resolve_now.clear()
            failures = 0 if await self._refresh(now) else failures + 1
            await self._rest(failures)

    async def _refresh(self, now: Callable[[], Instant]) -> bool:
        """Resolve the name and adopt its replicas. Return whether there are any."""
        try:
            resolved = await self._resolver.run(self._endpoint.resolve)
            self._adopt(resolved, now)
        except (OSError, ValueError) as error:
            fields = {"endpoint": self._endpoint.name, "error": resolve_error(error)}
            logger.warning("cannot resolve the DNS name of the aggregator", extra=fields)
        except Exception:  # a task that ends follows no replica
            fields = {"endpoint": self._endpoint.name}
            logger.exception("error while the aggregator is resolved, please report it", extra=fields)
        else:
            return bool(resolved)
        return False

    def _adopt(self, resolved: Sequence[ReplicaIps], now: Callable[[], Instant]) -> None:
        before = self._tasks
        selected = select_replicas(resolved, {ips: task.acknowledges for ips, task in before.items()})
        self._tasks = {ips: before.get(ips) or self._start_task(ips, now) for ips in selected}
        for ips in before.keys() - set(selected):
            before[ips].drop()
            self._dropped.add(before[ips].task)
            before[ips].task.add_done_callback(self._dropped.discard)

    def _start_task(self, ips: ReplicaIps, now: Callable[[], Instant]) -> EndpointTask:
        return EndpointTask(self._sender(self._endpoint.connect(ips)), now, self._resolve_now.set)

    async def _rest(self, failures: int) -> None:
        """Wait until the name must be resolved again. failures: consecutive failures to resolve it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        is_well = not failures and all(task.acknowledges for task in self.tasks)
        most = RESOLVE_INTERVAL if is_well else RESOLVE_INTERVAL_FAILING
        if not self._tasks:
            most = backoff(failures, RESOLVE_MIN_INTERVAL, most)
        with suppress(TimeoutError):
            async with asyncio.timeout(most * (0.75 + 0.25 * self._jitter())):
                await self._resolve_now.wait()
        await asyncio.sleep(max(0.0, began + RESOLVE_MIN_INTERVAL - loop.time()))


class EndpointPool:
    """Every aggregator of an agent.

    transports: to aggregators at fixed addresses. names: of aggregators with replicas that come and go. For
    the other parameters see Sender.
    """

    def __init__(
        self,
        transports: Sequence[Transport],
        queue: DeliveryQueue,
        jitter: Callable[[], float],
        names: Sequence[NamedEndpoint] = (),
    ) -> None:
        def sender(transport: Transport) -> Sender:
            return Sender(transport, queue, jitter)

        self._senders = [sender(transport) for transport in transports]
        self._replicas = [ReplicaPool(name, sender, jitter) for name in names]
        self._fixed: list[EndpointTask] = []

    def acked_at(self) -> dict[str, float]:
        """Return when each aggregator last acknowledged a message, in seconds since boot, -inf for never."""
        by_name = {sender.transport.name: sender.endpoint.acked_at for sender in self._senders}
        for replicas in self._replicas:
            by_name |= replicas.acked_at()
        return by_name

    def problems(self) -> dict[str, str]:
        """Return why each aggregator did not acknowledge the latest message, without those that did."""
        senders = [task.sender for task in self._tasks()]
        return {sender.transport.name: sender.problem for sender in senders if sender.problem}

    def injection_replies(self) -> tuple[InjectionReply, ...]:
        """Return the policy of each present aggregator on injected faults."""
        return tuple(task.sender.injection_reply for task in self._tasks())

    def start(self, now: Callable[[], Instant]) -> None:
        """Start to send. now: returns the time."""
        self._fixed = [EndpointTask(sender, now) for sender in self._senders]
        for replicas in self._replicas:
            replicas.start(now)

    def wake(self) -> None:
        """Send at once: a report of a change is in the queue."""
        for task in self._tasks():
            task.wake.set()

    async def end(self, timeout: float) -> None:
        """Send the remaining messages, within a time in seconds."""
        for replicas in self._replicas:
            replicas.end()
        for task in self._fixed:
            task.end()
        tasks = [task.task for task in self._tasks()]
        if tasks:
            _, pending = await asyncio.wait(tasks, timeout=timeout)
            for unfinished in pending:
                unfinished.cancel()
            await asyncio.gather(*pending, return_exceptions=True)

    def _tasks(self) -> list[EndpointTask]:
        return [*self._fixed, *(task for replicas in self._replicas for task in replicas.tasks)]
