"""Helpers for tests that write bundles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodeguard.bundle.anonymise import Anonymiser
from nodeguard.bundle.manifest import Manifest
from nodeguard.bundle.recorded_tree import RecordedTree, TreeCache
from nodeguard.bundle.writer import BundleWriter
from nodeguard.model.failure import UnansweredError
from nodeguard.model.instant import Instant

MANIFEST = Manifest("gpu-17", "5c8f1d2e-0a1b-2c3d-4e5f-60718293a4b5", 1793534400.0, 864000.0, "dgx-h100")


def open_writer(directory: Path, anonymiser: Anonymiser | None = None) -> BundleWriter:
    machine = RecordedTree({}, {}, TreeCache())
    return BundleWriter(str(directory), MANIFEST, machine.link, anonymiser=anonymiser)


def later(seconds: float) -> Instant:
    return Instant(MANIFEST.recorded_at + seconds, MANIFEST.uptime_s + seconds, MANIFEST.boot_id)


def outcome(reading: Callable[[], Any]) -> Any:
    """Return the result of a reading, or its error in a form that can be compared."""
    try:
        return reading()
    except OSError as error:
        return error.errno
    except UnansweredError as error:
        return type(error)


def result_or_error(reading: Callable[[], Any]) -> Any:
    """Return the result of a reading or its error, as a recording machine passes it to the writer."""
    try:
        return reading()
    except (OSError, UnansweredError) as error:
        return error
