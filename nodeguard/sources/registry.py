"""Every source there is, in the order in which they are read and shown."""

from __future__ import annotations

from collections.abc import Iterable

from nodeguard.model.catalogue import LogPattern
from nodeguard.sources.clock import ClockSource
from nodeguard.sources.filesystem import FilesystemSource
from nodeguard.sources.host import HostSource
from nodeguard.sources.infiniband import InfinibandSource
from nodeguard.sources.kmsg import KmsgSource
from nodeguard.sources.maintenance import MaintenanceSource
from nodeguard.sources.memory import MemorySource
from nodeguard.sources.nvml import NvmlSource
from nodeguard.sources.observations import ObservationsSource
from nodeguard.sources.pci import PciSource
from nodeguard.sources.processes import ProcessesSource
from nodeguard.sources.services import ServicesSource
from nodeguard.sources.source import Source

# The sources that need no table to read by.
SOURCES: tuple[type[Source], ...] = (
    NvmlSource,
    PciSource,
    InfinibandSource,
    HostSource,
    MemorySource,
    FilesystemSource,
    ClockSource,
    ServicesSource,
    ProcessesSource,
    MaintenanceSource,
    ObservationsSource,
)


def all_sources(patterns: Iterable[LogPattern]) -> tuple[Source, ...]:
    """A new instance of every source. patterns: what the kernel log is read by."""
    return (*(make() for make in SOURCES), KmsgSource(patterns))
