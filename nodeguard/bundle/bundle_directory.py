"""BundleDirectory: writes the layers of a recording to a directory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from nodeguard.bundle.defect import BundleError
from nodeguard.bundle.layer import FRAMES, MOST_FILES, Link

BUNDLE_LIMIT = 256 << 20
MANIFESTS = frozenset(("bundle.yaml", "frame.yaml"))
# Half of a reader's limit, because a reader counts directories too.
_MOST_WRITTEN = MOST_FILES // 2


class BundleDirectory:
    """Writes layers below a directory, which must be empty or not exist.

    Raises BundleError if it is not empty, or if the bundle would be too large, and OSError of the disk;
    nothing of the failed layer stays then.
    """

    def __init__(self, directory: str) -> None:
        if os.path.lexists(directory) and not os.path.isdir(directory):
            raise BundleError(directory, "", "is not a directory", "name an empty or a new directory")
        # Only for its owner: a recording has many details of a machine.
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if os.listdir(directory):
            raise BundleError(directory, "", "is not empty", "name an empty or a new directory")
        self._directory = directory
        self._size = 0
        self._count = 0

    def write_layer(self, seconds: int, layer: Mapping[str, str | Link | None]) -> None:
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
        try:
            self._write(frame, layer, texts)
        except OSError:
            self._remove(frame)
            raise

    def _write(
        self, frame: tuple[str, ...], layer: Mapping[str, str | Link | None], texts: Mapping[str, bytes]
    ) -> None:
        # The manifest comes last: without it a reader rejects an incomplete layer.
        for path in sorted(layer, key=lambda path: path in MANIFESTS):
            entry = layer[path]
            host = os.path.join(self._directory, *frame, path)
            os.makedirs(host if entry is None else os.path.dirname(host), exist_ok=True)
            if isinstance(entry, Link):
                os.symlink(entry.text, host)
            elif entry is not None:
                with open(host, "xb") as file:
                    file.write(texts[path])

    def _remove(self, frame: tuple[str, ...]) -> None:
        """Remove an incomplete layer. The directory was empty, so everything in it is of this bundle."""
        if frame:
            shutil.rmtree(os.path.join(self._directory, *frame), ignore_errors=True)
            return
        for name in os.listdir(self._directory):
            path = os.path.join(self._directory, name)
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                os.unlink(path)
