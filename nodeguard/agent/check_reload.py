"""Reading the checks again while the agent runs: in a thread, as their folder may be on a disk that hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from zlib import crc32

from nodeguard.agent.transitions import LogLine
from nodeguard.cli.usage import UsageError
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.signal import Signal

# Seconds after which it is told that a reading has not come back.
_PATIENCE = 10.0

LoadedChecks = tuple[Catalogue, dict[str, Signal]]


class CheckReload:
    """Has the checks read whenever that is asked for, one reading at a time, and adopted a little later.

    read: gives what the files say, or raises UsageError. adopt: is called on the loop. delay: seconds between
    the two. log: takes a line for what was adopted or refused.
    """

    def __init__(
        self,
        read: Callable[[], LoadedChecks],
        adopt: Callable[[Catalogue, dict[str, Signal]], None],
        delay: float,
        log: Callable[[LogLine], None],
    ) -> None:
        self._read = read
        self._adopt = adopt
        self._delay = delay
        self._log = log
        self._began: float | None = None
        self._again = False
        self._pending: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        """Read the checks again; once more afterwards, where a reading is under way."""
        loop = asyncio.get_running_loop()
        if self._began is not None:
            self._again = True
            if loop.time() - self._began > _PATIENCE:
                self._refuse("the checks are still being read: see that the disk of their folder answers")
            return
        try:
            threading.Thread(target=self._look, args=(loop,), name="checks", daemon=True).start()
        except RuntimeError as error:
            self._refuse(f"the reader cannot be started ({error}): raise the limit on processes")
            return
        self._began = loop.time()

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        found: LoadedChecks | str
        try:
            found = self._read()
        except UsageError as error:
            found = str(error)
        except Exception as error:  # noqa: BLE001 - a node has to be watched on
            found = f"please report it: {type(error).__name__}: {error}"
        with suppress(RuntimeError):  # the loop may have ended meanwhile
            loop.call_soon_threadsafe(self._heard, found)

    def _heard(self, found: LoadedChecks | str) -> None:
        self._began = None
        if isinstance(found, str):
            self._refuse(found)
        else:
            if self._pending is not None:
                self._pending.cancel()
            loop = asyncio.get_running_loop()
            self._pending = loop.call_later(self._delay, self._take_over, *found)
        if self._again:
            self._again = False
            self.ask()

    def _take_over(self, catalogue: Catalogue, signals: dict[str, Signal]) -> None:
        self._pending = None
        self._adopt(catalogue, signals)
        self._log({"event": "reloaded", "checks": len(catalogue.checks)})

    def _refuse(self, why: str) -> None:
        self._log({"event": "reload refused", "why": why})


def adoption_delay(node: str, spread: float) -> float:
    """Seconds after which a node adopts what all adopt: a part of the spread that its name tells."""
    return spread * (crc32(node.encode()) / 2**32)
