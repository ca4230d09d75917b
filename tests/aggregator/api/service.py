"""A planner behind a real socket, and somebody who takes note of what people decide."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from nodeguard.aggregator.api.handlers import ApiContext, serve_api
from nodeguard.aggregator.backends.operator_actions import OperatorActionError
from nodeguard.fleet_api.service_state import Service
from nodeguard.model.incident import ClearAnswer, OperatorDecision
from tests.fleet.scene import Fleet
from tests.waiting import PATIENCE


class Deciders:
    """Takes note of what is decided, and refuses where it is told to."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, ...]] = []
        self.refuses = ""
        self.decisions: dict[str, OperatorDecision] = {}
        # Answers of a node's agent to a clear, one after another.
        self.answers: list[tuple[ClearAnswer, str]] = []

    def _note(self, *words: str) -> str:
        if self.refuses:
            raise OperatorActionError(self.refuses)
        self.heard.append(words)
        return f"Done: {words[0]}."

    async def pause(self, why: str, by: str) -> str:
        return self._note("pause", why, by)

    async def resume(self, by: str) -> str:
        return self._note("resume", by)

    async def unmark(self, by: str) -> str:
        return self._note("unmark", by)

    async def acknowledge(self, name: str, by: str) -> str:
        return self._note("acknowledge", name, by)

    async def clear(self, name: str, by: str) -> str:
        if self.answers:
            self.decisions[name] = OperatorDecision(name, clear=f"{by} at noon")
        return self._note("clear", name, by)

    def decided(self) -> dict[str, OperatorDecision]:
        """What people decided, with the next answer to each clear."""
        if self.decisions and self.answers:
            answer, says = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            return {
                name: replace(one, answer=answer, answer_says=says) for name, one in self.decisions.items()
            }
        return self.decisions


def service(fleet: Fleet, deciders: Deciders) -> Service:
    """The leader, up for a day."""
    return Service(
        "replica-0",
        leads=True,
        started=fleet.mono - 86_400.0,
        plan_age=0.4,
        decisions=deciders.decided(),
    )


def asked(fleet: Fleet, deciders: Deciders) -> ApiContext:
    return ApiContext(fleet.planner, lambda: service(fleet, deciders), lambda: fleet.now, deciders)


@contextmanager
def answering(directory: Path, fleet: Fleet, deciders: Deciders) -> Iterator[str]:
    """A server in a thread of its own; its socket."""
    path = str(directory / "aggregator.sock")
    ready, loop = threading.Event(), asyncio.new_event_loop()
    end = asyncio.Event()

    async def run() -> None:
        async with serve_api(path, asked(fleet, deciders)):
            ready.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield path
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(PATIENCE)
        loop.close()
