"""A name server for pods: the A records of headless Services, from their EndpointSlices. It runs as a process.

    python -m tests.kubelet.dns KUBECONFIG ADDRESS

Names are NAME.NAMESPACE.svc.cluster.local, as CoreDNS has them. Other names do not exist.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.controlplane.api import Api, ApiError
from tests.controlplane.commands import SERVICE_PORT

DOMAIN = "cluster.local"

_A, _IN = 1, 1
_NO_ERROR, _NO_SUCH_NAME = 0, 3
_TTL = 1


def question(query: bytes) -> tuple[str, int, bytes]:
    """Return the name, the type and the bytes of the first question of a query (RFC 1035, 4.1.2)."""
    labels, position = [], 12
    while length := query[position]:
        labels.append(query[position + 1 : position + 1 + length].decode())
        position += 1 + length
    (kind,) = struct.unpack_from("!H", query, position + 1)
    return ".".join(labels), kind, query[12 : position + 5]


def response(query: bytes, addresses: list[str] | None) -> bytes:
    """Return the answer to a query. addresses: None if the name does not exist."""
    _, kind, asked = question(query)
    found = addresses if addresses and kind == _A else []
    code = _NO_SUCH_NAME if addresses is None else _NO_ERROR
    header = query[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, len(found), 0, 0)
    # Each record names the question at offset 12.
    records = (
        struct.pack("!HHHIH", 0xC00C, _A, _IN, _TTL, 4) + socket.inet_aton(address) for address in found
    )
    return header + asked + b"".join(records)


def endpoints(api: Api, name: str) -> list[str] | None:
    """Return the addresses of a Service by its name in the DNS; None if there is none."""
    match name.lower().split("."):
        case [service, namespace, "svc", "cluster", "local"]:
            pass
        case _:
            return None
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    try:
        slices = api.get(f"{path}?labelSelector=kubernetes.io/service-name={service}")["items"]
    except (ApiError, OSError):
        return []
    return sorted(_ready(slices)) if slices else None


def _ready(slices: list[dict[str, object]]) -> Iterator[str]:
    for item in slices:
        listed = item.get("endpoints") or []
        assert isinstance(listed, list)
        for endpoint in listed:
            if endpoint["conditions"].get("ready"):
                yield from endpoint["addresses"]


def main(kubeconfig: Path, address: str) -> None:
    document = json.loads(kubeconfig.read_text())
    ca = Path(document["clusters"][0]["cluster"]["certificate-authority"])
    api = Api(SERVICE_PORT, ca, document["users"][0]["user"]["token"])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, 53))
        while True:
            query, client = server.recvfrom(512)
            server.sendto(response(query, endpoints(api, question(query)[0])), client)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
