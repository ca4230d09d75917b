"""Every source there is, in the order in which they are read and shown."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.model.catalogue import LogPattern
from nodeguard.sources.clock import Clock
from nodeguard.sources.filesystem import Filesystem
from nodeguard.sources.host import Host
from nodeguard.sources.infiniband import Infiniband
from nodeguard.sources.kmsg import Kmsg
from nodeguard.sources.maintenance import Maintenance
from nodeguard.sources.memory import Memory
from nodeguard.sources.nvml import Nvml
from nodeguard.sources.observations import Observations
from nodeguard.sources.pci import Pci
from nodeguard.sources.processes import Processes
from nodeguard.sources.services import Services
from nodeguard.sources.source import Source

# The sources that need no table to read by.
SOURCES: tuple[type[Source], ...] = (
    Nvml,
    Pci,
    Infiniband,
    Host,
    Memory,
    Filesystem,
    Clock,
    Services,
    Processes,
    Maintenance,
    Observations,
)


def every_source(patterns: Iterable[LogPattern]) -> tuple[Source, ...]:
    """A new instance of every source. patterns: what the kernel log is read by."""
    return (*(make() for make in SOURCES), Kmsg(patterns))
