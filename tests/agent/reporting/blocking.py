"""A transport for tests that have no event loop."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from nodeguard.agent.reporting.credentials import CertificateFiles, TokenFile
from nodeguard.agent.reporting.endpoint import Address
from nodeguard.agent.reporting.http1 import DEADLINE, HttpResponse, HttpsTransport


class BlockingTransport:
    """An HttpsTransport with an event loop of its own, which runs during each call."""

    def __init__(
        self,
        address: str | Address,
        token: TokenFile | None,
        ca_file: str | None = None,
        certificate: CertificateFiles | None = None,
    ) -> None:
        self._transport = HttpsTransport(address, token, ca_file, certificate)
        self._loop = asyncio.new_event_loop()

    def post(self, body: bytes, timeout: float = DEADLINE) -> HttpResponse:
        return self._loop.run_until_complete(self._transport.post(body, timeout))

    def close(self) -> None:
        """Close the connection, in a thread: the caller may run another event loop."""
        thread = threading.Thread(target=self._close)
        thread.start()
        thread.join()

    def _close(self) -> None:
        if not self._loop.is_closed():
            self._transport.close()
            self._loop.run_until_complete(asyncio.sleep(0))

    def __del__(self) -> None:
        with suppress(RuntimeError):  # no thread can be started while the interpreter ends
            self.close()
        self._loop.close()
