"""A small synchronous client of the Kubernetes API."""

from __future__ import annotations

import http.client
import json
import ssl
import weakref
from collections.abc import Iterable
from contextlib import suppress
from copy import copy
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
    """Client of one API server with a token. Reads reuse connections: a condition is read many times until it holds, and
    a new connection costs more than the read. Each write has its own connection, because servers restart.

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
        # Connections that no thread uses.
        self._idle = list[http.client.HTTPSConnection]()
        weakref.finalize(self, _close, self._idle)

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

    def of_metadata(self) -> Api:
        """Return a client that gets only the metadata of objects: a server takes long to encode a large one."""
        made = copy(self)
        made._headers = {
            **self._headers, "Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }  # fmt: skip
        return made

    def confirm_end(self, path: str, uid: str) -> Object:
        """Remove a deleted pod, as its kubelet does after its containers. Finalizers keep it until they are gone."""
        return self._call("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})

    def apply(self, objects: Iterable[Object]) -> None:
        """Apply objects with server-side apply as kubectl does, and take fields over that others have changed."""
        connection = self._connection()
        try:
            for made in objects:
                path = f"{object_path(made)}?fieldManager=kubectl&force=true"
                headers = {"Content-Type": "application/apply-patch+yaml"}
                self._send(connection, "PATCH", path, json.dumps(made), headers)
        finally:
            connection.close()

    def text(self, path: str) -> str:
        """Return the text at a path such as /readyz. Raises OSError if no server listens, and ApiError."""
        return self._read(path, {})

    def _call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object:
        headers = {"Content-Type": kind}
        if method == "GET":
            text = self._read(path, headers)
        else:
            connection = self._connection()
            data = None if body is None else json.dumps(body)
            try:
                text = self._send(connection, method, path, data, headers)
            finally:
                connection.close()
        response: Object = json.loads(text)
        return response

    def _read(self, path: str, headers: dict[str, str]) -> str:
        """Return the response of a GET, on a connection of an earlier one if the server has not ended it."""
        while self._idle:
            # Another thread may take the last one.
            with suppress(ConnectionError, ssl.SSLError, http.client.HTTPException, IndexError):
                return self._read_on(self._idle.pop(), path, headers)
        return self._read_on(self._connection(), path, headers)

    def _read_on(self, connection: http.client.HTTPSConnection, path: str, headers: dict[str, str]) -> str:
        try:
            text = self._send(connection, "GET", path, None, headers)
        except ApiError:
            self._idle.append(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return text

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._port, context=self._trust, timeout=PATIENCE)

    def _send(
        self,
        connection: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: str | None,
        headers: dict[str, str],
    ) -> str:
        connection.request(method, path, body and body.encode(), {**self._headers, **headers})
        response = connection.getresponse()
        text = response.read().decode()
        if response.status >= 300:
            try:
                raise ApiError(response.status, json.loads(text))
            except json.JSONDecodeError:
                raise ApiError(response.status, {"message": text}) from None
        return text


def object_path(made: Object) -> str:
    """Return the path of an object of the API."""
    version, kind, meta = made["apiVersion"], made["kind"].lower(), made["metadata"]
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    space = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
    return f"{'/apis' if '/' in version else '/api'}/{version}{space}/{plural}/{meta['name']}"


def _close(connections: list[http.client.HTTPSConnection]) -> None:
    for connection in connections:
        connection.close()
