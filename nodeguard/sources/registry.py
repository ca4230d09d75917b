"""Registry of sources: imports every module of this package and collects the classes marked `@source`."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from nodeguard import sources
from nodeguard.model.catalogue import LogPattern
from nodeguard.sources.source import Source, registered


def _discover() -> tuple[type[Any], ...]:
    """Return all source classes of this package, by name; subpackages hold no sources."""
    # Not pkgutil: it imports inspect, which takes longer than the whole package.
    for file in sorted(os.listdir(sources.__path__[0])):
        module, extension = os.path.splitext(file)
        if extension == ".py" and module != "__init__":
            import_module(f"{sources.__name__}.{module}")
    classes = (registered[name] for name in sorted(registered))
    return tuple(cls for cls in classes if cls.__module__.startswith(f"{sources.__name__}."))


def _uses_log_patterns(cls: type[Any]) -> bool:
    return getattr(cls, "uses_log_patterns", False)


_CLASSES = _discover()

# The sources that read without log patterns: their signals are known before any catalogue is loaded.
SOURCES: tuple[type[Source], ...] = tuple(cls for cls in _CLASSES if not _uses_log_patterns(cls))


def all_sources(patterns: Iterable[LogPattern]) -> tuple[Source, ...]:
    """Return a new instance of every source, by name; those that use log patterns come last.

    patterns: the log patterns of the catalogue.
    """
    table = tuple(patterns)
    return (*(cls() for cls in SOURCES), *(cls(table) for cls in _CLASSES if _uses_log_patterns(cls)))
