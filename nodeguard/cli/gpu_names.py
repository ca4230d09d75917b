"""Names of GPUs on command lines: the forms that nodeguard, lspci and nvidia-smi print."""

from __future__ import annotations

import re

from nodeguard.cli.usage import UsageError

_ADDRESS = re.compile(
    r"(?:gpu[/ ])?(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})(?:\.0)?",
    re.IGNORECASE,
)


def gpu_address(text: str) -> str:
    """Return the PCI address of a GPU as targets have it, `0000:3b:00`.

    text: `0000:3b:00`, `gpu/0000:3b:00`, `GPU 0000:3b:00`, `3b:00.0`, or `00000000:3B:00.0` of nvidia-smi.
    Raises UsageError for any other.
    """
    match = _ADDRESS.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"GPU '{text}' is not a PCI address: write it like 0000:3b:00; nvidia-smi -L and nvidia-smi "
            "--query-gpu=index,uuid,pci.bus_id --format=csv list them"
        )
    domain = (match["domain"] or "0").lower()
    return f"{int(domain, 16):04x}:{match['bus'].lower()}:{match['device'].lower()}"
