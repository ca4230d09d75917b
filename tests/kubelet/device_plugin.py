"""A device plugin of the GPUs of a node, for a real kubelet. It runs as a process of the node.

    python -m tests.kubelet.device_plugin FILE

FILE is a JSON object: the health of each GPU by its id, `Healthy` or `Unhealthy`. It may be replaced at any time. As
NVIDIA's plugin does, the process registers again with each kubelet that starts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from tests.controlplane.objects import GPU

_DIRECTORY = Path("/var/lib/kubelet/device-plugins")
_KUBELET = _DIRECTORY / "kubelet.sock"
_OWN = _DIRECTORY / "gpus.sock"

# Seconds between two looks at files.
_PAUSE = 0.1


def encode(*fields: tuple[int, bytes]) -> bytes:
    """Return a message of Protocol Buffers. fields: strings or messages below 128 bytes, each with its number."""
    assert all(number < 16 and len(value) < 128 for number, value in fields)
    return b"".join(bytes([number << 3 | 2, len(value)]) + value for number, value in fields)


# The kubelet asks for one container at a time. Its response is empty: there is nothing to mount.
_ALLOCATED = encode((1, b""))


def devices(file: Path, context: Any) -> Iterator[bytes]:
    """Yield the list of devices while a kubelet listens, and again when it changes."""
    sent = None
    while context.is_active():
        health = json.loads(file.read_text())
        if health != sent:
            sent = health
            yield encode(*((1, encode((1, gpu.encode()), (2, health[gpu].encode()))) for gpu in health))
        time.sleep(_PAUSE)


def service(file: Path) -> Any:
    """Return the service of a device plugin without options."""
    return grpc.method_handlers_generic_handler(
        "v1beta1.DevicePlugin",
        {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda _request, _context: b""),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                lambda _request, context: devices(file, context)
            ),
            "Allocate": grpc.unary_unary_rpc_method_handler(lambda _request, _context: _ALLOCATED),
        },
    )


def register() -> None:
    """Register the plugin with the kubelet. Raises grpc.RpcError."""
    request = encode((1, b"v1beta1"), (2, _OWN.name.encode()), (3, GPU.encode()))
    with grpc.insecure_channel(f"unix:{_KUBELET}") as channel:
        channel.unary_unary("/v1beta1.Registration/Register")(request, timeout=10)


def serve(file: Path) -> None:
    """Serve one kubelet until another one starts: it removes all sockets, and creates its own."""
    server = grpc.server(ThreadPoolExecutor(4), handlers=[service(file)])
    server.add_insecure_port(f"unix:{_OWN}")
    server.start()
    try:
        register()
        while _OWN.exists():
            time.sleep(_PAUSE)
    finally:
        server.stop(None)


def main(file: Path) -> None:
    while True:
        if _KUBELET.exists():
            try:
                serve(file)
            except grpc.RpcError as error:  # the kubelet is starting
                print(error, file=sys.stderr, flush=True)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
