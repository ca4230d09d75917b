"""Credentials for one API server, as the kubelet mounts them or as a kubeconfig names them."""

from __future__ import annotations

import ssl
from typing import Protocol

from nodeguard.config.regular_file import read_regular_file
from nodeguard.local.client_tls import client_context

# Remedies where no kubeconfig, or neither kind of credentials, is usable.
NAME_KUBECONFIG = "name a kubeconfig with --kubeconfig or KUBECONFIG"
OUTSIDE_OF_POD = f"run inside a pod with a service account, or {NAME_KUBECONFIG}"

# Bytes of a token or of certificates: an API server and etcd have the same limit for a Secret.
_LIMIT = 1 << 20


class AccessError(Exception):
    """There are no usable credentials. The message names the reason and the remedy, and never a token."""


class Credentials(Protocol):
    """Address of an API server, and what a request to it needs."""

    @property
    def url(self) -> str:
        """Address of the server, without a trailing slash."""

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """Trusted authorities and the client's certificate; None for plain HTTP."""

    @property
    def proxy(self) -> str | None:
        """Address of the proxy."""

    @property
    def server_name(self) -> str | None:
        """Host name to verify in the server's certificate, where it differs from the address."""

    async def authorization(self) -> str:
        """Return the Authorization header, empty for none. Raises AccessError and OSError."""


def tls_context(authority_file: str | None) -> ssl.SSLContext:
    """Return a context that trusts the authorities of a file, or those of the system.

    Raises OSError and AccessError.
    """
    if authority_file is None:
        return client_context()
    # A context without authorities of its own would trust those of the system.
    file_content(authority_file)
    return client_context(authority_file)


def file_content(path: str) -> str:
    """Return the text of a file. Raises OSError, and AccessError for an empty one."""
    text = read_regular_file(path, _LIMIT).decode("ascii", "replace").strip()
    if not text:
        raise AccessError(f"{path} is empty")
    return text
