"""Reload of the checks on SIGHUP, in a daemon thread, because the disk with their directory may hang."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from zlib import crc32

from nodeguard.local.daemon_thread import DaemonThread
from nodeguard.model.catalogue import Catalogue
from nodeguard.model.failure import UserError
from nodeguard.model.signal import Signal

logger = logging.getLogger(__name__)

# Seconds after which a read that has not ended is logged.
_PATIENCE = 10.0

_FAILED = "cannot reload the checks, the previous ones stay in use"

LoadedChecks = tuple[Catalogue, dict[str, Signal]]


class CheckReload:
    """Reads the checks again on request, one read at a time, and adopts them a little later.

    read: returns the checks, or raises UserError. adopt: called on the loop. delay: seconds between the
    two.
    """

    def __init__(
        self,
        read: Callable[[], LoadedChecks],
        adopt: Callable[[Catalogue, dict[str, Signal]], None],
        delay: float,
    ) -> None:
        self._read = read
        self._adopt = adopt
        self._delay = delay
        self._thread = DaemonThread("checks")
        self._task: asyncio.Task[None] | None = None
        self._began = 0.0
        self._is_requested = False
        self._pending: asyncio.TimerHandle | None = None

    def request(self) -> None:
        """Start to read the checks; if a read is running, read once more after it."""
        loop = asyncio.get_running_loop()
        if self._task is not None:
            self._is_requested = True
            if loop.time() - self._began > _PATIENCE:
                error = "the previous read has not ended: see that the disk of their directory answers"
                logger.error(_FAILED, extra={"error": error})
            return
        self._began = loop.time()
        self._task = loop.create_task(self._reload())

    async def _reload(self) -> None:
        try:
            catalogue, signals = await self._thread.run(self._read)
        except (UserError, OSError) as error:
            logger.exception(_FAILED, extra={"error": str(error)})
        except Exception:  # the node must stay monitored
            logger.exception("error while the checks are read, please report it")
        else:
            if self._pending is not None:
                self._pending.cancel()
            loop = asyncio.get_running_loop()
            count, seconds = len(catalogue.checks), round(self._delay, 1)
            logger.info("checks read", extra={"checks": count, "adopted_in_seconds": seconds})
            self._pending = loop.call_later(self._delay, self._take_over, catalogue, signals)
        self._task = None
        if self._is_requested:
            self._is_requested = False
            self.request()

    def _take_over(self, catalogue: Catalogue, signals: dict[str, Signal]) -> None:
        self._pending = None
        self._adopt(catalogue, signals)
        logger.info("checks reloaded", extra={"checks": len(catalogue.checks)})


def adoption_delay(node: str, spread: float) -> float:
    """Return the seconds until a node adopts new checks: a part of the spread, by a hash of its name."""
    return spread * (crc32(node.encode()) / 2**32)
