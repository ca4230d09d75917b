"""A disk in memory: thousands of files of images are written and removed at once, and overlays work on it."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def ram_disk() -> Iterator[Path]:
    """Yield the directory of an empty file system. It ends with the block, or with the mounts of this process."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(["mount", "-t", "tmpfs", "nodeguard-tests", directory], check=True)
        try:
            yield Path(directory)
        finally:
            subprocess.run(["umount", "--lazy", directory], check=True)
