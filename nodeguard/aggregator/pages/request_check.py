"""The access check of the status page: read-only requests from this machine only."""

from __future__ import annotations

import socket

from aiohttp import web

from nodeguard.local.unix_socket import is_authorized_peer

# Names by which a browser on this machine reaches the page, also through `kubectl port-forward` and `ssh -L`.
# A web site that makes its own name resolve to 127.0.0.1 sends that name, and is refused.
HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def refusal_of(request: web.BaseRequest) -> tuple[int, str] | None:
    """Return the status and the reason with which a request is refused; None if it is not."""
    peer = request.transport.get_extra_info("socket") if request.transport is not None else None
    if peer is None:
        return 400, "the connection is closed"
    if peer.family == socket.AF_UNIX and not is_authorized_peer(peer):
        return 403, "only root, or the user that the aggregator runs as, may ask: ask as one of them"
    if request.method not in {"GET", "HEAD"}:
        return 405, "the page is read-only: use GET, and the nodeguard command to act"
    host = request.headers.get("Host", "")
    if _host_name(host) not in HOSTS:
        return 421, "open it as http://localhost:PORT: by any other name a web site could read the page"
    return None


def _host_name(host: str) -> str:
    """Return the name in a Host header, without the port: `::1` of `[::1]:9436`; empty for an invalid one."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name if rest == "" or rest.startswith(":") else ""
    return host.partition(":")[0].lower()
