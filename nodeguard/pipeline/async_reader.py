"""The reading of sources for an event loop, which must not wait."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from nodeguard.model.observation import Observation, Reading
from nodeguard.model.target import NODE
from nodeguard.pipeline.reader import Reader, build_reading
from nodeguard.sources.source import Source


class AsyncReader(Reader):
    """Reads each source in a thread of its own, which wakes the event loop when it ends."""

    async def read_one(self, source: Source) -> Reading:
        """Return one reading of a source, at its deadline at the latest."""
        loop, began = asyncio.get_running_loop(), self._machine.now().mono
        done = asyncio.Event()

        def ended() -> None:
            with suppress(RuntimeError):  # the loop may have ended before a source that was late
                loop.call_soon_threadsafe(done.set)

        try:
            thread, observations = self._start(source, source.deadline, self._machine, ended)
        except RuntimeError as error:
            detail = f"no thread can be started ({error}): raise the limit on processes"
            failed = Observation(source.name, NODE, "failed", detail=detail)
            return build_reading(source, self._machine, [failed], began)
        if thread is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(source.deadline):
                    await done.wait()
            if done.is_set():
                return build_reading(source, self._machine, observations, began)
            self._late[source.name] = thread
        detail = f"gave no answer within {source.deadline:g} s"
        hung = Observation(source.name, NODE, "hung", detail=detail)
        return build_reading(source, self._machine, [*observations, hung], began)
