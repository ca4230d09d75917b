"""Source: the interface of the readers, each of one part of a machine, and the decorator that registers one.

A source is one module of this package, named as the source. `nodeguard.sources.registry` finds it there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Signal
from nodeguard.sources.machine import Machine


class Source(Protocol):
    """Reads one part of a machine, round after round; never evaluates.

    name: also the source's name in bundles, reports and on the command line. interval: seconds between two
    readings. deadline: seconds after which a reading counts as hung. paths: path prefixes that it reads.
    signals: every signal that its observations may carry.
    """

    name: str
    interval: float
    deadline: float
    paths: tuple[str, ...]
    signals: dict[str, Signal]

    def read(self, machine: Machine) -> Iterator[Observation]:
        """Read once; yield one observation at a time, so that a later hang does not lose earlier ones.

        A failed read becomes an observation (`absent`, `failed`) or an entry in `unread`. OSError and
        UnansweredError may pass to the caller: the reading then ends as `failed` or `hung`.
        """
        ...


SourceClass = TypeVar("SourceClass", bound="type[Source]")

registered: dict[str, type[Source]] = {}


def source(cls: SourceClass) -> SourceClass:
    """Register a source class under its `name`.

    The class takes no arguments. With `uses_log_patterns = True` it takes the catalogue's log patterns.
    """
    registered[cls.name] = cls
    return cls
