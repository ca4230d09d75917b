"""Restriction of a verdict to some checks, or families of them, its data status, and its exit code. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodeguard.cli.usage import FATAL, OK, UNKNOWN, WARNING
from nodeguard.fleet_api.text.wording import count_noun
from nodeguard.model.check import Check, Compare, EventOccurred
from nodeguard.model.finding import DataStatus, Finding, Health, Verdict, worst
from nodeguard.model.observation import DERIVED
from nodeguard.model.target import NODE, NOUNS
from nodeguard.sources.nvml import NvmlSource
from nodeguard.sources.source import Source

# Sources of derived signals, by the first part of the signal's name and of the sources' signals. Other
# derived signals may follow from any source, as the platform's expectations do.
_SOURCE_PREFIXES = {"disk": "disk", "fs": "fs", "service": "service", "volume": "fs"}


def verdict_data_status(verdict: Verdict) -> DataStatus:
    """Return the data status of a verdict: unknown where no check could be evaluated."""
    return verdict.data_status if verdict.evaluated else DataStatus.UNKNOWN


def reported_health(verdict: Verdict) -> Health | DataStatus:
    """Return the health of a verdict: unknown where it could not be evaluated, unless a finding is fatal."""
    return verdict.health if verdict.evaluated or verdict.health == Health.FATAL else DataStatus.UNKNOWN


def exit_code(verdict: Verdict, *, strict: bool, fail_on: str = "warning") -> int:
    """Return the exit code of a verdict.

    strict: whether unreadable data counts, where nothing is fatal. fail_on: the lowest health that does not
    exit with OK, or `never`.
    """
    fails = fail_on != "never" and verdict.health.rank >= Health(fail_on).rank
    if verdict.health == Health.FATAL and fails:
        return FATAL
    if not verdict.evaluated or (strict and verdict.read_failures):
        return UNKNOWN
    return WARNING if verdict.health != Health.OK and fails else OK


def is_fresh(finding: Finding) -> bool:
    """Return whether a finding is on fresh data."""
    return finding.data_status == DataStatus.FRESH


def has_nvml_evidence(finding: Finding) -> bool:
    """Return whether a reading or an event of NVML supports a finding."""
    return any(evidence.source == NvmlSource.name for evidence in finding.evidence)


def shows_reading(finding: Finding) -> bool:
    """Return whether a finding of a GPU or its links is a result without a passed check.

    A warning only from the kernel log does not show that the GPU answers. A fatal finding needs no reading.
    """
    return is_fresh(finding) and (finding.health == Health.FATAL or has_nvml_evidence(finding))


def restrict_verdict(verdict: Verdict, checks: Iterable[Check], sources: Sequence[Source]) -> Verdict:
    """Return a verdict without unreadable sources that none of these checks uses."""
    required = required_sources(checks, {source.name: frozenset(source.signals) for source in sources})
    unread = tuple(
        item for item in verdict.read_failures if item.source in required or item.source == DERIVED
    )
    status = DataStatus.UNKNOWN if unread else DataStatus.FRESH
    status = worst(status, *(item.data_status for item in verdict.findings))
    return replace(verdict, read_failures=unread, data_status=status)


def required_sources(checks: Iterable[Check], sources: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the sources that some checks use. sources: the signals of each."""
    return frozenset(
        name for check in checks for signal in _signals(check) for name in _from(signal, sources)
    )


def unrecorded_nvml(checks: Iterable[Check], sources: Sequence[Source]) -> str:
    """Return which checks a recording without data of NVML cannot make; empty if none of them needs any."""
    signals = {source.name: frozenset(source.signals) for source in sources}
    missing = [check for check in checks if required_sources((check,), signals) == {NvmlSource.name}]
    if not missing:
        return ""
    families = ", ".join(sorted({check.family for check in missing}))
    return f"the recording has no nvml.json: {count_noun(len(missing), 'check')} not made, of {families}"


def _signals(check: Check) -> Iterator[str]:
    for leaf in (*check.leaves(), *((check.applies_when,) if check.applies_when else ())):
        yield leaf.event if isinstance(leaf, EventOccurred) else leaf.signal
        if isinstance(leaf, Compare) and leaf.than is not None:
            yield leaf.than.name


def _from(signal: str, sources: Mapping[str, frozenset[str]]) -> Iterable[str]:
    own = [name for name, signals in sources.items() if signal in signals]
    if own:
        return own
    prefix = _SOURCE_PREFIXES.get(signal.partition(".")[0])
    if prefix is not None:
        prefixes = {
            name: {signal_name.partition(".")[0] for signal_name in signals}
            for name, signals in sources.items()
        }
        return [name for name in sources if prefix in prefixes[name]]
    return sources


def reason_not_evaluated(selected: Iterable[str], checks: Sequence[Check]) -> str:
    """Return why checks of some names or families could not be evaluated, though all sources were read."""
    kinds = {kind for check in checks for kind in check.targets} - {NODE}
    names = [NOUNS[kind][1] for kind in sorted(kinds)]
    listed, several = ", ".join(sorted(selected)), len(set(selected)) > 1
    text = f"{listed} {'do' if several else 'does'} not apply"
    return f"{text}, this machine has no {' and no '.join(names)}" if names else text
