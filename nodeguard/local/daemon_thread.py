"""Blocking calls off the event loop, in daemon threads that cannot delay the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

Result = TypeVar("Result")


class DaemonThread:
    """Runs blocking calls one at a time: while a call hangs, the next one waits and starts no second thread.

    The default executor of asyncio is no replacement: the interpreter joins its threads at the end.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: asyncio.Future[None] | None = None

    async def run(self, call: Callable[[], Result]) -> Result:
        """Return the result of a call, or raise its exception; OSError if no thread can be started."""
        while self._running is not None and not self._running.done():
            await asyncio.wait([self._running])
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        result: asyncio.Future[Result] = loop.create_future()

        def finish(deliver: Callable[[], None]) -> None:
            ended.set_result(None)
            if not result.done():
                deliver()

        def work() -> None:
            try:
                value = call()
            except Exception as error:  # noqa: BLE001 - raised again where it is awaited
                deliver = partial(result.set_exception, error)
            else:
                deliver = partial(result.set_result, value)
            with suppress(RuntimeError):  # the loop may have ended meanwhile
                loop.call_soon_threadsafe(finish, deliver)

        try:
            threading.Thread(target=work, name=self._name, daemon=True).start()
        except RuntimeError as error:
            raise OSError(None, f"no thread can be started ({error}), raise the limit on processes") from None
        self._running = ended
        return await result
