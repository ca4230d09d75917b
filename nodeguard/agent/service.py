"""A running agent: the evaluation with its HTTP endpoints, state file and reports, until a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable
from math import inf, isfinite

from msgspec.structs import replace

from nodeguard import __version__
from nodeguard.agent.agent import Agent
from nodeguard.agent.control import AgentStatus, AgentValues, InstructionOutcome, SourceValues
from nodeguard.agent.http import PageSource, agent_pages, serve_http
from nodeguard.agent.injector import ActiveInjections
from nodeguard.agent.instructions import detached_targets
from nodeguard.agent.process import notify_systemd, release_free_memory, watchdog_interval
from nodeguard.agent.reporting.endpoint_pool import EndpointPool
from nodeguard.agent.reporting.reporter import Reporter
from nodeguard.agent.state import AgentState
from nodeguard.agent.state_file import StateFile, StateKeeper
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.model.observation import Reading
from nodeguard.model.signal import Scalar
from nodeguard.model.target import target_kind
from nodeguard.pipeline.signal_registry import agent_reading
from nodeguard.wire.instruction import Instruction

# Seconds for the last report and the last write together.
_LAST = 1.5
# Seconds for which a lost state is a finding.
_LOAD_ERROR_LASTS = 86_400.0


# Kinds of targets with values that a person asks for.
_DEVICES = frozenset({"gpu", "nvlink", "port"})


def _device_values(reading: Reading) -> dict[str, dict[str, Scalar]]:
    """Return the signals of each GPU, NVLink and port in a reading; JSON has no infinite numbers."""
    values: dict[str, dict[str, Scalar]] = {}
    for observation in reading.observations:
        if observation.signals and target_kind(observation.target) in _DEVICES:
            finite = {
                name: value
                for name, value in observation.signals.items()
                if not isinstance(value, float) or isfinite(value)
            }
            values.setdefault(observation.target, {}).update(finite)
    return values


def _gpu_indices(readings: Iterable[Reading]) -> dict[str, int]:
    """Return the index of each GPU in nvidia-smi, by target."""
    return {
        observation.target: component.hardware.index
        for reading in readings
        for observation in reading.observations
        if (component := observation.component) and component.hardware
        if component.hardware.index is not None
    }


class Service:
    """Runs one agent.

    reporter: also needed without an aggregator. capture: returns the state after an evaluation at an instant.
    injections: returns the injected faults. file: where the state is stored; None for nowhere. load_error:
    why and when, by the wall clock, an earlier state could not be used. endpoints: None without an
    aggregator.
    """

    def __init__(
        self,
        agent: Agent,
        reporter: Reporter,
        capture: Callable[[Instant], AgentState],
        injections: ActiveInjections,
        file: StateFile | None = None,
        load_error: tuple[str, float] = ("", 0.0),
        endpoints: EndpointPool | None = None,
    ) -> None:
        self._agent = agent
        self._reporter = reporter
        self._queue = reporter.queue
        self._capture = capture
        self._injections = injections
        self._endpoints = endpoints
        self._keeper = StateKeeper(file, self._state, self._stored) if file else None
        self._evaluated_at: Instant | None = None
        self._save_error = ""
        self._load_error, self._load_error_at = load_error
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, host: str, port: int, *, once: bool) -> Verdict | None:
        """Run the agent until SIGTERM, SIGINT or, with once, until every source was read.

        Returns the last verdict, None if there is none. Raises OSError if it cannot listen.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._agent.stop)
        server = await serve_http(host, port, self._pages())
        if self._endpoints:
            self._endpoints.start(self._agent.now)
        background = [_notify_systemd(self._agent), self._start_instructions()]
        if once:
            background.append(_stop_when_read(self._agent))
        if self._keeper:
            background.append(self._keeper.run())
        tasks = [loop.create_task(work) for work in background]
        if self._keeper:
            self._report_state_file()
            if self._load_error:
                age = self._agent.now().wall - self._load_error_at
                loop.call_later(max(0.0, _LOAD_ERROR_LASTS - age), self._forget_load_error)
        try:
            await self._agent.run(self._on_verdict)
        finally:
            server.close()  # without waiting: a client may stay connected longer than the agent may take
        notify_systemd("STOPPING=1")
        for task in tasks:
            task.cancel()
        await asyncio.gather(
            *([self._endpoints.end(_LAST)] if self._endpoints else []),
            *([self._keeper.end()] if self._keeper else []),
        )
        return self._agent.verdict

    def _pages(self) -> dict[str, PageSource]:
        return agent_pages(
            self._agent, self._queue, self._endpoints, self._injections, self._reporter.facts.node
        )

    def status(self) -> AgentStatus:
        """Return the present status, for the local socket."""
        now = self._agent.now()
        detached = self._capture(now).detached
        acked_at = self._endpoints.acked_at() if self._endpoints else {}
        return AgentStatus(
            version=__version__,
            node=self._reporter.facts.node,
            at=now.wall,
            boot_id=now.boot_id,
            verdict=self._agent.verdict,
            ages=self._agent.ages(),
            unread=tuple(self._agent.unread_sources()),
            detached={
                target: now.wall_of(detached.until[target]) for target in detached_targets(detached, now)
            },
            acknowledged_at={
                name: None if mono == -inf else max(0.0, now.wall_of(mono)) for name, mono in acked_at.items()
            },
            spooled=len(self._queue.state.spool),
            state_error=self._save_error,
            injections=self._injections(now),
            catalogue=self._reporter.facts.catalogue,
            problems=self._endpoints.problems() if self._endpoints else {},
        )

    def values(self) -> AgentValues:
        """Return the latest values of GPUs, NVLinks and ports, for the local socket."""
        now, ages = self._agent.now(), self._agent.ages()
        sources = (
            SourceValues(name, round(ages[name], 1), ages[name] > reading.valid_for, targets)
            for name, reading in sorted(self._agent.latest.items())
            if name in ages and (targets := _device_values(reading))
        )
        indices = _gpu_indices(self._agent.latest.values())
        return AgentValues(self._reporter.facts.node, now.wall, tuple(sources), indices)

    async def carry_out(self, instruction: Instruction) -> InstructionOutcome:
        """Carry out an instruction of the local operator; return once the state file has its effect."""
        outcome = await self._reporter.carry_out(instruction)
        if not outcome.done or self._keeper is None:
            return outcome
        error = await self._keeper.save_now()
        if not error:
            return outcome
        return replace(outcome, message=f"{outcome.message}; a restart would lose it: {error}")

    def _on_verdict(self, verdict: Verdict, instant: Instant, changed: bool) -> None:  # noqa: FBT001 - see OnVerdict
        self._evaluated_at = instant
        complete = not any(self._agent.unread_sources())
        reported = self._reporter.offer(
            verdict,
            instant,
            self._agent.latest.values(),
            complete=complete,
            injections=self._injections(instant),
        )
        if reported and self._endpoints:
            self._endpoints.wake()
        if (changed or reported) and self._keeper:
            self._keeper.mark_changed()

    async def _start_instructions(self) -> None:
        """Start to carry out the instructions that arrive. One that takes long delays no later one."""
        while True:
            await self._queue.arrived.wait()
            self._queue.arrived.clear()
            task = asyncio.get_running_loop().create_task(self._carry_out_all())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry_out_all(self) -> None:
        if not await self._reporter.carry_out_all():
            return
        if self._keeper:
            self._keeper.mark_changed()
        else:
            self._queue.stored = self._queue.state.inbox.done

    def _state(self) -> AgentState | None:
        """Return the state to store, None before the first evaluation."""
        if self._evaluated_at is None:
            return None
        return replace(
            self._capture(self._evaluated_at),
            delivery=self._queue.state,
            logged=self._agent.logged,
            receipts=self._reporter.receipts,
            load_error=self._load_error,
            load_error_at=self._load_error_at,
        )

    def _stored(self, state: AgentState, error: str) -> None:
        # Also after an error: then the state lives as long as this process, and a finding shows that.
        self._queue.stored = state.delivery.inbox.done
        if error != self._save_error:
            self._save_error = error
            self._report_state_file()

    def _report_state_file(self) -> None:
        self._agent.add_reading(agent_reading(self._agent.now().mono, self._save_error, self._load_error))

    def _forget_load_error(self) -> None:
        self._load_error = ""
        self._report_state_file()


async def _notify_systemd(agent: Agent) -> None:
    """Report readiness after the first evaluation, then feed the watchdog while the loop runs.

    The first evaluation is also the end of the start, after which memory is free.
    """
    while agent.verdict is None:
        await asyncio.sleep(0.1)
    notify_systemd("READY=1")
    release_free_memory()
    while interval := watchdog_interval():
        notify_systemd("WATCHDOG=1")
        await asyncio.sleep(interval)


async def _stop_when_read(agent: Agent) -> None:
    while any(agent.unread_sources()):
        await asyncio.sleep(0.05)
    agent.stop()
