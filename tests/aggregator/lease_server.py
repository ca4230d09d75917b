"""A Lease on an API server in memory, with latencies and failures, for simulations in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from nodeguard.kube.errors import ApiError


class LeaseServer:
    """The object, as the API server stores it. holders: time and holder of each change of the holder."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] | None = None
        self.version = 0
        self.holders: list[tuple[float, str]] = []

    def apply(self, method: str, body: Any, now: float) -> bytes:
        """Carry out a request. Raises ApiError."""
        if method == "POST":
            if self.spec is not None:
                raise ApiError(409, "AlreadyExists", "it exists")
            self._store(body["spec"], now)
        elif self.spec is None:
            raise ApiError(404, "NotFound", "there is none")
        elif method == "PATCH":
            if body["metadata"]["resourceVersion"] != str(self.version):
                raise ApiError(409, "Conflict", "it has changed")
            self._store({**self.spec, **body["spec"]}, now)
        metadata = {"name": "nodeguard", "uid": "lease", "resourceVersion": str(self.version)}
        return msgspec.json.encode({"metadata": metadata, "spec": self.spec})

    def _store(self, spec: dict[str, Any], now: float) -> None:
        before = self.spec["holderIdentity"] if self.spec is not None else ""
        self.spec, self.version = spec, self.version + 1
        if spec["holderIdentity"] != before:
            self.holders.append((now, spec["holderIdentity"]))


class ReplicaApi:
    """A replica's client. latency: returns the seconds from a request to its response, infinite for a cut
    connection. refuses: whether the server forbids writes.
    """

    def __init__(self, server: LeaseServer, latency: Callable[[], float]) -> None:
        self._server = server
        self.latency = latency
        self.refuses = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        content_type: str = "application/json",
        timeout: float = 5.0,
    ) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                await asyncio.sleep(self.latency() / 2)
                if self.refuses and method != "GET":
                    raise ApiError(403, "Forbidden", "leases is forbidden")
                response = self._server.apply(method, body, loop.time())
                await asyncio.sleep(self.latency() / 2)
                return response
        except TimeoutError:
            raise ApiError(0, "Timeout", "no response") from None
