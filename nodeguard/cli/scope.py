"""What `--only` leaves of a verdict, and how well a verdict is known. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodeguard.model.check import Check, Compare, EventOccurred
from nodeguard.model.finding import DataStatus, Verdict, worst
from nodeguard.model.observation import DERIVED
from nodeguard.model.target import NODE
from nodeguard.sources.source import Source

# Derived signals that begin with these words follow from what sources read under another word, or the same.
# What others follow from is not said anywhere and may be anything, as what the platform expects may be.
_SOURCE_WORDS = {"fs": "fs", "service": "service", "volume": "fs"}

NOUNS = {
    "gpu": ("GPU", "GPUs"),
    "nvlink": ("NVLink", "NVLinks"),
    "nvswitch": ("NVSwitch", "NVSwitches"),
    "port": ("port", "ports"),
    "pci": ("PCI function", "PCI functions"),
    "fs": ("file system", "file systems"),
    "disk": ("disk", "disks"),
    "dimm": ("DIMM", "DIMMs"),
    "service": ("service", "services"),
    "probe": ("probe", "probes"),
    NODE: ("", ""),
}


def verdict_data_status(verdict: Verdict) -> DataStatus:
    """How well a verdict is known: not at all where nothing could be judged."""
    return verdict.data_status if verdict.evaluated else DataStatus.UNKNOWN


def restrict_verdict(verdict: Verdict, checks: Iterable[Check], sources: Sequence[Source]) -> Verdict:
    """A verdict without what was not read and none of these checks looks at."""
    wanted = required_sources(checks, {source.name: frozenset(source.signals) for source in sources})
    unread = tuple(one for one in verdict.read_failures if one.source in wanted or one.source == DERIVED)
    known = DataStatus.UNKNOWN if unread else DataStatus.FRESH
    known = worst(known, *(one.data_status for one in verdict.findings))
    return replace(verdict, unread=unread, knowledge=known)


def required_sources(checks: Iterable[Check], sources: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The sources that some checks look at. sources: the signals of each."""
    return frozenset(
        name for check in checks for signal in _signals(check) for name in _from(signal, sources)
    )


def _signals(check: Check) -> Iterator[str]:
    for leaf in (*check.leaves(), *((check.applies_when,) if check.applies_when else ())):
        yield leaf.event if isinstance(leaf, EventOccurred) else leaf.signal
        if isinstance(leaf, Compare) and leaf.than is not None:
            yield leaf.than.name


def _from(signal: str, sources: Mapping[str, frozenset[str]]) -> Iterable[str]:
    own = [name for name, signals in sources.items() if signal in signals]
    if own:
        return own
    word = _SOURCE_WORDS.get(signal.partition(".")[0])
    if word is not None:
        words = {name: {one.partition(".")[0] for one in signals} for name, signals in sources.items()}
        return [name for name in sources if word in words[name]]
    return sources


def reason_not_evaluated(families: Iterable[str], checks: Sequence[Check]) -> str:
    """Why checks of some families, all of which were wanted, came to no answer though all was read."""
    kinds = {kind for check in checks for kind in check.targets} - {NODE}
    names = [NOUNS[kind][1] for kind in sorted(kinds)]
    named, many = ", ".join(sorted(families)), len(set(families)) > 1
    said = f"{named} {'do' if many else 'does'} not apply"
    return f"{said}, as this machine has no {' and no '.join(names)} to judge" if names else said
