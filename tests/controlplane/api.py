"""A few words of the Kubernetes API over HTTPS: JSON in, JSON out."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any, Literal

from tests.waiting import PATIENCE

Object = dict[str, Any]

# What a PATCH says, by its content type.
Patch = Literal["merge", "strategic-merge", "json"]


class ApiError(Exception):
    """An answer that is no success. `code`: HTTP's; `status`: the Status object, or what stood in its place."""

    def __init__(self, code: int, status: Object) -> None:
        super().__init__(f"{code}: {status.get('message', status)}")
        self.code = code
        self.status = status


class Api:
    """Speaks to one API server as who holds the token; a connection for each call, so that restarts do no harm."""

    def __init__(self, port: int, ca: Path, token: str) -> None:
        self._port = port
        self._trust = ssl.create_default_context(cafile=str(ca))
        self._token = token

    def get(self, path: str) -> Object:
        return self._call("GET", path)

    def post(self, path: str, body: Object) -> Object:
        return self._call("POST", path, body)

    def put(self, path: str, body: Object) -> Object:
        return self._call("PUT", path, body)

    def patch(self, path: str, body: Object | list[Object], kind: Patch = "merge") -> Object:
        return self._call("PATCH", path, body, f"application/{kind}-patch+json")

    def delete(self, path: str, grace: int = 0) -> Object:
        """Delete an object, or with a collection's path all that it has; pods at once, as no kubelet confirms."""
        return self._call("DELETE", path, {"gracePeriodSeconds": grace, "propagationPolicy": "Background"})

    def text(self, path: str) -> str:
        """What a path like /readyz says. Raises OSError where nobody listens, and ApiError."""
        line = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._trust, timeout=PATIENCE)
        return self._ask(line, "GET", path, None, {})

    def _call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Object:
        line = http.client.HTTPSConnection("127.0.0.1", self._port, context=self._trust, timeout=PATIENCE)
        said = None if body is None else json.dumps(body).encode()
        answer: Object = json.loads(self._ask(line, method, path, said, {"Content-Type": kind}))
        return answer

    def _ask(
        self,
        line: http.client.HTTPSConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
    ) -> str:
        try:
            line.request(method, path, body, {"Authorization": f"Bearer {self._token}", **headers})
            answer = line.getresponse()
            text = answer.read().decode()
        finally:
            line.close()
        if answer.status >= 300:
            try:
                raise ApiError(answer.status, json.loads(text))
            except json.JSONDecodeError:
                raise ApiError(answer.status, {"message": text}) from None
        return text
