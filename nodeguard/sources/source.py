"""What a source is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from nodeguard.model.observation import Observation
from nodeguard.model.signal import Signal
from nodeguard.sources.machine import Machine


class Source(Protocol):
    """Reads one part of a machine, again and again; never judges.

    name: also the source's name in bundles, reports and on the command line. interval: seconds between two
    readings. deadline: seconds after which a reading counts as hung. paths: where on the machine it reads, as
    prefixes. signals: all that its observations may carry.
    """

    name: str
    interval: float
    deadline: float
    paths: tuple[str, ...]
    signals: dict[str, Signal]

    def read(self, machine: Machine) -> Iterator[Observation]:
        """One round, an observation at a time, so that what was read before a hang stays.

        What cannot be read becomes an observation (`absent`, `failed`) or an entry in `unread`. OSError and
        UnansweredError may pass: the round then ends as `failed` or `hung`.
        """
        ...
