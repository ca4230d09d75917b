"""Bundles for tests, written file by file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from nodeguard.bundle.layer import Link

MANIFEST = """\
format: 1
hostname: gpu-17
boot_id: 5c8f1d2e-0a1b-2c3d-4e5f-60718293a4b5
recorded_at: 2026-11-01T12:00:00Z
uptime_s: 864000
"""
NOON = 1793534400.0


def lay(directory: Path, files: dict[str, Any]) -> str:
    """Write files below a directory: text, bytes, a Link, None for an empty directory, else JSON."""
    for path, content in files.items():
        at = directory / path
        (at if content is None else at.parent).mkdir(parents=True, exist_ok=True)
        if isinstance(content, Link):
            os.symlink(content.text, at)
        elif isinstance(content, bytes):
            at.write_bytes(content)
        elif content is not None:
            at.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(directory)


def bundle(directory: Path, files: dict[str, Any]) -> str:
    """A bundle with these files besides a manifest; a frame gets an empty frame.yaml where it has none."""
    whole = {"bundle.yaml": MANIFEST}
    for path in files:
        if path.startswith("frames/"):
            whole["/".join([*path.split("/")[:2], "frame.yaml"])] = "{}\n"
    return lay(directory, {**whole, **files})
