"""The directory that a recording is written to."""

from __future__ import annotations

import os
from collections.abc import Mapping

from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.layer import FRAMES, MOST_FILES, Link

BUNDLE_LIMIT = 256 << 20
# Half of what a reader takes, because it counts directories too.
_MOST_WRITTEN = MOST_FILES // 2


class Store:
    """Writes layers below a directory, which must be empty or not there.

    Raises BundleError where it is not, and where the bundle would grow too large; nothing of that layer is
    written then. Raises OSError where the disk refuses.
    """

    def __init__(self, directory: str) -> None:
        if os.path.lexists(directory) and not os.path.isdir(directory):
            raise BundleError(directory, "", "is no directory", "name one that is empty, or not there yet")
        # For its owner alone: a recording tells much of a machine.
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if os.listdir(directory):
            raise BundleError(directory, "", "is not empty", "name one that is empty, or not there yet")
        self._directory = directory
        self._size = 0
        self._count = 0

    def put(self, seconds: int, layer: Mapping[str, str | Link | None]) -> None:
        """Write the base (0 seconds) or a frame: texts, links, and directories (None) by path."""
        texts = {
            path: entry.encode(errors="replace") for path, entry in layer.items() if isinstance(entry, str)
        }
        self._size += sum(map(len, texts.values()))
        self._count += len(layer)
        if self._size > BUNDLE_LIMIT or self._count > _MOST_WRITTEN:
            problem = f"stops before second {seconds}: over {BUNDLE_LIMIT >> 20} MiB or {_MOST_WRITTEN} files"
            raise BundleError(self._directory, "", problem, "record for a shorter time, or fewer sources")
        frame = (FRAMES, f"{seconds:06}") if seconds else ()
        for path, entry in layer.items():
            host = os.path.join(self._directory, *frame, path)
            os.makedirs(host if entry is None else os.path.dirname(host), exist_ok=True)
            if isinstance(entry, Link):
                os.symlink(entry.text, host)
            elif entry is not None:
                with open(host, "xb") as file:
                    file.write(texts[path])
