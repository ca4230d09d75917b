"""Credentials of a pod: the service account that the kubelet mounts, and the address in the environment.

The library's client could read them too, but its import costs the aggregator 21 MiB.
"""

from __future__ import annotations

import os
import time

from nodeguard.kube.credentials import OUTSIDE_OF_POD, AccessError, file_content, tls_context

DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"

# Seconds until the token is read again: the kubelet replaces its file well before its end.
_TOKEN_SECONDS = 60.0


class PodCredentials:
    """Credentials of the pod's service account. The token is read again every minute."""

    proxy: str | None = None
    server_name: str | None = None

    def __init__(self) -> None:
        """Read address, authority and token. Raises AccessError and OSError."""
        host, port = _variable("KUBERNETES_SERVICE_HOST"), _variable("KUBERNETES_SERVICE_PORT")
        self.url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._token_file = f"{DIRECTORY}/token"
        self._token, self._read_at = file_content(self._token_file), time.monotonic()
        self.ssl_context = tls_context(f"{DIRECTORY}/ca.crt")

    async def authorization(self) -> str:
        """Return the Authorization header. Raises OSError and AccessError for a token that cannot be read."""
        if time.monotonic() - self._read_at > _TOKEN_SECONDS:
            self._token, self._read_at = file_content(self._token_file), time.monotonic()
        return f"Bearer {self._token}"


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise AccessError(f"the variable {name} is not set; {OUTSIDE_OF_POD}")
    return value
