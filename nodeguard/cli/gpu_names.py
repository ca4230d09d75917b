"""Names of GPUs on command lines: the forms that nodeguard, lspci and nvidia-smi print."""

from __future__ import annotations

import re

from nodeguard.cli.usage import UsageError

_ADDRESS = re.compile(
    r"(?:gpu[/ ])?(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})(?:\.0)?",
    re.IGNORECASE,
)
_INDEX = re.compile(r"(?:gpu )?(?P<index>[0-9]{1,3})", re.IGNORECASE)
_UUID = re.compile(r"GPU-(?P<id>[0-9a-f-]{8,40})", re.IGNORECASE)


def gpu_name(text: str) -> str:
    """Return a GPU as the agent knows it: its PCI address `0000:3b:00`, its index `3` or its UUID.

    text: `0000:3b:00`, `gpu/0000:3b:00`, `GPU 0000:3b:00`, `3b:00.0`, or `00000000:3B:00.0`, `3`, `GPU 3` and
    `GPU-5c8f0005-...` of nvidia-smi. Raises UsageError for any other.
    """
    name = text.strip()
    if (match := _ADDRESS.fullmatch(name)) is not None:
        domain = (match["domain"] or "0").lower()
        return f"{int(domain, 16):04x}:{match['bus'].lower()}:{match['device'].lower()}"
    if (match := _INDEX.fullmatch(name)) is not None:
        return str(int(match["index"]))
    if (match := _UUID.fullmatch(name)) is not None:
        return f"GPU-{match['id'].lower()}"
    raise UsageError(
        f"GPU '{text}' is not an index, UUID or PCI address: write it like 3, GPU-5c8f0005-... or "
        "0000:3b:00; nvidia-smi --query-gpu=index,uuid,pci.bus_id --format=csv lists them"
    )
