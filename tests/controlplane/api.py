"""A small synchronous client of the Kubernetes API."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any, Literal

from nodeguard.local.client_tls import client_context
from tests.waiting import PATIENCE

Object = dict[str, Any]

# The content type of a PATCH, without `application/` and `-patch+json`.
Patch = Literal["merge", "strategic-merge", "json"]


class ApiError(Exception):
    """An HTTP error. code: HTTP status code. status: the Status object, or the text that was returned."""

    def __init__(self, code: int, status: Object) -> None:
        super().__init__(f"{code}: {status.get('message', status)}")
        self.code = code
        self.status = status


class Api:
    """Client of one API server with a token. Each call has its own connection, because servers restart.

    kubelet: the node of the kubelet that the user of the token impersonates; empty for none.
    """

    def __init__(self, port: int, ca: Path, token: str, kubelet: str = "") -> None:
        self._port = port
        self._trust = client_context(str(ca))
        self._headers = {"Authorization": f"Bearer {token}"}
        if kubelet:
            self._headers |= {
                "Impersonate-User": f"system:node:{kubelet}", "Impersonate-Group": "system:nodes",
            }  # fmt: skip

    def get(self, path: str) -> Object:
        return self._call("GET", path)

    def post(self, path: str, body: Object) -> Object:
        return self._call("POST", path, body)

    def put(self, path: str, body: Object) -> Object:
        return self._call("PUT", path, body)

    def patch(self, path: str, body: Object | list[Object], kind: Patch = "merge") -> Object:
        return self._call("PATCH", path, body, f"application/{kind}-patch+json")

    def delete(self, path: str) -> Object:
        """Delete an object, or all objects of a collection; pods at once, because no kubelet confirms it."""
        return self._call("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})

    def text(self, path: str) -> str:
        """Return the text at a path such as /readyz. Raises OSError if no server listens, and ApiError."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._trust, timeout=PATIENCE
        )
        return self._send(connection, "GET", path, None, {})

    def _call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._trust, timeout=PATIENCE
        )
        data = None if body is None else json.dumps(body).encode()
        response: Object = json.loads(self._send(connection, method, path, data, {"Content-Type": kind}))
        return response

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> str:
        try:
            connection.request(method, path, body, {**self._headers, **headers})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= 300:
            try:
                raise ApiError(response.status, json.loads(text))
            except json.JSONDecodeError:
                raise ApiError(response.status, {"message": text}) from None
        return text
