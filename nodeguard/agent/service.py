"""An agent at work: its pages served, its memory kept, its reports sent, its end on a signal."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from nodeguard.agent.agent import Agent
from nodeguard.agent.control import InstructionOutcome
from nodeguard.agent.http import agent_pages, serve_http
from nodeguard.agent.keeper import StateKeeper
from nodeguard.agent.process import notify_systemd, watchdog_interval
from nodeguard.agent.reporting.reporter import Reporter
from nodeguard.agent.reporting.senders import Senders
from nodeguard.agent.state import AgentState
from nodeguard.agent.state_file import StateFile
from nodeguard.model.finding import Verdict
from nodeguard.model.instant import Instant
from nodeguard.pipeline.agent_signals import agent_reading
from nodeguard.wire.instruction import Instruction

# Seconds that the last report and the last writing may take together.
_LAST = 1.5
# For how long the node is told that a memory was lost.
_REMEMBERED = 86_400.0


class Service:
    """Everything around one agent.

    reporter: also where there is nobody to report to. remember: gives what the judgement remembers of the
    node after a round, by its instant. file: where that is kept, with what was told; None for nowhere.
    lost: why and when, by the wall clock, what was remembered could not be used. senders: None where there is
    nobody to report to.
    """

    def __init__(
        self,
        agent: Agent,
        reporter: Reporter,
        remember: Callable[[Instant], AgentState],
        file: StateFile | None = None,
        lost: tuple[str, float] = ("", 0.0),
        senders: Senders | None = None,
    ) -> None:
        self._agent = agent
        self._reporter = reporter
        self._mailbox = reporter.queue
        self._remember = remember
        self._senders = senders
        self._keeper = StateKeeper(file, self._memory, self._written) if file else None
        self._judged: Instant | None = None
        self._trouble = ""
        self._lost, self._lost_at = lost
        self._tasks: set[asyncio.Task[None]] = set()
        agent.on_verdict = self._heed

    async def attend(self, host: str, port: int, *, once: bool) -> Verdict | None:
        """Let the agent judge, and serve what it found, until SIGTERM, SIGINT, or every source was read once.

        Returns the last verdict, None where there is none. Raises OSError where it cannot listen.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._agent.stop)
        self._mailbox.arrived = partial(loop.call_soon_threadsafe, self._arrived)
        server = await serve_http(host, port, agent_pages(self._agent, self._mailbox, self._senders))
        if self._senders:
            self._senders.begin(self._agent.now)
        beside = [
            _tell_systemd(self._agent),
            *([_once(self._agent)] if once else []),
            *([self._keeper.run()] if self._keeper else []),
        ]
        tasks = [loop.create_task(one) for one in beside]
        self._arrived()
        if self._keeper:
            self._tell_of_memory()
            if self._lost:
                told = self._agent.now().wall - self._lost_at
                loop.call_later(max(0.0, _REMEMBERED - told), self._forget)
        async with server:
            await self._agent.run()
        notify_systemd("STOPPING=1")
        for task in tasks:
            task.cancel()
        await asyncio.gather(
            *([asyncio.to_thread(self._senders.end, _LAST)] if self._senders else []),
            *([self._keeper.end()] if self._keeper else []),
        )
        return self._agent.verdict

    def _heed(self, verdict: Verdict, instant: Instant, changed: bool) -> None:  # noqa: FBT001 - see Heed
        self._judged = instant
        whole = not any(self._agent.unread_sources())
        told = self._reporter.offer(verdict, instant, self._agent.latest.values(), whole=whole)
        if (changed or told) and self._keeper:
            self._keeper.mark_changed()

    def _arrived(self) -> None:
        task = asyncio.get_running_loop().create_task(self._carry_out_all())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out_all(self) -> None:
        if not await self._reporter.carry_out_all():
            return
        if self._keeper:
            self._keeper.mark_changed()
        else:
            self._mailbox.written = self._mailbox.state.inbox.done

    async def carry_out(self, wanted: Instruction) -> InstructionOutcome:
        """Carry out what a person on the node asks for; answered once it would outlive a restart."""
        answer = await self._reporter.carry_out(wanted)
        if not answer.done or self._keeper is None:
            return answer
        wrong = await self._keeper.save_now()
        return (
            replace(answer, said=f"{answer.message}; a restart would forget it: {wrong}") if wrong else answer
        )

    def _memory(self) -> AgentState | None:
        """What is remembered, of one moment; None before the first round."""
        if self._judged is None:
            return None
        return replace(
            self._remember(self._judged),
            post=self._mailbox.state,
            told=self._agent.logged,
            lost=self._lost,
            lost_at=self._lost_at,
        )

    def _written(self, memory: AgentState, trouble: str) -> None:
        # Also where it is not on the disk: then it lives as long as this process, and the node is told so.
        self._mailbox.written = memory.delivery.inbox.done
        if trouble != self._trouble:
            self._trouble = trouble
            self._tell_of_memory()

    def _tell_of_memory(self) -> None:
        self._agent.add_reading(agent_reading(self._agent.now().mono, self._trouble, self._lost))

    def _forget(self) -> None:
        self._lost = ""
        self._tell_of_memory()


async def _tell_systemd(agent: Agent) -> None:
    """Ready once something was judged; alive as long as the loop turns."""
    while agent.verdict is None:
        await asyncio.sleep(0.1)
    notify_systemd("READY=1")
    while every := watchdog_interval():
        notify_systemd("WATCHDOG=1")
        await asyncio.sleep(every)


async def _once(agent: Agent) -> None:
    while any(agent.unread_sources()):
        await asyncio.sleep(0.05)
    agent.stop()
